"""`bertprep download` against a small Hub: what it fetches and where; killed, offline, with faults; or linked from a disk."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from huggingface_hub import close_session, constants

from bertprep import BertprepError, UsageError, download
from bertprep.cli import main
from bertprep.sources.listing import load_listing
from bertprep.tasks.glue import TASKS
from bertprep.weights.hugging_face import hugging_face_name
from bertprep.weights.safetensors import read_safetensors
from bertprep.weights.tensor_bundle import open_bundle
from tests.corpora import sums
from tests.golden import GOLDEN
from tests.hub_server import HubServer, use_hub
from tests.small_hub import BERT, MODEL, RELEASED, fill, model_files, noise, release_files, wikipedia_files

KILLS = 3
Run = Callable[..., str]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    with HubServer() as server:
        fill(server)
        use_hub(monkeypatch, server.url, tmp_path.parent / "home")
        yield server


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command, and return what it prints, or the one line with which it fails."""

    def run(workdir: Path, *arguments: str, status: int = 0) -> str:
        found = main(["download", *arguments, "--workdir", str(workdir)])
        out, said = capsys.readouterr()
        assert found == status, said
        if not status:
            return out
        assert said.count("bertprep: error: ") == 1
        return said.splitlines()[-1].removeprefix("bertprep: error: ")

    return run


def start(hub: HubServer, workdir: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command as the leader of a process group of its own."""
    settings = {"HF_ENDPOINT": hub.url, "HF_HOME": str(workdir.parent / "home"), "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-m", "bertprep", "download", *arguments, "--workdir", str(workdir)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, env=os.environ | settings)


def exact_match_of_right_answers(folder: Path) -> float:
    """What the program beside SQuAD's data says of the answers that stand in the data."""
    [program], [dev], answers = folder.glob("evaluate-*.py"), folder.glob("dev-*.json"), folder / "answers.json"
    [article] = json.loads(dev.read_bytes())["data"]
    questions = [question for paragraph in article["paragraphs"] for question in paragraph["qas"]]
    right = {question["id"]: question["answers"][0]["text"] if question["answers"] else "" for question in questions}
    answers.write_text(json.dumps(right))
    scores: dict[str, float] = json.loads(subprocess.check_output([sys.executable, program, dev, answers]))
    return scores["exact_match"] if "exact_match" in scores else scores["exact"]


def test_everything_downloads_and_then_needs_no_network(
    hub: HubServer, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = run(tmp_path, "all", "--model", MODEL)
    place = tmp_path / "download"
    for path, content in wikipedia_files().items():
        if path.startswith("20231101.en/"):
            assert (place / "wikicorpus_en" / path.rpartition("/")[2]).read_bytes() == content
    assert pq.read_table(place / "bookscorpus" / "0001.parquet").column_names == ["text"]
    for version in ("v1.1", "v2.0"):
        assert json.loads((place / "squad" / version / f"train-{version}.json").read_bytes())["data"]
        assert exact_match_of_right_answers(place / "squad" / version) == 100
    assert all(list((place / task.folder).glob("*.tsv")) for task in TASKS.values())
    weights = place / "weights" / MODEL
    assert {path.name for path in weights.iterdir()} == {
        "bert_config.json", "config.json", "listing.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "vocab.txt",
    }  # fmt: skip
    assert json.loads((weights / "bert_config.json").read_bytes()) == BERT
    assert (place / "vocab" / MODEL / "vocab.txt").read_bytes() == model_files()["vocab.txt"]
    assert "next: bertprep shard --corpus wikipedia+bookcorpus --workdir" in printed
    assert "next: bertprep create --vocab " in printed
    before = sums(tmp_path)
    hub.asked.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert run(tmp_path, "all", "--model", MODEL) == printed
    assert not hub.asked
    assert sums(tmp_path) == before


def test_a_download_stays_on_its_commit_when_the_hub_moves_on(hub: HubServer, run: Run, tmp_path: Path) -> None:
    hub.fail("train-00002-of-00003.parquet", times=None, status=500, method="GET")
    assert "retries exhausted after" in run(tmp_path, "wikipedia", status=1)
    hub.faults.clear()
    moved = {path: content + b"changed" for path, content in wikipedia_files().items()}
    hub.put("datasets/wikimedia/wikipedia", moved)
    folder = tmp_path / "download" / "wikicorpus_en"
    listing = load_listing(folder)
    assert listing
    assert [file.name for file in listing.missing(folder)][-1:] == ["train-00002-of-00003.parquet"]
    hub.asked.clear()
    run(tmp_path, "wikipedia")
    assert not [asked for asked in hub.asked if asked.path.startswith("/api/")]
    assert not listing.missing(folder)
    name = "20231101.en/train-00002-of-00003.parquet"
    assert (folder / "train-00002-of-00003.parquet").read_bytes() == wikipedia_files()[name]


@pytest.mark.slow
def test_a_killed_download_keeps_its_finished_files(hub: HubServer, run: Run, tmp_path: Path) -> None:
    contents = {f"20231101.en/train-{number:05d}-of-00040.parquet": noise(100_000, str(number)) for number in range(40)}
    hub.put("datasets/wikimedia/wikipedia", contents)
    hub.bytes_per_second = 1_000_000  # a connection, of four
    chance = random.Random(7)
    folder = tmp_path / "download" / "wikicorpus_en"
    finished: set[str] = set()
    for _ in range(KILLS):
        hub.asked.clear()
        process = start(hub, tmp_path, "wikipedia")
        hub.wait_until_sent(".parquet", hub.sent_of(".parquet") + chance.randrange(100_000, 900_000))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not [asked for asked in hub.asked if asked.path.rpartition("/")[2] in finished]
        finished = {path.name for path in folder.glob("*.parquet")}
    assert finished
    hub.bytes_per_second = 0
    run(tmp_path, "wikipedia")
    assert {path.name for path in folder.iterdir()} == {*(path.rpartition("/")[2] for path in contents), "listing.json"}
    for path, content in contents.items():
        assert (folder / path.rpartition("/")[2]).read_bytes() == content


@pytest.mark.slow
def test_ctrl_c_is_one_line(hub: HubServer, tmp_path: Path) -> None:
    hub.put("datasets/wikimedia/wikipedia", {"20231101.en/train-00000-of-00001.parquet": noise(2_000_000, "one")})
    hub.bytes_per_second = 100_000
    process = start(hub, tmp_path, "wikipedia")
    hub.wait_until_sent(".parquet", 100_000)
    os.killpg(process.pid, signal.SIGINT)
    _, complaint = process.communicate()
    assert process.returncode == 130
    assert complaint == "bertprep: stopped; finished files are kept, and the same command resumes\n"
    assert {path.name for path in (tmp_path / "download" / "wikicorpus_en").iterdir()} == {"listing.json"}


@pytest.mark.usefixtures("hub")
def test_a_dry_run_writes_nothing(run: Run, tmp_path: Path) -> None:
    workdir = tmp_path / "none"
    printed = run(workdir, "all", "--model", MODEL, "--dry-run")
    assert not workdir.exists()
    assert "20231101" not in printed
    assert f"{workdir}/download/wikicorpus_en/train-00000-of-00003.parquet" in printed
    assert f"MB free in {tmp_path}: enough" in printed
    run(tmp_path, "vocab", "--model", MODEL)
    assert "0.0 MB still to download" in run(tmp_path, "vocab", "--model", MODEL, "--dry-run")


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(("name", "value"), [("HTTP_PROXY", "ftp://proxy"), ("SSL_CERT_FILE", "/none")])
def test_an_unusable_environment_is_one_line(
    name: str, value: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_session()  # which has read the environment
    monkeypatch.setenv(name, value)
    text = run(tmp_path, "vocab", "--model", MODEL, status=1)
    assert text.startswith("the environment's proxy or certificates cannot be used (")


def test_a_model_that_is_not_bert_gets_no_bert_config(
    hub: HubServer, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.put("models/some/roberta", model_files(model_type="roberta"))
    assert main(["download", "weights", "--model", "some/roberta", "--workdir", str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert "does not belong to a BERT model (its model_type is roberta), so bert_config.json is not made" in said
    assert not (tmp_path / "download/weights/some/roberta/bert_config.json").exists()
    hub.put("models/some/old", {"pytorch_model.bin": b"x", "config.json": b"{}"})
    assert "has no *.safetensors" in run(tmp_path, "weights", "--model", "some/old", status=1)


@pytest.mark.tensorflow
def test_a_released_model_is_where_the_fields_scripts_look(hub: HubServer, run: Run, tmp_path: Path) -> None:
    first = tmp_path / "first"
    run(first, "weights", "vocab", "--model", RELEASED)
    workdir = first.rename(tmp_path / "as a container has it")
    pretrained, nvidia = workdir / "download" / "google_pretrained_weights", workdir / "download" / "nvidia_pretrained"
    large = pretrained / "uncased_L-24_H-1024_A-16"
    files = ("index", "data-00000-of-00001")
    checkpoints = {f"{name}.{file}" for name in ("bert_model.ckpt", "model.ckpt") for file in files}
    assert {path.name for path in large.iterdir()} == {"bert_config.json", "vocab.txt", *checkpoints}
    assert all(path.is_file() for path in workdir.rglob("*") if path.is_symlink())
    assert json.loads((large / "bert_config.json").read_bytes())["vocab_size"] == 97
    for folder in (large, pretrained / "uncased_L-12_H-768_A-12", nvidia / "bert_tf_pretraining_large_lamb"):
        assert (folder / "vocab.txt").read_bytes() == release_files()["vocab.txt"]
    weights = read_safetensors(GOLDEN / "hugging_face.safetensors")
    with open_bundle(large / "model.ckpt") as bundle:
        assert len(bundle.shapes) == len(weights)  # the decoder's matrix is not there twice
        for name in bundle.shapes:
            theirs = weights[hugging_face_name(name)]
            assert (bundle.read(name) == (theirs.T if name.endswith("kernel") else theirs)).all()

    before = sums(workdir)
    hub.asked.clear()
    for spoil in ("nothing", "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index", "model.ckpt.index", "vocab.txt"):
        if spoil != "nothing":
            (large / spoil).unlink()
            (large / spoil).write_bytes(b"something else")
        run(workdir, "weights", "--model", RELEASED)
        assert sums(workdir) == before
    assert not hub.asked


def test_a_release_counts_towards_disk_space(hub: HubServer, run: Run, tmp_path: Path) -> None:
    hub.put(f"models/{RELEASED}", {**release_files(), "model.safetensors": noise(3_000_000, "large")})
    assert "6.0 MB still to download" in run(tmp_path, "weights", "--model", RELEASED, "--dry-run")
    assert not list(tmp_path.iterdir())


def test_a_dump_at_an_address_is_fetched_once(hub: HubServer, run: Run, tmp_path: Path) -> None:
    hub.files["dewiki.xml.bz2"] = noise(200_000, "dump")
    hub.fail("dewiki.xml.bz2", cut_after=100_000)
    command = ["wikipedia", "--from-dump", f"{hub.url}/files/dewiki.xml.bz2"]
    run(tmp_path, *command)
    hub.asked.clear()
    run(tmp_path, *command)
    assert not hub.asked
    folder = tmp_path / "download" / "wikicorpus_de"
    assert (folder / "dewiki.xml.bz2").read_bytes() == noise(200_000, "dump")
    assert {path.name for path in folder.iterdir()} == {"dewiki.xml.bz2", "listing.json"}


def test_a_local_dump_is_linked(tmp_path: Path) -> None:
    dump = tmp_path / "mine" / "enwiki.xml.bz2"
    dump.parent.mkdir()
    dump.write_bytes(b"BZh9")
    for _ in range(2):
        (part,) = download(["wikipedia"], workdir=tmp_path, from_dump=dump)
        assert part.listing.source == {"dump": str(dump)}
        assert (part.folder / "enwiki.xml.bz2").readlink() == dump
        assert not part.listing.missing(part.folder)
        dump.write_bytes(b"BZh9 longer")
    with pytest.raises(UsageError, match="is not a file"):
        download(["wikipedia"], workdir=tmp_path, from_dump=tmp_path / "none")


def test_a_folder_of_books_is_linked(tmp_path: Path) -> None:
    books = tmp_path / "books"
    books.mkdir()
    with pytest.raises(UsageError, match="has no file of text"):
        download(["bookcorpus"], workdir=tmp_path, from_files=books)
    (books / "one.txt").write_text("A book.\n")
    (part,) = download(["bookcorpus"], workdir=tmp_path, from_files=books)
    assert part.listing.source == {"files": str(books)}
    assert (part.folder / "files").readlink() == books
    assert (part.files, part.size_bytes) == (1, 8)
    with pytest.raises(BertprepError, match=r"has a download of .*books, expected datasets/bookcorpus"):
        download(["bookcorpus"], workdir=tmp_path)
