"""Names of corpora, and the way from a download to text shards."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertprep.commands.create import create
from bertprep.commands.shard import shard
from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import checksum_of
from bertprep.sources.corpora import downloaded_corpus, name_corpus, name_made_corpus, parts_of, printed_name
from bertprep.sources.listing import Listing, RemoteFile, save_listing
from bertprep.work.layout import Workspace
from tests.corpora import sums
from tests.golden import GOLDEN

ARTICLES = [
    "Anarchism is a philosophy. It is old.\n\nHistory\n\nIt began early.\n\nSee also\n\nAnarchy\nCategory of ideas\n",
    "A cat is an animal.\n\nReferences\n\nFelines",
    "References\n\nNothing else",
    "A cat is an animal.",
]
SENTENCES = ["copyright 2011 by a. writer", *(f"he said number {index} ." for index in range(600))]


def download(workspace: Workspace, name: str, *texts: list[str]) -> Path:
    """Write what `bertprep download` leaves: Parquet files and their listing."""
    folder = workspace.download(name)
    folder.mkdir(parents=True)
    files = []
    for index, of_file in enumerate(texts):
        path = folder / f"train-{index:05d}.parquet"
        pq.write_table(pa.table({"text": of_file}), path)
        files.append(RemoteFile(path.name, "http://x", path.stat().st_size, checksum_of(path, "sha256")))
    save_listing(Listing({"hub": "datasets/x", "patterns": [], "revision": "main"}, "abc", tuple(files)), folder)
    return folder


def text_of(workspace: Workspace, corpus: str) -> str:
    return "".join(path.read_text() for path in sorted(workspace.sharded(corpus).rglob("*.txt")))


@pytest.mark.parametrize(
    ("asked", "name", "parts"),
    [
        ("wikipedia", "wikicorpus_en", ["wikicorpus_en"]),
        ("bookcorpus", "bookscorpus", ["bookscorpus"]),
        ("wikipedia+bookcorpus", "books_wiki_en_corpus", ["bookscorpus", "wikicorpus_en"]),
        ("bookcorpus+wikipedia", "books_wiki_en_corpus", ["bookscorpus", "wikicorpus_en"]),
        ("wikicorpus_zh", "wikicorpus_zh", ["wikicorpus_zh"]),
        ("wikipedia_zh-yue", "wikicorpus_zh-yue", ["wikicorpus_zh-yue"]),
        ("wikipedia_de+bookcorpus", "books_wiki_de_corpus", ["bookscorpus", "wikicorpus_de"]),
        ("books_wiki_de_corpus", "books_wiki_de_corpus", ["bookscorpus", "wikicorpus_de"]),
        ("mine", "mine", []),
        (None, "sample", []),
    ],
)
def test_a_corpus_has_the_name_of_the_field_and_its_parts(
    asked: str | None, name: str, parts: list[str], tmp_path: Path
) -> None:
    assert name_corpus(asked, Workspace(tmp_path)) == name
    assert name_corpus(printed_name(name), Workspace(tmp_path)) == name
    assert parts_of(name) == parts


def test_without_a_name_it_is_what_was_downloaded_and_never_silently_something_else(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert name_made_corpus(workspace) == "sample"
    (tmp_path / "a.txt").write_text("One.\n\nTwo.\n")
    shard([tmp_path / "a.txt"], workdir=tmp_path)
    assert name_made_corpus(workspace) == "corpus"
    download(workspace, "wikicorpus_de", ["Ein Satz."])
    assert name_corpus(None, workspace) == name_corpus("wikipedia", workspace) == "wikicorpus_de"
    assert name_corpus("wikipedia", workspace, "fr") == "wikicorpus_fr"
    with pytest.raises(UsageError, match=r"the text of several corpora: corpus, wikipedia_de; choose one with --corpus"):
        name_made_corpus(workspace)
    download(workspace, "bookscorpus", ["a sentence ."])
    assert name_corpus(None, workspace) == "books_wiki_de_corpus"
    download(workspace, "wikicorpus_fr", ["Une phrase."])
    with pytest.raises(
        UsageError, match=r"--corpus wikipedia: .* languages of Wikipedia: de, fr; choose one, such as --corpus wikipedia_de"
    ):
        name_corpus("wikipedia", workspace)


def test_the_corpus_that_contains_all_others_is_chosen(tmp_path: Path) -> None:
    """Somebody shards Wikipedia, then adds books and shards both."""
    workspace = Workspace(tmp_path)
    download(workspace, "wikicorpus_en", ["A cat is an animal.", "A dog is an animal."])
    shard(corpus="wikipedia", workdir=tmp_path, shards=1, workers=1)
    assert name_made_corpus(workspace) == "wikicorpus_en"
    download(workspace, "bookscorpus", ["a sentence ."])
    assert name_made_corpus(workspace) == "books_wiki_en_corpus"
    assert downloaded_corpus(workspace, "en") == "books_wiki_en_corpus"


@pytest.mark.parametrize("name", ["wikipedia", "bookcorpus", "wikicorpus_en", "bookscorpus", "books_wiki_en_corpus"])
def test_own_text_cannot_have_the_name_of_a_download(name: str, tmp_path: Path) -> None:
    """Text shards of that name are those of the download, which another run would put in their place."""
    (tmp_path / "own.txt").write_text("This is mine.\n")
    with pytest.raises(UsageError, match=f"--corpus {name}: is the name of a download; give your own text another name, such"):
        shard([tmp_path / "own.txt"], test_fraction=0, workdir=tmp_path / "data", corpus=name)
    assert not (tmp_path / "data").exists()


def test_wikipedia_becomes_shards_of_prose(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    download(workspace, "wikicorpus_en", ARTICLES[:2], ARTICLES[2:])
    manifest = shard(corpus="wikipedia", workdir=tmp_path, shards=1, workers=2).manifest
    assert text_of(workspace, "wikicorpus_en") == (
        "A cat is an animal.\n\nAnarchism is a philosophy.\nIt is old.\nIt began early.\n\n"  # test comes first by name
    )
    removed = {"removed_headings": 6, "removed_appendices": 1, "removed_short_lines": 1}
    assert manifest.counts == {"dropped_empty": 1, "dropped_duplicates": 1, **removed}

    shutil.rmtree(workspace.download("wikicorpus_en"))
    with pytest.raises(
        UsageError, match=r"--corpus wikipedia: is not in .*; run bertprep download wikipedia --language en first"
    ):
        shard(corpus="wikipedia", workdir=tmp_path)


def test_sentences_of_bookcorpus_are_kept_and_joined_to_books(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    other = ["second book , copyright \u00a9 2012 by b. writer", "she said no . he said yes ."]
    download(workspace, "bookscorpus", SENTENCES + other)
    manifest = shard(corpus="bookcorpus", workdir=tmp_path, shards=1, workers=1).manifest
    assert [entry["documents"] for entry in manifest.files.values()] == [1, 1]
    books = text_of(workspace, "bookscorpus").split("\n\n")
    assert sorted(map(len, (book.split("\n") for book in books[:2]))) == [2, 601]
    assert "\n".join(other) in books  # the second of these lines is two sentences to a splitter, and one here


def test_a_download_that_is_not_whole_is_no_corpus(tmp_path: Path) -> None:
    folder = download(Workspace(tmp_path), "wikicorpus_en", ARTICLES, ARTICLES)
    (folder / "train-00001.parquet").rename(folder / "train-00001.parquet.part")
    message = (
        r"train-00001\.parquet: is missing or incomplete \(1 of 2 files are\); run bertprep download wikipedia .* to resume"
    )
    with pytest.raises(BertprepError, match=message):
        shard(corpus="wikipedia", workdir=tmp_path)


def test_books_of_ones_own_are_a_document_each(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "data")
    (books := tmp_path / "books").mkdir()
    for index in range(3):
        (books / f"{index}.txt").write_text(f"\ufeffBook {index}.\n\nIt has paragraphs.\n", encoding="utf-8")
    folder = workspace.download("bookscorpus")
    folder.mkdir(parents=True)
    (folder / "files").symlink_to(books)
    save_listing(Listing({"files": str(books)}, "", ()), folder)
    shard(corpus="bookcorpus", workdir=workspace.root, shards=1, test_fraction=0)
    documents = text_of(workspace, "bookscorpus").split("\n\n")
    assert sorted(documents) == ["", *(f"Book {index}.\nIt has paragraphs." for index in range(3))]

    books.rename(tmp_path / "moved")
    with pytest.raises(BertprepError, match=r"/books: does not exist, but .*download/bookscorpus links to it; put it back"):
        shard(corpus="bookcorpus", workdir=workspace.root)


def test_create_makes_a_removed_shard_again_unless_only_the_users_files_can_tell(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    download(workspace, "wikicorpus_en", [f"This is article {index}. It ends." for index in range(30)])
    (tmp_path / "own.txt").write_text("This is mine.\n\nThis too.\n\nAnd this.\n")
    shard(workdir=tmp_path, corpus="wikipedia", shards=3, test_fraction=0.3)
    shard([tmp_path / "own.txt"], workdir=tmp_path, corpus="own", shards=1)
    made = sums(tmp_path / "sharded")
    for corpus in ("wikicorpus_en", "own"):
        workspace.sharded(corpus).joinpath("training", f"{corpus}_training_00000.txt").unlink()
    create(workdir=tmp_path, corpus="wikipedia", vocab=GOLDEN / "vocab.txt", workers=1)
    with pytest.raises(
        BertprepError, match=r"own_training_00000\.txt: is missing .*: bertprep shard --input FILES --corpus own$"
    ):
        create(workdir=tmp_path, corpus="own", vocab=GOLDEN / "vocab.txt", workers=1)
    shard([tmp_path / "own.txt"], workdir=tmp_path, corpus="own", shards=1)
    assert sums(tmp_path / "sharded") == made
