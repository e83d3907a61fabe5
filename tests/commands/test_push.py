"""`bertprep push` to a Hub that is real HTTP, and back: nothing is sent twice, nobody sees half, all records are the same."""

import json
import re
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants
from tokenizers import Tokenizer as HuggingFaceTokenizer

import bertprep
from bertprep import BertprepError, BertprepWarning, InstanceSettings, UsageError
from bertprep.cli import main
from bertprep.commands.push import Pushed
from bertprep.config import SquadSettings
from bertprep.files.checksums import digest
from bertprep.files.paths import checksum_of
from bertprep.instances.tokenizer import Tokenizer
from bertprep.records import FEATURES
from bertprep.records.columns import features_of
from bertprep.records.examples import PretrainingExamples, Shape
from bertprep.work.choose import find_records
from bertprep.work.layout import MANIFEST
from bertprep.work.manifest import read_manifest
from tests.corpora import sums
from tests.golden import GOLDEN
from tests.hub_server import Account, Answer, HubServer, use_hub
from tests.object_store import store

__all__ = ["store"]  # a fixture

NAME, TOKEN = "me/mine-bert-32", "hf_of_me"
REPOSITORY = f"datasets/{NAME}"
TEST_FILE = "test/mine_test_00000.parquet"
VOCABULARY = GOLDEN / "vocab.txt"

Change = Callable[[dict[str, bytes]], dict[str, bytes]]
"""Of the files of a repository."""


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, golden_corpus: Path) -> Path:
    """A workspace with TFRecords of two training shards and one for testing."""
    workdir = tmp_path_factory.mktemp("made")
    bertprep.shard([golden_corpus], corpus="mine", shards=2, test_fraction=0.4, workdir=workdir)
    settings = InstanceSettings(seq=32, pred=4, dupe=1)
    bertprep.create(**vars(settings), corpus="mine", formats="tfrecord", vocab=VOCABULARY, workdir=workdir)
    return workdir


@pytest.fixture(scope="session")
def parquet(made: Path) -> Path:
    """The folder of the same records in Parquet."""
    [manifest] = (made / "tfrecord").rglob(MANIFEST)
    return bertprep.convert(manifest.parent, made / "other" / "mine", to="parquet").folder


@pytest.fixture
def records(parquet: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(parquet, tmp_path / "mine"))


def set_up(monkeypatch: pytest.MonkeyPatch, server: HubServer, home: Path) -> None:
    """Let this process and its children use that Hub, and nothing else that they are told of one."""
    use_hub(monkeypatch, server.url, home)
    environment = {
        "HF_ENDPOINT": server.url, "HF_TOKEN": TOKEN, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1",
        "BERTPREP_RETRY_SECONDS": "0.01",
    }  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    server.uploads.accounts[TOKEN] = Account("me")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    with HubServer() as server:
        set_up(monkeypatch, server, tmp_path / "hf")
        yield server


@pytest.fixture(scope="session")
def pushed_files(parquet: Path) -> dict[str, bytes]:
    """What a repository holds after a push."""
    with HubServer() as server, pytest.MonkeyPatch.context() as monkeypatch:
        set_up(monkeypatch, server, parquet.parent)
        bertprep.push(parquet, NAME)
        return files_on(server)


def files_on(hub: HubServer, name: str = NAME) -> dict[str, bytes]:
    """What a repository holds now."""
    there = hub.repositories[f"datasets/{name}"]
    return there.commits[there.revisions["main"]]


def sent(hub: HubServer) -> Counter[str]:
    """How often each file was sent to the store, by its sha256."""
    return Counter(asked.path.split("/")[2] for asked in hub.asked if asked.method == "PUT")


@pytest.mark.slow
def test_what_is_pushed_comes_back(hub: HubServer, made: Path, tmp_path: Path, golden_corpus: Path) -> None:
    [records] = (made / "tfrecord").glob("*/mine")
    pushed = bertprep.push(records, NAME)
    files = files_on(hub)
    assert sorted(files) == [
        ".gitattributes", "README.md", "manifest.json", "test/mine_test_00000.parquet", "tokenizer.json",
        "tokenizer_config.json", "train/mine_training_00000.parquet", "train/mine_training_00001.parquet", "vocab.txt",
    ]  # fmt: skip
    assert len(hub.uploads.commits) == 1
    assert set(pushed.changed) == {*files} - {".gitattributes"}
    assert (made / "parquet" / records.parent.name / "mine" / MANIFEST).is_file()  # kept for the next push

    [downloaded] = bertprep.download(["dataset", NAME], workdir=tmp_path)
    folder = tmp_path / "download" / "datasets" / NAME
    assert downloaded.folder == folder
    for path, content in files.items():
        assert path == ".gitattributes" or (folder / path).read_bytes() == content
    assert not [finding for outcome in bertprep.validate([folder]) for finding in outcome.findings if finding.level == "error"]
    back, source = find_records(folder), find_records(records)
    for split in ("training", "test"):
        for ours, theirs in zip(source.paths(split), back.paths(split), strict=True):
            with bertprep.records.open(ours) as mine, bertprep.records.open(theirs) as its:
                assert len(mine) == len(its) > 100
                for name in FEATURES:
                    np.testing.assert_array_equal(getattr(mine[:], name), getattr(its[:], name))

    text = golden_corpus.read_text(encoding="utf-8").replace("[MASK]", "")  # which is one token to them
    lines = [line for line in text.splitlines() if line]
    found = Tokenizer(bertprep.load_vocabulary(VOCABULARY), lower=True).tokenize_lines(
        "".join(f"{x}\n" for x in lines).encode()
    )
    encoded = HuggingFaceTokenizer.from_file(str(folder / "tokenizer.json")).encode_batch(lines, add_special_tokens=False)
    assert [number for line in encoded for number in line.ids] == found.tokens.tolist()


def test_a_dry_run_prints_what_would_be_sent_and_only_reads(
    hub: HubServer, records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_dry() -> list[str]:
        before = len(hub.asked)
        assert main(["push", str(records), NAME, "--dry-run"]) == 0
        assert {asked.method for asked in hub.asked[before:]} <= {"GET", "HEAD"}
        return capsys.readouterr().out.splitlines()

    address = f"{hub.url}/{REPOSITORY}"
    printed = run_dry()
    assert printed[-1] == f"a dry run: 8 files would be sent, 0 deleted: {address}; nothing was sent"
    assert REPOSITORY not in hub.repositories
    bertprep.push(records, NAME)
    pushed = {name: content for name, content in files_on(hub).items() if name != ".gitattributes"}
    assert dict(line.split() for line in printed if line.startswith(tuple(pushed)) and len(line.split()) == 2) == {
        name: f"{len(content):,}" for name, content in pushed.items()
    }
    assert pushed["README.md"].decode().strip() in "\n".join(printed)
    commits = len(hub.uploads.commits)
    assert run_dry()[-1] == f"a dry run: 0 files would be sent, 0 deleted: {address}; nothing was sent"
    assert main(["push", str(records), NAME, "--dry-run", "--license", "cc0-1.0"]) == 0
    *_, changed, last = capsys.readouterr().out.splitlines()
    assert changed == "would be sent: README.md"
    assert last == f"a dry run: 1 file would be sent, 0 deleted: {address}; nothing was sent"
    dry = bertprep.push(records, NAME, license="cc0-1.0", dry_run=True)
    assert (dry.changed, dry.commit, dry.not_compared) == (["README.md"], None, "")
    assert "no commit, a dry run" in repr(dry)
    assert len(hub.uploads.commits) == commits


NOT_COMPARED: dict[str, tuple[Callable[[HubServer, pytest.MonkeyPatch], Any], str]] = {
    "no token": (lambda _, environment: environment.delenv("HF_TOKEN"), "a push needs a token; run hf auth login"),
    "wrong token": (lambda _, environment: environment.setenv("HF_TOKEN", "hf_no"), "does not know the token of HF_TOKEN"),
    "offline": (
        lambda _, environment: environment.setattr(constants, "HF_HUB_OFFLINE", True),
        "HF_HUB_OFFLINE forbids any request",
    ),
    "no network": (
        lambda _, environment: environment.setattr(constants, "ENDPOINT", "http://127.0.0.1:9"),
        "no answer .* retries exhausted",
    ),
}


@pytest.mark.parametrize("case", NOT_COMPARED)
def test_a_dry_run_needs_no_hub(
    case: str, hub: HubServer, records: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare, says = NOT_COMPARED[case]
    prepare(hub, monkeypatch)
    assert main(["push", str(records), NAME, "--dry-run"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["format", "split", "files", "documents", "records", "MB", "cut", "off", "truncated"]
    assert "# mine: BERT pretraining records of 32 tokens" in printed  # of the card
    assert re.match(f"the repository was not compared: .*{says}", printed[-2])
    assert re.match("a dry run: 8 files would be sent, or fewer if the repository has some of them: ", printed[-1])
    change_a_record(records)
    assert main(["push", str(records), NAME, "--dry-run"]) == 1
    assert "cannot be pushed: id-range: " in capsys.readouterr().err


@pytest.mark.usefixtures("hub")
def test_test_records_that_are_in_training_are_not_pushed(records: Path, tmp_path: Path) -> None:
    (records / MANIFEST).unlink()
    [training, *_] = sorted((records / "train").iterdir())
    shutil.copyfile(training, records / TEST_FILE)
    [outcome] = bertprep.validate([records])
    assert outcome.errors
    for dry_run in (True, False):
        with pytest.raises(
            BertprepError, match=r"mine: cannot be pushed: (test-in-training|identical-files): .* lists \d+ more error"
        ):
            bertprep.push(records, NAME, workdir=tmp_path / "data", dry_run=dry_run)
    assert not (tmp_path / "data").exists()  # nothing was converted in vain


@pytest.mark.usefixtures("hub")
def test_a_copy_that_has_changed_since_it_was_converted_is_not_pushed(made: Path, tmp_path: Path) -> None:
    workdir = Path(shutil.copytree(made, tmp_path / "data"))
    [records] = (workdir / "tfrecord").glob("*/mine")
    assert bertprep.push(records, NAME, dry_run=True).changed
    [copy] = (workdir / "parquet").rglob("mine_test_00000.parquet")
    copy.write_bytes(copy.read_bytes()[::-1])
    with pytest.raises(BertprepError, match=f"{copy.parents[1]}: cannot be pushed: file-changed: test/mine_test_00000"):
        bertprep.push(records, NAME, dry_run=True)


@pytest.mark.usefixtures("hub")
def test_a_licence_that_the_hub_may_not_know_is_a_warning(records: Path) -> None:
    with pytest.warns(BertprepWarning, match="--license cc-by-4: is not one of the usual ids .*, did you mean cc-by-4.0?"):
        bertprep.push(records, NAME, license="cc-by-4", dry_run=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "--license")
        bertprep.push(records, NAME, license="cc-by-4.0", dry_run=True)


@pytest.mark.slow
def test_only_what_differs_is_sent(hub: HubServer, records: Path, tmp_path: Path) -> None:
    first = bertprep.push(records, NAME)
    assert set(sent(hub).values()) == {1}
    before = [path for path in hub.asked if path.method not in ("GET", "HEAD")]
    again = bertprep.push(records, NAME)
    assert (again.commit, again.changed, again.deleted) == (first.commit, [], [])
    assert [path for path in hub.asked if path.method not in ("GET", "HEAD")] == before

    hub.fail("/commit/main", status=412)  # as if somebody had committed since it was listed
    bertprep.push(records, NAME, license="cc0-1.0")
    assert sorted(hub.uploads.commits[-1]) == ["file README.md"]
    assert b"license: cc0-1.0" in files_on(hub)["README.md"]
    assert len(sent(hub)) == 3

    bertprep.convert(records, tmp_path / "dealt", to="parquet", shards=1)
    hub.repositories[REPOSITORY].commits[hub.repositories[REPOSITORY].revisions["main"]]["NOTES.md"] = b"by the owner"
    dealt = bertprep.push(tmp_path / "dealt", NAME)
    assert sorted(dealt.deleted) == ["train/mine_training_00001.parquet"]
    assert len(hub.uploads.commits) == 3
    assert "NOTES.md" in files_on(hub)  # which no push brought
    assert sorted(path for path in files_on(hub) if path.endswith(".parquet")) == [
        "test/mine_test_00000.parquet", "train/mine_training_00000.parquet",
    ]  # fmt: skip


@pytest.mark.usefixtures("hub")
def test_the_command_prints_what_changed(records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bertprep.convert(records, tmp_path / "one", to="parquet", shards=1)
    of_pushes = []
    for folder in (records, records, tmp_path / "one"):
        assert main(["push", str(folder), NAME]) == 0
        of_pushes.append(capsys.readouterr().out.splitlines()[-2].partition(": ")[0])
    first, again, fewer = of_pushes
    assert re.fullmatch(r"\d files changed", first)
    assert again == "nothing has changed"
    assert re.fullmatch(r"\d files changed, 1 deleted", fewer)


@pytest.mark.slow
def test_a_killed_push_sends_only_the_rest(hub: HubServer, records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = read_manifest(records)
    assert manifest
    [last, *others] = [checksum_of(records / name, "sha256") for name in manifest.files]
    hub.fail(f"/lfs/{last}", stall_after=20_000)
    command = [sys.executable, "-m", "bertprep", "push", str(records), NAME]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    hub.wait_until(lambda: hub.uploads.received[f"/lfs/{last}"] >= 20_000 and hub.uploads.stored.keys() >= set(others))
    process.kill()
    process.communicate()
    assert [*files_on(hub)] == [".gitattributes"]
    assert all(sent(hub)[other] == 1 for other in others)
    hub.faults.clear()
    hub.asked.clear()
    assert main(["push", str(records), NAME]) == 0
    assert sent(hub) == {last: 1}
    assert len(hub.uploads.commits) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"next: bertprep download dataset {NAME}"


def test_a_push_outlasts_a_lost_answer(hub: HubServer, records: Path) -> None:
    hub.fail("/api/whoami-v2", status=503)
    hub.fail("/commit/main", lost=True)  # it is made, and the answer never comes
    pushed = bertprep.push(records, NAME)
    assert len(hub.uploads.commits) == 1
    assert pushed.commit == hub.repositories[REPOSITORY].revisions["main"]
    assert json.loads(files_on(hub)[MANIFEST])["files"] == pushed.files


@pytest.mark.slow
def test_datasets_loads_what_was_pushed(hub: HubServer, records: Path, tmp_path: Path) -> None:
    pushed = bertprep.push(records, NAME, private=True)
    for split in ("train", "dev"):
        shutil.copyfile(GOLDEN / "finetune/squad_v1.json", tmp_path / f"{split}-v1.1.json")
    inputs, made = sorted(tmp_path.glob("*.json")), tmp_path / "squad"
    settings = SquadSettings(seq=64, max_query=16, doc_stride=16)
    bertprep.create_squad(inputs=inputs, **vars(settings), vocab=VOCABULARY, output=made, formats="tfrecord")
    squad = bertprep.push(made, "me/squad", workdir=tmp_path)
    assert files_on(hub, "me/squad")["dev.json"] == inputs[0].read_bytes()
    bertprep.download(["dataset", "me/squad"], workdir=tmp_path)
    [outcome] = bertprep.validate([tmp_path / "download/datasets/me/squad"])
    assert not outcome.findings
    program = f"""
import os, datasets
loaded = datasets.load_dataset("{NAME}")
assert loaded["train"].features == datasets.Features.from_dict({features_of(Shape(PretrainingExamples, 32, 4))})
print(len(loaded["train"]), len(loaded["test"]), len(datasets.load_dataset("me/squad", split="train")))
print(datasets.load_dataset("me/squad", "squad_evaluation", split="validation").column_names, flush=True)
os._exit(0)  # Arrow's threads may abort an interpreter that ends by itself
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{count(pushed, 'train')} {count(pushed, 'test')} {count(squad, 'train')}",
        "['unique_ids', 'input_ids', 'token_type_ids', 'attention_mask']",
    ]


def count(pushed: Pushed, folder: str) -> int:
    return sum(int(entry["examples"]) for name, entry in pushed.files.items() if name.startswith(f"{folder}/"))


class Case(NamedTuple):
    """What a refused push meets."""

    hub: HubServer
    records: Path
    environment: pytest.MonkeyPatch


REFUSED: dict[str, tuple[Callable[[Case], Any], str]] = {
    "no token": (lambda it: it.environment.delenv("HF_TOKEN"), "a push needs a token; run hf auth login, or set HF_TOKEN"),
    "token that reads": (lambda it: it.hub.uploads.accounts.update({TOKEN: Account("me", "read")}), "the token of me has read"),
    "name of another": (
        lambda it: it.hub.uploads.accounts.update({TOKEN: Account("you")}),
        "the server answers 403 .*set HF_TOKEN to the token of an account that has access",
    ),
    "offline": (lambda it: it.environment.setattr(constants, "HF_HUB_OFFLINE", True), "HF_HUB_OFFLINE forbids any request"),
    "taken": (lambda it: it.hub.put(REPOSITORY, {"data.csv": b"a,b"}), "contains data.csv, which bertprep push did not write"),
    "taken, with a card": (
        lambda it: it.hub.put(REPOSITORY, {"README.md": b"mine"}),
        "contains README.md, which bertprep push did not write",
    ),
    "another corpus": (lambda it: it.hub.put(REPOSITORY, other(it.records)), "whose corpus is theirs, expected mine; name"),
    "without vocabulary": (lambda it: (it.records / "vocab.txt").unlink(), "has no vocab.txt, without which nobody can"),
    "other vocabulary": (
        lambda it: (it.records / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"),
        "the vocabulary that the data were made with",
    ),
    "wrong records": (lambda it: change_a_record(it.records), "cannot be pushed: .*; bertprep validate .* lists all findings"),
    "no Hub": (lambda it: it.hub.answers.update({"/api/whoami-v2": lambda _: Answer(b"<html>hello")}), "check the address"),
}  # fmt: skip


def other(records: Path) -> dict[str, bytes]:
    manifest = read_manifest(records)
    assert manifest
    made_with = {**manifest.made_with, "corpus": "theirs"}
    return {MANIFEST: json.dumps(replace(manifest, made_with=made_with).as_json()).encode()}


def change_a_record(records: Path) -> None:
    """A token that the vocabulary lacks, in a file that its manifest knows."""
    manifest = read_manifest(records)
    assert manifest
    table = pq.read_table(path := records / TEST_FILE)
    ids = table["input_ids"].combine_chunks()
    values = ids.values.to_numpy().copy()
    values[3] = 1_000_000
    changed = pa.FixedSizeListArray.from_arrays(pa.array(values), 32)
    pq.write_table(table.set_column(0, table.schema.field(0), changed), path)
    manifest.files[TEST_FILE].update(bytes=path.stat().st_size, blake3=checksum_of(path))
    (records / MANIFEST).write_text(json.dumps(manifest.as_json()))


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_push_changes_nothing(case: str, hub: HubServer, records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare, says = REFUSED[case]
    prepare(Case(hub, records, monkeypatch))
    before = {name: dict(there.revisions) for name, there in hub.repositories.items()}
    with pytest.raises(BertprepError, match=says) as raised:
        bertprep.push(records, NAME)
    assert "\n" not in str(raised.value)
    assert {name: dict(there.revisions) for name, there in hub.repositories.items()} == before
    assert not sent(hub)


def test_a_private_push_does_not_become_public(hub: HubServer, records: Path) -> None:
    hub.put(REPOSITORY, {})
    with pytest.raises(UsageError, match=r"--private: .* is public; make it private in its settings"):
        bertprep.push(records, NAME, private=True)
    bertprep.push(records, "me/secret", private=True)
    assert hub.uploads.private == {"datasets/me/secret"}

    hub.before["/api/repos/create"] = lambda: hub.put("datasets/me/later", {})
    with pytest.raises(UsageError, match=r"--private: .*/later is public; make it private in its settings"):
        bertprep.push(records, "me/later", private=True)
    assert not files_on(hub, "me/later")


def test_what_somebody_else_commits_meanwhile_is_not_replaced(hub: HubServer, records: Path) -> None:
    hub.before["/commit/main"] = lambda: hub.put(REPOSITORY, other(records))
    with pytest.raises(BertprepError, match="contains another data set, whose corpus is theirs, expected mine; name another"):
        bertprep.push(records, NAME)
    assert files_on(hub) == other(records)


def test_a_stopped_download_is_unfinished_and_resumes(hub: HubServer, pushed_files: dict[str, bytes], tmp_path: Path) -> None:
    hub.put(REPOSITORY, pushed_files)
    hub.fail("test/mine_test_00000.parquet", times=None, status=500, method="GET")
    with pytest.raises(BertprepError, match="retries exhausted"):
        bertprep.download(["dataset", NAME], workdir=tmp_path)
    folder = tmp_path / "download" / "datasets" / NAME
    assert (folder / "train").is_dir()
    with pytest.raises(BertprepError, match="is not finished"):
        find_records(folder)
    hub.faults.clear()
    bertprep.download(["dataset", NAME], workdir=tmp_path)
    assert len(find_records(folder).files) == 3
    before, asked = sums(folder), len(hub.asked)
    bertprep.download(["dataset", NAME], workdir=tmp_path)
    assert sums(folder) == before
    assert len(hub.asked) == asked


def without(name: str) -> Change:
    return lambda files: {path: content for path, content in files.items() if path != name}


def with_manifest(change: Callable[[dict[str, Any]], Any]) -> Change:
    def changed(files: dict[str, bytes]) -> dict[str, bytes]:
        manifest = json.loads(files[MANIFEST])
        change(manifest)
        return {**files, MANIFEST: json.dumps(manifest).encode()}

    return changed


def claiming(files: dict[str, bytes], name: str) -> dict[str, bytes]:
    """A file of that name, which the manifest calls one of records."""
    entry = {"bytes": 5, "blake3": digest(b"bytes"), "examples": 1}
    return {**with_manifest(lambda m: m["files"].update({name: entry}))(files), name: b"bytes"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            without(MANIFEST),
            f"has no manifest.json, so bertprep push did not write it; to use its text, run bertprep shard --dataset {NAME}",
        ),
        (without(TEST_FILE), "test/mine_test_00000.parquet is missing, expected "),
        (lambda files: {**files, TEST_FILE: b"another"}, "mine_test_00000.parquet has 7 bytes, expected "),
        (lambda files: {**files, MANIFEST: b"[]"}, "its manifest.json was not made by bertprep push"),
        (lambda files: claiming(files, "pushed.json"), "two files have the same name"),
        (with_manifest(lambda m: m.update(kind="text shards")), "its manifest.json was not made by bertprep push"),
        (with_manifest(lambda m: m["files"].update({"../x": m["files"][TEST_FILE]})), "its manifest.json was not made by"),
    ],
)
def test_a_download_of_what_is_no_push_writes_nothing(
    change: Change, says: str, hub: HubServer, pushed_files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.put(REPOSITORY, change(pushed_files))
    with pytest.raises(BertprepError, match=says) as raised:
        bertprep.download(["dataset", NAME], workdir=tmp_path)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "download").exists()


def test_a_download_of_other_bytes_than_were_pushed_is_no_data_set(
    hub: HubServer, pushed_files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.put(REPOSITORY, {**pushed_files, TEST_FILE: pushed_files[TEST_FILE][::-1]})
    with pytest.raises(
        BertprepError, match=f"{TEST_FILE}: has blake3 .*, expected blake3 .* as in manifest.json; ask its owner"
    ):
        bertprep.download(["dataset", NAME], workdir=tmp_path)
    assert not [*tmp_path.rglob(MANIFEST)]
