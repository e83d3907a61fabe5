"""A dump yields its articles, in any compression, version and language, in bounded memory; a bad one is reported."""

import bz2
import gzip
import io
import pickle
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from bertprep.errors import BertprepError
from bertprep.sources.streams import open_stream
from bertprep.sources.wikimedia.dump import DumpReader, Page, SiteInfo
from tests.golden.wikimedia import excerpt

SITE = """<siteinfo><dbname>dewiki</dbname><namespaces>
  <namespace key="-2">Medium</namespace><namespace key="0" /><namespace key="1">Diskussion</namespace>
  <namespace key="6">Datei</namespace><namespace key="14">Kategorie</namespace></namespaces></siteinfo>"""
HEAD = f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">{SITE}'


def page(title: str, text: str, *, ns: str = "<ns>0</ns>", more: str = "", model: str = "<model>wikitext</model>") -> str:
    revision = f"<revision><id>1</id>{model}<text xml:space='preserve'>{text}</text></revision>"
    return f"<page><title>{title}</title>{ns}<id>1</id>{more}{revision}</page>"


def read(xml: str | bytes) -> list[Page]:
    return list(DumpReader(io.BytesIO(xml.encode() if isinstance(xml, str) else xml), "dump.xml"))


def titles(*pages: str) -> list[str]:
    return [page.title for page in read(f"{HEAD}{''.join(pages)}</mediawiki>")]


def test_the_excerpt_has_106_articles_and_no_redirect() -> None:
    with open_stream(str(excerpt())) as file:
        reader = DumpReader(file, excerpt().name)
        pages = list(reader)
    assert len(pages) == 106
    assert (pages[0].title, pages[-1].title) == ("Anarchism", "Algorithm")
    assert not any(page.wikitext.startswith("#") for page in pages)
    assert pages[0].wikitext.startswith("{{Redirect2|Anarchist|Anarchists|")
    assert sum(len(page.wikitext) for page in pages) == 5_728_626
    assert reader.site == SiteInfo("en")


def test_the_site_is_known_before_any_page_is_read() -> None:
    reader = DumpReader(io.BytesIO(f"{HEAD}{page('Hund', 'x')}</mediawiki>".encode()), "dump.xml")
    assert reader.site.language == "de"
    assert reader.site.file_namespaces == {"datei", "medium", "file", "image", "media"}
    assert reader.site.category_namespaces == {"kategorie", "category"}
    assert list(reader) == [Page("Hund", "x")]


def test_only_articles_in_wikitext_are_yielded() -> None:
    assert titles(
        page("Article", "text &amp;amp; more"),
        page("Diskussion:Article", "text", ns="<ns>1</ns>"),
        page("Redirect", "#WEITERLEITUNG [[Article]]", more="<redirect title='Article' />"),
        page("Data", "{}", model="<model>json</model>"),
        page("Empty", ""),
        page("Star Trek: Picard", "text"),
    ) == ["Article", "Star Trek: Picard"]


def test_old_dumps_tell_namespaces_by_titles_and_redirects_by_text() -> None:
    assert titles(
        page("Article", "text", ns="", model=""),
        page("Diskussion:Article", "text", ns="", model=""),
        page("Star Trek: Picard", "text", ns="", model=""),
        page("Redirect", "#REDIRECT [[Article]]", ns="", model=""),
        page("Umleitung", "# Weiterleitung: [[Article]]", ns="", model=""),
        page("List", "# the first item of a list", ns="", model=""),
    ) == ["Article", "Star Trek: Picard", "List"]


def test_other_parts_of_a_revision_are_not_its_text() -> None:
    slot = "<content><role>mediainfo</role><model>json</model><text>{}</text></content>"
    assert read(f"{HEAD}{page('A', 'text').replace('</revision>', slot + '</revision>')}</mediawiki>") == [Page("A", "text")]


def test_an_export_without_site_information_is_read_as_english() -> None:
    reader = DumpReader(io.BytesIO(f"<mediawiki>{page('A', 'text')}</mediawiki>".encode()), "dump.xml")
    assert (reader.site, list(reader)) == (SiteInfo(), [Page("A", "text")])


def test_every_compression_gives_the_same(tmp_path: Path) -> None:
    xml = f"{HEAD}{''.join(page(f'Seite {n}', f'Größe {n}. ' * 3000) for n in range(100))}</mediawiki>".encode()
    parts = [xml[start : start + 100_000] for start in range(0, len(xml), 100_000)]
    packed = {
        "plain.xml": xml,
        "one_stream.bz2": bz2.compress(xml),
        "many_streams.bz2": b"".join(map(bz2.compress, parts)),
        "an_empty_stream.bz2": bz2.compress(parts[0]) + bz2.compress(b"") + bz2.compress(b"".join(parts[1:])),
        "two_members.gz": gzip.compress(parts[0]) + gzip.compress(b"".join(parts[1:])),
        "two_frames.zst": zstandard.compress(parts[0]) + zstandard.compress(b"".join(parts[1:])),
    }
    expected = read(xml)
    assert len(expected) == 100
    for name, content in packed.items():
        (tmp_path / name).write_bytes(content)
        for processors in (1, 3):
            with open_stream(str(tmp_path / name), processors) as file:
                assert list(DumpReader(file, name)) == expected, name


def test_a_stream_is_read_in_bounded_memory() -> None:
    class Endless(io.RawIOBase):
        """40 MB of XML, in articles of 1 MB, that is nowhere as a whole."""

        remaining = 40
        rest = HEAD.encode()

        def read(self, size: int = -1) -> bytes:
            while len(self.rest) < size and self.remaining:
                self.remaining -= 1
                self.rest += page("A", "words " * 170_000).encode() + (b"" if self.remaining else b"</mediawiki>")
            block, self.rest = self.rest[:size], self.rest[size:]
            return block

    tracemalloc.start()
    try:
        count = sum(1 for _ in DumpReader(Endless(), "dump.xml"))  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 40
    assert peak < 16_000_000


def test_pages_and_the_site_go_to_other_processes() -> None:
    given = (Page("A", "text"), SiteInfo("de", frozenset({"datei"}), frozenset({"kategorie"})))
    assert pickle.loads(pickle.dumps(given)) == given


@pytest.mark.parametrize(
    ("xml", "said"),
    [
        ("", "line 1, column 0: expected the XML of a MediaWiki export, found other text (no element found); give a pages-art"),
        ("A book.", "line 1, column 0: expected the XML of a MediaWiki export, found other text (syntax error); give a"),
        ("<html><body/></html>", "expected a MediaWiki export, <mediawiki>, found <html>; give a pages-articles.xml"),
        (
            f"{HEAD}\n<page></title>",
            "line 4, column 8: expected the rest of the export, but the XML is damaged (mismatched tag): fetch it again",
        ),
        (f"{HEAD}\n{page('A', 'text')[:60]}", "line 4, column 57: expected the rest of the export, but the file is cut off"),
        (f"{HEAD}{page('A', 'text')}\n", "line 4, column 0: expected the rest of the export, but the file is cut off"),
    ],
)
def test_a_file_that_is_not_a_complete_export_is_an_error(xml: str, said: str) -> None:
    with pytest.raises(BertprepError) as raised:
        read(xml)
    assert str(raised.value).startswith(f"dump.xml: {said}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["cut.bz2", "wrong.bz2", "cut.gz", "wrong.gz", "cut.zst", "wrong.zst"])
def test_a_truncated_or_damaged_archive_is_an_error(tmp_path: Path, name: str) -> None:
    pack = {"bz2": bz2.compress, "gz": gzip.compress, "zst": zstandard.compress}[name.partition(".")[2]]
    numbers = " ".join(str(n * n) for n in range(200_000))
    content = bytearray(pack(f"{HEAD}{page('A', 'text')}{page('B', numbers)}</mediawiki>".encode()))
    if name.startswith("cut"):
        del content[-len(content) // 3 :]
    else:
        content[len(content) // 2] ^= 0x55
    (tmp_path / name).write_bytes(content)
    for processors in (1, 3):
        path = str(tmp_path / name)
        with open_stream(path, processors) as file, pytest.raises(BertprepError, match=rf"^{name}: .*fetch it again$"):
            list(DumpReader(file, name))


@pytest.mark.parametrize(
    ("start", "repeated", "said"),
    [
        (f"{HEAD}<page><title>A</title><revision><text>", "words ", "a text of more than 67,108,864 bytes"),
        (f'{HEAD}<page a="', "value", "a tag or comment of more than 1,048,576 bytes"),
        (f"{HEAD}<!--", "words ", "a tag or comment of more than 1,048,576 bytes"),
        (HEAD, "<b>", "elements within elements, 64 deep"),
        ("<mediawiki><siteinfo><namespaces>", '<namespace key="6">F</namespace>', "more than 10,000 namespaces"),
    ],
)
def test_xml_without_end_is_refused_in_bounded_memory(start: str, repeated: str, said: str) -> None:
    class Endless(io.RawIOBase):
        rest = start.encode()

        def read(self, size: int = -1) -> bytes:
            block, self.rest = self.rest[:size], b""
            return block or repeated.encode() * (size // len(repeated))

    tracemalloc.start()
    try:
        with pytest.raises(BertprepError, match=f"^dump.xml: line .*: {said}, which no MediaWiki export has; give a pages-art"):
            list(DumpReader(Endless(), "dump.xml"))  # type: ignore[arg-type]
        assert tracemalloc.get_traced_memory()[1] < 160_000_000
    finally:
        tracemalloc.stop()


def test_entities_of_a_file_s_own_are_refused() -> None:
    entities = '<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;"><!ENTITY c SYSTEM "file:///etc/passwd">'
    with pytest.raises(BertprepError, match=r"line 1: a document type, whose entities may expand without end, which no Media"):
        read(f"<!DOCTYPE mediawiki [{entities}]><mediawiki>&b;&c;</mediawiki>")


@pytest.mark.parametrize("declared", ["utf-16", "big5", "nonsense"])
def test_an_export_is_utf_8_whatever_it_declares(declared: str) -> None:
    xml = f'<?xml version="1.0" encoding="{declared}"?>{HEAD}{page("Ä", "text")}</mediawiki>'
    assert read(xml) == [Page("Ä", "text")]


def test_an_export_without_a_page_has_none() -> None:
    assert read("<mediawiki></mediawiki>") == []


def test_articles_before_the_damage_are_yielded() -> None:
    pages = iter(DumpReader(io.BytesIO(f"{HEAD}{page('A', 'text')}{page('B', 'x')[:-9]}".encode()), "dump.xml"))
    assert next(pages) == Page("A", "text")
    with pytest.raises(BertprepError, match="cut off"):
        next(pages)
