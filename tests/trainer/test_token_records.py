"""Runs on token shards of any tokenizer: the rows of a `TokenDataset`, packed where the engine takes that."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertprep
from bertprep import Mixture, TokenDataset
from bertprep.errors import BertprepError, UsageError
from bertprep.files.checksums import digest
from bertprep.tokens.mixture import PERIOD
from tests.instances.small_tokenizers import TEXT, write_tokenizer
from tests.tokens.test_dataset import INFO, write_set
from tests.trainer.numpy_engine import (
    NumPyEngine,
    assert_same_run,
    at_step,
    pattern_of,
    plan,
    read_entries,
    refuse,
    run,
    run_command,
    sigterm,
)
from tests.trainer.small_data import save_checkpoint
from tests.trainer.small_runs import MODEL, build
from trainer.batches import GlobalBatch, TrainingBatches, features
from trainer.checkpoint import read_header
from trainer.cli import main
from trainer.data import read_weights
from trainer.export import export_model
from trainer.model_config import ModelConfig
from trainer.tasks.pretraining import Pretraining, PretrainOptions
from trainer.token_records import PackedExamples, TokenRecords

SEQ = 64


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_set(tmp_path_factory.mktemp("tokens") / "set")
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.mark.parametrize("packed", [True, False])
def test_batches_are_the_rows_of_a_token_dataset(tokens: Path, packed: bool) -> None:
    settings: dict[str, Any] = {"seq": SEQ, "masked_lm_prob": 0.2, "mask_as": (1.0, 0.0, 0.0), "packed": packed}
    expected = list(TokenDataset(tokens, **settings).batches(4, stop=100))
    with TokenRecords([tokens], **settings) as records:
        batches = TrainingBatches(records, GlobalBatch(4), seed=1)
        for step in (0, 99):  # of the second epoch, too
            arrays, of_step = batches.read(step).arrays, expected[step]
            labels = np.full((4, SEQ), -100)
            rows, slots = np.nonzero(arrays["masked_lm_weights"])
            labels[rows, arrays["masked_lm_positions"][rows, slots]] = arrays["masked_lm_ids"][rows, slots]
            np.testing.assert_array_equal(labels, of_step["labels"])
            for name in ("input_ids", "position_ids", "sequence_ids") if packed else ("input_ids",):
                np.testing.assert_array_equal(arrays[name], of_step[name])
            if not packed:
                np.testing.assert_array_equal(arrays["input_mask"], of_step["attention_mask"])
        assert len(records) < 99 * 4


def test_folders_are_mixed_by_the_weights_of_the_command_line(
    tokens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan and the log say how much of each is read; a run that resumes needs the same weights."""
    other = write_set(tmp_path / "year=2024", shards=1)
    (other / "tokenizer.json").write_text("{}")
    out, folders = tmp_path / "out", (f"{tokens}=0.7", f"{other}=.3")
    assert read_weights([*map(Path, folders)]) == ((tokens, other), (0.7, 0.3))
    assert read_weights([other]) == ((other,), ())
    command = f"--model tiny --engine torch --seq {SEQ} --steps 6 --batch-size 8 --no-dropout --out {out}".split()
    assert run_command("--data", *folders, *command) == 0
    [entry] = [each for each in read_entries(out) if each["kind"] == "run"]
    with TokenRecords([tokens, other], seq=SEQ, masked_lm_prob=0.15, weights=[0.7, 0.3]) as records:
        expected = records.describe_mixture(48)
    assert entry["mixture"] == expected
    assert sum(each["rows"] for each in expected) == 48
    printed = "".join(capsys.readouterr())
    assert f"mixture        set 0.7, {expected[0]['rows']} rows, " in printed
    assert f"year=2024 0.3, {expected[1]['rows']} rows" in printed
    status, error = refuse(" ".join(["--data", f"{tokens}=0.5", f"{other}=0.5", *command]))
    assert status == 2
    assert "--data: weights" in error


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (["{tokens}=0.7", "{other}"], [], "other: has no weight, but other folders do; give every folder a weight, such as"),
        (["{tokens}=0", "{other}=1"], [], "expected weights above 0"),
        (
            ["{tokens}=0.7", "{other}=0.3"],
            ["--temperature", "0.5"],
            "temperature 0.5: computes weights from sizes; give a temperature or weights",
        ),
        (["{tokens}"], ["--temperature", "0.5"], "--temperature 0.5: mixes several folders, but --data names one"),
    ],
)
def test_weights_that_cannot_be_are_refused(
    given: list[str], options: list[str], message: str, tokens: Path, tmp_path: Path
) -> None:
    other = write_set(tmp_path / "other", shards=1)
    (other / "tokenizer.json").write_text("{}")
    folders = [each.format(tokens=tokens, other=other) for each in given]
    status, error = refuse(" ".join(["--model tiny --data", *folders, f"--seq {SEQ} --out {tmp_path}/out", *options]))
    assert status == 2
    assert message in error


def test_several_folders_are_mixed_by_their_tokens(tokens: Path, tmp_path: Path) -> None:
    other = write_set(tmp_path / "other", shards=1)
    with TokenRecords([tokens, other], seq=SEQ) as records:
        assert isinstance(records.rows, Mixture)
        in_one, in_other = (dataset.documents.tokens for dataset in records.rows.sets)
        counts = records.rows.counts(PERIOD)
        assert counts[0] / counts[1] == pytest.approx(in_one / in_other, rel=1e-3)
        assert len(records) == sum(map(len, records.rows.sets))


def test_a_stopped_run_ends_with_the_same_bytes(tokens: Path, tmp_path: Path) -> None:
    def options(name: str) -> PretrainOptions:
        return PretrainOptions(data=(tokens,), out=tmp_path / name, model="tiny", seq=SEQ, batch_size=8, steps=20, log_every=1)

    given = {"packed": False, "masked_lm_prob": 0.3}
    assert run(options("uninterrupted"), given=given)
    assert not run(options("stopped"), NumPyEngine(on_step=at_step(13, sigterm)), given=given)
    for name, value, option in (
        ("masked_lm_prob", 0.2, "masked-lm-prob"),
        ("mask_as", (1, 0, 0), "mask-as"),
        ("seed", 4, "data-seed"),
    ):
        with pytest.raises(UsageError, match=f"was made with other options: --{option} [^;]* -> [^:]*; resume"):
            run(options("stopped"), given={**given, name: value})
    assert run(options("stopped"), given=given)
    assert_same_run(tmp_path / "stopped", tmp_path / "uninterrupted")
    assert (tmp_path / "stopped" / "tokenizer.json").read_text() == "{}"


@pytest.mark.parametrize("packed", [True, False])
def test_a_row_with_a_bad_id_is_skipped_in_every_epoch(packed: bool, tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", shards=2)
    (folder / "tokenizer.json").write_text("{}")
    corrupt = folder / "x_training_00001.bin"
    tokens = np.fromfile(corrupt, "<u2")
    tokens[100] = 65_000
    tokens.tofile(corrupt)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["files"][corrupt.name]["blake3"] = digest(corrupt.read_bytes())  # as a faulty tool leaves it
    (folder / "manifest.json").write_text(json.dumps(manifest))
    options = PretrainOptions(data=(folder,), out=tmp_path / "out", model="tiny", seq=SEQ, batch_size=8, steps=60)
    with pytest.raises(BertprepError, match=r"token 100 is 65,000, .* --skip-bad-records 0; "):
        run(options, given={"packed": packed})
    with TokenRecords([folder], seq=SEQ, packed=packed) as records:
        assert len(records) < 60 * 8 / 2  # so it is read more than once
        block = records.kind.empty(len(records), seq=SEQ, pred=records.pred)
        for array in block.arrays:
            array[...] = 1  # of the batch before
        [bad] = records.gather_good(block, np.arange(len(records)))
        assert bad.index == bad.row
        assert not any(array[bad.row].any() for array in block.arrays)
        assert block.input_ids.any(1).sum() == len(records) - 1
    assert run(replace(options, skip_bad_records=1), given={"packed": packed})
    [entry] = read_entries(tmp_path / "out", "bad_record")
    assert entry["what"].startswith(f"{corrupt}: token 100 is 65,000, expected 0 to 299, the ids of its tokenizer; ")


def test_a_phase_of_a_recipe_has_its_length_and_masks(tokens: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"--data {tokens} --no-packed --steps 10"
    for phase, seq, masked_lm_prob in (("mmbert", 1024, 0.3), ("mmbert:3", 8192, 0.05)):
        found = plan(f"--recipe {phase} {line}")
        assert isinstance(found.data.records, TokenRecords)
        assert (found.data.records.seq, found.data.records.settings["masked_lm_prob"]) == (seq, masked_lm_prob)
        assert (found.model.max_position_embeddings, found.model.vocab_size) == (seq, INFO.width)
    printed = capsys.readouterr().err
    assert "--recipe mmbert: phase 1 of 3: --seq 1024 " in printed
    assert "of 1024 tokens per epoch, 30% masked anew in each" in printed
    found = plan(f"{line} --seq 32 --mask-as 1,0,0 --whole-word")
    assert found.data.records.settings["mask_as"] == (1, 0, 0)  # type: ignore[union-attr]
    assert "15% masked anew in each (--mask-as 1,0,0), whole words" in capsys.readouterr().err


def test_a_recipe_of_documents_without_data_names_the_command_that_makes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pretrain", "--recipe", "modernbert:2", "--workdir", str(tmp_path)]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "trainer: error: --masked-lm-prob: applies to token shards only; make some with bertprep tokenize --recipe or "
        "--tokenizer and name them with --data, or leave it out"
    )


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            "--engine oneflow",
            "--engine oneflow: does not support packed rows | --engine torch or tensorflow | with --no-packed",
        ),
        ("--pack", "--pack: the rows of | are packed already; leave it out"),
        ("--engine torch --dupe 3", "--dupe: applies to token shards of sentences, but | made with --tokenizer"),
        ("--engine torch --pred 3", "--pred: applies to token shards of sentences"),
        ("--engine torch --masked-lm-prob 0.3,0.1", "--masked-lm-prob 0.3,0.1: must be a number"),
        ("--engine torch --seq 1000000000", "--seq 1000000000: must be | 1,048,576"),
        (
            "--engine torch --seq 1000000 --batch-size 3 --steps 9",
            "/ | : the attention scores of 3 sequences of 1,000,000 tokens need 24,000 GB in each layer | --batch-size",
        ),
        ("--engine torch --steps 3 --epochs 1", "--epochs 1: cannot be combined with --steps 3; leave one of them out"),
        ("--engine torch --masked-lm-prob 1", "--masked-lm-prob 1: must be below 1"),
        ("--engine torch --mask-as 1,1,0", "--mask-as 1,1,0: | add up to 1"),
        ("--engine torch --mask-as 1,0", "--mask-as 1,0: expected three fractions for mask, random and keep"),
    ],
)
def test_what_does_not_go_together_is_refused(words: str, parts: str, tokens: Path) -> None:
    status, error = refuse(f"--model tiny --data {tokens} {words}")
    assert status == 2
    assert re.match(pattern_of(parts), error), error


def test_token_shards_without_their_tokenizer_are_refused(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set")
    assert not (folder / "tokenizer.json").exists()
    status, error = refuse(f"--model tiny --data {folder} --engine torch --out {tmp_path}/out")
    assert status == 2
    assert re.match(pattern_of(f"{folder}/tokenizer.json: does not exist | run bertprep tokenize again"), error), error


def test_a_model_is_evaluated_as_its_run_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {}
    for split, shards in (("training", 2), ("test", 1)):
        made = write_set(tmp_path / split, shards=shards)
        manifest = json.loads((made / "manifest.json").read_bytes())
        files |= {f"{split}/{name}": entry for name, entry in manifest["files"].items()}
        (made / "manifest.json").unlink()
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "files": files}))
    (tmp_path / "tokenizer.json").write_text("{}")
    words = (
        f"--data {tmp_path} --out {tmp_path}/out --model tiny --seq {SEQ} --batch-size 8 --steps 20 --no-packed --data-seed 7"
    )
    assert run_command(*words.split(), "--mask-as", "1,0,0") == 0
    assert f"evaluate {tmp_path}/out --data {tmp_path}, or" in capsys.readouterr().err
    (of_run,) = read_entries(tmp_path / "out", "evaluation")
    header = read_header(tmp_path / "out" / "checkpoint-000000020.safetensors")
    config = ModelConfig.from_settings(header["model"])
    settings = {name: header[name] for name in ("examples", "seq", "pred", "vocabulary_sha256")}
    save_checkpoint(tmp_path / "trained", Pretraining(has_pairs=False), config=config, **settings)
    for split, is_same in (("test", True), ("training", False)):
        assert run_command("evaluate", "--init", tmp_path / "trained", "--data", tmp_path, "--split", split) == 0
        loss = re.search(rf"{split}, [\d,]+ sequences: loss ([\d.e+]+),", capsys.readouterr().out)
        assert loss
        assert (float(loss[1]) == pytest.approx(of_run["loss"], rel=1e-5)) == is_same


def test_a_model_of_sentences_is_of_another_vocabulary(tokens: Path, tmp_path: Path) -> None:
    settings = {"examples": {"dupe": 3, "pred": 5, "data_seed": 1}, "seq": SEQ, "vocabulary_sha256": "1" * 64}
    save_checkpoint(tmp_path, Pretraining(has_pairs=False), **settings)
    status, error = refuse(f"evaluate --init {tmp_path} --data {tokens} --split training")
    assert (status, "has vocabulary sha256" in error) == (2, True), error


@pytest.mark.parametrize("exported", [False, True])
def test_weights_of_another_tokenizer_are_refused(exported: bool, tokens: Path, tmp_path: Path) -> None:
    model = replace(MODEL, vocab_size=INFO.width)
    save_checkpoint(tmp_path, Pretraining(has_pairs=False), config=model, vocabulary_sha256=None if exported else "1" * 64)
    if exported:
        (tmp_path / "tokenizer.json").write_text("{}")
    status, error = refuse(f"--engine torch --data {tokens} --init {tmp_path} --seq {SEQ}")
    named = "tokenizer.json" if exported else "checkpoint-000000001.safetensors"
    assert status == 2
    by = tmp_path / named if exported else "tokenizer.json"
    assert re.match(pattern_of(f"{tmp_path / named}: has vocabulary sha256 | model, by --tokenizer {by}, or name"), error), (
        error
    )


@pytest.mark.torch
def test_the_loss_of_packed_rows_is_that_of_their_sequences(tokens: Path) -> None:
    task = Pretraining(has_pairs=False)
    engine = build("torch", MODEL.without_dropout(), task=task)
    with TokenRecords([tokens], seq=SEQ, masked_lm_prob=0.3) as records:
        packed = PackedExamples.empty(20, seq=SEQ, pred=records.pred)
        records.gather_good(packed, np.arange(20))
    starts = [
        (row, at) for row, at in zip(*np.nonzero(packed.position_ids == 0), strict=True) if packed.input_ids[row, at] != 0
    ]
    alone = {name: np.zeros((len(starts), *array.shape[1:]), array.dtype) for name, array in features(packed).items()}
    alone = {name: array for name, array in alone.items() if name not in ("position_ids", "sequence_ids")}
    alone["row_weights"][:] = 1
    for index, (row, start) in enumerate(starts):
        size = int((packed.sequence_ids[row] == packed.sequence_ids[row, start]).sum())
        alone["input_ids"][index, :size] = packed.input_ids[row, start : start + size]
        alone["input_mask"][index, :size] = 1
        inside = (packed.masked_lm_weights[row] == 1) & (packed.masked_lm_positions[row] >= start)
        slots = np.flatnonzero(inside & (packed.masked_lm_positions[row] < start + size))
        alone["masked_lm_positions"][index, slots] = packed.masked_lm_positions[row, slots] - start
        alone["masked_lm_ids"][index, slots] = packed.masked_lm_ids[row, slots]
        alone["masked_lm_weights"][index, slots] = 1
    of_packed, of_sequences = (task.metrics(engine.evaluate(batch)) for batch in (features(packed), alone))
    assert len(starts) > 30
    assert of_packed["loss"] == pytest.approx(of_sequences["loss"], abs=1e-5)


@pytest.mark.torch
def test_a_run_on_packed_rows_and_its_model_for_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, file = tmp_path / "text.txt", write_tokenizer(tmp_path, "byte_bpe")
    text.write_text("\n\n".join(TEXT))
    bertprep.tokenize(inputs=[text], tokenizer=file, output=tmp_path / "tokens", one_document_per_block=True, workers=1)
    words = (
        f"--engine torch --data {tmp_path / 'tokens'} --model tiny --steps 3 --batch-size 2 --seq {SEQ} --masked-lm-prob 0.3"
    )
    assert main([*words.split(), "--out", str(tmp_path / "out")]) == 0
    assert "trainer evaluate" not in capsys.readouterr().err  # which takes a test split by default
    words = f"evaluate --engine torch --init {tmp_path / 'out'} --data {tmp_path / 'tokens'}"
    assert main(words.split()) == 2
    assert "has no test split; evaluate on its training split with --split training" in capsys.readouterr().err
    assert main([*words.split(), "--split", "training"]) == 0
    assert main([*words.replace("torch", "tensorflow").split(), "--split", "training"]) == 0
    export_model(tmp_path / "out", tmp_path / "exported")
    assert (tmp_path / "exported" / "tokenizer.json").read_bytes() == file.read_bytes()
    config, tokenizer = (
        json.loads((tmp_path / "exported" / name).read_text()) for name in ("config.json", "tokenizer_config.json")
    )
    assert (config["architectures"], config["pad_token_id"]) == (["BertForMaskedLM"], 3)
    assert tokenizer == {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 512, "cls_token": "[CLS]", "sep_token": "[SEP]",
        "pad_token": "[PAD]", "mask_token": "[MASK]", "unk_token": "[UNK]",
    }  # fmt: skip
    with pytest.raises(UsageError, match=r"has a tokenizer\.json, but Google's scripts read only a vocab\.txt"):
        export_model(tmp_path / "out", tmp_path / "google", to="google")
