"""Clean data of either format, whoever made it, has no finding; other tools' data and its peculiarities are understood.

Faults are planted in tests/check/test_planted_faults.py.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep import records
from bertprep.check.finding import Finding
from bertprep.check.folder import find_gaps
from bertprep.cli import main
from bertprep.commands.create import create
from bertprep.config import InstanceSettings, Variant
from bertprep.errors import UsageError
from bertprep.records import PretrainingExamples
from bertprep.records.write import write_examples
from bertprep.work.choose import find_records
from bertprep.work.find import find_data_sets
from bertprep.work.run import FAIL_AFTER
from tests.check.clean_sets import CleanSet, write_set, write_texts
from tests.corpora import deal, pad_at, sums, write_short_sentences
from tests.golden import GOLDEN
from tests.runs import start

NAME = "tfrecord/training/corpus_training_00000.tfrecord"


@pytest.fixture(scope="module")
def made(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of four shards in both formats; tests that damage them take a copy."""
    folder = tmp_path_factory.mktemp("made")
    text = write_short_sentences(golden_corpus, folder.with_suffix(".txt"))
    create(inputs=deal(text, folder / "text", 4), output=folder, vocab=GOLDEN / "vocab.txt", workers=1)
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


@pytest.fixture
def examples(made: Path) -> PretrainingExamples:
    with records.open(made / NAME) as file:
        return file[:]


def codes(*paths: Path, **options: object) -> list[str]:
    outcomes = bertprep.validate(paths, workers=1, **options)  # type: ignore[arg-type]
    return sorted({finding.code for outcome in outcomes for finding in outcome.findings})


def test_clean_data_has_no_findings(made: Path) -> None:
    outcomes = bertprep.validate([made], workers=2)
    assert [str(finding) for outcome in outcomes for finding in outcome.findings] == []
    assert sorted(outcome.kind for outcome in outcomes) == ["ofrecord", "tfrecord"]
    for outcome in outcomes:
        assert (outcome.seq, outcome.pred, len(outcome.files), outcome.errors) == (128, 20, 4, 0)
        assert sum(file.records for file in outcome.files) == outcome.counts["training"].records
        assert outcome.duplicates == {"training": 0}
    assert np.array_equal(outcomes[0].counts["training"].labels, outcomes[1].counts["training"].labels)


def test_no_paths_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^no data; name at least one folder or file$"):
        bertprep.validate([])


def test_files_without_manifest_and_vocabulary(copy: Path) -> None:
    for name in ("manifest.json", "vocab.txt"):
        (copy / "ofrecord" / name).unlink()
    assert codes(copy / "ofrecord") == ["vocabulary"]
    assert codes(copy / "ofrecord", vocab=GOLDEN / "vocab.txt") == []


def test_another_vocabulary_next_to_the_records_is_found_and_not_used(copy: Path) -> None:
    """All that would be checked with it would be wrong; the right one by --vocab leaves a warning on the wrong one."""
    folder = copy / "ofrecord"
    tokens = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    (folder / "vocab.txt").write_text("\n".join([*tokens[:5], *reversed(tokens[5:-1]), ""]), encoding="utf-8")
    (outcome,) = bertprep.validate([folder], workers=1)
    (finding,) = outcome.findings
    assert (finding.code, finding.level, finding.file) == ("manifest", "error", "vocab.txt")
    assert "copy the right one over it, or run the command that made the records again, which writes it" in str(finding)
    (outcome,) = bertprep.validate([folder], vocab=GOLDEN / "vocab.txt", workers=1)
    assert [(each.code, each.level, each.file) for each in outcome.findings] == [("manifest", "warning", "vocab.txt")]
    (outcome,) = bertprep.validate([folder], vocab=folder / "vocab.txt", workers=1)
    assert "name that one with --vocab, or leave --vocab out" in str(outcome.findings[0])


def test_a_training_file_in_the_test_split_is_to_be_removed_there(copy: Path) -> None:
    folder = copy / "ofrecord"
    (folder / "test").mkdir()
    (folder / "test/part-9").write_bytes((folder / "training/part-0").read_bytes())
    (outcome,) = bertprep.validate([folder], workers=1)
    advice = {finding.code: finding.advice for finding in outcome.findings}
    assert advice["identical-files"] == "remove test/part-9, or make both splits again"
    assert advice["test-in-training"] == "a file of both splits explains it: see identical-files"


def test_a_sample(made: Path) -> None:
    for outcome in bertprep.validate([made], sample=50, workers=1):
        assert (outcome.findings, outcome.counts["training"].records, outcome.duplicates) == ([], 200, {})
        records = sum(file.records for file in outcome.files)
        verdict = f"no errors, no warnings: {50 * len(outcome.files):,} of {records:,} records in {len(outcome.files)} files"
        assert str(outcome).splitlines()[-1] == verdict


def test_gzip_and_the_names_of_tensorflow_2(made: Path, tmp_path: Path) -> None:
    variant = Variant(feature_names="tf2", compress="gzip")
    bertprep.convert(made / "tfrecord", tmp_path / "made", to="tfrecord", **vars(variant), workers=1)
    for _ in range(2):
        (outcome,) = bertprep.validate([tmp_path / "made"], workers=1)
        assert (outcome.findings, len(outcome.files)) == ([], 4)
        (tmp_path / "made/manifest.json").unlink(missing_ok=True)
    packed = next((tmp_path / "made/training").iterdir())
    packed.write_bytes(packed.read_bytes()[:5000])
    assert "truncated" in codes(tmp_path / "made")


@pytest.mark.parametrize("record_format", ["arrow", "parquet"])
def test_columns(made: Path, tmp_path: Path, record_format: str) -> None:
    bertprep.convert(made / "tfrecord", tmp_path / "made", to=record_format, workers=1)
    (expected,) = bertprep.validate([made / "tfrecord"], workers=1)
    (outcome,) = bertprep.validate([tmp_path / "made"], workers=1)
    assert (outcome.kind, outcome.findings, len(outcome.files)) == (record_format, [], 4)
    assert np.array_equal(outcome.counts["training"].labels, expected.counts["training"].labels)
    path = next((tmp_path / "made").rglob(f"*.{record_format}"))
    alone = tmp_path / path.name
    alone.write_bytes(path.read_bytes()[:-8000])
    assert codes(alone, vocab=GOLDEN / "vocab.txt") == [{"arrow": "truncated", "parquet": "unreadable"}[record_format]]


def test_a_bad_record_does_not_stop_the_others(copy: Path) -> None:
    content = bytearray((copy / NAME).read_bytes())
    content[600] ^= 1
    (copy / NAME).write_bytes(content)
    (outcome,) = bertprep.validate([copy / NAME], workers=1)
    advice = {finding.code: finding.advice for finding in outcome.findings}
    assert advice["bad-checksum"] == "the file is not the one that was made: see file-changed"
    assert "--remove-damaged" in advice["file-changed"]
    assert outcome.counts["training"].records == outcome.files[0].records - 1


def test_a_bad_record_of_a_sample_is_named_by_its_id_in_the_file(copy: Path) -> None:
    content = bytearray((copy / NAME).read_bytes())
    with records.open(copy / NAME) as file:
        record = 25 * len(file) // 50  # the middle one of the sample
    start = 0
    for _ in range(record):
        start += 16 + int.from_bytes(content[start : start + 8], "little")  # its length, two checksums of four bytes
    content[start + 100] ^= 1
    (copy / NAME).write_bytes(content)
    (outcome,) = bertprep.validate([copy / NAME], sample=50, workers=1)
    assert [finding.record for finding in outcome.findings if finding.code == "bad-checksum"] == [record]
    assert outcome.counts["training"].records == 49


def test_a_bad_file_does_not_stop_the_others(copy: Path) -> None:
    (copy / NAME).write_bytes(b"")
    (outcome,) = bertprep.validate([copy / "tfrecord"], workers=2)
    assert sorted({finding.code for finding in outcome.findings}) == ["empty-file", "file-changed", "manifest"]
    assert len(outcome.files) == 4


def test_the_odd_file_is_named(copy: Path, golden_corpus: Path) -> None:
    settings = InstanceSettings(seq=64, pred=10)
    create(inputs=[golden_corpus], **vars(settings), output=copy / "other", vocab=GOLDEN / "vocab.txt", workers=1)
    shutil.copy(copy / "other/ofrecord/training/part-0", copy / "ofrecord/training/part-0")  # the first of the files
    shutil.copy(copy / "tfrecord/training/corpus_training_00001.tfrecord", copy / "ofrecord/training/part-9")
    (copy / "ofrecord/manifest.json").unlink()
    (outcome,) = bertprep.validate([copy / "ofrecord"], workers=1)
    odd = {finding.file: finding.expected for finding in outcome.findings if finding.code == "mixed-shape"}
    assert odd == {
        "training/part-0": "pretraining records of 128 tokens and 20 predictions, as most have",
        "training/part-9": "ofrecord, as 4 files are",
    }


@pytest.mark.parametrize(
    ("settings", "fitting"),
    [
        (InstanceSettings(dupe=1, masked_lm_prob=0.3, pred=40), "0.3"),
        (InstanceSettings(dupe=1, masked_lm_prob=0.3), "0.3"),  # a limit of 20 hides most of them
        (InstanceSettings(dupe=1, masked_lm_prob=0.25, pairs="none"), "0.25"),
        (InstanceSettings(dupe=1, whole_word=True), None),
    ],
)
def test_the_masking_fraction_that_fits_is_named(
    settings: InstanceSettings, fitting: str | None, golden_corpus: Path, tmp_path: Path
) -> None:
    create(inputs=[golden_corpus], **vars(settings), output=tmp_path, vocab=GOLDEN / "vocab.txt", formats="tfrecord", workers=1)
    (tmp_path / "tfrecord/manifest.json").unlink()
    (outcome,) = bertprep.validate([tmp_path], workers=1)
    (said,) = (str(finding) for finding in outcome.findings if finding.code == "prediction-count")
    assert (f"; --masked-lm-prob {fitting} would fit all records" in said) == (fitting is not None)
    assert ("--whole-word" in said) == (fitting is None)
    assert codes(tmp_path, **({"masked_lm_prob": float(fitting)} if fitting else {"whole_word": True})) == []
    assert "prediction-count" in codes(tmp_path, masked_lm_prob=0.05)


def test_our_own_records_are_not_rounded_as_by_python_2(golden_corpus: Path, tmp_path: Path) -> None:
    """Those of other tools may be: tests/check/clean_sets.py has such sets."""
    clean = CleanSet("golden", InstanceSettings(seq=30, pred=5, dupe=1), "rounded up")
    assert "prediction-count" in codes(write_set(clean, 0, write_texts(golden_corpus, tmp_path), tmp_path / "ours"))


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        ("part-0 part-2", ["part-1"]),
        ("part-00000 part-00001 part-00003", ["part-00002"]),
        ("wiki_training_00000.tfrecord wiki_training_00002.tfrecord", ["wiki_training_00001.tfrecord"]),
        ("x.tfrecord-00001-of-00003", ["x.tfrecord-00000-of-00003"]),
        ("training/part-0 training/part-2 test/part-0", ["training/part-1"]),
        ("part-7 part-9", []),
        ("wiki_2019.tfrecord wiki_2021.tfrecord", []),
    ],
)
def test_a_gap_in_numbered_names_is_found(names: str, missing: list[str], tmp_path: Path) -> None:
    for name in names.split():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (data_set,) = find_data_sets([tmp_path])
    assert [(gap.level, gap.code, gap.file) for gap in find_gaps(data_set)] == [
        ("error", "file-missing", name) for name in missing
    ]
    (chosen,) = find_data_sets([tmp_path / name for name in names.split() if "test" not in name])
    assert [gap.file for gap in find_gaps(chosen)] == missing


def test_a_workspace(golden_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of text shards, and records of both formats and splits."""
    text = write_short_sentences(golden_corpus, tmp_path / "golden.txt")
    bertprep.shard([text], splitter="lines", shards=2, workdir=tmp_path, corpus="golden", workers=1)
    create(dupe=1, workdir=tmp_path, corpus="golden", vocab=GOLDEN / "vocab.txt", workers=1)
    outcomes = bertprep.validate([tmp_path], workers=2)
    assert sorted(outcome.kind for outcome in outcomes) == ["ofrecord", "text shards", "tfrecord"]
    assert [finding for outcome in outcomes for finding in outcome.findings] == []
    assert set(outcomes[0].counts) == {"training", "test"}
    (of_split,) = bertprep.validate([outcomes[0].folder / "training"], workers=2)
    assert (of_split.folder, of_split.manifest) == (outcomes[0].folder, outcomes[0].manifest)
    assert set(of_split.counts) == {"training"}
    next(tmp_path.rglob("*training_00000.tfrecord")).write_bytes(b"")
    capsys.readouterr()
    assert main(["validate", str(tmp_path / "tfrecord")]) == 1
    assert re.search(r"^golden, tfrecord 128/20: [1-9] errors?, \S+ warnings?$", capsys.readouterr().out, re.MULTILINE)


def test_tables_have_no_empty_columns(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file alone has no split, and without a vocabulary [UNK] is unknown; folders tell data sets of one title apart."""
    folders = [tmp_path / name / "mine" for name in "ab"]
    for folder in folders:
        folder.mkdir(parents=True)
        shutil.copy(copy / NAME, folder / "part-0")
    assert main(["validate", *map(str, folders), "--workers", "1"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("warning: ")]
    assert [lines[0], lines[5]] == [f"mine, tfrecord 128/20 in {folder}: no errors, 1 warning" for folder in folders]
    assert lines[1].split() == ["files", "records", "tokens", "padding"]
    assert re.split("  +", lines[3].strip()) == ["[MASK]", "kept", "random token", "next: random"]
    assert lines[10].startswith("no errors, 2 warnings: ")


def test_an_unfinished_run_has_no_gaps(copy: Path) -> None:
    (copy / "ofrecord/manifest.json").unlink()
    (copy / "ofrecord/.ledger").mkdir()
    (copy / "ofrecord/training/part-1").unlink()
    assert codes(copy / "ofrecord") == ["manifest"]


def test_an_unfinished_run_is_one_error_that_names_its_command(
    golden_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The vocabulary, which is copied at the end of a run, is not missed too."""
    text, made = deal(golden_corpus, tmp_path / "text", 2), tmp_path / "made"
    options = {"vocab": GOLDEN / "vocab.txt", "formats": "tfrecord", "dupe": 1, "workers": 1, "part": "0/2"}
    bertprep.create(inputs=text, output=made, lines_are_sentences=True, **options)
    assert main(["validate", str(made), "--workers", "1"]) == 1
    printed = capsys.readouterr()
    lines = [line for line in (printed.out + printed.err).splitlines() if line.startswith(("error: ", "warning: "))]
    assert lines == [
        f"error: manifest: {made}/tfrecord/.ledger: expected a finished run, found one that is not finished; run the "
        "bertprep create command that began it again, which resumes it"
    ]


def test_a_format_without_its_folder(copy: Path) -> None:
    shutil.rmtree(copy / "ofrecord/training")
    assert set(codes(copy)) == {"file-missing"}


@pytest.mark.parametrize("finished", [1, 3])  # the sorted text, and then a shard
def test_text_shards_that_are_not_finished(
    finished: int, golden_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.setenv(FAIL_AFTER, f"{finished} SIGKILL")
    command = ["shard", "--input", str(golden_corpus), "--corpus", "half", "--workdir", "data", "--workers", "1"]
    [(status, _)] = start(tmp_path / "work", [command])
    assert status == -signal.SIGKILL
    folder = tmp_path / "work/data/sharded/half"
    [outcome] = bertprep.validate([tmp_path / "work/data"])
    assert (outcome.folder, outcome.kind) == (folder, "text shards")
    [finding] = outcome.findings
    assert (finding.code, finding.advice) == (
        "manifest",
        "run the bertprep shard command that began it again, which resumes it",
    )


def test_a_run_that_was_killed_before_its_first_file_is_an_error(
    golden_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The workspace has finished text shards, which hid the run, and finished records, which are read as before."""
    (tmp_path / "work").mkdir()
    data = tmp_path / "work/data"
    bertprep.shard(golden_corpus, corpus="half", workdir=data, shards=2, workers=1)
    options = {"corpus": "half", "workdir": data, "vocab": GOLDEN / "vocab.txt", "formats": "tfrecord", "workers": 1}
    finished = bertprep.create(dupe=1, **options).folders["tfrecord"]
    monkeypatch.setenv(FAIL_AFTER, "1 SIGKILL")
    command = ["create", "--corpus", "half", "--workdir", "data", "--vocab", str(GOLDEN / "vocab.txt"), "--format", "tfrecord"]
    [(status, _)] = start(tmp_path / "work", [[*command, "--dupe", "2", "--workers", "1"]])
    assert status == -signal.SIGKILL
    [ledger] = data.glob("tfrecord/*dupe_factor_2*/half/.ledger")
    killed = ledger.parent
    for path in [*killed.rglob("*.tfrecord"), *ledger.rglob("*.tfrecord.json")]:
        path.rename(path.with_suffix(".1234abcd.tmp"))  # as after a kill in the middle of the first file
    for named in (data, data / "tfrecord", killed, killed / "training"):
        assert main(["validate", str(named), "--workers", "1", "--html", str(tmp_path / "page.html")]) == 1
        errors = [line for line in capsys.readouterr().out.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1
        assert errors[0].startswith(f"error: manifest: {ledger}: expected a finished run, found one that is not finished; ")
    assert find_records(data).folder == finished
    with pytest.raises(UsageError, match=rf"^{killed}: is not finished; "):
        find_records(killed)


def test_the_command(copy: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["validate", str(copy), "--json", str(tmp_path / "found.json")]) == 0
    assert "tfrecord 128/20" in capsys.readouterr().out
    content = json.loads((tmp_path / "found.json").read_text())
    fractions = content["data_sets"][0]["splits"]["training"]["fractions"]
    low, high = fractions["predictions shown as [MASK]"]["interval"]
    assert low < 0.8 < high
    (copy / NAME).write_bytes((copy / NAME).read_bytes()[:-5])
    assert main(["validate", str(copy)]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith(f"error: file-changed: {copy / NAME}") or "error: truncated" in shown.out.splitlines()[0]
    assert shown.err.splitlines()[-1].startswith("bertprep: error: ")


def test_the_result_goes_to_both_files(copy: Path, tmp_path: Path) -> None:
    page, result = tmp_path / "page.html", tmp_path / "result.json"
    assert main(["validate", str(copy), "--json", str(result), "--html", str(page)]) == 0
    assert json.loads(result.read_text())["data_sets"]
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_damaged_files_are_removed_and_made_again(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that the manifest lists, whatever else lies there."""
    before = sums(copy)
    flipped, short = copy / NAME, copy / "ofrecord/training/part-2"
    content = bytearray(flipped.read_bytes())
    content[600] ^= 1
    flipped.write_bytes(content)
    short.write_bytes(b"short")
    (copy / "ofrecord/training/part-9").write_bytes(b"mine")
    assert main(["validate", str(copy), "--remove-damaged", "--workers", "1"]) == 1
    said = capsys.readouterr()
    of_file = {name: [line for line in said.out.splitlines() if f": {name}" in line] for name in (flipped, short)}
    blake3 = r"blake3 [0-9a-f]{16}\.\.\."
    assert re.search(
        rf"{flipped}: expected {blake3}, as manifest.json lists, found {blake3}; the file was rem", of_file[flipped][0]
    )
    assert re.search(
        rf"{short}: expected [\d,]+ bytes, as manifest\.json lists, found 5; the file was removed", of_file[short][0]
    )
    for lines in of_file.values():
        assert all(line.startswith("error: file-changed: ") for line in lines[:1])
        assert "--remove-damaged" not in "".join(lines)
    assert said.out.count("the file was removed; run the command that made it again") >= 2
    assert "\n2 files were removed\n" in said.err
    assert not flipped.exists()
    assert not short.exists()
    (copy / "ofrecord/training/part-9").unlink()
    texts = sorted((copy / "text").iterdir())
    create(inputs=texts, output=copy, vocab=GOLDEN / "vocab.txt", workers=1)
    assert sums(copy) == before
    assert main(["validate", str(copy / NAME), "--remove-damaged", "--workers", "1"]) == 0
    (copy / "ofrecord/manifest.json").unlink()
    short.write_bytes(b"short")
    assert main(["validate", str(copy / "ofrecord"), "--remove-damaged", "--workers", "1"]) == 1
    assert short.exists()


def test_a_file_removed_after_a_sample_is_an_error(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flipped = copy / "ofrecord/training/part-2"
    content = bytearray(flipped.read_bytes())
    content[-5] ^= 1  # in the last record, beyond the sample
    flipped.write_bytes(content)
    assert main(["validate", str(copy / "ofrecord"), "--sample", "1", "--workers", "1"]) == 0
    capsys.readouterr()
    assert main(["validate", str(copy / "ofrecord"), "--sample", "1", "--remove-damaged", "--workers", "1"]) == 1
    shown = capsys.readouterr().out
    assert f"error: file-changed: {flipped}: expected blake3 " in shown
    assert "checked: 1 record of each file, all checksums and text shards; not checked: duplicates of records" in shown
    assert not flipped.exists()


def test_nothing_is_removed_through_a_link(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = copy / "ofrecord/training"
    training.rename(tmp_path / "elsewhere")
    training.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/part-0").write_bytes(b"short")
    assert main(["validate", str(copy / "ofrecord"), "--remove-damaged", "--workers", "1"]) == 1
    assert "is a link, and nothing is removed there" in capsys.readouterr().err
    assert (tmp_path / "elsewhere/part-0").exists()


def test_padding_must_be_the_number_of_pad(golden_corpus: Path, tmp_path: Path) -> None:
    """As the vocabulary has it, else the manifest, else most of the first records."""
    made = create(inputs=[golden_corpus], output=tmp_path / "set", vocab=pad_at(4, tmp_path), formats="ofrecord", workers=1)
    path = made.folders["ofrecord"] / "training/part-0"
    with records.open(path) as file:
        valid = file[:]
    padded = np.flatnonzero(valid.input_mask.sum(axis=1) < valid.seq)
    length = int(valid.input_mask[padded[0]].sum())

    def padding_of(examples: PretrainingExamples) -> list[Finding]:
        write_examples([examples], {"ofrecord": path})
        (outcome,) = bertprep.validate([path], workers=1)
        return [finding for finding in outcome.findings if finding.code == "padding"]

    def changed(ids: np.ndarray) -> PretrainingExamples:  # type: ignore[type-arg]
        return PretrainingExamples(np.ascontiguousarray(ids, np.int32), *valid.arrays[1:])

    with_zeros, some_zeros, with_pad = (valid.input_ids.copy() for _ in range(3))
    with_zeros[padded] *= valid.input_mask[padded]
    some_zeros[padded[:3]] *= valid.input_mask[padded[:3]]
    with_pad[3, np.setdiff1d(np.arange(1, 9), valid.masked_lm_positions[3])[0]] = 4
    (found,) = padding_of(changed(with_pad))
    assert (found.record, found.expected) == (3, f"no [PAD] within the {valid.input_mask[3].sum()} tokens of text")
    for ids, known_by in ((with_zeros, "vocab.txt"), (with_zeros, "manifest.json"), (some_zeros, "")):
        assert padding_of(valid) == []
        (found,) = padding_of(changed(ids))
        assert (found.level, found.record, found.found) == ("error", padded[0], f"0 at position {length}")
        assert found.expected == f"input_ids 4, the id of [PAD], after the {length} tokens of text"
        assert found.count == (len(padded) if known_by else 3)
        if known_by:
            (tmp_path / "set/ofrecord" / known_by).unlink()
    assert [finding.expected for finding in padding_of(changed(with_zeros))] == []


def test_numpys_masked_arrays_are_not_loaded(golden_corpus: Path, tmp_path: Path) -> None:
    """They take a tenth of a short run, and a plain `np.unique(values)` or `np.median` loads them."""
    create(inputs=[golden_corpus], output=tmp_path, vocab=GOLDEN / "vocab.txt", formats="tfrecord", workers=1)
    code = f"import sys, bertprep; bertprep.validate([{str(tmp_path)!r}], workers=1); print('numpy.ma' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
