"""PyTorch and transformers on a `TokenDataset`: packed rows have the logits of their sequences, and any state resumes.

What goes wrong in silence without the masks is tested too, since that is why they exist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from copy import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import bertprep
from bertprep import TokenDataset
from bertprep.errors import UsageError
from tests.instances.small_tokenizers import TEXT, write_tokenizer

pytestmark = pytest.mark.torch
SEQ, BATCH = 64, 4
ENCODERS = Path(__file__).parents[2] / "docs" / "encoders.md"
FIRST_POSITION = {"modernbert": 0, "bert": 0, "roberta": 2, "llama": 0}
TINY = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    """Threads cost such small models more than they give."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of 1 to 30 words."""
    folder = tmp_path_factory.mktemp("encoders")
    words = " ".join(TEXT).split()
    texts = [" ".join(words[start : start + 1 + start * 7 % 30]) for start in range(len(words))]
    pa.parquet.write_table(pa.table({"text": texts}), folder / "text.parquet")
    bertprep.tokenize(
        inputs=[folder / "text.parquet"], tokenizer=write_tokenizer(folder, "byte_bpe"), output=folder / "tokens", workers=1
    )
    return folder / "tokens"


def open_rows(tokens: Path, model: str, **settings: Any) -> TokenDataset:
    return TokenDataset(tokens, seq=SEQ, first_position=FIRST_POSITION[model], **settings)


def make_model(name: str, dataset: TokenDataset, attention: str = "sdpa") -> Any:
    import torch
    import transformers

    torch.manual_seed(1)
    info = dataset.documents.tokenizer
    sizes: dict[str, Any] = {**TINY, "vocab_size": info.width, "pad_token_id": info.pad, "attn_implementation": attention}
    positions = {"max_position_embeddings": SEQ + 2}
    if name == "modernbert":
        config = transformers.ModernBertConfig(**sizes, **positions, local_attention=16, global_attn_every_n_layers=2)
        return transformers.ModernBertForMaskedLM(config).eval()
    if name == "roberta":
        return transformers.RobertaForMaskedLM(transformers.RobertaConfig(**{**sizes, **positions, "pad_token_id": 1})).eval()
    if name == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).eval()
    return transformers.BertForMaskedLM(transformers.BertConfig(**sizes, **positions)).eval()


def logits_alone(batch: dict[str, Any], model: Any, first_position: int) -> Any:
    """The logits of each sequence of a batch in a row of its own, at its place in the batch."""
    import torch

    alone = torch.zeros((*batch["input_ids"].shape, model.config.vocab_size))
    for row in range(len(alone)):
        for sequence in batch["sequence_ids"][row].unique():
            is_own = batch["sequence_ids"][row] == sequence
            positions = torch.arange(int(is_own.sum())) + first_position
            alone[row, is_own] = model(input_ids=batch["input_ids"][row, is_own][None], position_ids=positions[None]).logits[0]
    return alone


def attend_by_boundaries(
    _: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **given: Any
) -> tuple[Any, None]:
    """What FlashAttention computes from the arguments that it gets, as far as this is about boundaries and windows."""
    import torch

    assert attention_mask is None
    heads, _, size = query.shape[1:]
    query, key, value = (each.transpose(1, 2).reshape(-1, heads, size) for each in (query, key, value))
    context, boundaries = torch.empty_like(query), given["cu_seq_lens_q"].tolist()
    window = given.get("sliding_window")
    for begin, end in pairwise(boundaries):
        scores = torch.einsum("qhd,khd->hqk", query[begin:end], key[begin:end]) * (scaling or size**-0.5)
        if window is not None:
            positions = torch.arange(end - begin)
            scores = scores.masked_fill((positions[:, None] - positions).abs() > window - 1, float("-inf"))
        context[begin:end] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value[begin:end])
    return context.reshape(-1, SEQ, heads, size), None


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", FIRST_POSITION)
def test_packed_logits_are_those_of_each_sequence_alone(name: str, attention: str, tokens: Path) -> None:
    import torch

    dataset = open_rows(tokens, name, objective="clm" if name == "llama" else "mlm")
    model = make_model(name, dataset, attention)
    rows = dataset.__getitems__(range(BATCH))
    batch, right = dataset.collate(rows), dataset.collate_for(model.config)(rows)
    assert batch["sequence_ids"].max() > 1
    with torch.no_grad():
        expected = logits_alone(batch, model, dataset.first_position)

        def error(**inputs: Any) -> float:
            return float((model(**{**right, **inputs}).logits - expected).abs().max())

        assert error() < 1e-5
        # Wrong in silence: masks of ones, the wrong positions, and a mask without ModernBERT's window. Without a mask only
        # causal models look for sequences.
        assert error(attention_mask=torch.ones_like(batch["input_ids"])) > 1e-4
        if name in ("bert", "roberta"):
            assert error(position_ids=None) > 1e-4
        if name == "roberta":
            assert error(position_ids=batch["position_ids"] - 2) > 1e-4
        if name == "modernbert":
            full = right["attention_mask"]["full_attention"]
            assert error(attention_mask={"full_attention": full, "sliding_attention": full}) > 1e-4
        if name != "llama":
            assert error(attention_mask=None) > 1e-4


@pytest.mark.parametrize("name", ["modernbert", "bert", "roberta"])
def test_boundaries_reach_the_attention(name: str, tokens: Path) -> None:
    """All four arguments of FlashAttention, which is not installed here."""
    import torch
    from transformers import AttentionInterface

    AttentionInterface.register("by_boundaries", attend_by_boundaries)
    dataset = open_rows(tokens, name)
    with_masks, by_boundaries = (make_model(name, dataset, attention) for attention in ("sdpa", "by_boundaries"))
    rows = dataset.__getitems__(range(BATCH))
    config = copy(with_masks.config)
    config._attn_implementation = "flash_attention_2"
    inputs = dataset.collate_for(config)(rows)
    assert inputs["max_length_q"] <= SEQ
    with torch.no_grad():
        expected = with_masks(**dataset.collate_for(with_masks.config)(rows)).logits
        torch.testing.assert_close(by_boundaries(**inputs).logits, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["modernbert", "roberta"])
def test_the_trainer_of_transformers_trains_on_packed_rows(name: str, tokens: Path, tmp_path: Path) -> None:
    """And resumes: it reads the rows before again, by its own order of the data set's positions."""
    from transformers import Trainer, TrainingArguments

    dataset = open_rows(tokens, name)

    def train(out: Path, steps: int, resume: Path | None = None) -> dict[int, float]:
        model = make_model(name, dataset)
        arguments = TrainingArguments(
            str(out), max_steps=steps, per_device_train_batch_size=BATCH, learning_rate=1e-2, lr_scheduler_type="constant",
            logging_steps=1, save_steps=3, report_to="none", disable_tqdm=True, use_cpu=True,
        )  # fmt: skip
        trainer = Trainer(model, arguments, train_dataset=dataset, data_collator=dataset.collate_for(model.config))
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
        return {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}

    losses = train(tmp_path / "once", 6)
    assert losses[6] < losses[1]
    assert train(tmp_path / "again", 6, tmp_path / "once" / "checkpoint-3") == pytest.approx(losses, abs=1e-4)


def test_the_lines_of_the_docs_train_a_modernbert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small tokenizer and model."""
    [lines, *_] = re.findall(r"^```python\n(.*?)^```$", ENCODERS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    small = {
        '"answerdotai/ModernBERT-base"': repr(str(write_tokenizer(tmp_path, "byte_bpe"))),
        "(ModernBertConfig(": f"(ModernBertConfig(**{TINY}, ", "max_steps=1000": "max_steps=2", "batch_size=8": "batch_size=2",
    }  # fmt: skip
    for of_docs, of_test in small.items():
        assert of_docs in lines
        lines = lines.replace(of_docs, of_test)
    monkeypatch.chdir(tmp_path)
    pa.parquet.write_table(pa.table({"text": TEXT}), "text.parquet")
    exec(lines, {})
    assert Path("model/checkpoint-2").is_dir()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_data_loader_resumes_at_any_batch(workers: int, tokens: Path) -> None:
    """In another loader, from a state that went through JSON, over the end of an epoch."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    stop = len(open_rows(tokens, "modernbert")) // BATCH + 3
    expected = [batch["input_ids"].tolist() for batch in open_rows(tokens, "modernbert").batches(BATCH, stop=stop)]

    def make_loader() -> Any:
        return StatefulDataLoader(open_rows(tokens, "modernbert").stream(BATCH), batch_size=None, num_workers=workers)

    def read(loader: Iterable[Any], count: int) -> list[Any]:
        return [batch["input_ids"].tolist() for _, batch in zip(range(count), loader, strict=False)]

    for stopped in (1, 2, 5, stop - 1):
        loader = make_loader()
        assert read(loader, stopped) == expected[:stopped]
        state = json.loads(json.dumps(loader.state_dict()))
        resumed = make_loader()
        resumed.load_state_dict(state)
        assert read(resumed, stop - stopped) == expected[stopped:]


@pytest.mark.parametrize("state", [{}, {"step": 5}, {"batch": -5}, {"batch": "5"}])
def test_a_state_without_a_batch_is_refused(state: dict[str, Any], tokens: Path) -> None:
    with pytest.raises(UsageError, match="expected how many batches of all ranks were taken"):
        open_rows(tokens, "modernbert").stream(BATCH).load_state_dict(state)


@pytest.mark.parametrize(("world", "workers"), [(1, 4), (2, 0), (4, 1)])
def test_ranks_and_workers_together_read_what_one_reads(world: int, workers: int, tokens: Path) -> None:
    from torch.utils.data import DataLoader

    expected = [batch["input_ids"].tolist() for batch in open_rows(tokens, "modernbert").batches(8, stop=6)]
    found: list[list[Any]] = [[] for _ in range(6)]
    for rank in range(world):
        stream = open_rows(tokens, "modernbert").stream(8 // world, rank=rank, world=world)
        for index, batch in zip(range(6), DataLoader(stream, batch_size=None, num_workers=workers), strict=False):
            found[index] += batch["input_ids"].tolist()
    assert found == expected
