"""A dump yields its articles, in any compression, version and language, a page at a time; a bad one is one line."""

import bz2
import gzip
import io
from pathlib import Path

import pytest
import zstandard

from bertprep.errors import BertprepError
from bertprep.sources.dump import Page, SiteInfo, read_dump
from bertprep.sources.readers import open_stream
from tests.golden.wikimedia import excerpt

SITE = """<siteinfo><dbname>dewiki</dbname><namespaces>
  <namespace key="-2">Medium</namespace><namespace key="0" /><namespace key="1">Diskussion</namespace>
  <namespace key="6">Datei</namespace><namespace key="14">Kategorie</namespace></namespaces></siteinfo>"""
HEAD = f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">{SITE}'


def page(title: str, text: str, *, ns: str = "<ns>0</ns>", more: str = "", model: str = "<model>wikitext</model>") -> str:
    revision = f"<revision><id>1</id>{model}<text xml:space='preserve'>{text}</text></revision>"
    return f"<page><title>{title}</title>{ns}<id>1</id>{more}{revision}</page>"


def read(xml: str) -> list[Page]:
    return list(read_dump(io.BytesIO(xml.encode()), "dump.xml")[1])


def titles(*pages: str) -> list[str]:
    return [page.title for page in read(f"{HEAD}{''.join(pages)}</mediawiki>")]


def test_the_excerpt_has_106_articles_and_no_redirect() -> None:
    with open_stream(str(excerpt())) as file:
        site, articles = read_dump(file, excerpt().name)
        pages = list(articles)
    assert (len(pages), pages[0].title, pages[-1].title) == (106, "Anarchism", "Algorithm")
    assert pages[0].wikitext.startswith("{{Redirect2|Anarchist|Anarchists|")
    assert sum(len(page.wikitext) for page in pages) == 5_728_626
    assert site == SiteInfo()


def test_the_site_is_known_before_any_page_is_read() -> None:
    site, pages = read_dump(io.BytesIO(f"{HEAD}{page('Hund', 'x')}</mediawiki>".encode()), "dump.xml")
    assert site.file_namespaces == {"datei", "medium", "file", "image", "media"}
    assert site.category_namespaces == {"kategorie", "category"}
    assert list(pages) == [Page("Hund", "x")]
    assert read(f"<mediawiki>{page('A', 'x')}</mediawiki>") == [Page("A", "x")]
    assert read("<mediawiki></mediawiki>") == []


def test_only_articles_in_wikitext_are_yielded() -> None:
    assert titles(
        page("Article", "text &amp;amp; more"),
        page("Diskussion:Article", "text", ns="<ns>1</ns>"),
        page("Redirect", "#REDIRECT [[A]]", more='<redirect title="A" />'),
        page("Script", "code", model="<model>javascript</model>"),
        page("Empty", ""),
    ) == ["Article"]


def test_old_dumps_tell_namespaces_by_titles_and_redirects_by_text() -> None:
    old = {"ns": "", "model": ""}
    assert titles(
        page("Article", "text", **old),
        page("Star Trek: Voyager", "text", **old),
        page("Diskussion:Article", "text", **old),
        page("Redirect", " #WEITERLEITUNG [[A]]", **old),
    ) == ["Article", "Star Trek: Voyager"]


def test_the_last_revision_counts_and_its_other_parts_are_not_its_text() -> None:
    parts = "<revision><text>old</text></revision><revision><content><text>no</text></content><text>new</text></revision>"
    assert read(f"{HEAD}<page><title>A</title><ns>0</ns>{parts}</page></mediawiki>") == [Page("A", "new")]


@pytest.mark.parametrize("packing", ["", ".bz2", ".gz", ".zst"])
def test_every_compression_gives_the_same_and_a_cut_one_is_an_error(packing: str, tmp_path: Path) -> None:
    pack = {"": bytes, ".bz2": bz2.compress, ".gz": gzip.compress, ".zst": zstandard.compress}[packing]
    numbers = " ".join(str(number**3) for number in range(50_000))
    packed = pack(f"{HEAD}{page('A', 'text')}{page('B', numbers)}</mediawiki>".encode())
    path = tmp_path / f"a.xml{packing}"
    path.write_bytes(packed)
    with open_stream(str(path)) as file:
        assert [page.title for page in read_dump(file, str(path))[1]] == ["A", "B"]
    path.write_bytes(packed[: -len(packed) // 3])
    with pytest.raises(BertprepError, match=f"^{path}: ") as raised, open_stream(str(path)) as file:
        list(read_dump(file, str(path))[1])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        ("", "line 1, column 0: expected the XML of a whole MediaWiki export, found no element found"),
        ("A book.", "line 1, column 0: expected the XML of a whole MediaWiki export, found syntax error"),
        ("<html><body/></html>", "expected a MediaWiki export, <mediawiki>, found <html>; give a pages-articles.xml"),
        (f"{HEAD}\n<page></title>", "line 4, column 8: .* found mismatched tag"),
        (f"{HEAD}{page('A', 'text')}\n", "line 4, column 0: .* found no element found"),
        ('<!DOCTYPE mediawiki [<!ENTITY c SYSTEM "file:///etc/passwd">]><mediawiki>&c;</mediawiki>', "undefined entity"),
    ],
)
def test_a_file_that_is_not_a_complete_export_is_an_error(xml: str, message: str) -> None:
    with pytest.raises(BertprepError, match=f"^dump.xml: .*{message}") as raised:
        read(xml)
    assert "\n" not in str(raised.value)
