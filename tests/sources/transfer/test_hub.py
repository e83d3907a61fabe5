"""Listing the Hub: one commit, all pages, the checksums of every file, and one clear line for missing things."""

import hashlib
from collections.abc import Iterator

import pytest
from huggingface_hub import constants

from bertprep.errors import BertprepError
from bertprep.sources import catalogue
from bertprep.sources.catalogue import BOOKCORPUS, DEFAULT_MODEL, HubFiles
from bertprep.sources.transfer.http import TRIES_TO_LIST, Web
from bertprep.sources.transfer.hub import Hub
from bertprep.sources.transfer.listing import Listing
from tests.hub_server import ENTRIES_A_PAGE, HubServer
from tests.small_hub import MODEL, bookcorpus_files, fill, model_files


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    monkeypatch.setenv("BERTPREP_RETRY_SECONDS", "0.005")
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)
    with HubServer() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        fill(hub)
        yield hub


def listed(files: HubFiles) -> Listing:
    with Web() as web:
        return Hub(web).list_files(files)


def complaint(files: HubFiles) -> str:
    with pytest.raises(BertprepError) as raised:
        listed(files)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.usefixtures("server")
def test_large_files_have_a_sha256_and_small_ones_gits_sha1() -> None:
    listing = listed(catalogue.weights(MODEL))
    files = {file.name: file for file in listing.files}
    content = model_files()
    assert set(files) == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"}
    assert files["model.safetensors"].sha256 == hashlib.sha256(content["model.safetensors"]).hexdigest()
    assert files["model.safetensors"].git_sha1 is None
    vocabulary = content["vocab.txt"]
    assert files["vocab.txt"].git_sha1 == hashlib.sha1(b"blob %d\0" % len(vocabulary) + vocabulary).hexdigest()
    assert files["vocab.txt"].sha256 is None
    assert {name: file.size_bytes for name, file in files.items()} == {name: len(content[name]) for name in files}
    assert listing.source["hub"] == f"models/{MODEL}"


def test_a_revision_with_slashes_is_resolved_to_its_commit(server: HubServer) -> None:
    listing = listed(BOOKCORPUS)
    commit = server.repositories["datasets/bookcorpus/bookcorpus"].revisions["refs/convert/parquet"]
    assert listing.revision == commit
    assert [file.name for file in listing.files] == [path.rpartition("/")[2] for path in sorted(bookcorpus_files())]
    assert all(f"/resolve/{commit}/plain_text/train/" in file.url for file in listing.files)


def test_every_page_of_a_long_listing_is_read(server: HubServer) -> None:
    count = 2 * ENTRIES_A_PAGE + 5
    server.put("datasets/some/long", {f"a/{number:03d}.parquet": b"x" for number in range(count)})
    assert len(listed(HubFiles("some/long", ("a/*.parquet",))).files) == count


def test_one_repository_is_asked_once_for_all_its_downloads(server: HubServer) -> None:
    with Web() as web:
        hub = Hub(web)
        commits = {hub.list_files(catalogue.glue(task)).revision for task in catalogue.GLUE}
    assert len(commits) == 1
    assert len(server.asked_for("/revision/main")) == 1


def test_a_missing_language_or_date_lists_the_existing_ones(server: HubServer) -> None:
    text = complaint(catalogue.wikipedia("xx", "20231101"))
    assert text.endswith("has no file 20231101.xx/*.parquet; there are 20231101.de, 20231101.en, 20231101.simple")
    server.put("datasets/wikimedia/wikipedia", {f"20231101.{chr(97 + n)}x/0.parquet": b"" for n in range(26)})
    text = complaint(catalogue.wikipedia("en", "20231101"))
    assert "there are 26 others, for instance " in text
    assert "20231101.ex" in text


def test_missing_and_private_repositories_are_reported(server: HubServer) -> None:
    text = complaint(catalogue.vocab("nobody/nothing"))
    assert text.startswith(f"{server.url}/nobody/nothing: there is no such model, or it is not public; check its name")
    text = complaint(HubFiles("wikimedia/wikipedia", ("*",), revision="v9"))
    assert text.startswith(f"{server.url}/datasets/wikimedia/wikipedia: has no revision v9")


def test_a_failing_server_is_retried(server: HubServer) -> None:
    server.fail("/revision/main", status=503)
    server.fail("/api/models/" + MODEL, status=429)
    assert len(listed(catalogue.vocab(MODEL)).files) == 1


def test_endless_trouble_is_one_line(server: HubServer) -> None:
    server.fail("/revision/main", times=None, status=502)
    text = complaint(catalogue.vocab(MODEL))
    assert text.startswith(f"{server.url}/api/models/{MODEL}/revision/main: the server answers 502 Bad Gateway; given up")
    assert len(server.asked) == TRIES_TO_LIST


def test_no_network_is_one_line(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "127.0.0.1:9 cannot be reached ([Errno 111] Connection refused)" in complaint(catalogue.vocab(MODEL))
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE forbids any request" in complaint(catalogue.vocab(MODEL))
    assert not server.asked


@pytest.mark.parametrize("answer", [b"<html>log in first</html>", b"{}", b"[]"])
def test_a_foreign_response_is_reported(answer: bytes, server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files[f"api/models/{MODEL}/revision/main"] = answer
    monkeypatch.setattr(constants, "ENDPOINT", f"{server.url}/files")
    assert "does not answer as the Hub does; check HF_ENDPOINT" in complaint(catalogue.vocab(MODEL))


def test_a_known_file_with_another_checksum_is_refused(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.put(f"models/{DEFAULT_MODEL}", model_files())
    known = listed(catalogue.vocab(DEFAULT_MODEL)).files[0]
    assert known.sha256 == "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
    assert known.git_sha1  # both are checked
    monkeypatch.setattr("bertprep.sources.transfer.hub.KNOWN_SHA256", {(DEFAULT_MODEL, "model.safetensors"): "0" * 64})
    assert "model.safetensors has sha256 " in complaint(catalogue.weights(DEFAULT_MODEL))
