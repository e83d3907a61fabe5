"""Commands whose paths are URLs: the same bytes as on a disk, whatever the store does meanwhile."""

from pathlib import Path

import pytest

import bertprep
from bertprep.cli import main
from bertprep.commands.shard import shard
from bertprep.errors import BertprepError
from bertprep.files import object_store
from bertprep.files.atomic import atomic_file
from bertprep.files.paths import as_path, checksum_of
from bertprep.work.layout import LEDGER, Workspace
from tests.corpora import deal, sums
from tests.golden import GOLDEN
from tests.object_store import Fault, Store, store
from tests.sources.test_corpora import download
from tests.store_kills import commands, make_killed_at, watch

pytestmark = pytest.mark.slow

__all__ = ["store"]  # a fixture


def make_all(inputs: list[Path], workdir: Path | str) -> None:
    """Text shards, records of two formats, converted ones and token shards, in a workspace."""
    assert [main(command) for command in commands(inputs, str(workdir), workers=1)] == [0] * 4


def upload(folder: Path, to: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with atomic_file(to / path.relative_to(folder).as_posix()) as file:
                file.write(path.read_bytes())


@pytest.fixture(scope="module")
def made(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, and a workspace made of it on the disk."""
    folder = tmp_path_factory.mktemp("made")
    deal(golden_corpus, folder / "text", 3)
    make_all(sorted((folder / "text").iterdir()), folder / "data")
    return folder


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_workspace_in_a_store_has_the_bytes_of_one_on_a_disk(
    in_parts: bool, made: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_parts:
        monkeypatch.setattr(object_store, "ONE_PUT_BYTES", 1 << 12)
        store.faults += [Fault("POST", ".*0000[01].*", skip=1, lose=True), Fault("PUT", ".*part-0.*", cut=True)]
    upload(made / "text", store.path("text"))
    store.faults += [
        Fault("PUT", ".*00001.*", lose=True),
        Fault("PUT", ".*00002.*", status=503, code="SlowDown"),
        Fault("GET", ".*manifest.json", cut=True),
        Fault("HEAD", times=2, status=500),
    ]
    make_all(sorted(store.path("text").iterdir()), f"{store.url}/data")
    in_store, on_disk = sums(store.path("data")), sums(made / "data")
    assert in_store.pop(".sources/mine.json") != on_disk.pop(".sources/mine.json")  # which name the place of the text
    assert in_store == on_disk
    assert not any(fault.times for fault in store.faults)
    assert in_parts == any(asked.startswith("POST data/") for asked in store.asked)


def test_killed_at_any_moment_it_leaves_the_same_and_nothing_half_made_is_ever_seen(made: Path, store: Store) -> None:
    moments = [
        Fault("PUT", "sharded/.*training_00001.txt", cut=True),
        Fault("PUT", f"sharded/.*{LEDGER}/.*training_00001.*", lose=True),
        Fault("PUT", "sharded/.*manifest.json", lose=True),
        Fault("PUT", "arrow/.*00001.*arrow", lose=True),
        Fault("POST", "", lose=True),  # markers are removed
        Fault("PUT", ".*converted/.*part-1", lose=True),
    ]
    store.faults += [Fault("PUT", ".*00000.*", lose=True, times=3), Fault("GET", status=503, code="SlowDown", times=3)]
    expected = sums(made / "data")
    with watch(store, expected) as watcher:
        make_killed_at(store, moments, commands(sorted((made / "text").iterdir()), store.url, workers=1))
    assert sums(store.path()) == expected
    assert watcher.looks > len(expected)


def test_commands_read_urls(made: Path, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    upload(made / "data", store.path("data"))
    (records,), (tokens,) = ((made / "data" / kind).glob("*/mine") for kind in ("tfrecord", "tokens"))
    url = f"{store.url}/data/{records.relative_to(made / 'data')}"
    first = f"{url}/training/mine_training_00000.tfrecord"
    for arguments in (
        ["validate", f"{store.url}/data", "--workers", "1", "--json", f"{store.url}/found.json"],
        ["validate", url, "--workers", "1", "--html", f"{store.url}/page.html"],
        ["inspect", first, "--records", "1"],
        ["convert", first, f"{store.url}/one.ofrecord"],
        ["create", "--input", f"{store.url}/data/sharded/mine/test/mine_test_00000.txt", "--output", str(tmp_path / "out"),
         "--vocab", f"{url}/vocab.txt", "--workers", "1"],
        ["create", "--input", f"{store.url}/data/{tokens.relative_to(made / 'data')}/test", "--output", f"{store.url}/out",
         "--workers", "1"],
    ):  # fmt: skip
        assert main(arguments) == 0, capsys.readouterr().err
    assert sums(store.path("out/tfrecord/training")) == sums(tmp_path / "out/tfrecord/training")
    assert b"</html>" in store.path("page.html").read_bytes()
    assert store.path("found.json").is_file()
    with (
        bertprep.records.open(first) as there,
        bertprep.records.open(records / "training/mine_training_00000.tfrecord") as here,
    ):
        assert (there[:].input_ids == here[:].input_ids).all()
    of_store, of_disk = bertprep.RecordDataset(url), bertprep.RecordDataset(records)
    assert len(of_store) == len(of_disk)
    assert (of_store[7]["input_ids"] == of_disk[7]["input_ids"]).all()
    assert "Traceback" not in capsys.readouterr().err


def test_a_damaged_object_is_found_although_its_metadata_says_otherwise(made: Path, store: Store) -> None:
    upload(made / "data" / "sharded", store.path("sharded"))
    name = "sharded/mine/training/mine_training_00001.txt"
    content = bytearray((made / "data" / name).read_bytes())
    content[10] ^= 1
    blake3 = checksum_of(made / "data" / name)
    assert store.request("PUT", name, bytes(content), {"x-amz-meta-blake3": blake3}) == 200
    findings = [finding.code for outcome in bertprep.validate([store.url], workers=1) for finding in outcome.findings]
    assert "file-changed" in findings


def test_a_flipped_bit_of_text_is_one_line_and_the_same_command_recovers(
    made: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    upload(made / "data" / "sharded", store.path("sharded"))
    text = store.path("sharded/mine/training/mine_training_00001.txt")
    store.faults.append(Fault("GET", text.relative_to(store.path()).as_posix(), flip=10, times=9))
    arguments = ["create", "--workdir", store.url, "--corpus", "mine", "--vocab", str(GOLDEN / "vocab.txt"), "--workers", "1"]
    assert main(arguments) == 1
    assert f"bertprep: error: {text}: " in (said := capsys.readouterr().err.splitlines()[-1])
    assert " were read, expected " in said
    store.faults.clear()
    assert main(arguments) == 0


def test_parts_of_shard_meet_in_a_store_that_fails(made: Path, store: Store) -> None:
    store.faults += [
        Fault("PUT", r".*sorted/[0-9a-f]*\.arrow", lose=True),
        Fault("GET", r".*sorted/[0-9a-f]*\.arrow", times=2, cut_after=100),
        Fault("PUT", ".*training_00001.*", times=3, status=503, code="SlowDown"),
        Fault("PUT", ".*/manifest.json", lose=True),
    ]
    command = ["shard", "--input", str(made / "text"), "--corpus", "mine", "--shards", "3", "--workdir", store.url]
    for part in ("0/2", "0/2", "1/2", "finish"):
        assert main([*command, "--workers", "1", "--part", part]) == 0
    assert sums(store.path("sharded")) == sums(made / "data" / "sharded")
    assert not any(fault.times for fault in store.faults)


def test_more_commands_take_urls(made: Path, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    datasets = pytest.importorskip("datasets")
    documents = (made / "text" / "text_0.txt").read_text(encoding="utf-8").split("\n\n")
    datasets.Dataset.from_dict({"text": documents}).save_to_disk(tmp_path / "saved")
    (tmp_path / "glue").mkdir()
    for split in ("train", "dev"):
        lines = "".join(f"text {number}\t{number % 2}\n" for number in range(9))
        (tmp_path / "glue" / f"{split}.tsv").write_text(f"sentence\tlabel\n{lines}")
    for name in ("saved", "glue"):
        upload(tmp_path / name, store.path(name))
    task = ["task", "glue", "mine", "--vocab", str(GOLDEN / "vocab.txt"), "--workers", "1"]
    results = []
    for home in (str(tmp_path), store.url):
        for arguments in (
            ["shard", "--dataset", f"{home}/saved", "--workdir", f"{home}/dataset", "--workers", "1"],
            [*task, "--input", f"{home}/glue", "--output", f"{home}/records"],
        ):
            assert main(arguments) == 0, capsys.readouterr().err
        made_there = {name: sums(as_path(home) / name) for name in ("dataset/sharded", "records")}
        results.append(made_there)
    assert results[0] == results[1]
    (records,) = (made / "data" / "arrow").glob("*/mine")
    upload(records, store.path("arrow"))
    rows = [
        bertprep.load_dataset(data, split="test", cache_dir=tmp_path / "cache").to_list()
        for data in (records, f"{store.url}/arrow")
    ]
    assert rows[0] == rows[1]


def test_a_download_that_is_copied_to_a_store_is_read_there(store: Store, tmp_path: Path) -> None:
    download(Workspace(tmp_path / "data"), "bookscorpus", [[f"the book {number} ." for number in range(200)]] * 2)
    upload(tmp_path / "data", store.path("data"))
    for workdir in (tmp_path / "data", store.path("data")):
        shard(test_fraction=0, corpus="bookcorpus", workdir=workdir, workers=1)
    assert sums(store.path("data/sharded")) == sums(tmp_path / "data" / "sharded")


@pytest.mark.parametrize(
    ("fault", "printed"),
    [
        (Fault("PUT", times=None, status=403, code="AccessDenied"), "the store responds 403 AccessDenied"),
        (Fault("GET", "(?!$).*", times=None, status=404, code="NoSuchKey"), "there is no such object"),
    ],
    ids=str,
)
def test_a_store_that_refuses_is_one_line(
    fault: Fault, printed: str, made: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    upload(made / "text", store.path("text"))
    store.faults.append(fault)
    arguments = ["shard", "--input", f"{store.url}/text", "--corpus", "mine", "--workdir", f"{store.url}/data"]
    assert main([*arguments, "--workers", "1"]) == BertprepError.exit_status
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("bertprep: error: s3://")
    assert printed in error
    store.faults.clear()
    assert not store.path("data").exists()
