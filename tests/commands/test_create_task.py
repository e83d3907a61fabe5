"""`task`: files of fine-tuning tasks to records, as Google writes them, however the run goes."""

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bertprep
from bertprep.cli import main
from bertprep.files.paths import checksum_of
from bertprep.records.examples import ClassificationExamples, SquadEvalExamples, SquadExamples
from bertprep.tasks import records as task_records
from bertprep.work.choose import find_records
from bertprep.work.layout import TEST, TRAINING
from bertprep.work.manifest import read_manifest
from tests.corpora import sums
from tests.golden import GOLDEN

FINETUNE = GOLDEN / "finetune"
VOCABULARY = GOLDEN / "vocab.txt"
SQUAD_FOLDER = "lower_case_1_seq_len_384_doc_stride_128_max_query_64/squad_v1.1"
OTHER = {"arrow": "parquet", "parquet": "arrow"}
GLUE_FOLDER = "lower_case_1_seq_len_128/glue_mrpc"
FEATURES = {"input_ids": "input_ids", "input_mask": "input_mask", "segment_ids": "segment_ids", "label_ids": "label_id"}


def golden_rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress((FINETUNE / name).read_bytes()).splitlines()]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with small downloads of SQuAD, GLUE and the default vocabulary."""
    root = tmp_path_factory.mktemp("data")
    for version in ("1.1", "2.0"):
        for split in ("train", "dev"):
            path = root / "download/squad" / f"v{version}" / f"{split}-v{version}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(FINETUNE / f"squad_v{version[0]}.json", path)
    for name in ("MRPC", "CoLA", "MNLI"):
        shutil.copytree(FINETUNE / "glue" / name, root / "download" / name)
    for split in ("dev", "test"):
        folder = root / "download/MNLI"
        shutil.copyfile(folder / f"{split}_matched.tsv", folder / f"{split}_mismatched.tsv")
    vocabulary = root / "download/vocab/google-bert/bert-base-uncased/vocab.txt"
    vocabulary.parent.mkdir(parents=True)
    shutil.copyfile(VOCABULARY, vocabulary)
    return root


@pytest.fixture
def workspace(workdir: Path, tmp_path: Path) -> Path:
    """A copy of the workspace, to write in."""
    shutil.copytree(workdir, tmp_path / "data")
    return tmp_path / "data"


def read(folder: Path) -> Any:
    """The records of a folder with one file."""
    (path,) = folder.iterdir()
    return read_file(path)


def read_file(path: Path) -> Any:
    with bertprep.records.open(path) as file:
        return file[:]


def test_glue_becomes_google_s_records(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task", "glue", "mrpc", "--workdir", str(workspace), "--workers", "1"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in shown[1:4]] == [
        ["tfrecord", "training", "1", "8"],
        ["tfrecord", "dev", "1", "8"],
        ["tfrecord", "submission", "1", "4"],
    ]
    assert "labels: 0, 1" in shown
    to_json = workspace / "found.json"
    assert main(["validate", str(workspace / "tfrecord"), "--workers", "1", "--json", str(to_json)]) == 0
    assert re.findall(r"^  (\w+) +\d", capsys.readouterr().out, re.MULTILINE) == ["training", "dev", "submission"]
    (found,) = json.loads(to_json.read_text())["data_sets"]
    assert [file["split"] for file in found["files"]] == ["training", "dev", "submission"]
    rows = [row for row in golden_rows("glue/features.jsonl.gz") if row["task"] == "MRPC" and row["max_seq_length"] == 128]
    for record_format in ("tfrecord", "ofrecord"):
        for split, name in (("train", "training"), ("dev", "dev"), ("test", "submission")):
            examples = read(workspace / record_format / GLUE_FOLDER / name)
            assert type(examples) is ClassificationExamples
            expected = [row for row in rows if row["split"] == split]
            for feature, wanted in FEATURES.items():
                np.testing.assert_array_equal(getattr(examples, feature), [row[wanted] for row in expected])
            assert examples.is_real_example.tolist() == [1] * len(expected)


def test_squad_becomes_google_s_records(workspace: Path) -> None:
    created = bertprep.create_squad(workdir=workspace)
    expected = golden_rows("squad_v1_features_384_eval.jsonl.gz")
    for record_format, folder in created.folders.items():
        assert folder == workspace / record_format / SQUAD_FOLDER
        dev = read(folder / "dev")
        assert type(dev) is SquadEvalExamples
        for feature in ("input_ids", "input_mask", "segment_ids"):
            np.testing.assert_array_equal(getattr(dev, feature), [row[feature] for row in expected])
        assert dev.unique_ids.tolist() == [row["unique_id"] for row in expected]
        training = read(folder / "training")
        assert type(training) is SquadExamples
        wanted = {
            (*row["input_ids"], row["start_position"], row["end_position"])
            for row in golden_rows("squad_v1_features_384_train.jsonl.gz")
        }
        columns = (training.input_ids, training.start_positions[:, None], training.end_positions[:, None])
        assert wanted <= set(map(tuple, np.hstack(columns).tolist()))  # Google drops some, for white space in their answers
        assert checksum_of(folder / "dev.json") == checksum_of(FINETUNE / "squad_v1.json")
        manifest = read_manifest(folder)
        assert manifest is not None
        assert manifest.made_with["inputs"][1]["sha256"] == checksum_of(folder / "dev.json", "sha256")
        assert manifest.counts["training_questions"] == 44
        assert manifest.counts["dev_questions"] == 44


def test_what_is_dropped_is_counted_and_named(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = workspace / "download/squad/v1.1/train-v1.1.json"
    content = json.loads(path.read_text())
    content["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["text"] = "never"
    path.write_text(json.dumps(content))
    assert main(["task", "squad", "--workdir", str(workspace), "--format", "tfrecord"]) == 0
    manifest = read_manifest(workspace / "tfrecord" / SQUAD_FOLDER)
    assert manifest is not None
    assert manifest.counts["training_dropped"] > 0
    shown, said = capsys.readouterr()
    unanswerable = content["data"][0]["paragraphs"][0]["qas"][0]["id"]
    misplaced = r"v1\.1\.json: \d of 44 answers are not at their answer_start \(.*\); dropped \d questions?: "
    assert re.search(rf"{misplaced}.*\b{unanswerable}\b", said)
    assert "--doc-stride" not in said
    assert f"dropped: {manifest.counts['training_dropped']} of 44 questions for training" in shown
    assert manifest.counts["training_recovered"] > 0
    assert f"recovered: {manifest.counts['training_recovered']} of 44 questions for training, which run_squad.py drops" in shown


@pytest.mark.parametrize("task", ["squad", "glue", "ner"])
def test_a_vocabulary_that_does_not_fit_is_warned_of_and_found(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a shell and in Python when the records are made, and by `validate` of them, with the name of the split."""
    words = "один два три четыре"
    if task == "squad":
        answers = [{"text": "два", "answer_start": 5}]
        paragraph = {"context": words, "qas": [{"id": "1", "question": "пять", "answers": answers}]}
        content = json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": [paragraph]}]})
    elif task == "glue":
        content = f"text\tlabel\n{words}\ta\n{words}\tb\n"
    else:
        content = "".join(f"{word} {tag}\n" for word, tag in zip(words.split(), ("O", "B-X", "O", "O"), strict=True))
    suffix = {"squad": ".json", "glue": ".tsv", "ner": ".txt"}[task]
    files = [tmp_path / f"{split}{suffix}" for split in ("train", "dev")]
    for path in files:
        path.write_text(content, encoding="utf-8")
    out = tmp_path / "out"
    named = [task] if task == "squad" else [task, "mine"]
    where = ["--output", str(out), "--format", "tfrecord", "--vocab", str(VOCABULARY), "--workers", "1"]
    assert main(["task", *named, "--input", *map(str, files), *where]) == 0
    warned = [line for line in capsys.readouterr().err.splitlines() if "[UNK]" in line]
    assert warned == [
        f"warning: 100% of the first tokens of {files[0]} are [UNK]: {VOCABULARY} does not fit this text; remove the output, "
        "then choose the vocabulary of your model with --vocab"
    ]
    create = {"squad": bertprep.create_squad, "glue": bertprep.create_glue, "ner": bertprep.create_ner}[task]
    with pytest.warns(bertprep.BertprepWarning, match="100% of the first tokens of "):
        create(*named[1:], inputs=files, output=tmp_path / "again", vocab=VOCABULARY, workers=1)
    [outcome] = bertprep.validate([out], workers=1)
    assert [(finding.code, finding.file, finding.level) for finding in outcome.findings] == [
        ("unknown-tokens", "training", "warning"), ("unknown-tokens", "dev", "warning")
    ]  # fmt: skip
    assert "the --vocab of the model that you will train" in outcome.findings[0].advice
    assert outcome.unknown.keys() == {"training", "dev"}
    assert "100.00%" in repr(outcome)


def test_one_s_own_task(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"text": "the boat", "label": "good"}\n{"text": "the ice", "label": "bad"}\n')
    (tmp_path / "dev.tsv").write_text("text\tlabel\nthe lamp\tgood\n")
    created = bertprep.create_glue(name="reviews", inputs=[tmp_path], vocab=VOCABULARY, output=tmp_path / "out")
    manifest = created.manifests["tfrecord"]
    assert (manifest.made_with["name"], manifest.made_with["labels"]) == ("reviews", ["bad", "good"])
    assert sorted(manifest.files) == ["dev/glue_reviews_dev_00000.tfrecord", "training/glue_reviews_training_00000.tfrecord"]
    assert read(tmp_path / "out/ofrecord/training").label_ids.tolist() == [1, 0]
    assert find_records(tmp_path / "out/tfrecord").splits == [TRAINING, TEST]


def records_of(folder: Path) -> dict[str, str]:
    return {name: checksum for name, checksum in sums(folder).items() if name != "manifest.json"}


@pytest.mark.parametrize(
    ("task", "record_format"),
    [(("squad",), "arrow"), (("glue", "mnli"), "parquet"), (("glue", "stsb", "--input", "SCORES"), "arrow")],
)
def test_tasks_become_columns(task: tuple[str, ...], record_format: str, workspace: Path, tmp_path: Path) -> None:
    """With the names of the classes, and the same as what is converted, there and back."""
    header = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    (tmp_path / "train.tsv").write_text(f"{header}\n0\t\t\t\t\t\t\tthe boat\tthe ice\t2.500\n")
    options = [str(tmp_path / "train.tsv") if option == "SCORES" else option for option in task]
    options += ["--format", f"tfrecord,{record_format}", "--output", str(tmp_path / "out"), "--vocab", str(VOCABULARY)]
    assert main(["task", *options, "--workdir", str(workspace)]) == 0
    made, there, back = tmp_path / "out" / record_format, tmp_path / "there", tmp_path / "back"
    bertprep.convert(tmp_path / "out/tfrecord", there, to=record_format)
    assert records_of(made).items() <= sums(there).items()
    bertprep.convert(made, back, to="tfrecord")
    assert records_of(tmp_path / "out/tfrecord").items() <= sums(back).items()
    source, other = next((made / "train").glob(f"*.{record_format}")), tmp_path / f"other.{OTHER[record_format]}"
    shutil.copyfile(source, tmp_path / "alone")  # from where no manifest is found
    bertprep.convert(tmp_path / "alone", other, to=OTHER[record_format])
    for path in (source, other):
        names = json.loads(schema_of(path).metadata[b"huggingface"])["info"]["features"].get("labels", {}).get("names")
        assert names == (["contradiction", "entailment", "neutral"] if "mnli" in task else None)


def schema_of(path: Path) -> Any:
    return pq.read_schema(path) if path.suffix == ".parquet" else pa.ipc.open_stream(path.read_bytes()).schema


def test_many_examples_are_several_files_in_order(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other they are the file that Google's script writes."""
    monkeypatch.setattr(task_records, "EXAMPLES_PER_FILE", 3)
    monkeypatch.setattr(task_records, "BLOCK_ROWS", 2)
    made = bertprep.create_glue(name="mrpc", workdir=workspace, formats="tfrecord", workers=2).folders["tfrecord"]
    parts = sorted((made / "training").iterdir())
    assert len(parts) == 3
    rows = [row for row in golden_rows("glue/features.jsonl.gz") if (row["task"], row.get("split")) == ("MRPC", "train")]
    expected = [row["input_ids"] for row in rows if row["max_seq_length"] == 128]
    assert [row for path in parts for row in read_file(path).input_ids.tolist()] == expected


def test_other_settings_do_not_mix(workspace: Path, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"workdir": workspace, "output": tmp_path / "out", "vocab": VOCABULARY}
    bertprep.create_glue(name="mrpc", **asked)
    before = sums(tmp_path / "out")
    with pytest.raises(
        bertprep.BertprepError, match="was made with --seq 128, but this run has --seq 64; choose another --output"
    ):
        bertprep.create_glue(name="mrpc", seq=64, **asked)
    with pytest.raises(bertprep.BertprepError, match="was made with task glue, but this run has squad"):
        bertprep.create_squad(**asked)
    assert sums(tmp_path / "out") == before


MISTAKES = {
    "not downloaded": (["glue", "rte"], 2, "RTE/train.tsv: does not exist; fetch it with bertprep download glue"),
    "labels of GLUE's": (["glue", "mrpc", "--labels", "a,b"], 2, "--labels a,b: mrpc has its own labels (0, 1)"),
    "a long question": (["squad", "--seq", "64"], 2, "--max-query 64: must be at most 60"),
    "no cased vocabulary": (
        ["squad", "--cased"], 2, "fetch it with bertprep download vocab --model google-bert/bert-base-cased",
    ),
    "v2.0 as v1.1": (["squad", "--input", "download/squad/v2.0"], 1, "expected v1.1"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line(
    case: str, workdir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, status, expected = MISTAKES[case]
    monkeypatch.chdir(workdir)
    assert main(["task", *arguments, "--workdir", str(workdir)]) == status
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert expected in said
    assert not (workdir / "tfrecord").exists()


NAMES = {
    "no split": (["reviews.tsv"], "reviews.tsv: its name does not show which split it is; the name must begin with train, "),
    "letters after it": (["tests.tsv"], "test or diagnostic, with no letter after it, as in train.tsv; rename it"),
    "a split twice": (
        ["train.tsv", "train_2.tsv"], "--input train_2.tsv: is the training split, and so is train.tsv; give one file for",
    ),
    "no labels": (["dev.tsv"], "reviews: its labels are unknown; give --labels, or a training file"),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMES)
def test_names_of_one_s_own_files_tell_the_split(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, expected = NAMES[case]
    monkeypatch.chdir(tmp_path)
    for name in names:
        Path(name).write_text("text\tlabel\nthe boat\tgood\n")
    with pytest.raises(bertprep.UsageError) as caught:
        bertprep.create_glue(name="reviews", inputs=names, vocab=VOCABULARY)
    assert expected in str(caught.value)
