"""PyTorch's loaders take our data sets, and transformers' models take what they give."""

from __future__ import annotations

import numpy as np
import pytest

from bertprep import RecordDataset
from tests.readers.reader_checks import Created

TINY = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.mark.torch
@pytest.mark.parametrize("workers", [0, 2])
def test_records_of_a_data_loader_are_what_bert_for_pretraining_takes(created: Created, workers: int) -> None:
    import torch
    from torch.utils.data import DataLoader
    from transformers import BertConfig, BertForPreTraining

    records = RecordDataset(created.tfrecord)
    batches = list(DataLoader(records, batch_size=16, num_workers=workers, collate_fn=RecordDataset.collate))
    for name, column in records[:].items():
        np.testing.assert_array_equal(torch.cat([batch[name] for batch in batches]).numpy(), column)
    model = BertForPreTraining(BertConfig(**TINY))
    assert model(**batches[0]).loss.isfinite()
