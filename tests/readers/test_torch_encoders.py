"""PyTorch and transformers on a `TokenDataset`: packed rows have the logits of their sequences, and any state resumes.

What goes wrong in silence without the masks is tested too, since that is why they exist.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import bertprep
from bertprep import TokenDataset, replace_tokens
from bertprep.errors import UsageError
from bertprep.tokens.packed_models import CAUSAL_MODELS, ENCODERS
from bertprep.tokens.packing import Windows
from tests.instances.small_tokenizers import TEXT, write_tokenizer, write_tokens

pytestmark = pytest.mark.torch
SEQ, BATCH = 64, 4
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "encoders.md"
FIRST_POSITION = {"modernbert": 0, "bert": 0, "roberta": 2, "llama": 0}
TINY = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokens(tmp_path_factory.mktemp("encoders"))


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


def logits_alone(batch: dict[str, Any], model: Any, first_position: int | None) -> Any:
    """The logits of each sequence of a batch in a row of its own, at its position in the batch; None is as the model counts."""
    import torch

    alone = torch.zeros((*batch["input_ids"].shape, model.config.vocab_size))
    for row in range(len(alone)):
        for sequence in batch["sequence_ids"][row].unique():
            is_own = batch["sequence_ids"][row] == sequence
            ids = batch["input_ids"][row, is_own][None]
            if first_position is None:
                alone[row, is_own] = model(input_ids=ids).logits[0]
            else:
                positions = torch.arange(int(is_own.sum())) + first_position
                alone[row, is_own] = model(input_ids=ids, position_ids=positions[None]).logits[0]
    return alone


def attend_by_boundaries(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **given: Any
) -> tuple[Any, None]:
    """What FlashAttention computes from the arguments that it gets, as far as this is about boundaries and windows."""
    import torch

    assert attention_mask is None
    heads, _, size = query.shape[1:]
    key, value = (each.repeat_interleave(heads // each.shape[1], 1) for each in (key, value))
    query, key, value = (each.transpose(1, 2).reshape(-1, heads, size) for each in (query, key, value))
    context, boundaries = torch.empty_like(query), given["cu_seq_lens_q"].tolist()
    window, is_causal = given.get("sliding_window"), given.get("is_causal", getattr(module, "is_causal", False))
    for begin, end in pairwise(boundaries):
        scores = torch.einsum("qhd,khd->hqk", query[begin:end], key[begin:end]) * (scaling or size**-0.5)
        if cap := given.get("softcap"):
            scores = torch.tanh(scores / cap) * cap
        distances = torch.arange(end - begin)[:, None] - torch.arange(end - begin)
        if window is not None:
            scores = scores.masked_fill(distances.abs() > window - 1, float("-inf"))
        if is_causal:
            scores = scores.masked_fill(distances < 0, float("-inf"))
        context[begin:end] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value[begin:end])
    return context.reshape(-1, SEQ, heads, size), None


NAMES_OF_SIZES: dict[str, dict[str, Any]] = {
    "distilbert": {"n_layers": 2, "dim": 32, "n_heads": 2, "hidden_dim": 64},
    "gpt2": {"n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": SEQ + 8},
    "albert": {"embedding_size": 16},
    "squeezebert": {"embedding_size": 32},
    "rembert": {"input_embedding_size": 16, "output_embedding_size": 16},
    "luke": {"entity_vocab_size": 10, "entity_emb_size": 8},
    "xmod": {"default_language": "en_XX"},
    "modernbert": {"local_attention": 16, "global_attn_every_n_layers": 2},
    "modernbert-decoder": {"local_attention": 16, "global_attn_every_n_layers": 2},
    "gemma3_text": {"layer_types": ["sliding_attention", "full_attention"]},
    "qwen2": {"use_sliding_window": True, "max_window_layers": 1},
    "qwen3": {"use_sliding_window": True, "max_window_layers": 1},
}
WINDOWS = {
    "cohere2", "gemma2", "gemma3_text", "ministral", "mistral", "mixtral", "modernbert", "modernbert-decoder", "phi3", "qwen2",
    "qwen3", "starcoder2",
}  # fmt: skip


# Every other one gets rows that begin at 2: whatever the model, the same subtraction takes that out.
@pytest.mark.parametrize(
    ("kind", "first_position"), [(kind, 2 * (number % 2)) for number, kind in enumerate((*ENCODERS, *CAUSAL_MODELS))]
)
def test_every_type_of_model_that_is_taken_keeps_sequences_apart(kind: str, first_position: int, tokens: Path) -> None:
    """With large random weights, windows shorter than sequences, and positions as the model counts them by itself.

    FlashAttention is not installed here: the arguments that it gets go to `attend_by_boundaries`.
    """
    import torch
    from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    AttentionInterface.register("flash_by_boundaries", attend_by_boundaries)

    is_causal = kind in CAUSAL_MODELS
    dataset = TokenDataset(tokens, seq=SEQ, objective="clm" if is_causal else "mlm", first_position=first_position)
    rows = dataset.__getitems__(range(BATCH))
    batch, info = dataset.collate(rows), dataset.documents.tokenizer
    assert batch["sequence_ids"].max() > 1
    sizes = {**TINY, "vocab_size": info.width, "pad_token_id": info.pad, "max_position_embeddings": SEQ + 8}
    if kind in CAUSAL_MODELS and kind != "gpt2":
        sizes |= {"num_key_value_heads": 1, "head_dim": 16}
    if kind in WINDOWS - {"modernbert", "modernbert-decoder"}:
        sizes["sliding_window"] = 8
    config = AutoConfig.for_model(kind, **sizes, **NAMES_OF_SIZES.get(kind, {}))
    model_class = AutoModelForCausalLM if is_causal else AutoModelForMaskedLM
    if kind in WINDOWS:
        assert int(torch.bincount(batch["sequence_ids"][0]).max()) > 2 * (config.sliding_window + 1)
    model = model_class.from_config(config, attn_implementation="eager").eval()
    for name, weights in model.named_parameters():
        if weights.dim() > 1 and "embed_positions" not in name:
            torch.nn.init.normal_(weights, std=0.15)
    supported = {"eager": True, "sdpa": model._supports_sdpa, "flash_by_boundaries": model._supports_flash_attn}
    with torch.no_grad():
        counted = 2 if kind == "mpnet" else None  # which takes token 1 for padding, here [CLS]
        expected = logits_alone(batch, model, counted)
        takes_blocks = ["flex_attention"] if model._supports_flex_attn and kind in ("bert", "modernbert") else []
        for attention in [*(name for name, is_supported in supported.items() if is_supported), *takes_blocks]:
            is_flash = attention == "flash_by_boundaries"  # for which transformers looks for a kernel
            again = model_class.from_config(config, attn_implementation="eager" if is_flash else attention).eval()
            again.load_state_dict(model.state_dict())
            again.config._attn_implementation = attention
            inputs = dataset.collate_for(again)(rows)
            difference = (again(**inputs).logits - expected)[batch["input_ids"] != info.pad]
            assert difference.abs().max() < 1e-5, attention


REFUSED = [
    *("convbert", "deberta-v2", "esm", "fnet", "mobilebert", "mra", "nystromformer", "yoso", "longformer", "big_bird", "opt"),
    *("falcon", "none_such"),
]


def make_bare_model(model_type: str, **settings: Any) -> Any:
    """A model of a type with nothing in it: what is refused by its config alone."""
    from transformers import PreTrainedConfig, PreTrainedModel

    config = PreTrainedConfig(**settings)
    config.model_type, config._attn_implementation = model_type, "eager"
    return PreTrainedModel(config)


@pytest.mark.parametrize("kind", REFUSED)
def test_types_of_models_that_mix_sequences_or_were_not_tested_are_refused(kind: str, tokens: Path) -> None:
    model = make_bare_model(kind)
    with pytest.raises(
        UsageError, match=f"model type {kind}: was not tested with packed rows, .*; use packed=False, or a model"
    ):
        TokenDataset(tokens, seq=SEQ).collate_for(model)
    assert TokenDataset(tokens, seq=SEQ, packed=False).collate_for(model)


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        (
            {"model_type": "roberta", "pad_token_id": None},
            {},
            "model type roberta: its positions begin after pad_token_id",
        ),
        ({"model_type": "mistral"}, {}, "objective 'mlm': a model of type mistral is trained with 'clm'"),
        ({"model_type": "modernbert"}, {"objective": "clm"}, "objective 'clm': a model of type modernbert is trained with"),
    ],
)
def test_a_config_that_does_not_go_with_the_rows_is_refused(
    config: dict[str, Any], settings: dict[str, Any], message: str, tokens: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        TokenDataset(tokens, seq=SEQ, **settings).collate_for(make_bare_model(**config))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", FIRST_POSITION)
def test_packed_logits_are_those_of_each_sequence_alone(name: str, attention: str, tokens: Path) -> None:
    import torch

    dataset = open_rows(tokens, name, objective="clm" if name == "llama" else "mlm")
    model = make_model(name, dataset, attention)
    rows = dataset.__getitems__(range(BATCH))
    batch, right = dataset.collate(rows), dataset.collate_for(model)(rows)
    assert batch["sequence_ids"].max() > 1
    with torch.no_grad():
        expected = logits_alone(batch, model, dataset.first_position)

        def error(**inputs: Any) -> float:
            return float((model(**inputs).logits - expected).abs().max())

        assert error(**right) < 1e-5
        if attention == "eager":  # whose masks are scores
            return
        window = model.config.sliding_window if name == "modernbert" else None
        mask = None if name == "llama" else dataset.attention_masks(batch, window)
        own = {
            "input_ids": batch["input_ids"],
            "position_ids": batch["position_ids"],
            "attention_mask": mask,
            "use_cache": False,
        }
        assert error(**own) < 1e-5
        # Wrong in silence: masks of ones, the wrong positions, and a mask without ModernBERT's window. Without a mask only
        # causal models look for sequences.
        assert error(**{**own, "attention_mask": torch.ones_like(batch["input_ids"])}) > 1e-4
        if name in ("bert", "roberta"):
            assert error(**{**own, "position_ids": None}) > 1e-4
        if name == "roberta":
            assert error(**{**own, "position_ids": batch["position_ids"] - 2}) > 1e-4
        if name == "modernbert":
            full = mask["full_attention"]
            assert error(**{**own, "attention_mask": {"full_attention": full, "sliding_attention": full}}) > 1e-4
        if name != "llama":
            assert error(**{**own, "attention_mask": None}) > 1e-4


def test_masks_are_made_in_the_model_for_batches_of_the_collator_alone(tokens: Path) -> None:
    """Once, however often a collator is asked for, in half precision, compiled, and in a copy that was pickled."""
    import torch

    dataset = open_rows(tokens, "bert")
    model = make_model("bert", dataset, "eager")
    collate, again = dataset.collate_for(model), dataset.collate_for(model)
    assert len(model.bert._forward_pre_hooks) == 1
    rows = dataset.__getitems__(range(BATCH))
    batch = collate(rows)
    assert batch["attention_mask"]["sequence_ids"].shape == (BATCH, SEQ)  # no mask of (rows, 1, seq, seq)
    with torch.no_grad():
        expected = model(**again(rows)).logits
        assert torch.equal(pickle.loads(pickle.dumps(model))(**batch).logits, expected)
        assert torch.equal(torch.compile(model, backend="eager")(**batch).logits, expected)
        padded = {"input_ids": batch["input_ids"], "attention_mask": torch.ones_like(batch["input_ids"])}
        assert not torch.equal(model(**padded).logits, expected)  # of another collator: as it was
        halved = model.to(torch.bfloat16)(**batch).logits
    assert halved.dtype == torch.bfloat16
    assert (halved.float() - expected).abs().max() < 0.05


def test_a_stream_of_given_epochs_ends_and_has_a_length(tokens: Path) -> None:
    from torch.utils.data import DataLoader

    dataset = TokenDataset(tokens, seq=SEQ)
    stream = dataset.stream(4, epochs=2)
    assert len(stream) == 2 * len(dataset) // 4
    batches = [batch["input_ids"].tolist() for batch in DataLoader(stream, batch_size=None, num_workers=2)]
    assert batches == [batch["input_ids"].tolist() for batch in dataset.batches(4, stop=len(stream))]
    with pytest.raises(TypeError, match=r"a stream without epochs is endless and has no length; give stream\(..., epochs=3\)"):
        len(dataset.stream(4))
    for given, message in (
        ({"batch_size": 4, "tokens": 99}, "give one of batch_size and tokens"),
        ({}, "give one of batch_size and tokens"),
        ({"batch_size": 4, "epochs": 0}, "epochs 0: expected at least 1"),
        ({"tokens": 128}, "tokens: packed rows all have 64 tokens; give a batch size instead, 2"),
    ):
        with pytest.raises(UsageError, match=message):
            dataset.stream(**given)


@pytest.mark.parametrize("world", [1, 2])
def test_a_stream_of_tokens_is_the_same_for_any_workers_and_resumes(world: int, tokens: Path) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    dataset = TokenDataset(tokens, seq=SEQ, packed=False, by_length=True)
    planned = [batch["input_ids"].tolist() for batch, _ in zip(dataset.batches_of_tokens(200), range(12 * world), strict=False)]
    for rank in range(world):
        for workers in (0, 2):
            stream = dataset.stream(tokens=200, rank=rank, world=world)
            batches = iter(StatefulDataLoader(stream, batch_size=None, num_workers=workers))
            assert [next(batches)["input_ids"].tolist() for _ in range(12)] == planned[rank::world]
        state = {**dataset.stream(tokens=200, rank=rank, world=world).state_dict(), "batch": 5}
        resumed = dataset.stream(tokens=200, rank=rank, world=world)
        resumed.load_state_dict(json.loads(json.dumps(state)))
        assert next(iter(resumed))["input_ids"].tolist() == planned[rank::world][5]
        with pytest.raises(
            UsageError, match=rf"batches of 200 tokens in each of {world} ranks, these have 300 tokens in each of"
        ):
            dataset.stream(tokens=300, rank=rank, world=world).load_state_dict(state)


def test_the_trainer_gives_each_epoch_its_own_masks_by_the_callback(tokens: Path, tmp_path: Path) -> None:
    from transformers import Trainer, TrainingArguments

    dataset = open_rows(tokens, "bert")
    model, read = make_model("bert", dataset), []

    def collate(rows: Any) -> Any:
        read.append(dataset.collate(rows)["input_ids"].tolist())
        return dataset.collate_for(model)(rows)

    arguments = TrainingArguments(
        str(tmp_path), num_train_epochs=2, per_device_train_batch_size=64, train_sampling_strategy="sequential",
        report_to="none", disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=dataset, data_collator=collate, callbacks=[dataset.trainer_callback()]).train()
    half = len(read) // 2
    of_epochs = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        of_epochs.append([ids for batch in read[epoch * half :][:half] for ids in batch])
        assert of_epochs[epoch] == dataset[:]["input_ids"].tolist()
    assert of_epochs[0] != of_epochs[1]


def test_rows_are_counted_before_a_stream_is_given_to_workers(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = TokenDataset(tokens, seq=64).stream(4)
    monkeypatch.setattr(Windows, "counts", property(lambda _: pytest.fail("a worker counted rows")))
    assert len(next(iter(pickle.loads(pickle.dumps(stream))))["labels"]) == 4


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
        trainer = Trainer(model, arguments, train_dataset=dataset, data_collator=dataset.collate_for(model))
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
        return {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}

    losses = train(tmp_path / "once", 6)
    assert losses[6] < losses[1]
    assert train(tmp_path / "again", 6, tmp_path / "once" / "checkpoint-3") == pytest.approx(losses, abs=1e-4)


def test_the_lines_of_the_docs_train_a_modernbert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small tokenizer and model."""
    [lines, *_] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
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


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_data_loader_resumes_in_an_epoch_of_a_data_set(workers: int, tokens: Path) -> None:
    """In another loader of a data set that was in another epoch."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    def make_loader(epoch: int) -> Any:
        dataset = open_rows(tokens, "modernbert")
        dataset.set_epoch(epoch)
        return StatefulDataLoader(dataset, batch_size=BATCH, collate_fn=dataset.collate, num_workers=workers)

    def read(loader: Iterable[Any]) -> list[Any]:
        return [batch["input_ids"].tolist() for batch in loader]

    expected = read(make_loader(2))
    for stopped in (1, 3):
        loader = make_loader(2)
        iterator = iter(loader)
        assert [next(iterator)["input_ids"].tolist() for _ in range(stopped)] == expected[:stopped]
        state = pickle.loads(pickle.dumps(loader.state_dict()))
        resumed = make_loader(0)
        resumed.load_state_dict(state)
        assert read(resumed) == expected[stopped:]


@pytest.mark.parametrize(
    "state", [{}, {"step": 5}, {"batch": -5}, {"batch": "5"}, {"batch": 2**62}, {"batch": 2**70}, {"batch": 1.5}, [], None, "x"]
)
def test_a_state_without_a_batch_is_refused(state: Any, tokens: Path) -> None:
    with pytest.raises(UsageError, match=r"^state .*: expected the number of batches of all ranks that were read, such as"):
        open_rows(tokens, "modernbert").stream(BATCH).load_state_dict(state)


@pytest.mark.parametrize("size", ["x", None, 5])
def test_a_state_of_batches_of_another_size_is_refused(size: Any, tokens: Path) -> None:
    with pytest.raises(UsageError, match=f"^the state has batches of {size} rows, these have 4 rows; use the size of "):
        open_rows(tokens, "modernbert").stream(BATCH).load_state_dict({"batch": 5, "global_batch_size": size})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seed": 7}, "seed 12345, here 7"),
        (
            {"mask_as": (1, 0, 0), "masked_lm_prob": 0.2},
            r"mask_as \[0.8, 0.1, 0.1\], here \[1.0, 0.0, 0.0\], masked_lm_prob 0.3, here 0.2",
        ),
        ({"split": "test"}, "documents [0-9a-f]{64}, here [0-9a-f]{64}"),
    ],
)
def test_a_state_of_other_rows_is_refused(settings: dict[str, Any], message: str, tokens: Path, tmp_path: Path) -> None:
    state = json.loads(json.dumps(open_rows(tokens, "modernbert").stream(BATCH).state_dict()))
    open_rows(tokens, "modernbert").stream(BATCH).load_state_dict(state)
    if settings.pop("split", None):
        bertprep.tokenize(
            inputs=[__file__], tokenizer=tokens / "tokens", output=tmp_path / "other", one_document_per_file=True, workers=1
        )
        tokens = tmp_path / "other"
    with pytest.raises(
        UsageError, match=f"^the state belongs to other rows: {message}; use the data and settings that it was "
    ):
        open_rows(tokens, "modernbert", **settings).stream(BATCH).load_state_dict(state)
    mixture = bertprep.Mixture([(open_rows(tokens, "modernbert", **settings), 1)])
    with pytest.raises(
        UsageError, match=r"^the state belongs to other rows: .*; use the data and settings that it was saved with$"
    ):
        mixture.stream(BATCH).load_state_dict(state)


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


def test_tensors_are_replaced_alike_and_a_generator_and_a_discriminator_train_together() -> None:
    import torch
    from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining
    from transformers.modeling_outputs import MaskedLMOutput

    ids, labels = (
        torch.tensor([[2, 4, 6, 4, 3, 0], [2, 7, 4, 8, 9, 3]]),
        torch.tensor([[-100, 5, -100, 6, -100, -100], [-100, -100, 9, 8, -100, -100]]),
    )
    text = torch.tensor([[2, 5, 6, 6, 3, 0], [2, 7, 9, 8, 9, 3]])
    drawn, is_replaced = replace_tokens(ids, labels, 50.0 * torch.nn.functional.one_hot(text), seed=1)
    assert drawn.tolist() == text.tolist()
    assert not is_replaced.any()
    narrow, _ = replace_tokens(ids.int(), labels.int(), 50.0 * torch.nn.functional.one_hot(text), seed=1)
    assert narrow.dtype == torch.int32
    with pytest.raises(UsageError, match="types Tensor, Tensor, MaskedLMOutput; expected three"):
        replace_tokens(ids, labels, MaskedLMOutput(logits=text), seed=1)

    size = {"vocab_size": 10, "embedding_size": 16, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(1)
    generator, discriminator = ElectraForMaskedLM(ElectraConfig(**size)), ElectraForPreTraining(ElectraConfig(**size))
    optimizer = torch.optim.AdamW([*generator.parameters(), *discriminator.parameters()], lr=1e-2)
    mask = (text != 0).long()
    losses = []
    for step in range(5):
        predicted = generator(ids, attention_mask=mask, labels=labels)
        drawn, is_replaced = replace_tokens(ids, labels, predicted.logits, seed=step)
        found = discriminator(drawn, attention_mask=mask, labels=is_replaced)
        loss = predicted.loss + 50 * found.loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(predicted.loss.item())
    assert losses[-1] < losses[0]


def test_albert_and_electra_train_on_pairs(tmp_path: Path) -> None:
    """Of sentences, by workers, with the labels that the models take."""
    import torch
    from torch.utils.data import DataLoader
    from transformers import AlbertConfig, AlbertForPreTraining, ElectraConfig, ElectraForMaskedLM

    letters = "abcdefghijklmnopqrstuvwxyz.,"
    (tmp_path / "a.txt").write_text("\n\n".join("\n".join(TEXT) for _ in range(20)))
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{each}" for each in letters)])
    )
    bertprep.tokenize(
        inputs=[tmp_path / "a.txt"], vocab=tmp_path / "vocab.txt", output=tmp_path / "data", lines_are_sentences=True, workers=1
    )
    torch.manual_seed(1)
    sizes = {**TINY, "embedding_size": 16, "max_position_embeddings": SEQ}
    for pairs, model_class, config_class in (
        ("order", AlbertForPreTraining, AlbertConfig),
        ("segments", ElectraForMaskedLM, ElectraConfig),
    ):
        dataset = bertprep.PairDataset(tmp_path / "data", pairs=pairs, seq=SEQ, ngram=3)  # type: ignore[arg-type]
        model = model_class(config_class(**sizes, vocab_size=dataset.documents.tokenizer.width))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        loader = DataLoader(dataset.stream(4), batch_size=None, num_workers=1)
        for batch, _ in zip(loader, range(5), strict=False):
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        assert losses[-1] < losses[0]


def test_the_trainer_evaluates_on_the_documents_held_out(tokens: Path, tmp_path: Path) -> None:
    """As the page shows it; the tokenizer of the folder is saved with the model, and opens again with its special tokens."""
    import torch
    from transformers import AutoTokenizer, Trainer, TrainingArguments

    bertprep.tokenize(
        inputs=[tokens.parent / "text.parquet"], tokenizer=tokens / "tokens", output=tmp_path / "tokens", test_fraction=0.2
    )
    training, test = (open_rows(tmp_path / "tokens", "modernbert", split=split) for split in ("training", "test"))
    assert training.documents.documents + test.documents.documents == open_rows(tokens, "modernbert").documents.documents
    model = make_model("modernbert", training)
    arguments = TrainingArguments(
        str(tmp_path / "model"), max_steps=2, eval_strategy="steps", eval_steps=1, per_device_train_batch_size=BATCH,
        train_sampling_strategy="sequential", report_to="none", disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    trainer = Trainer(
        model, arguments, train_dataset=training, eval_dataset=test, data_collator=training.collate_for(model),
        processing_class=AutoTokenizer.from_pretrained(tmp_path / "tokens/tokens"),
    )  # fmt: skip
    trainer.train()
    losses = [trainer.evaluate()["eval_loss"] for _ in range(2)]
    assert losses[0] == losses[1]
    trainer.save_model()
    saved = AutoTokenizer.from_pretrained(tmp_path / "model")("the dog", return_tensors="pt")
    info = training.documents.tokenizer
    assert saved["input_ids"][0, [0, -1]].tolist() == [info.cls, info.sep]
    assert torch.isfinite(model.eval()(**saved).logits).all()  # without segments, which ModernBERT does not take
