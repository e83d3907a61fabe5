"""Data sets and hf:// addresses as input: fetched once like any download, whatever the network does, and then offline."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from bertprep import shard
from bertprep.config import ShardSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.sources.data_files import CONVERTED
from tests.hub_server import NOT_LET_IN, Answer, HubServer
from tests.hub_uploads import Account
from tests.small_hub import SENTENCES, bookcorpus_files, noise, parquet, wikipedia_files

WIKIPEDIA = "datasets/wikimedia/wikipedia"
GERMAN = "20231101.de/train-00000-of-00001.parquet"
CARD = b"""---
configs:
- config_name: small
  data_files: [{split: train, path: data/*.parquet}, {split: test, path: test.jsonl}]
- config_name: other
  data_files: other/*
---
"""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    monkeypatch.setenv("BERTPREP_RETRY_SECONDS", "0.005")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/none")
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)
    with HubServer() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        server.put(WIKIPEDIA, wikipedia_files())
        files = {
            "data/1.parquet": texts(1),
            "data/2.parquet": texts(2),
            "test.jsonl": b'{"text": "A test."}',
            "other/a.zip": b"PK",
        }
        server.put("datasets/some/texts", {"README.md": CARD, **files})
        yield server


def texts(number: int, count: int = 4) -> bytes:
    return parquet([{"text": f"{sentence} {number} {row}."} for row in range(count) for sentence in SENTENCES])


def sharded(workdir: Path, *inputs: str, corpus: str | None = None, **options: Any) -> tuple[str, int]:
    """The corpus that a call makes, and its documents."""
    manifest = shard(inputs, ShardSettings(shards=1, test_fraction=0), workdir=workdir, corpus=corpus, **options)
    [(name, facts)] = manifest.files.items()
    return name.removeprefix("training/").removesuffix("_training_00000.txt"), facts["documents"]


def complaint(workdir: Path, *inputs: str, **options: Any) -> str:
    """The one line with which a call fails."""
    with pytest.raises(BertprepError) as raised:
        sharded(workdir, *inputs, **options)
    text = str(raised.value)
    assert "\n" not in text
    return text


def test_a_split_is_fetched_once_and_then_read_offline(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sharded(tmp_path, dataset="some/texts:small") == ("texts_small", 32)
    assert sharded(tmp_path, dataset="some/texts:small", split="test") == ("texts_small_test", 1)
    assert sharded(tmp_path, dataset="wikimedia/wikipedia:20231101.de") == ("wikipedia_20231101.de", 10)
    assert sharded(tmp_path, dataset="wikimedia/wikipedia:20231101.de", corpus="mine", field="title") == ("mine", 10)
    folder = tmp_path / "download/datasets/some/texts/small-train"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*")) == [
        "data/1.parquet", "data/2.parquet", "listing.json",
    ]  # fmt: skip
    hub.put("datasets/some/texts", {"README.md": b"moved on"})
    hub.asked.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert sharded(tmp_path, dataset="some/texts:small") == ("texts_small", 32)
    assert sharded(tmp_path, dataset="some/texts:small", corpus="again") == ("again", 32)
    assert not hub.asked


def test_the_default_configuration_is_the_same_with_and_without_its_name(hub: HubServer, tmp_path: Path) -> None:
    card = b"---\nconfigs:\n- {config_name: small, data_files: a.parquet}\n---\n"
    hub.put("datasets/some/one", {"README.md": card, "a.parquet": texts(1)})
    assert sharded(tmp_path, dataset="some/one") == ("one", 16)
    hub.asked.clear()
    assert sharded(tmp_path, dataset="some/one:small") == ("one_small", 16)
    assert sharded(tmp_path, dataset="some/one", corpus="other") == ("other", 16)
    assert not hub.asked


def test_the_conversion_is_read_where_the_repository_has_a_script(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.put("datasets/some/books", {"books.py": b"raise SystemExit\n"})
    assert "has no files for the split train that are read (.txt, " in (text := complaint(tmp_path, dataset="some/books"))
    assert text.endswith("no conversion to Parquet by the Hub; it has 1 .py")
    hub.put("datasets/some/books", bookcorpus_files(), revision=CONVERTED)
    assert sharded(tmp_path, dataset="some/books") == ("books", 400)
    assert "only the first gigabytes" not in capsys.readouterr().err
    partly = {path.replace("/train/", "/partial-train/"): content for path, content in bookcorpus_files().items()}
    hub.put("datasets/some/books", partly, revision=CONVERTED)
    assert sharded(tmp_path / "other", dataset="some/books:plain_text") == ("books_plain_text", 400)
    assert "datasets/some/books: only the first gigabytes of its split train are converted" in capsys.readouterr().err


def test_what_does_not_exist_is_named_with_what_does(hub: HubServer, tmp_path: Path) -> None:
    assert complaint(tmp_path, dataset="some/texts") == (
        "--dataset some/texts: has several configurations, so NAME:CONFIG must name one; there are other, small"
    )
    assert complaint(tmp_path, dataset="some/texts:big").endswith("has no configuration big; there are other, small")
    text = complaint(tmp_path, dataset="some/texts:small", split="dev")
    assert text == "--dataset some/texts: has no split dev of its configuration small; there are test, train"
    assert "has no files for the split train that are read" in complaint(tmp_path, dataset="some/texts:other")
    text = complaint(tmp_path, dataset="wikimedia/wikipedia:20231101.xx")
    assert text.endswith("has no configuration 20231101.xx; there are 20231101.de, 20231101.en, 20231101.simple")
    assert f"{hub.url}/datasets/some/none: there is no such dataset, or it is not public" in complaint(
        tmp_path, dataset="some/none"
    )
    assert not list(tmp_path.rglob("listing.json"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "texts"}, "--dataset texts: is neither a folder nor the name of a data set; give OWNER/NAME"),
        ({"dataset": "./some/folder"}, "--dataset ./some/folder: is neither a folder nor the name"),
        ({"dataset": "../nowhere"}, "--dataset ../nowhere: is neither a folder nor the name"),
        ({"dataset": "some/te--xts"}, "--dataset some/te--xts: is neither a folder nor the name"),
        ({"dataset": "some/texts:"}, "--dataset some/texts:: is neither a folder nor the name"),
        ({"dataset": "some/texts", "split": "train[:10%]"}, "--split train[:10%]: is not the name of a split"),
        ({"dataset": "some/texts", "split": "../train"}, "--split ../train: is not the name of a split"),
        ({"split": "train"}, "--split train: is a split of --dataset, which is not given"),
        ({"dataset": "some/texts", "inputs": ["a.txt"]}, "--dataset and --input: give one of the two"),
    ],
)
def test_wrong_requests_are_refused_without_a_request(
    options: dict[str, Any], message: str, hub: HubServer, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as raised:
        shard(workdir=tmp_path, **options)
    assert str(raised.value).startswith(message)
    assert not hub.asked


@pytest.mark.parametrize(
    ("card", "message"),
    [
        (CARD.replace(b"[{", b"[[{"), "its configs are not YAML: "),
        (CARD.replace(b"data/*.parquet", b"../../etc/*"), "'../../etc/*' is not the path of files in this repository"),
        (CARD.replace(b"data/*.parquet", b"data/*.jsonl"), "the files of its split train, ['data/*.jsonl'], do not exist"),
        (CARD.replace(b"name: small", b'name: "a\\nb"'), "'a\\nb' is not the name of a configuration"),
        (CARD.replace(b"name: small", b"name: a.part"), "has no configuration small; there are a.part, other"),
    ],
)
def test_a_card_that_cannot_be_followed_is_one_line(card: bytes, message: str, hub: HubServer, tmp_path: Path) -> None:
    hub.put("datasets/some/texts", {"README.md": card, "data/1.parquet": texts(1)})
    assert message in complaint(tmp_path, dataset="some/texts:small")
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("../outside.parquet", "has no files for the split train"),
        ("a\nb.parquet", "cannot be downloaded"),
        ("listing.json/a.parquet", "cannot be downloaded"),
        ("/".join("a" * 100_000) + ".parquet", "has no files for the split train"),
    ],
)
def test_paths_that_no_file_may_have_are_one_line(path: str, message: str, hub: HubServer, tmp_path: Path) -> None:
    entries = [{"type": "file", "path": path, "size": 1, "oid": "0" * 40}]
    commit = hub.put("datasets/some/hostile", {"README.md": b""})
    hub.answers[f"/tree/{commit}"] = lambda _: Answer(json.dumps(entries).encode())
    assert message in complaint(tmp_path / "work", dataset="some/hostile")
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_that_was_removed_since_it_was_listed_is_named(hub: HubServer, tmp_path: Path) -> None:
    hub.fail("2.parquet", times=None, status=503)
    complaint(tmp_path, dataset="some/texts:small")
    hub.faults.clear()
    hub.repositories["datasets/some/texts"].commits.clear()
    assert "/data/2.parquet: the server answers 404 Not Found" in complaint(tmp_path, dataset="some/texts:small")


def test_another_data_set_of_the_same_name_is_not_mixed_in(hub: HubServer, tmp_path: Path) -> None:
    hub.put("datasets/others/texts", {"train.jsonl": b'{"text": "Another."}'})
    assert sharded(tmp_path, dataset="others/texts") == ("texts", 1)
    hub.put("datasets/third/texts", {"train.jsonl": b'{"text": "A third."}'})
    text = complaint(tmp_path, dataset="third/texts")
    assert "/sharded/texts: was made with another " in text
    assert "choose another --workdir or --corpus" in text


def test_a_configuration_does_not_lead_out_of_its_folder(hub: HubServer, tmp_path: Path) -> None:
    card = CARD.replace(b"name: small", b"name: ../../../x")
    hub.put("datasets/some/texts", {"README.md": card, "data/1.parquet": texts(1)})
    assert sharded(tmp_path / "work", dataset="some/texts:../../../x", corpus="x") == ("x", 16)
    assert [path.name for path in (tmp_path / "work/download/datasets/some/texts").iterdir()] == [".._.._.._x-train"]
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


def test_gated_and_private_data_sets_say_what_to_do(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories["datasets/some/texts"].gated = True
    page = f"{hub.url}/datasets/some/texts"
    text = complaint(tmp_path, dataset="some/texts:small")
    assert text == (
        f"{page}: is only for who has accepted its conditions; accept its conditions on that page, and set HF_TOKEN to a token "
        "of the account that did"
    )
    assert complaint(tmp_path, "hf://datasets/some/texts/data") == text
    monkeypatch.setenv("HF_TOKEN", NOT_LET_IN)
    assert "the account of HF_TOKEN has no access yet; accept" in complaint(tmp_path, dataset="some/texts:small")
    monkeypatch.setenv("HF_TOKEN", "hf_let_in")
    hub.uploads.private.add("datasets/some/texts")
    text = complaint(tmp_path, dataset="some/texts:small")
    assert text == (
        f"{page}: there is no such dataset, or it is not public; check its name, or set HF_TOKEN to a token of an account that "
        "may read it"
    )
    hub.uploads.accounts["hf_let_in"] = Account("some")
    assert sharded(tmp_path, dataset="some/texts:small") == ("texts_small", 32)


def test_a_network_that_fails_is_tried_again_from_where_it_broke(hub: HubServer, tmp_path: Path) -> None:
    content = texts(1, count=2000)
    hub.put("datasets/some/texts", {"README.md": CARD, "data/1.parquet": content})
    hub.fail("/revision/main", status=503)
    hub.fail("/tree/" + next(iter(hub.repositories["datasets/some/texts"].revisions.values())), status=429)
    hub.fail("README.md", replace_with=b"another")
    hub.fail("1.parquet", cut_after=len(content) // 2)
    assert sharded(tmp_path, dataset="some/texts:small") == ("texts_small", 8000)
    assert [asked.headers["Range"] for asked in hub.asked_for("1.parquet")] == [None, f"bytes={len(content) // 2}-"]
    hub.fail("1.parquet", times=None, status=503)
    assert "given up after 8 tries" in complaint(tmp_path / "other", dataset="some/texts:small")
    assert not list((tmp_path / "other").rglob("*.parquet"))


def test_a_killed_run_resumes_at_its_byte(hub: HubServer, tmp_path: Path) -> None:
    size = 4_000_000
    content = parquet([{"text": "A sentence.", "more": noise(size, "more")}])
    hub.put("datasets/some/texts", {"README.md": CARD, "data/1.parquet": content})
    hub.bytes_per_second = 4_000_000
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "no")}
    arguments = ["shard", "--dataset", "some/texts:small", "--workdir", str(tmp_path), "--shards", "1", "--test-fraction", "0"]
    process = subprocess.Popen([sys.executable, "-m", "bertprep", *arguments], env=environment, stderr=subprocess.DEVNULL)
    hub.wait_until_sent("1.parquet", size // 2)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    hub.bytes_per_second = 0
    with hub.resumes({"1.parquet": tmp_path / "download/datasets/some/texts/small-train/data/1.parquet"}):
        assert sharded(tmp_path, dataset="some/texts:small") == ("texts_small", 1)


def test_verify_finds_what_has_changed_on_disk(hub: HubServer, tmp_path: Path) -> None:
    sharded(tmp_path, dataset="some/texts:small")
    path = tmp_path / "download/datasets/some/texts/small-train/data/1.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\0")
    hub.asked.clear()
    sharded(tmp_path, dataset="some/texts:small", verify=True)
    assert path.read_bytes() == content
    assert len(hub.asked) == 1


ADDRESS = "hf://datasets/wikimedia/wikipedia"


@pytest.mark.parametrize(
    ("path", "documents"),
    [
        (f"/{GERMAN}", 10),
        (f"@main/{GERMAN}", 10),
        ("/20231101.en", 30),
        ("/20231101.en/", 30),
        ("/20231101.en/*-0000[12]-*.parquet", 20),
        ("/*/train-00000-*.parquet", 10),  # equal articles, two of which are dropped as duplicates
        ("/**/train-00002*", 10),
    ],
)
def test_an_address_of_the_hub_is_a_file_a_folder_or_a_pattern(
    path: str, documents: int, hub: HubServer, tmp_path: Path
) -> None:
    assert sharded(tmp_path, ADDRESS + path) == ("corpus", documents)
    hub.asked.clear()
    assert sharded(tmp_path, ADDRESS + path, corpus="again") == ("again", documents)
    assert not hub.asked


def test_addresses_of_revisions_and_models_are_read(hub: HubServer, tmp_path: Path) -> None:
    hub.put("datasets/some/books", bookcorpus_files(), revision=CONVERTED)
    for corpus, revision in (("plain", "refs/convert/parquet"), ("quoted", "refs%2Fconvert%2Fparquet")):
        assert sharded(tmp_path, f"hf://datasets/some/books@{revision}/plain_text", corpus=corpus) == (corpus, 400)
    hub.put("models/some/model", {"notes.txt": b"A sentence.\n\nAnother.\n"})
    assert sharded(tmp_path, "hf://some/model/notes.txt", corpus="notes") == ("notes", 2)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (f"{ADDRESS}/20231101.xx", f"--input {ADDRESS}/20231101.xx: does not exist"),
        (f"{ADDRESS}/*.txt", f"--input {ADDRESS}/*.txt: does not exist"),
        (f"{ADDRESS}/../x/*", f"--input {ADDRESS}/../x/*: '../x/*' is not the path of files in this repository"),
        (f"{ADDRESS}@v9/{GERMAN}", "has no revision v9"),
        ("hf://datasets/some/none/a.txt", "there is no such dataset, or it is not public"),
        ("hf://datasets/some/te--xts/a.txt", "--input hf://datasets/some/te--xts/a.txt: is not an address; give"),
        ("hf://datasets/some", "--input hf://datasets/some: is not an address; give hf://datasets/OWNER/NAME/PATH"),
        ("hf://datasets/some/texts/other", "--input hf://datasets/some/texts/other: has no file that ends in .txt, "),
        ("https://example.com/*.txt", "--input https://example.com/*.txt: a web server does not list its files"),
    ],
)
@pytest.mark.usefixtures("hub")
def test_addresses_that_lead_nowhere_are_named(address: str, message: str, tmp_path: Path) -> None:
    assert message in complaint(tmp_path, address)
    assert not list(tmp_path.rglob("listing.json"))
