"""Whether a blank line ends a document: which texts are asked about, and which are plain."""

import bz2
import textwrap
from pathlib import Path

import pytest

from bertprep.errors import BertprepError
from bertprep.sources.inputs import find_sources
from bertprep.sources.sample import one_paragraph_a_line
from bertprep.text import blocks
from bertprep.text.blocks import check_blocks, read_blocks
from tests.corpora import write_books

SENTENCES = ("The sun rose over the hills.", "Nobody was awake.", "Then a dog barked twice.", "A door opened at once.")
PARAGRAPH = " ".join(SENTENCES[:3])
GOOGLE = "\n".join(SENTENCES[:3])
ARTICLE = "\n".join([PARAGRAPH, *SENTENCES])
STANZA = "The sun was slow to rise\nAnd nobody awake\nUntil a dog, to my surprise,\nBarked twice for barking's sake."

# What a file has between blank lines, how often, and whether it is asked what a document is.
TEXTS = {
    "paragraphs, a line each": (PARAGRAPH, 20, True),
    "paragraphs, wrapped": (textwrap.fill(PARAGRAPH, 30), 20, True),
    "stanzas": (STANZA, 20, True),
    "sentences with blank lines between": (SENTENCES[0], 20, True),
    "Google's format": (GOOGLE, 20, False),
    "Google's format, with a heading": (f"THE DOG\n{GOOGLE}", 20, False),
    "articles, a paragraph a line": (ARTICLE, 20, False),
    "a few paragraphs": (PARAGRAPH, 3, False),
    "no blank line": (PARAGRAPH, 1, False),
    "paragraphs in Chinese": ("太阳升起来了。没有人醒着。", 20, True),
    "Google's format in Chinese": ("太阳升起来了。\n没有人醒着。\n狗叫了两声。", 20, False),
}


@pytest.mark.parametrize(("block", "times", "is_asked"), TEXTS.values(), ids=TEXTS)
def test_only_many_blocks_of_few_sentences_are_asked_about(block: str, times: int, is_asked: bool, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("\n\n".join([block] * times) + "\n\n", encoding="utf-8")
    (tmp_path / "3.txt.bz2").write_bytes(bz2.compress((tmp_path / "0.txt").read_bytes()))
    sources = find_sources([tmp_path], field="text", one_document=False)
    assert read_blocks([source.location for source in sources]).are_paragraphs == is_asked
    if is_asked:
        with pytest.raises(
            BertprepError, match=f"--input {tmp_path}/0.txt: what is a document[?] the first {4 * times} blocks"
        ):
            check_blocks(sources)
    else:
        check_blocks(sources)
    check_blocks(find_sources([tmp_path], field="text", one_document=True))  # which says what a document is


def test_a_line_says_what_the_blocks_would_become(tmp_path: Path) -> None:
    write_books(tmp_path, 20)
    with pytest.raises(BertprepError) as raised:
        check_blocks(find_sources([tmp_path], field="text", one_document=False))
    assert str(raised.value).startswith(
        f"--input {tmp_path}/book_000.txt: what is a document? the first 325 blocks between blank lines in the first 16 of "
        "20 files have a median of 3 sentences; as documents they would make records of 512 tokens with 80"
    )
    assert str(raised.value).endswith(
        "% padding and mostly random next sentences; give --one-document-per-file if each file is a document, or "
        "--one-document-per-block if each block between blank lines is one; nothing was made"
    )


def test_sentences_are_those_of_the_language_of_the_text(tmp_path: Path) -> None:
    """The dots of German abbreviations and ordinals end sentences in English."""
    paragraph = "Er kam z. B. am 3. Mai. Sie kam ca. am 5. Juni. Vgl. Abb. 3 bzw. Nr. 4."
    (tmp_path / "0.txt").write_text(f"{paragraph}\n\n" * 20)
    sources = find_sources([tmp_path], field="text", one_document=False)
    check_blocks(sources)
    with pytest.raises(BertprepError, match=r"have a median of 3 sentences"):
        check_blocks(sources, "de")


def test_other_kinds_of_files_and_what_cannot_be_read_are_not_asked_about(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "A row."}\n' * 50)
    (tmp_path / "rows.csv").write_text("text\n" + "A row.\n\n" * 50)
    (tmp_path / "latin.txt").write_bytes("Caf\u00e9.\n\n".encode("latin-1") * 50)
    check_blocks(find_sources([tmp_path], field="text", one_document=False))
    (tmp_path / "broken.txt.gz").write_bytes(b"A block.\n\n" * 50)
    assert read_blocks([str(tmp_path / "broken.txt.gz")]).files == 0
    assert read_blocks([str(tmp_path / "missing.txt")]).files == 0


def test_only_a_beginning_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each of the first files: what comes later does not count, and the last block, which may go on, neither."""
    monkeypatch.setattr(blocks, "HEAD_BYTES", 1000)
    speech = one_paragraph_a_line("\n".join([PARAGRAPH] * 5))
    (tmp_path / "0.txt").write_text(speech * 3 + f"{PARAGRAPH}\n\n" * 1000)
    found = read_blocks([str(tmp_path / "0.txt")] * 100)
    assert (found.files, found.blocks) == (16, [speech.split("\n")[:5]] * 32)
