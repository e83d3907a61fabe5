"""Checkpoints and models of the world: padded, in other files, cut, forged, and beside data that changed."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.weights.google_names import variable_shapes
from bertprep.weights.hugging_face import read_weights, save_weights
from bertprep.weights.safetensors import read_metadata, read_safetensors, write_safetensors
from bertprep.weights.tensor_bundle import write_bundle
from tests.golden import GOLDEN
from tests.tokens.test_dataset import write_set
from tests.trainer.numpy_engine import RecordFolder, at_step, refuse, run_command, sigterm
from tests.trainer.small_data import make_moods, make_records, make_squad
from tests.trainer.small_runs import MODEL, SEQ
from trainer.cli import FINISHED, STOPPED, main
from trainer.tasks.pretraining import Pretraining
from trainer.weights import check_weights, find_weights, initial_values, model_of, short_name

Arrays = dict[str, NDArray[np.float32]]
VOCABULARY = GOLDEN / "vocab.txt"
TOKENS = MODEL.vocab_size
PADDED = -(-TOKENS // 64) * 64
STEPS = ["--steps", "2", "--batch-size", "8", "--warmup-steps", "1", "--no-dropout"]
WORDS, BIAS = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"


def pad(values: NDArray[np.float32], rows: int) -> NDArray[np.float32]:
    return np.pad(values[:rows], [(0, max(0, rows - len(values))), *[(0, 0)] * (values.ndim - 1)])


def write_model(folder: Path, rows: int = TOKENS, *, says: int | None = None, bias: int | None = None) -> Path:
    """A model in Hugging Face's form, with `rows` word embeddings, of which its config.json says `says`."""
    folder.mkdir()
    save_weights(folder / "model.safetensors", initial_values(MODEL, 1, Pretraining()))
    arrays = read_safetensors(folder / "model.safetensors")
    arrays = {**arrays, WORDS: pad(arrays[WORDS], rows), BIAS: pad(arrays[BIAS] + 1, bias or rows)}
    write_safetensors(folder / "model.safetensors", arrays, {"format": "pt"})
    write_config(folder, vocab_size=says or rows)
    shutil.copy(VOCABULARY, folder / "vocab.txt")
    return folder


def write_config(folder: Path, name: str = "config.json", **changes: Any) -> None:
    (folder / name).write_text(json.dumps({**json.loads(MODEL.to_json()), **changes}))


@pytest.fixture(scope="module")
def workdir(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records for pretraining, of labelled texts and of questions, by the names of their folders."""
    folder = tmp_path_factory.mktemp("work")
    make_records(golden_corpus, folder)
    (folder / "mood").symlink_to(make_moods(folder))
    (folder / "squad").symlink_to(make_squad(folder))
    return folder


def run_here(*words: object) -> int:
    return main([str(word) for word in words])


def rows_of(folder: Path) -> dict[str, int]:
    arrays = read_safetensors(folder / "model.safetensors")
    return {name: len(arrays[name]) for name in (WORDS, BIAS) if name in arrays}


# --- more embeddings than tokens


@pytest.mark.torch
@pytest.mark.parametrize(
    ("says", "bias"), [(PADDED, PADDED), (TOKENS, PADDED), (PADDED, TOKENS)], ids=["config", "nvidia's", "bias"]
)
def test_a_model_padded_to_a_multiple_of_64_is_pretrained_evaluated_and_exported(
    says: int, bias: int, workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, run = write_model(tmp_path / "padded", PADDED, says=says, bias=bias), tmp_path / "run"
    command = ["pretrain", "--engine", "torch", "--workdir", workdir, "--seq", SEQ, "--format", "ofrecord", *STEPS]
    assert run_here(*command, "--init", model, "--out", run) == FINISHED
    assert f"a vocabulary of {PADDED:,}" in capsys.readouterr().err
    data = next(workdir.glob("ofrecord/*/*"))
    for weights in (model, run):
        assert run_here("evaluate", weights, "--data", data, "--engine", "torch", "--sequences", 16) == 0
        assert "loss" in capsys.readouterr().out
    assert run_here("export", run, tmp_path / "exported") == 0
    assert rows_of(tmp_path / "exported") == {WORDS: PADDED, BIAS: PADDED}
    from transformers import AutoModelForPreTraining, AutoTokenizer

    loaded = AutoModelForPreTraining.from_pretrained(tmp_path / "exported")
    assert loaded.get_input_embeddings().weight.shape[0] == PADDED
    assert len(AutoTokenizer.from_pretrained(tmp_path / "exported")) == TOKENS


@pytest.mark.parametrize(
    ("form", "engine"),
    [
        pytest.param(form, engine, marks=getattr(pytest.mark, engine))
        for engine in ("torch", "tensorflow", "oneflow")
        for form in ("hugging face", "google")
        if (form, engine) != ("google", "oneflow")  # whose environment has no TensorFlow to write that form
    ],
)
def test_a_padded_model_of_either_form_is_fine_tuned_on_each_engine(
    form: str, engine: str, workdir: Path, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "padded", PADDED)
    if form == "google":
        config = json.loads((model / "config.json").read_bytes())
        weights = read_weights(model / "model.safetensors", variable_shapes(config))
        write_bundle(model / "bert_model.ckpt", weights)
        (model / "config.json").rename(model / "bert_config.json")
        (model / "model.safetensors").unlink()
    run = tmp_path / "run"
    command = ["glue", "--engine", engine, "--data", workdir / "mood", "--init", model, "--out", run, "--name", "mood"]
    assert run_here(*command, *STEPS) == FINISHED
    assert run_here("evaluate", run, "--data", workdir / "mood", "--engine", engine) == 0
    assert run_here("export", run, tmp_path / "exported") == 0
    assert rows_of(tmp_path / "exported") == {WORDS: PADDED}


@pytest.mark.torch
def test_questions_are_learned_by_a_padded_model(workdir: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "padded", PADDED, says=TOKENS)
    command = ["squad", "--engine", "torch", "--data", workdir / "squad", "--init", model, "--out", tmp_path / "run"]
    assert run_here(*command, *STEPS) == FINISHED


@pytest.mark.torch
def test_a_new_model_may_have_more_embeddings_than_tokens(workdir: Path, tmp_path: Path) -> None:
    write_config(tmp_path, "padded.json", vocab_size=PADDED)
    command = ["pretrain", "--engine", "torch", "--workdir", workdir, "--seq", SEQ, "--format", "ofrecord", *STEPS]
    assert run_here(*command, "--model", tmp_path / "padded.json", "--out", tmp_path / "run") == FINISHED
    assert run_here("export", tmp_path / "run", tmp_path / "exported") == 0
    assert rows_of(tmp_path / "exported")[WORDS] == PADDED


def test_fewer_embeddings_than_tokens_are_refused_in_one_line(workdir: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "few", TOKENS - 1)
    options = f"--workdir {workdir} --seq {SEQ} --format ofrecord --out {tmp_path}/run"
    status, error = refuse(f"{options} --init {model}")
    assert status == 2
    assert f"{TOKENS:,} tokens" in error
    assert f"vocab_size {TOKENS - 1:,}" in error
    write_config(model)
    status, error = refuse(f"{options} --init {model}")
    assert (status, f"has {TOKENS - 1:,} word embeddings, fewer" in error) == (1, True)


# --- other files of weights


def write_pytorch(folder: Path, arrays: Mapping[str, Any], name: str = "pytorch_model.bin", **options: Any) -> None:
    import torch

    torch.save({each: torch.tensor(values) for each, values in arrays.items()}, folder / name, **options)


def replaced(arrays: Arrays, *changes: tuple[str, str]) -> Arrays:
    for old, new in changes:
        arrays = {name.replace(old, new): values for name, values in arrays.items()}
    return arrays


def shard(folder: Path, arrays: Arrays, stem: str, write: Callable[[Path, Arrays], None]) -> None:
    names = sorted(arrays)
    parts = {f"{stem}-0000{part + 1}-of-00002": names[part::2] for part in range(2)}
    suffix = Path(stem).suffix
    files = {f"{part.replace(suffix, '')}{suffix}": of for part, of in parts.items()}
    for file, of in files.items():
        write(folder / file, {name: arrays[name] for name in of})
    weight_map = {name: file for file, of in files.items() for name in of}
    (folder / f"{stem}.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))


def write_form(form: str, folder: Path, arrays: Arrays) -> None:
    import torch

    match form:
        case "sharded safetensors":
            shard(folder, arrays, "model.safetensors", lambda path, part: write_safetensors(path, part, {"format": "pt"}))
        case "pytorch":
            write_pytorch(folder, arrays)
        case "pytorch before 1.6":
            write_pytorch(folder, arrays, _use_new_zipfile_serialization=False)
        case "sharded pytorch":
            shard(folder, arrays, "pytorch_model.bin", lambda path, part: write_pytorch(path.parent, part, path.name))
        case "a training script's":
            state = {f"module.{name}": torch.tensor(values) for name, values in arrays.items()}
            torch.save({"model": state, "optimizer": {"lr": 0.1}, "epoch": 3}, folder / "pytorch_model.bin")
        case "torch.compile's":
            state = {f"_orig_mod.{name}": torch.tensor(values) for name, values in arrays.items()}
            torch.save({"model": state, "iter_num": 3}, folder / "pytorch_model.bin")
        case "compiled layers, in DataParallel":
            names = replaced(arrays, ("layer.0.", "layer.0._orig_mod."), ("layer.1.", "layer.1._checkpoint_wrapped_module."))
            write_pytorch(folder, {f"module.{name}": values for name, values in names.items()})
        case "Lightning's":
            state = {f"model.{name}": torch.tensor(values) for name, values in arrays.items()}
            state["loss.weight"] = torch.ones(2)
            torch.save({"epoch": 1, "state_dict": state, "loops": {}}, folder / "pytorch_model.bin")
        case "DeepSpeed's":
            state = {name: torch.tensor(values) for name, values in arrays.items()}
            torch.save({"module": state, "global_steps": 3}, folder / "pytorch_model.bin")
        case "compiled safetensors":
            names = {f"_orig_mod.{name}": values for name, values in arrays.items()}
            write_safetensors(folder / "model.safetensors", names, {"format": "pt"})
        case "no prefix, in Lightning":
            body = replaced({n: v for n, v in arrays.items() if n.startswith("bert.")}, ("bert.", "encoder."))
            write_pytorch(folder, body)
        case "nvidia's":
            dense = [(f".{part}.dense.", f".{part}.dense_act.") for part in ("intermediate", "pooler", "transform")]
            write_pytorch(folder, replaced(arrays, *dense))
        case "gamma and beta":
            names = [("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")]
            write_pytorch(folder, replaced(arrays, *names))
        case "half precision":
            write_pytorch(folder, {name: values.astype(np.float16) for name, values in arrays.items()})
        case "no prefix":
            write_pytorch(folder, replaced({n: v for n, v in arrays.items() if n.startswith("bert.")}, ("bert.", "")))


@pytest.mark.torch
@pytest.mark.parametrize(
    "form",
    [
        *("sharded safetensors", "pytorch", "pytorch before 1.6", "sharded pytorch", "a training script's", "nvidia's"),
        *("gamma and beta", "half precision", "no prefix", "torch.compile's", "compiled layers, in DataParallel"),
        *("Lightning's", "no prefix, in Lightning", "DeepSpeed's", "compiled safetensors"),
    ],
)
def test_weights_in_other_files_or_under_other_names_are_read(form: str, tmp_path: Path) -> None:
    from trainer.weights import read_weights as read

    model = write_model(tmp_path / "model")
    expected, _ = read(model, MODEL, Pretraining())
    arrays = read_safetensors(model / "model.safetensors")
    (model / "model.safetensors").unlink()
    write_form(form, model, arrays)
    file = find_weights(model)
    found, message = read(file, model_of(file), Pretraining())
    assert short_name(file) == "model"
    assert ("lacks cls/" in message) == form.startswith("no prefix")
    tolerance = 1e-3 if form == "half precision" else 0
    for name, values in found.items():
        np.testing.assert_allclose(values, expected[name], rtol=tolerance, atol=tolerance)
    assert form.startswith("no prefix") or found.keys() == expected.keys()


@pytest.mark.torch
@pytest.mark.parametrize("prefixes", [("model.", "average."), ("roberta.",)])
def test_weights_of_two_models_or_of_a_relative_are_not_taken_for_one_bert(prefixes: tuple[str, ...], tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    arrays = read_safetensors(model / "model.safetensors")
    (model / "model.safetensors").unlink()
    names = {prefix + name.removeprefix("bert."): values for prefix in prefixes for name, values in arrays.items()}
    write_pytorch(model, names)
    with pytest.raises(BertprepError, match="lacks 37 of the model's 37 variables"):
        check_weights(model, MODEL, Pretraining())


def options_with(model: Path, workdir: Path, tmp_path: Path) -> str:
    return f"--workdir {workdir} --seq {SEQ} --format ofrecord --out {tmp_path}/run --init {model}"


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("tf_model.h5", "from_tf=True"), ("flax_model.msgpack", "from_flax=True"),
        ("bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index: is missing"),
        ("bert_model.ckpt.meta", "contains neither a checkpoint"),
        ("other.safetensors", "or the file other.safetensors itself"), ("last.ckpt", "or the file last.ckpt itself"),
    ],
)  # fmt: skip
def test_files_that_are_not_read_are_named(file: str, part: str, workdir: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    (model / "model.safetensors").rename(model / file)
    status, error = refuse(options_with(model, workdir, tmp_path))
    assert (status, part in error) == (2, True), error


def test_a_shard_that_is_missing_is_named(workdir: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    arrays = read_safetensors(model / "model.safetensors")
    (model / "model.safetensors").unlink()
    shard(model, arrays, "model.safetensors", lambda path, part: write_safetensors(path, part, {}))
    (model / "model-00002-of-00002.safetensors").unlink()
    status, error = refuse(options_with(model, workdir, tmp_path))
    assert (status, "00002-of-00002.safetensors: is missing" in error) == (1, True), error
    for weight_map in ({WORDS: "../model.safetensors"}, {WORDS: 5}, [], {WORDS: "model.safetensors.index.json"}):
        (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        assert refuse(options_with(model, workdir, tmp_path))[0] == 1


@pytest.mark.torch
def test_a_pickle_that_would_run_code_is_refused(workdir: Path, tmp_path: Path) -> None:
    import torch

    model = write_model(tmp_path / "model")
    (model / "model.safetensors").unlink()
    torch.save({"bert.x": Runs(tmp_path / "ran")}, model / "pytorch_model.bin")
    status, error = refuse(options_with(model, workdir, tmp_path))
    assert (status, "cannot read it as tensors alone" in error) == (1, True), error
    assert not (tmp_path / "ran").exists()


class Runs:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_file_of_pytorch_without_pytorch_is_named(workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "model")
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(b"PK\x03\x04 and the rest of an archive")
    monkeypatch.setitem(sys.modules, "torch", None)
    status, error = refuse(options_with(model, workdir, tmp_path))
    assert (status, "pytorch_model.bin: is a file of PyTorch" in error) == (2, True), error
    monkeypatch.undo()
    status, error = refuse(options_with(model, workdir, tmp_path))
    assert (status, "pytorch_model.bin: " in error) == (1, True), error


def test_a_relative_of_bert_is_refused_by_its_name(workdir: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    write_config(model, model_type="roberta")
    status, error = refuse(options_with(model, workdir, tmp_path))
    assert (status, "model_type 'roberta': only 'bert' is supported" in error) == (1, True), error


@pytest.mark.tensorflow
def test_a_checkpoint_of_tensorflow_before_0_12_is_read(tmp_path: Path) -> None:
    import tensorflow as tf
    from tensorflow.core.protobuf import saver_pb2

    from bertprep.weights.tensor_bundle import find_prefix, newest_bundle, open_bundle

    with tf.Graph().as_default():
        tf.compat.v1.get_variable("bert/pooler/dense/bias", initializer=np.arange(3, dtype=np.float32))
        saver = tf.compat.v1.train.Saver(write_version=saver_pb2.SaverDef.V1)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            saver.save(session, str(tmp_path / "bert_model.ckpt"))
    prefix = newest_bundle(tmp_path, "bert_model.ckpt")
    assert prefix == find_prefix(tmp_path / "bert_model.ckpt") == tmp_path / "bert_model.ckpt"
    with open_bundle(prefix) as found:
        assert found.read("bert/pooler/dense/bias").tolist() == [0, 1, 2]


# --- a run resumes only from its own whole state


RUN = ("pretrain", "--engine", "torch", "--seq", SEQ, "--format", "ofrecord", *STEPS, "--save-every", 1)


@pytest.fixture(scope="module")
def finished(workdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps that has both checkpoints."""
    out = tmp_path_factory.mktemp("finished") / "run"
    (workdir / "small.json").write_text(MODEL.to_json())
    assert run_here(*RUN, "--workdir", workdir, "--model", workdir / "small.json", "--out", out) == FINISHED
    return out


def interrupted(finished: Path, folder: Path) -> Path:
    """A copy of the run after its first step; returns its checkpoint."""
    shutil.copytree(finished, folder)
    (folder / "checkpoint-000000002.safetensors").unlink()
    return folder / "checkpoint-000000001.safetensors"


def sign(path: Path, arrays: Arrays, **changes: Any) -> None:
    """Write arrays with the header of a checkpoint and their sha256, as a careful forger does."""
    digest = sha256()
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name], "<f4").data)
    header = {**json.loads(read_metadata(path)["bertprep"]), "sha256": digest.hexdigest(), **changes}
    header = {name: value for name, value in header.items() if value != "absent"}
    write_safetensors(path, arrays, {"bertprep": json.dumps(header)})


STATES: dict[str, tuple[Callable[[Arrays], Any], str]] = {
    "no array at all": (lambda state: state.clear(), "it lacks "),
    "no word embeddings": (lambda state: state.pop("bert/embeddings/word_embeddings"), "it lacks 'bert/embeddings/word"),
    "no moment": (lambda state: state.pop("bert/pooler/dense/bias/adam_m"), "it lacks 'bert/pooler/dense/bias/adam_m'"),
    "no count of updates": (lambda state: state.pop("updates"), "it lacks 'updates'"),
    "one more": (lambda state: state.update({"bert/more": np.zeros(2, np.float32)}), "it has 'bert/more'"),
    "a shape that broadcasts": (
        lambda state: state.update({"bert/pooler/dense/bias": np.zeros(1, np.float32)}),
        "the shape 1,",
    ),
    "a number": (lambda state: state.update({"bert/pooler/dense/bias": np.float32(0)}), "has the shape"),
    "another shape": (lambda state: state.update({"bert/pooler/dense/bias": np.zeros(3, np.float32)}), "the shape 3,"),
    "NaN in one": (lambda state: state["bert/pooler/dense/bias"].fill(np.nan), "has NaN"),
    "NaN in all": (lambda state: [values.fill(np.nan) for values in state.values()], "has NaN"),
    "a loss scale of 0": (lambda state: state["loss_scale"].fill(0), "its loss scale is 0"),
    "an infinite loss scale": (lambda state: state["loss_scale"].fill(np.inf), "loss_scale has NaN or infinite"),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", STATES)
def test_a_run_does_not_resume_from_other_arrays_than_its_own(
    name: str, finished: Path, workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, part = STATES[name]
    path = interrupted(finished, tmp_path / "run")
    state = {each: np.array(values) for each, values in read_safetensors(path).items()}
    change(state)
    sign(path, state)
    command = (*RUN, "--workdir", workdir, "--model", workdir / "small.json", "--out", path.parent)
    assert run_here(*command) == 1
    [error] = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert f"{path}: is corrupt (" in error
    assert part in error
    assert error.endswith("; remove it to start again")
    path.unlink()
    assert run_here(*command) == FINISHED  # so the advice is true


@pytest.mark.torch
def test_an_array_of_another_type_is_refused(finished: Path, workdir: Path, tmp_path: Path) -> None:
    """Its numbers are the same, as are those that the sha256 is of."""
    path = interrupted(finished, tmp_path / "run")
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    end = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    header["updates"] |= {"dtype": "F64", "data_offsets": [end, end + 8]}
    data = content[8 + size :] + struct.pack("<d", 1.0)
    encoded = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data)
    assert run_here(*RUN, "--workdir", workdir, "--model", workdir / "small.json", "--out", path.parent) == 1


# --- forged headers, with each command


LAYERS = json.loads(MODEL.to_json())
VALUES: dict[str, tuple[Any, ...]] = {  # of a setting in the header of a checkpoint
    **dict.fromkeys(("optimizer", "schedule", "examples", "model"), (5, "x", [], None, "absent")),
    "task": (5, "x", [], {}, {"name": "none"}, {"name": "glue", "of": 5}),
    "vocabulary_sha256": (5, {}, []),
    "step": (2**62, 3, -1, "1", None, True, "absent"),
    "evaluated": (99,),
    "test": (5,),
    "sha256": ("absent", "x"),
    "format": ("absent", 2),
}
HEADERS: dict[str, Mapping[str, Any]] = {
    **{f"{name} = {value!r}": {name: value} for name, values in VALUES.items() for value in values},
    **{f"steps = {value!r}": {"schedule": {"steps": value}} for value in ("9", None, -1, 1.5, [])},
    **{f"layers = {value!r}": {"model": {**LAYERS, "num_hidden_layers": value}} for value in (2**24, "2", 0)},
    "no steps": {"schedule": {}},
    "no layers": {"model": {}},
}
FILES: dict[str, bytes] = {  # the JSON at the start of a file
    "metadata = 5": b'{"__metadata__":5}',
    "metadata = null": b'{"__metadata__":null}',
    "metadata = []": b'{"__metadata__":[1,2]}',
    "metadata = NaN": b'{"__metadata__":NaN}',
    "bertprep = 5": b'{"__metadata__":{"bertprep":5}}',
    "bertprep = []": b'{"__metadata__":{"bertprep":[]}}',
    "bertprep = {}": b'{"__metadata__":{"bertprep":"{}"}}',
    "bertprep = [[[": json.dumps({"__metadata__": {"bertprep": "[" * 100_000}}).encode(),
    "lists": b"[" * 100_000,
    "objects": b'{"a":' * 100_000,
    "20 MB of lists": b"[" + b"[]," * 7_000_000 + b"1]",
    "a number": b"1.5",
    "nothing": b"",
}


def forge(path: Path, name: str) -> None:
    if name in HEADERS:
        sign(path, read_safetensors(path), **HEADERS[name])
    elif name in FILES:
        path.write_bytes(struct.pack("<Q", len(FILES[name])) + FILES[name])
    elif name == "a FIFO":
        path.unlink()
        os.mkfifo(path)
    elif name == "a device":
        path.unlink()
        path.symlink_to("/dev/zero")
    elif name == "a folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(bytes(range(8)) * 3)


FORGED_RUN = "pretrain --engine tensorflow --data a --model a/model.json --out out --steps 3 --warmup-steps 1 --batch-size 8"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with records, a, and a run on them, out, that was stopped after its second step."""
    root = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        RecordFolder(Path("a"))
        config = replace(MODEL, vocab_size=30522, num_hidden_layers=1)
        Path("a/model.json").write_text(config.to_json())
        assert run_command(*FORGED_RUN.split(), on_step=at_step(1, sigterm)) == STOPPED
        [path] = Path("out").glob("checkpoint-*")
        sign(path, initial_values(config, 1, Pretraining()))  # weights that the other commands read
        Path("out/vocab.txt").write_bytes(VOCABULARY.read_bytes())
    return root


def test_the_checkpoint_before_it_is_forged_is_exported(stopped: Path, tmp_path: Path) -> None:
    assert run_here("export", stopped / "out", tmp_path / "exported") == 0


@pytest.mark.parametrize("name", [*HEADERS, *FILES, "a FIFO", "a device", "a folder", "other bytes"])
def test_a_forged_checkpoint_costs_each_command_one_line(
    name: str, stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resuming, --init, evaluating and exporting: no traceback, no wait, nothing written."""
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    [path] = Path("out").glob("checkpoint-*")
    forge(path, name)
    before = {str(each) for each in Path().rglob("*")}
    commands = {
        "resume": FORGED_RUN,
        "init": f"{FORGED_RUN.replace('--out out', '--out new').replace('--model a/model.json', '')} --init out",
        "evaluate": "evaluate out --data a",
        "export": "export out exported",
    }
    for command, line in commands.items():
        if command != "resume" and is_of_a_run_alone(name):
            continue
        status, error = refuse(line)
        assert status in (1, 2), (command, error)
        assert "out" in error
        assert len(error) < 700
    assert {str(each) for each in Path().rglob("*")} == before


def is_of_a_run_alone(name: str) -> bool:
    """Whether only a run that resumes reads these settings, so that other commands take the weights as they are."""
    return name in ("no steps", "optimizer = 'absent'")


def test_settings_that_a_header_lacks_are_not_taken_as_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    RecordFolder(Path("a"))
    run = "pretrain --engine tensorflow --data a --model a/model.json --out out --steps 4 --batch-size 8"
    assert run_command(*run.split(), on_step=at_step(1, sigterm)) == STOPPED
    [path] = Path("out").glob("checkpoint-*")
    content = path.read_bytes()
    for name in ("seed", "optimizer", "global_batch", "shuffle_shards", "records", "precision"):
        sign(path, read_safetensors(path), **{name: "absent"})
        status, error = refuse(run)
        assert (status, f"its header lacks {name}" in error) == (1, True), error
        path.write_bytes(content)


@pytest.mark.parametrize("kind", ["a FIFO", "a device"])
def test_a_vocabulary_that_is_no_file_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.trainer.small_data import save_checkpoint

    monkeypatch.chdir(tmp_path)
    save_checkpoint(Path("run"))
    if kind == "a FIFO":
        os.mkfifo("run/vocab.txt")
    else:
        Path("run/vocab.txt").symlink_to("/dev/zero")
    status, error = refuse("export run exported")
    assert (status, error.startswith("run/vocab.txt: cannot be read")) == (1, True), error


# --- data that changed between two runs


def flip_labels(folder: RecordFolder) -> None:
    records = [{**each, "next_sentence_labels": [1 - each["next_sentence_labels"][0]]} for each in folder.records[:20]]
    folder.write(folder.folder / "training" / "part-0", records)  # type: ignore[arg-type]


def swap_files(folder: RecordFolder) -> None:
    first, second = (folder.folder / "training" / f"part-{number}" for number in range(2))
    first.rename(first.with_name("x"))
    second.rename(first)
    first.with_name("x").rename(second)


def rename_file(folder: RecordFolder) -> None:
    (folder.folder / "training" / "part-0").rename(folder.folder / "training" / "part-2")


def rewrite_test(folder: RecordFolder) -> None:
    folder.write(folder.folder / "test" / "part-0", folder.records[10:20])


@pytest.mark.parametrize("change", [flip_labels, swap_files, rename_file, rewrite_test])
def test_a_run_does_not_resume_on_data_that_changed(
    change: Callable[[RecordFolder], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = RecordFolder(Path("a"))
    run = "pretrain --engine tensorflow --data a --model a/model.json --out out --steps 6 --batch-size 8"
    assert run_command(*run.split(), on_step=at_step(1, sigterm)) == STOPPED
    shutil.copytree("a", "b")  # a copy elsewhere, or the folder moved, is the same data
    status, error = refuse_after(change, data, run)
    assert status == 2
    assert "--data: " in error
    assert run_command(*run.replace("--data a", "--data b").split()) == FINISHED


def refuse_after(change: Callable[[RecordFolder], None], data: RecordFolder, run: str) -> tuple[int, str]:
    change(data)
    return refuse(run)


def test_one_byte_in_the_middle_of_a_large_file_is_noticed(tmp_path: Path) -> None:
    from trainer.data import fingerprint

    path = tmp_path / "part-0"
    path.write_bytes(bytes(4 << 20))
    before = fingerprint([path])
    for at in (0, 2 << 20, (4 << 20) - 1):
        content = bytearray(4 << 20)
        content[at] = 1
        path.write_bytes(content)
        assert fingerprint([path]) != before
    path.write_bytes(bytes(4 << 20))
    path.rename(tmp_path / "part-1")
    assert fingerprint([tmp_path / "part-1"]) != before


def test_token_shards_that_were_damaged_are_not_trained_on(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "tokens", shards=2)
    (folder / "tokenizer.json").write_text("{}")
    path = folder / "x_training_00001.bin"
    tokens = np.fromfile(path, "<u2")
    tokens[40:440] = tokens[40:440][::-1]
    tokens.tofile(path)
    status, error = refuse(f"--data {folder} --model tiny --seq 64 --steps 4 --engine torch --out {tmp_path}/out")
    assert (status, f"{path}: has blake3" in error) == (1, True), error


@pytest.mark.parametrize(
    ("given", "part"),
    [
        *((weights, "expected weights above 0") for weights in (".=0.5 wiki=nan", "wiki=1e400 .=1", "wiki=-1 .=1")),
        *((folders, "is given twice") for folders in ("wiki=0.5 ./wiki=0.5", "wiki wiki", "link wiki")),
        ("/dev/null=0.5 wiki=0.5", "/dev/null"),
    ],
)
def test_folders_and_weights_that_cannot_be_mixed_are_named(
    given: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (write_set(Path("wiki"), shards=1) / "tokenizer.json").write_text("{}")
    Path("link").symlink_to("wiki")
    status, error = refuse(f"--data {given} --model tiny --seq 64 --steps 2 --engine torch")
    assert status in (1, 2)
    assert part in error


@pytest.mark.parametrize("weights", [(".=1e-4", "../b=+1"), ("../a=5E-1", "../b=.5")])
def test_weights_may_be_any_numbers_above_0(weights: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, shards in (("a", 1), ("b", 2)):
        (write_set(tmp_path / name, shards=shards) / "tokenizer.json").write_text("{}")
    monkeypatch.chdir(tmp_path / "a")
    command = f"--data {' '.join(weights)} --model tiny --seq 64 --steps 2 --engine torch --batch-size 4 --out {tmp_path}/out"
    assert run_command(*command.split(), "--no-dropout") == FINISHED


# --- a model's folder that cannot be written


PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1


def obey_permissions() -> None:
    """Make the next program obey the modes of folders, even as root."""
    if os.geteuid() == 0:
        ctypes.CDLL(None, use_errno=True).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


@pytest.mark.torch
@pytest.mark.parametrize("out", ["", "elsewhere"])
def test_an_evaluation_prints_its_metrics_where_it_cannot_write(out: str, workdir: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ["glue", "--engine", "torch", "--data", workdir / "mood", "--init", write_model(tmp_path / "model")]
    assert run_here(*command, "--name", "mood", "--out", run, *STEPS) == FINISHED
    words = [sys.executable, "-m", "trainer", "evaluate", str(run), "--data", str(workdir / "mood"), "--engine", "torch"]
    for folder in (run, tmp_path):
        folder.chmod(0o555)
    try:
        ended = subprocess.run(
            [*words, *(["--out", str(tmp_path / out)] if out else [])],
            capture_output=True, text=True, preexec_fn=obey_permissions, check=False,
        )  # fmt: skip
    finally:
        tmp_path.chmod(0o755)
        run.chmod(0o755)
    assert "accuracy" in ended.stdout
    assert "cannot be written" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.returncode == (1 if out else 0), ended.stderr
