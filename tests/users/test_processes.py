"""Where and how programs run: in workers of others, without locks, cut short, refused; what they leave and what they say."""

import gzip
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bertprep
from bertprep import BertprepError, BertprepWarning, InstanceSettings, LiveExamples, RecordDataset, TokenDataset, UsageError
from bertprep.cli import main
from bertprep.pool import map_in_threads
from bertprep.records import arrow_reader
from bertprep.records.records import Records
from tests.golden import GOLDEN

VOCABULARY = ["--vocab", str(GOLDEN / "vocab.txt")]
SMALL = ["--seq", "32", "--pred", "5", "--dupe", "1", "--workers", "1"]
LONG = "x" * 300


def document(number: int, sentences: int = 20) -> str:
    return "".join(f"This is sentence {index} of the text with the number {number}.\n" for index in range(sentences))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the commands of a test run in; it has twelve documents in text.txt, and each in a file of texts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    for number in range(12):
        (tmp_path / f"texts/{number}.txt").write_text(document(number))
    (tmp_path / "text.txt").write_text("\n".join(map(document, range(12))))
    return tmp_path


def run(*command: str, expected: int = 0) -> None:
    assert main([*command]) == expected


def shard(corpus: str = "c", *more: str) -> None:
    run("shard", "--input", "texts", "--one-document-per-file", "--corpus", corpus, "--shards", "3", "--workers", "1", *more)


def create(*more: str) -> Path:
    """Make records of text.txt, and return the folder of those in TFRecord."""
    run("create", "--input", "text.txt", "--output", "out", *VOCABULARY, *SMALL, *more)
    return Path("out/tfrecord")


def process(
    code: str, *arguments: str, folder: Path, status: int = 0, **environment: str
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


# --- in the workers of another program

IN_A_WORKER = """
import sys, warnings
from pathlib import Path
import bertprep

def make(number):
    warnings.simplefilter("ignore")
    folder = Path(f"in_worker_{number}")
    how = {"workdir": folder, "workers": 3}
    bertprep.shard(["texts"], one_document_per_file=True, corpus="c", shards=3, **how)
    vocabulary = bertprep.train_vocabulary(corpus="c", size=200, **how)
    settings = {"corpus": "c", "vocab": vocabulary, **how}
    made = bertprep.create(seq=32, pred=5, dupe=1, **settings)
    bertprep.tokenize(**settings)
    bertprep.convert(made.folders["tfrecord"], folder / "converted", workers=3)
    outcomes = bertprep.validate([folder], workers=3)
    return [len(outcomes), sum(outcome.errors for outcome in outcomes)]

if __name__ == "__main__":
    kind, method = sys.argv[1], sys.argv[2]
    if kind == "datasets":
        import datasets
        found = datasets.Dataset.from_dict({"n": [1, 2]}).map(lambda row: {"found": make(row["n"])}, num_proc=2)["found"]
    elif kind == "concurrent":
        from concurrent.futures import ProcessPoolExecutor
        with ProcessPoolExecutor(1) as pool:
            found = pool.map(make, [1, 2])
    else:
        package = __import__(kind)
        with package.get_context(method).Pool(1) as pool:
            found = pool.map(make, [1, 2])
    print([list(each) for each in found])
"""


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("multiprocess", "fork"),
        ("multiprocessing", "spawn"),
        pytest.param("multiprocessing", "fork", marks=pytest.mark.slow),
        pytest.param("concurrent", "", marks=pytest.mark.slow),
        pytest.param("datasets", "", marks=pytest.mark.slow),
    ],
)
def test_public_functions_work_in_a_worker_of_another_program(kind: str, method: str, here: Path) -> None:
    (here / "job.py").write_text(IN_A_WORKER)
    command = [sys.executable, "job.py", kind, method]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[[5, 0], [5, 0]]"


@pytest.mark.slow
@pytest.mark.parametrize("command", [["vocab"], ["create", *SMALL[:-2]]], ids=["vocab", "create"])
def test_ray_makes_what_an_empty_workspace_lacks(command: Sequence[str], tmp_path: Path) -> None:
    pytest.importorskip("ray")
    line = [sys.executable, "-m", "bertprep", *command, "--executor", "ray"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "data/sharded/sample/manifest.json").exists()


# --- on a file system without locks

WITHOUT_LOCKS = """
import errno, fcntl, os, sys
number = getattr(errno, sys.argv.pop(1))
def refuse(descriptor, operation):
    raise OSError(number, os.strerror(number))
fcntl.flock = refuse
from bertprep.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("number", ["ENOSYS", "ENOLCK", pytest.param("EOPNOTSUPP", marks=pytest.mark.slow)])
def test_a_file_system_without_locks_is_said_once(number: str, here: Path) -> None:
    """Lustre without `-o flock`, NFS without lockd, and many file systems in user space."""
    shard()
    create_all = ["create", "--corpus", "c", *SMALL, "--workers", "2"]  # trains a vocabulary under a lock
    done = process(WITHOUT_LOCKS, number, *create_all, folder=here)
    assert done.stderr.count("has no locks") == 1
    assert "no errors" in process(WITHOUT_LOCKS, number, "validate", "data", folder=here).stdout
    done = process(WITHOUT_LOCKS, number, "download", "bookcorpus", "--from-files", "texts", folder=here)
    assert done.stderr.count("has no locks") == 1
    done = process(WITHOUT_LOCKS, number, "vocab", "--input", "text.txt", "--size", "100", folder=here)
    assert done.stderr.count("has no locks") == 1
    assert not list(here.rglob("*.lock"))


def test_a_failing_disk_is_not_taken_for_one_without_locks(here: Path) -> None:
    done = process(WITHOUT_LOCKS, "EIO", "vocab", "--input", "text.txt", "--size", "100", folder=here, status=1)
    assert "Input/output error" in done.stderr


# --- what a refused command leaves


def write_bad(folder: Path) -> None:
    (folder / "one.txt").write_text("A single sentence.\n")
    (folder / "bad.txt").write_bytes(b"This is a line.\nThis is \xff no text.\n")
    (folder / "a.jsonl").write_text(json.dumps({"text": "It is good. It goes on."}) + "\n")
    (folder / "b.jsonl").write_text('{"text": 5\n')
    (folder / "train.tsv").write_text("text\tlabel\nno label\n")


REFUSED = {
    "one document for two splits": ["shard", "--input", "one.txt", "--corpus", "c", "--one-document-per-block"],
    "more shards than documents": ["shard", "--input", "text.txt", "--corpus", "c", "--shards", "50"],
    "not UTF-8": ["shard", "--input", "bad.txt", "text.txt", "--corpus", "c"],
    "not JSON": ["shard", "--input", "a.jsonl", "b.jsonl", "--corpus", "c"],
    "vocabulary": ["vocab", "--input", "bad.txt"],
    "create": ["create", "--input", "bad.txt", "--output", "data/out", "--lines-are-sentences", *VOCABULARY],
    "create with a vocabulary of its own": ["create", "--input", "bad.txt", "--output", "data/out", "--lines-are-sentences"],
    "tokenize": ["tokenize", "--input", "bad.txt", "--output", "data/out", "--lines-are-sentences", *VOCABULARY],
    "task": ["task", "glue", "mine", "--input", "train.tsv", "--output", "data/out", *VOCABULARY],
    "convert": ["convert", "text.txt", "data/out", "--shards", "2"],
    "download": ["download", "bookcorpus", "--from-files", "bad.txt"],
}


@pytest.mark.parametrize("command", REFUSED.values(), ids=REFUSED.keys())
def test_a_refused_command_leaves_nothing(command: Sequence[str], here: Path) -> None:
    write_bad(here)
    before = sorted(here.rglob("*"))
    assert main([*command]) in (1, 2)
    assert sorted(here.rglob("*")) == before


def test_after_a_refused_shard_the_workspace_is_valid(here: Path) -> None:
    write_bad(here)
    shard()
    run("shard", "--input", "one.txt", "--corpus", "refused", "--one-document-per-block", expected=2)
    run("validate", "data")


def test_a_refused_command_leaves_the_folders_that_were_there(here: Path) -> None:
    write_bad(here)
    (here / "empty").mkdir()
    run("create", "--input", "bad.txt", "--output", "empty", "--lines-are-sentences", *VOCABULARY, expected=1)
    assert [*(here / "empty").iterdir()] == []


# --- output that nobody reads


def piped(command: str, folder: Path, reader: str) -> tuple[int, str]:
    """The exit status of a command whose output goes to `reader`, and what it prints to standard error."""
    line = f'"{sys.executable}" -m bertprep {command} 2> errors | {reader} > /dev/null; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", line], cwd=folder, check=False)
    return done.returncode, (folder / "errors").read_text()


@pytest.mark.parametrize("reader", ["cat", "head -1", "true"])
def test_validate_of_bad_data_fails_whoever_reads_its_output(reader: str, here: Path) -> None:
    for number in range(120):
        folder = here / "bad" / f"{number:03}_{'long' * 50}"
        folder.mkdir(parents=True)
        (folder / "part-0").write_bytes(bytes(range(256)) * 8)
    status, errors = piped("validate bad --json all.json", here, reader)
    assert status == 1
    assert "120 errors found" in errors
    assert len(json.loads((here / "all.json").read_text())["data_sets"]) == 120


def test_output_that_nobody_reads_stops_no_command(here: Path) -> None:
    create()
    assert piped("validate out", here, "head -1")[0] == 0
    assert piped("inspect out/tfrecord --records 1000", here, "head -1") == (0, "")


# --- corpora and downloads that were copied or finished


@pytest.mark.usefixtures("here")
def test_every_command_takes_a_corpus_that_was_copied_or_renamed() -> None:
    shard()
    shutil.copytree("data/sharded/c", "data/sharded/mine")
    Path("data/sharded/c").rename("data/sharded/renamed")
    for corpus in ("mine", "renamed"):
        named = ["--corpus", corpus, "--workers", "1"]
        run("create", "--dry-run", *named, *VOCABULARY, *SMALL)
        run("vocab", *named, "--size", "200")
        run("create", *named, *VOCABULARY, *SMALL)
        run("tokenize", *named, *VOCABULARY)
        shard(corpus)  # finished: nothing to do
        Path(f"data/sharded/{corpus}/training/c_training_00001.txt").unlink()
        shard(corpus)
    (records,) = Path("data/tfrecord").glob("*/mine/training")
    assert [path.name for path in sorted(records.iterdir())] == [f"mine_training_0000{n}.tfrecord" for n in range(3)]
    run("validate", "data")


@pytest.mark.usefixtures("here")
def test_a_copied_corpus_is_tokenized_by_a_tokenizer_too() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    known = sorted({word for path in Path("texts").iterdir() for word in path.read_text().split()})
    words = {word: index for index, word in enumerate(["[UNK]", *known])}
    tokenizer = Tokenizer(models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save("tokenizer.json")
    shard()
    shutil.copytree("data/sharded/c", "data/sharded/mine")
    run("tokenize", "--corpus", "mine", "--tokenizer", "tokenizer.json")
    (tokens,) = Path("data/tokens").glob("*/mine")
    assert bertprep.validate([tokens])[0].errors == 0


@pytest.mark.usefixtures("here")
def test_a_finished_download_is_not_called_unfinished(capsys: pytest.CaptureFixture[str]) -> None:
    run("download", "bookcorpus", "--from-files", "texts")
    (folder,) = Path("data/download").iterdir()
    capsys.readouterr()
    assert main(["validate", str(folder)]) == 2
    assert "not finished" not in (printed := capsys.readouterr().err)
    assert "is a download" in printed
    listing = json.loads((folder / "listing.json").read_text())
    listing["files"] = [{"name": "more.txt", "url": "https://example.org/more.txt", "size_bytes": 4}]
    (folder / "listing.json").write_text(json.dumps(listing))
    assert main(["validate", str(folder)]) == 1
    assert "not finished" in capsys.readouterr().out
    (folder / "more.txt").write_text("more")
    assert main(["validate", str(folder)]) == 2


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("fractions", [(0.28, 0.29), (0.57, 0.56), (0.58, 0.575), (0.1, 0.105), (0.001, 0.0015)])
def test_two_test_fractions_have_two_folders(fractions: tuple[float, float]) -> None:
    for number, fraction in enumerate(fractions):
        shard("c", "--test-fraction", str(fraction), "--workdir", f"w{number}")
        run("create", "--corpus", "c", "--workdir", f"w{number}", *VOCABULARY, *SMALL)
    names = [next(Path(f"w{number}/tfrecord").iterdir()).name.rpartition("_")[2] for number in range(2)]
    assert [float(name) for name in names] == pytest.approx([100 * fraction for fraction in fractions], rel=1e-12)


# --- options that would be ignored


@pytest.mark.usefixtures("here")
def test_an_option_that_has_no_effect_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    records = create()
    shard()
    run("tokenize", "--corpus", "c", *VOCABULARY)
    (tokens,) = Path("data/tokens").glob("*/c")
    file = next((records / "training").iterdir())
    sharded = ["data/sharded/c"]
    for option, command in (
        ("whole-word", ["validate", str(records), "--whole-word"]),
        ("masked-lm-prob", ["validate", str(records), "--masked-lm-prob", "0.5"]),
        ("pred", ["validate", str(records), "--pred", "3"]),
        ("whole-word", ["validate", *sharded, "--whole-word"]),
        ("vocab", ["validate", *sharded, *VOCABULARY]),
        ("pred", ["convert", str(tokens), "mds", "--to", "mds", "--seq", "64", "--pred", "3"]),
        ("executor", ["convert", str(file), "one.arrow", "--executor", "ray"]),
        ("field", ["shard", "--corpus", "sample", "--field", "title"]),
        ("one-document-per-file", ["shard", "--one-document-per-file"]),
        ("lines-are-sentences", ["create", "--corpus", "c", "--lines-are-sentences", *VOCABULARY, *SMALL]),
    ):
        capsys.readouterr()
        assert main(command) == 2, command
        refused = capsys.readouterr().err.removeprefix("bertprep: error: --")
        assert refused.startswith(option), command
    foreign = shutil.copytree(records / "training", "foreign")
    run("validate", str(foreign), "--masked-lm-prob", "0.15", *VOCABULARY)


# --- failures that were hidden


def test_an_item_that_fails_is_run_once_and_its_error_is_raised() -> None:
    calls: list[int] = []

    def fail_once(item: int) -> int:
        calls.append(item)
        if item == 3 and calls.count(3) == 1:
            raise OSError("a passing failure")
        return item

    with pytest.raises(OSError, match="a passing failure"):
        map_in_threads(fail_once, range(8), most=4)
    assert calls.count(3) == 1


def test_of_two_failures_that_of_the_first_item_is_raised() -> None:
    both = threading.Barrier(2, timeout=60)

    def fail(item: int) -> None:
        if item < 2:
            both.wait()
            raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 0"):
        map_in_threads(fail, range(50), most=2)


@pytest.mark.usefixtures("here")
def test_a_cast_that_fails_once_loses_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    run("create", "--input", "text.txt", "--output", "out", "--format", "parquet", *VOCABULARY, *SMALL, "--dupe", "20")
    (path,) = Path("out/parquet/train").iterdir()
    foreign = Path("foreign.parquet")
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), foreign)
    with Records.open(path) as records:
        expected = records[:].copy()
    passing = itertools.count()
    make = pa.record_batch

    def fail_first(*arguments: Any, **keywords: Any) -> pa.RecordBatch:
        if next(passing) == 0:
            raise MemoryError
        return make(*arguments, **keywords)

    monkeypatch.setattr(arrow_reader.pa, "record_batch", fail_first)
    with Records.open(foreign) as records:
        assert len(records) == len(expected) > 100
        assert np.array_equal(records[:].input_ids, expected.input_ids)
    assert next(passing) > 2


# --- what messages recommend


@pytest.mark.tensorflow
def test_the_recommended_conversion_of_a_checkpoint_works_and_says_what_is_wrong(tmp_path: Path) -> None:
    from bertprep.weights.safetensors import read_safetensors
    from bertprep.weights.tensor_bundle import write_bundle

    write_bundle(tmp_path / "bert_model.ckpt", {"bert/pooler/dense/bias": np.arange(3, dtype=np.float32)})
    convert = [sys.executable, "-m", "bertprep.weights.tensor_bundle"]

    def convert_to(*names: str) -> tuple[int, str]:
        done = subprocess.run([*convert, *names], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stderr

    assert convert_to("bert_model.ckpt", "model.safetensors")[0] == 0
    (values,) = read_safetensors(tmp_path / "model.safetensors").values()
    assert values.tolist() == [0, 1, 2]
    for names, status in (
        ((), 2), (("bert_model.ckpt",), 2), (("missing", "other.safetensors"), 1), (("bert_model.ckpt", "model.bin"), 2),
        (("bert_model.ckpt", "model.safetensors"), 1), (("bert_model.ckpt.index", "again.safetensors"), 0),
    ):  # fmt: skip
        assert convert_to(*names)[0] == status


@pytest.mark.parametrize(
    ("name", "pack"), [("a.tfrecord", gzip.compress), ("a.tfrecord.gz", gzip.compress), ("a.zz", zlib.compress)]
)
def test_records_that_tensorflow_compressed_are_read_or_get_a_command_that_works(
    name: str, pack: Callable[[bytes], bytes], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By `TFRecordOptions("GZIP")` or `("ZLIB")`, under any name."""
    [path] = create().rglob("*.tfrecord")
    content = path.read_bytes()
    Path(name).write_bytes(pack(content))
    if main(["inspect", name, *VOCABULARY]):
        said = capsys.readouterr().err
        command = said[said.index("python -c") :].replace("python", shlex.quote(sys.executable), 1)
        subprocess.run(["bash", "-c", command], check=True)
        assert Path("NEW.tfrecord").read_bytes() == content
    assert (here / "NEW.tfrecord").exists() == (pack is zlib.compress)


@pytest.mark.usefixtures("here")
def test_token_shards_without_their_vocabulary_get_advice_that_works(capsys: pytest.CaptureFixture[str]) -> None:
    shard()
    run("tokenize", "--corpus", "c", *VOCABULARY)
    (tokens,) = Path("data/tokens").glob("*/c")
    shutil.move(tokens / "vocab.txt", "kept.txt")
    capsys.readouterr()
    assert main(["convert", str(tokens), "mds", "--to", "mds", "--seq", "64"]) == 2
    assert "vocab.txt next to it; copy the one that it was made with there" in capsys.readouterr().err
    shutil.move("kept.txt", tokens / "vocab.txt")
    run("convert", str(tokens), "mds", "--to", "mds", "--seq", "64")


def test_too_little_memory_is_one_line(here: Path) -> None:
    create()
    command = f'ulimit -v 300000; exec "{sys.executable}" -m bertprep validate out'
    done = subprocess.run(["bash", "-c", command], cwd=here, capture_output=True, text=True, check=False)
    if done.returncode:
        assert "Traceback" not in done.stderr
        assert "not enough memory" in done.stderr


# --- arguments from Python


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("path", [LONG, "/".join(["y" * 200] * 30), "\ud800"], ids=["long name", "long path", "surrogate"])
def test_a_path_that_no_file_can_have_is_a_usage_error(path: str) -> None:
    records = create()
    vocab = GOLDEN / "vocab.txt"
    calls: dict[str, Callable[[], object]] = {
        "validate": lambda: bertprep.validate([path]),
        "shard": lambda: bertprep.shard([path], corpus="c"),
        "create": lambda: bertprep.create(inputs=[path], vocab=vocab, output="q"),
        "output": lambda: bertprep.create(inputs=["text.txt"], vocab=vocab, output=path),
        "vocab": lambda: bertprep.create(inputs=["text.txt"], vocab=path, output="q"),
        "workdir": lambda: bertprep.create(workdir=path),
        "convert from": lambda: bertprep.convert(path, "q"),
        "convert to": lambda: bertprep.convert(records, path),
        "train": lambda: bertprep.train_vocabulary(["text.txt"], output=path),
        "tokenizer": lambda: bertprep.tokenize(inputs=["text.txt"], tokenizer=path, output="q"),
        "task": lambda: bertprep.create_glue("mine", inputs=[path], vocab=vocab, output="q"),
        "download": lambda: bertprep.download("bookcorpus", from_files=path),
        "data sets": lambda: [each(path) for each in (LiveExamples,)],
        "records": lambda: RecordDataset(path),
        "tokens": lambda: TokenDataset(path),
        "load": lambda: bertprep.load_dataset(path),
    }
    for name, call in calls.items():
        with pytest.raises(BertprepError):
            print(name, call())


@pytest.mark.usefixtures("here")
def test_wrong_arguments_of_live_examples_are_usage_errors() -> None:
    run("tokenize", "--input", "text.txt", "--output", "out", *VOCABULARY)
    wrong: list[dict[str, Any]] = [
        {"seed": float("nan")}, {"seed": "x"}, {"seed": b"x"}, {"seed": None}, {"seed": -1}, {"seed": True},
        {"settings": {"seq": 32}}, {"shuffle_shards": "x"}, {"shuffle_shards": 0}, {"reporter": 0.5}, {"split": {}},
        {"repeat_epochs": "no"},
    ]  # fmt: skip
    for arguments in wrong:
        with pytest.raises(UsageError):
            LiveExamples("out/tokens", **arguments)
    for data in (5, None, []):
        with pytest.raises(UsageError):
            LiveExamples(data)  # type: ignore[arg-type]
    live = LiveExamples("out/tokens", seed=np.int64(7), settings=InstanceSettings(seq=32, pred=5, dupe=1))  # type: ignore[arg-type]
    for size in (None, "x", 0):
        with pytest.raises(ValueError, match="batch size"):
            next(live.batches(size))  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        RecordDataset(create(), split={})  # type: ignore[arg-type]


def test_warnings_of_processes_are_warnings_in_python(here: Path) -> None:
    """A warning that a command prints reaches a notebook too."""
    (here / "one.txt").write_text(document(1, 60))
    with pytest.warns(BertprepWarning, match="a single document"):
        bertprep.create(inputs=["one.txt"], vocab=GOLDEN / "vocab.txt", output="q", seq=32, pred=5, dupe=1, workers=1)
