"""Packed rows in models that are made, wrapped, copied, switched or moved after `collate_for`, and in models that do not fit.

The logits of packed rows are those of each sequence alone, or the call fails: nothing attends across documents in silence.
"""

from __future__ import annotations

import pickle
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from textwrap import indent
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import bertprep
from bertprep import TokenDataset
from bertprep.errors import UsageError
from bertprep.tokens.packed_models import CAUSAL_MODELS, ENCODERS
from tests.instances.small_tokenizers import TEXT, write_tokenizer, write_tokens
from tests.readers.test_torch_encoders import FIRST_POSITION, NAMES_OF_SIZES, TINY, logits_alone, make_model

pytestmark = pytest.mark.torch
SEQ, ROWS = 64, 4
FRAMEWORKS = Path(__file__).parents[2] / "docs" / "how-to" / "frameworks.md"
LOST = (
    r"has the boundaries of packed rows, which this model cannot apply; call collate_for\(model\) for the model that is trained"
)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokens(tmp_path_factory.mktemp("packed_models"))


@pytest.fixture
def dataset(tokens: Path) -> TokenDataset:
    return TokenDataset(tokens, seq=SEQ)


class Case:
    """A model, a batch for it, and the logits of each sequence alone."""

    def __init__(self, dataset: TokenDataset, name: str = "bert") -> None:
        import torch

        self.model = make_model(name, dataset)
        with torch.no_grad():
            for weights in self.model.parameters():
                if weights.dim() > 1:
                    torch.nn.init.normal_(weights, std=0.15)
        self.rows = dataset.__getitems__(range(ROWS))
        self.unprepared = deepcopy(self.model)
        batch = dataset.collate(self.rows)
        assert batch["sequence_ids"].max() > 1
        with torch.no_grad():
            self.alone = logits_alone(batch, self.unprepared, FIRST_POSITION[name])
        self.collate = dataset.collate_for(self.model)
        self.batch = self.collate(self.rows)

    def error(self, call: Callable[..., Any], **batch: Any) -> float:
        import torch

        with torch.no_grad():
            return float((call(**(batch or self.batch)).logits - self.alone).abs().max())


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert"])
def test_the_trainer_makes_the_model_again_and_fails_unless_its_function_prepares_it(
    name: str, dataset: TokenDataset, tmp_path: Path
) -> None:
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        str(tmp_path), max_steps=2, per_device_train_batch_size=ROWS, train_sampling_strategy="sequential", report_to="none",
        disable_tqdm=True, use_cpu=True, learning_rate=0.0,
    )  # fmt: skip
    case = Case(dataset, name)
    again = deepcopy(case.unprepared)
    with pytest.raises(UsageError, match=LOST):
        Trainer(model_init=lambda: again, args=arguments, train_dataset=dataset, data_collator=case.collate).train()

    def make() -> Any:
        dataset.collate_for(again)
        return again

    trainer = Trainer(model_init=make, args=arguments, train_dataset=dataset, data_collator=case.collate)
    trainer.train()
    assert case.error(trainer.model.eval()) < 1e-5


def test_a_model_read_from_a_checkpoint_fails_until_it_is_prepared(dataset: TokenDataset, tmp_path: Path) -> None:
    from transformers import BertForMaskedLM

    case = Case(dataset)
    case.model.save_pretrained(tmp_path)
    loaded = BertForMaskedLM.from_pretrained(tmp_path).eval()
    with pytest.raises(UsageError, match=LOST):
        loaded(**case.batch)
    dataset.collate_for(loaded)
    assert case.error(loaded) < 1e-5


WITHOUT_SDPA = "gemma2", "ibert", "luke", "megatron-bert", "mpnet", "rembert", "roformer", "squeezebert"


@pytest.mark.parametrize(
    ("kind", "attention"),
    [
        (kind, attention)
        for kind in (*ENCODERS, *CAUSAL_MODELS)
        for attention in (["eager"] if kind in WITHOUT_SDPA else ["sdpa", "eager"])
    ],
)
def test_no_type_of_model_takes_packed_rows_without_being_prepared(kind: str, attention: str, tokens: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    is_causal = kind in CAUSAL_MODELS
    dataset = TokenDataset(tokens, seq=SEQ, objective="clm" if is_causal else "mlm")
    info = dataset.documents.tokenizer
    sizes = {**TINY, "vocab_size": info.width, "pad_token_id": info.pad, "max_position_embeddings": SEQ + 8}
    if is_causal and kind != "gpt2":
        sizes |= {"num_key_value_heads": 1, "head_dim": 16}
    config = AutoConfig.for_model(kind, **sizes, **NAMES_OF_SIZES.get(kind, {}))
    model_class = AutoModelForCausalLM if is_causal else AutoModelForMaskedLM
    model = model_class.from_config(config, attn_implementation=attention)
    rows = dataset.__getitems__(range(2))
    for batch in (dataset.collate(rows), next(iter(dataset.stream(2)))):
        with pytest.raises((UsageError, TypeError), match=rf"{LOST}|unexpected keyword argument"):
            model(**batch)
    batch = dataset.collate_for(model)(rows)
    dataset.collate_for(model)
    assert model(**batch).loss.isfinite()
    with pytest.raises(UsageError, match=LOST):
        model_class.from_config(config, attn_implementation=attention)(**batch)


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert", "llama"])
def test_the_attention_implementation_changes_after_the_collator_in_any_order(name: str, tokens: Path) -> None:
    dataset = TokenDataset(tokens, seq=SEQ, objective="clm" if name == "llama" else "mlm")
    case = Case(dataset, name)
    for attention in ("sdpa", "flex_attention", "eager", "sdpa", "eager", "flex_attention", "sdpa"):
        case.model.set_attn_implementation(attention)
        assert case.error(case.model) < 1e-5, attention
        again = dataset.collate_for(case.model)(case.rows)
        assert case.error(case.model, **again) < 1e-5, attention
    case.model.config._attn_implementation = "paged|sdpa"
    with pytest.raises(UsageError, match=r"attention paged\|sdpa: cannot keep packed sequences apart"):
        case.model(**case.batch)


def test_the_forward_method_and_the_body_alone_apply_the_boundaries(dataset: TokenDataset) -> None:
    import torch

    case = Case(dataset)
    assert case.error(case.model.forward) < 1e-5
    with torch.no_grad():
        states = case.model.bert(input_ids=case.batch["input_ids"], attention_mask=case.batch["attention_mask"])
        logits = case.model.cls(states.last_hidden_state)
    assert float((logits - case.alone).abs().max()) < 1e-5
    with pytest.raises(UsageError, match=LOST):
        case.model.bert.forward(input_ids=case.batch["input_ids"], attention_mask=case.batch["attention_mask"])


@pytest.fixture
def one_process() -> Iterator[None]:
    from torch import distributed

    if distributed.is_initialized():  # by another test, whose other processes have ended
        distributed.destroy_process_group()
    distributed.init_process_group("gloo", rank=0, world_size=1, store=distributed.HashStore())
    yield
    distributed.destroy_process_group()


def wrappers() -> dict[str, Callable[[Any], Any]]:
    import torch
    from lightning import LightningModule

    class Own(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.inner = torch.nn.ModuleDict({"encoder": model})
            self.config = {"anything": 1}

        def forward(self, **batch: Any) -> Any:
            return self.inner["encoder"](**batch)

    class Lit(LightningModule):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, **batch: Any) -> Any:
            return self.model(**batch)

    class ByForward(torch.nn.Module):
        """As adapters call the model that they wrap."""

        def __init__(self, model: Any) -> None:
            super().__init__()
            self.base_model = model

        def forward(self, **batch: Any) -> Any:
            return self.base_model.forward(**batch)

    return {
        "ddp": torch.nn.parallel.DistributedDataParallel,
        "compiled": lambda model: torch.compile(model, backend="eager"),
        "own module": Own,
        "lightning": Lit,
        "by forward": ByForward,
        "copy": deepcopy,
        "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    }


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("kind", [*("ddp", "compiled", "own module", "lightning", "by forward", "copy", "pickle")])
@pytest.mark.parametrize("name", ["bert", "modernbert", "roberta"])
def test_a_model_is_wrapped_or_copied_before_or_after_the_collator(name: str, kind: str, dataset: TokenDataset) -> None:
    wrap = wrappers()[kind]
    case = Case(dataset, name)
    assert case.error(wrap(case.model)) < 1e-5
    wrapped = wrap(deepcopy(case.unprepared))
    with pytest.raises(UsageError, match=LOST):
        wrapped(**case.batch)
    collate = dataset.collate_for(wrapped)
    assert case.error(wrapped, **collate(case.rows)) < 1e-5


def test_batches_of_the_plain_collator_and_of_a_stream_are_right_in_a_prepared_model(dataset: TokenDataset) -> None:
    """RoBERTa's positions begin after its padding token, whatever the rows have."""
    case = Case(dataset, "roberta")
    assert case.error(case.model, **dataset.collate(case.rows)) < 1e-5
    assert case.error(case.model, **next(iter(dataset.stream(ROWS)))) < 1e-5


def test_what_moves_batches_keeps_the_boundaries(dataset: TokenDataset) -> None:
    import torch
    from accelerate.utils import find_batch_size, send_to_device, slice_tensors
    from lightning.fabric.utilities import move_data_to_device
    from torch.distributed.utils import _apply_to_tensors

    case = Case(dataset)
    assert find_batch_size(case.batch) == ROWS
    moved = {
        "loop": {name: each.to("cpu", non_blocking=True) for name, each in case.batch.items()},
        "accelerate": send_to_device(case.batch, "cpu"),
        "lightning": move_data_to_device(case.batch, torch.device("cpu")),
        "pickle": pickle.loads(pickle.dumps(case.batch)),
        "copy": deepcopy(case.batch),
        "fsdp": _apply_to_tensors(lambda tensor: tensor, case.batch),
    }
    for name, batch in moved.items():
        assert case.error(case.model, **batch) < 1e-5, name
        with pytest.raises((UsageError, AttributeError)):
            case.unprepared(**batch)
    half = slice_tensors(case.batch, slice(0, 2))
    assert half["attention_mask"]["sequence_ids"].shape == (2, SEQ)


def test_something_else_reads_the_mask(dataset: TokenDataset) -> None:
    """ELECTRA's discriminator computes its loss from the mask."""
    from transformers import ElectraConfig, ElectraForPreTraining

    info = dataset.documents.tokenizer
    model = ElectraForPreTraining(ElectraConfig(**TINY, embedding_size=16, vocab_size=info.width, pad_token_id=info.pad))
    batch = dataset.collate_for(model)(dataset.__getitems__(range(2)))
    assert model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.isfinite().all()
    with pytest.raises(UsageError, match=r"attention_mask\.view: has the boundaries of packed rows"):
        model(**{**batch, "labels": (batch["labels"] > 0).long()})


SIZES: dict[str, dict[str, Any]] = {
    "bert": {}, "albert": {"embedding_size": 16}, "electra": {}, "distilbert": NAMES_OF_SIZES["distilbert"], "ernie": {},
    "convbert": {}, "deberta-v2": {}, "big_bird": {}, "nystromformer": {}, "roformer": {},
}  # fmt: skip


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", [*SIZES, "roberta", "xlm-roberta", "esm", "gpt2"])
def test_rows_are_longer_than_a_model_has_positions(kind: str, packed: bool, tokens: Path) -> None:
    """Whether or not they are packed; BERT has 512, and a data set's default is 1,024."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    objective: Any = "clm" if kind == "gpt2" else "mlm"
    info = TokenDataset(tokens, objective=objective).documents.tokenizer
    sizes = {**TINY, "vocab_size": info.width, "pad_token_id": 1, **SIZES.get(kind, {})}
    positions = {"n_positions": 128} if kind == "gpt2" else {"max_position_embeddings": 128}
    config = AutoConfig.for_model(kind, **sizes, **positions)
    model = (AutoModelForCausalLM if kind == "gpt2" else AutoModelForMaskedLM).from_config(config)
    longest = 126 if kind in ("roberta", "xlm-roberta", "esm") else 128
    for seq in (1024, longest + 1):
        with pytest.raises(
            UsageError, match=rf"^max_position_embeddings 128: .* rows of up to {longest} tokens, .* have {seq}; "
        ):
            TokenDataset(tokens, seq=seq, packed=packed, objective=objective).collate_for(model)
    fits = TokenDataset(tokens, seq=longest, packed=False, objective=objective)
    batch = fits.collate_for(model)(fits.__getitems__(range(2)))
    assert model(**batch).loss.isfinite()


def test_rotary_models_take_rows_of_any_length(tokens: Path) -> None:
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    dataset = TokenDataset(tokens, seq=256)
    info = dataset.documents.tokenizer
    config = ModernBertConfig(**TINY, vocab_size=info.width, pad_token_id=info.pad, max_position_embeddings=128)
    assert dataset.collate_for(ModernBertForMaskedLM(config))


@pytest.mark.parametrize("packed", [True, False])
def test_a_model_has_fewer_or_more_embeddings_than_the_tokenizer_has_ids(packed: bool, tokens: Path) -> None:
    from transformers import BertConfig, BertForMaskedLM

    dataset = TokenDataset(tokens, seq=SEQ, packed=packed)
    width = dataset.documents.tokenizer.width
    with pytest.raises(
        UsageError, match=rf"^vocab_size {width - 1}: the rows have token ids up to {width - 1}; make the model"
    ):
        dataset.collate_for(BertForMaskedLM(BertConfig(**TINY, vocab_size=width - 1)))
    for vocab_size in (width, -(-width // 64) * 64):
        model = BertForMaskedLM(BertConfig(**TINY, vocab_size=vocab_size))
        assert model(**dataset.collate_for(model)(dataset.__getitems__(range(2)))).loss.isfinite()
    with pytest.raises(UsageError, match="vocab_size"):
        bertprep.Mixture([(dataset, 1)]).collate_for(BertForMaskedLM(BertConfig(**TINY, vocab_size=width - 1)))


def test_a_model_without_token_types_gets_pairs(tmp_path: Path) -> None:
    """RoBERTa has one type of tokens, pairs have two."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    letters = "abcdefghijklmnopqrstuvwxyz.,"
    (tmp_path / "a.txt").write_text("\n\n".join("\n".join(TEXT) for _ in range(3)))
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{each}" for each in letters)])
    )
    bertprep.tokenize(
        inputs=[tmp_path / "a.txt"], vocab=tmp_path / "vocab.txt", output=tmp_path / "data", lines_are_sentences=True, workers=1
    )
    pairs = bertprep.PairDataset(tmp_path / "data", pairs="segments", seq=SEQ)
    sizes = {**TINY, "vocab_size": pairs.documents.tokenizer.width}
    with pytest.raises(
        UsageError, match=r"^type_vocab_size 1: pairs have the token types 0 and 1; make a model of type roberta"
    ):
        pairs.collate_for(RobertaForMaskedLM(RobertaConfig(**sizes, type_vocab_size=1)))
    model = RobertaForMaskedLM(RobertaConfig(**sizes, type_vocab_size=2))
    assert model(**pairs.collate_for(model)(pairs.__getitems__(range(2)))).loss.isfinite()


def test_the_trainer_drops_the_positions_of_a_model_that_has_no_such_argument(dataset: TokenDataset, tmp_path: Path) -> None:
    from transformers import RoFormerConfig, RoFormerForMaskedLM, Trainer, TrainingArguments

    info = dataset.documents.tokenizer
    model = RoFormerForMaskedLM(RoFormerConfig(**TINY, vocab_size=info.width, pad_token_id=info.pad, embedding_size=32))

    def train(**settings: Any) -> None:
        arguments = TrainingArguments(
            str(tmp_path), max_steps=1, per_device_train_batch_size=ROWS, train_sampling_strategy="sequential",
            report_to="none", disable_tqdm=True, use_cpu=True, **settings,
        )  # fmt: skip
        Trainer(model, arguments, train_dataset=dataset, data_collator=dataset.collate_for(model)).train()

    with pytest.raises(UsageError, match=r"without position_ids, .*; give TrainingArguments\(remove_unused_columns=False\)"):
        train()
    train(remove_unused_columns=False)


def test_something_that_is_no_model_is_given(dataset: TokenDataset) -> None:
    import torch
    from transformers import BertConfig, BertForMaskedLM

    for given in (BertConfig(), BertForMaskedLM, torch.nn.Linear(2, 2), "bert", None):
        with pytest.raises(UsageError, match=rf"^collate_for: {type(given).__name__} has no model of transformers in it"):
            dataset.collate_for(given)


def test_the_blocks_of_the_page_of_frameworks_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one program, with a small tokenizer, model and number of steps, in the one process that torchrun would start."""
    blocks = re.findall(r"^```python\n(.*?)^```$", FRAMEWORKS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 7
    small = {
        '**settings)': f"**settings.dataset(seq={SEQ}))", "(ModernBertConfig(": f"(ModernBertConfig(**{TINY}, ",
        'TrainingArguments("model", ': 'TrainingArguments("model", use_cpu=True, report_to="none", disable_tqdm=True, ',
        "Accelerator()": "Accelerator(cpu=True)",
        "lightning.Trainer(": "lightning.Trainer(accelerator='cpu', logger=False, enable_progress_bar=False, ",
        "range(1000)": "range(3)",
    }  # fmt: skip
    program = "\n".join(blocks)
    for of_docs, of_test in small.items():
        assert of_docs in program
        program = program.replace(of_docs, of_test)
    monkeypatch.chdir(tmp_path)
    words = " ".join(TEXT).split()
    texts = [" ".join(words[start : start + 40]) for start in range(60)]
    pa.parquet.write_table(pa.table({"text": texts}), "text.parquet")
    tokenizer = write_tokenizer(tmp_path, "byte_bpe")
    bertprep.tokenize(inputs=["text.parquet"], tokenizer=tokenizer, test_fraction=0.2, output="tokens", workers=1)
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}.items():
        monkeypatch.setenv(name, value)
    Path("page.py").write_text(f"if __name__ == '__main__':\n{indent(program, '    ')}", encoding="utf-8")
    done = subprocess.run([sys.executable, "page.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def free_port() -> int:
    with socket.socket() as open_socket:
        open_socket.bind(("127.0.0.1", 0))
        return int(open_socket.getsockname()[1])
