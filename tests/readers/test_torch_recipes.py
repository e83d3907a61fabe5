"""A tiny model of each recipe's class trains on the rows that the recipe gives."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import bertprep
from bertprep.recipes import RECIPES
from tests.instances.small_tokenizers import TEXT, write_tokenizer

pytestmark = pytest.mark.torch
SEQ, STEPS = 32, 5
SIZES: dict[str, Any] = {
    "num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": SEQ + 8,
}  # fmt: skip
MODERNBERT = dict.fromkeys(
    ("modernbert", "bioclinical-modernbert", "chinese-modernbert", "llm-jp-modernbert", "ettin", "mmbert"), "ModernBert"
)
MODELS = {
    **MODERNBERT, "bert": "Bert", "mlperf": "Bert", "spanbert": "Bert", "mosaicbert": "Bert", "roberta": "Roberta",
    "xlm-r": "XLMRoberta", "albert": "Albert", "electra": "Electra", "deberta-v3": "DebertaV2", "nomic-bert": "NomicBert",
    "eurobert": "EuroBert", "clm-then-mlm": "EuroBert", "esm2": "Esm",
}  # fmt: skip
OTHERS = {"gte-en", "mgte", "neobert", "mdlm", "llada"}
"""Transformers has no class of their models; a BERT stands in, which takes the same columns."""


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipes")
    words = " ".join(TEXT).split()
    texts = [" ".join(words[start : start + 20]) for start in range(60)]
    pa.parquet.write_table(pa.table({"text": texts}), folder / "text.parquet")
    bertprep.tokenize(
        inputs=[folder / "text.parquet"], tokenizer=write_tokenizer(folder, "byte_bpe"), output=folder / "tokens", workers=1
    )
    return folder / "tokens"


def test_every_recipe_has_a_model() -> None:
    assert {*MODELS, *OTHERS} == {*RECIPES}


@pytest.mark.parametrize(
    "phase", [name if len(RECIPES[name].phases) == 1 else f"{name}:{len(RECIPES[name].phases)}" for name in RECIPES]
)
def test_a_tiny_model_trains_on_the_rows_of_the_last_phase(tokens: Path, phase: str) -> None:
    import torch
    import transformers

    torch.manual_seed(1)
    name = phase.partition(":")[0]
    dataset = bertprep.TokenDataset(tokens, **bertprep.recipe(phase).dataset(seq=SEQ))
    tokenizer = dataset.documents.tokenizer
    kind = MODELS.get(name, "Bert")
    sizes = {**SIZES, "vocab_size": tokenizer.width, "pad_token_id": tokenizer.pad}
    if kind == "Esm":
        sizes["mask_token_id"] = tokenizer.mask
    model = getattr(transformers, f"{kind}ForMaskedLM")(getattr(transformers, f"{kind}Config")(**sizes))
    collate = dataset.collate_for(model) if dataset.packed else dataset.collate
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    losses = []
    positions = iter(dataset.sampler())
    for _ in range(STEPS):
        batch = collate(dataset.__getitems__(list(islice(positions, 4))))
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_a_causal_phase_trains_a_causal_model(tokens: Path) -> None:
    import torch
    import transformers

    torch.manual_seed(1)
    dataset = bertprep.TokenDataset(tokens, **bertprep.recipe("clm-then-mlm:1").dataset(seq=SEQ))
    tokenizer = dataset.documents.tokenizer
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**{**SIZES, "vocab_size": tokenizer.width, "pad_token_id": tokenizer.pad})
    )
    collate = dataset.collate_for(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    losses = []
    for step in range(STEPS):
        loss = model(**collate([dataset[row] for row in range(step * 4, step * 4 + 4)])).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
