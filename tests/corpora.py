"""Text for tests: the golden corpus, dealt out over several files; the documents of sources."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bertprep.sources.documents import Source

from tests.golden import GOLDEN


def write_short_sentences(corpus: Path, path: Path) -> Path:
    """Write the sentences of the golden corpus that fit a record of 128 tokens: its small vocabulary makes many of a word."""
    lines = corpus.read_text(encoding="utf-8").split("\n")
    path.write_text("\n".join(line for line in lines if len(line) < 150), encoding="utf-8")
    return path


def deal(corpus: Path, folder: Path, shards: int) -> list[Path]:
    """The documents of a text over `shards` files, in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = [d for d in corpus.read_text(encoding="utf-8").split("\n\n") if d.strip()]
    paths = [folder / f"text_{number}.txt" for number in range(shards)]
    for number, path in enumerate(paths):
        path.write_text("\n\n".join(documents[number::shards]) + "\n\n", encoding="utf-8")
    return paths


def pad_at(number: int, folder: Path) -> Path:
    """The golden vocabulary with [PAD] as token `number`, and as many tokens of no use before it as that needs."""
    _, *tokens = (GOLDEN / "vocab.txt").read_text(encoding="utf-8").splitlines()
    tokens += [f"[pad_at_{other}]" for other in range(number - len(tokens))]
    path = folder / f"pad_at_{number}.txt"
    path.write_text("".join(f"{token}\n" for token in [*tokens[:number], "[PAD]", *tokens[number:]]), encoding="utf-8")
    return path


def sums(folder: Path) -> dict[str, str]:
    """The sha256 of every file below a folder, manifests and all, by its relative name."""
    from bertprep.files.paths import checksum_of

    return {str(path.relative_to(folder)): checksum_of(path, "sha256") for path in sorted(folder.rglob("*")) if path.is_file()}


def documents_of(sources: "Iterable[Source]") -> list[str]:
    """The cleaned documents of sources, without empty ones."""
    from bertprep.sources.documents import WHOLE
    from bertprep.sources.plain_text import Piece, hash_file, read_piece

    found: list[str] = []
    for source in sources:
        if not source.is_plain:
            found += source.documents()
            continue
        file = hash_file(Path(source.location))
        found += read_piece(Piece(file, 0, file.size_bytes, source.reader == WHOLE))
    return [cleaned for text in found if (cleaned := clean_document(text))]


def clean_document(text: str) -> str:
    """The document without blank lines, or '' if it has no letter and no digit."""
    from bertprep.text.sentences import split_lines

    cleaned = "\n".join(split_lines(text))
    return cleaned if any(map(str.isalnum, cleaned)) else ""


def write_books(folder: Path, books: int, sentences: int = 60) -> list[Path]:
    """Books of so many plain sentences, in paragraphs of two to four between blank lines, each in a file of its own."""
    from itertools import chain, islice
    from random import Random

    from bertprep.sources.sample import read_speeches
    from bertprep.text.sentences import split_sentences

    random, paths = Random(5), []
    spoken = chain.from_iterable(map(split_sentences, read_speeches()))
    text = (sentence for sentence in spoken if re.fullmatch("[A-Z][a-z, ]+[a-z][.]", sentence))
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(books):
        book, paragraphs = islice(text, sentences), []
        while paragraph := [*islice(book, random.randint(2, 4))]:
            paragraphs.append(" ".join(paragraph))
        paths.append(folder / f"book_{number:03}.txt")
        paths[-1].write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
    return paths
