"""A dump yields its articles, in any version and language; a bad one is one line; a real one becomes the same shards always."""

import io
import warnings
from pathlib import Path
from typing import Any

import pytest

from bertprep.cli import main
from bertprep.commands.download import download
from bertprep.commands.shard import shard
from bertprep.errors import BertprepError, BertprepWarning
from bertprep.sources import documents
from bertprep.sources.dump import Page, read_dump, read_languages
from bertprep.text import shards as text_shards
from bertprep.work.made import Made
from tests.corpora import sums
from tests.golden.wikimedia import excerpt

SITE = """<siteinfo><dbname>dewiki</dbname><namespaces>
  <namespace key="-2">Medium</namespace><namespace key="0" /><namespace key="1">Diskussion</namespace>
  <namespace key="6">Datei</namespace><namespace key="14">Kategorie</namespace></namespaces></siteinfo>"""
HEAD = f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">{SITE}'


def page(title: str, text: str, *, ns: str = "<ns>0</ns>", more: str = "", model: str = "<model>wikitext</model>") -> str:
    revision = f"<revision><id>1</id>{model}<text xml:space='preserve'>{text}</text></revision>"
    return f"<page><title>{title}</title>{ns}<id>1</id>{more}{revision}</page>"


def write_dump(path: Path, head: str, text: str) -> Path:
    path.write_text(f"{head}{page('A', text)}</mediawiki>")
    return path


def read(xml: str) -> list[Page]:
    return list(read_dump(io.BytesIO(xml.encode()), "dump.xml")[1])


def titles(*pages: str) -> list[str]:
    return [page.title for page in read(f"{HEAD}{''.join(pages)}</mediawiki>")]


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
    old = {"ns": "", "model": ""}  # namespaces by titles, redirects by text
    assert titles(
        page("Article", "text", **old),
        page("Star Trek: Voyager", "text", **old),
        page("Diskussion:Article", "text", **old),
        page("Redirect", " #WEITERLEITUNG [[A]]", **old),
    ) == ["Article", "Star Trek: Voyager"]


def test_pages_that_are_not_articles_are_counted_and_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pages = [
        page("Article", "A dog barks. A cat sleeps."),
        page("Diskussion:Article", "text", ns="<ns>1</ns>"),
        page("Redirect", "#REDIRECT [[A]]", more='<redirect title="A" />'),
        page("Empty", ""),
        page("Diskussion:Redirect", "#REDIRECT [[A]]", ns="<ns>1</ns>"),
        page("Vorlage:Infobox", "text", ns="<ns>10</ns>"),
        page("Table", "{|\n| cell\n|}"),
        page("Captions", "A caption\n\n== Heading ==\n* An item"),
        page("Mercury", "'''Mercury''' may refer to:\n* A planet.\n{{disambig}}"),
        page("Merkur (Begriffsklärung)", "Merkur ist ein Wort."),
        page("Adams", "Adams is a surname.\n* Ansel Adams.\n{{surname}}"),
    ]
    (dump := tmp_path / "dump.xml").write_text(f"{HEAD}{''.join(pages)}</mediawiki>")
    arguments = ["shard", "--input", str(dump), "--corpus", "mine", "--workdir", str(tmp_path / "data"), "--test-fraction", "0"]
    assert main(arguments) == 0
    said = capfd.readouterr().out
    assert "2 pages of the dump skipped: redirects to other pages\n" in said
    assert "2 pages of the dump skipped: not articles but talk pages, templates and the like\n" in said
    assert "1 page of the dump skipped: without text\n" in said
    assert "2 pages of the dump skipped: disambiguation pages\n" in said
    assert "1 page of the dump skipped: lists of names\n" in said
    assert "removed from articles: headings 1; list items that are no sentences 1; short lines that are no sentences" in said
    assert "2 articles dropped: nothing was left after tables, lists and templates were removed\n" in said
    assert main(arguments) == 0, "what is finished says it again"
    assert capfd.readouterr().out.count("2 pages of the dump skipped") == 3
    (tmp_path / "more.txt").write_text("-\n\nA cow sleeps. A horse runs.\n")
    assert main([*arguments[:3], str(tmp_path / "more.txt"), "--corpus", "two", *arguments[5:]]) == 0
    mixed = (
        "3 documents dropped: without letters or digits; or, if they are articles of a dump, nothing was left after tables, "
    )
    assert mixed in capfd.readouterr().out


def test_the_last_revision_counts_and_its_other_parts_are_not_its_text() -> None:
    parts = "<revision><text>old</text></revision><revision><content><text>no</text></content><text>new</text></revision>"
    assert read(f"{HEAD}<page><title>A</title><ns>0</ns>{parts}</page></mediawiki>") == [Page("A", "new")]


def test_a_wikis_own_names_of_namespaces_are_kept_with_the_copy_of_its_articles(tmp_path: Path) -> None:
    """The articles are copied as they are and cleaned later, by names that only the head of the dump has."""
    article = "Ein Hund bellt in [[Star Trek: Voyager|Voyager]]. [[Datei:Hund.jpg|mini|Ein Bild.]]\n\n[[Kategorie:Haustier]]"
    (tmp_path / "dump.xml").write_text(f"{HEAD}{page('Hund', article)}</mediawiki>")
    copied = documents.copy_stream(documents.Source(str(tmp_path / "dump.xml"), documents.DUMP, {}), tmp_path / "copy.arrow")
    assert copied["batches"] == 1
    assert [*documents.Batch(tmp_path / "copy.arrow", 0).documents()] == ["Ein Hund bellt in Voyager."]


@pytest.mark.parametrize(
    ("head", "codes"),
    [
        (HEAD, ["de"]),
        ("<mediawiki xml:lang='en'><siteinfo><dbname>simplewiki</dbname></siteinfo>", ["en", "simple"]),
        ("<mediawiki xml:lang='zh-Hant'>", ["zh-hant"]),
        ("<mediawiki><siteinfo><dbname>zh_yuewiki</dbname></siteinfo>", ["zh-yue"]),
        ("<mediawiki><siteinfo><dbname>commonswiki</dbname></siteinfo>", []),
        ("<mediawiki xml:lang='???'>", []),
        ("<mediawiki>", []),
    ],
)
def test_a_dump_names_its_language(head: str, codes: list[str]) -> None:
    assert read_languages(io.BytesIO(f"{head}{page('Hund', 'x')}</mediawiki>".encode()), "dump.xml") == codes


def language_of(made: Made) -> str:
    return str(made.manifest.made_with["language"])


def test_shards_of_a_dump_have_its_language(tmp_path: Path) -> None:
    text = "Der Hund bellt, bzw. Er schläft am 3. Mai im Haus. Die Katze schläft."
    dewiki = write_dump(tmp_path / "dewiki-20261101-pages-articles.xml", HEAD, text)
    frwiki = write_dump(tmp_path / "frwiki.xml", HEAD.replace('"de"', '"fr"'), "Le chien aboie.")
    unknown = write_dump(tmp_path / "x.xml", "<mediawiki>", text)
    where = {"workdir": tmp_path / "data", "test_fraction": 0.0, "shards": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error", BertprepWarning)
        warnings.filterwarnings("ignore", "the text has a single document", BertprepWarning)
        assert language_of(shard([dewiki], corpus="default", **where)) == "de"
        assert language_of(shard([dewiki], corpus="given", language="de", **where)) == "de"
        assert language_of(shard([unknown], corpus="unknown", **where)) == "en"
    with pytest.warns(
        BertprepWarning, match=f"^{dewiki}: names de as its language, but fr is used, from --language or the name"
    ):
        assert language_of(shard([dewiki], corpus="other", language="fr", **where)) == "fr"
    with pytest.warns(
        BertprepWarning, match=f"several languages .{dewiki} has de, {frwiki} has fr., and English abbreviations are used"
    ):
        assert language_of(shard([dewiki, frwiki], corpus="both", **where)) == "en"
    svwiki = write_dump(tmp_path / "svwiki.xml", HEAD.replace('"de"', '"sv"'), "En hund.")
    assert language_of(shard([svwiki], corpus="swedish", **where)) == "sv"
    with pytest.warns(BertprepWarning, match="but en is used"):
        shard([dewiki], corpus="english", language="en", **where)
    with pytest.raises(BertprepError, match=r"english: .*language en.*de"):  # as any other changed setting
        shard([dewiki], corpus="english", **where)


def test_the_downloaded_wikipedia_has_the_language_of_its_dump(tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dewiki-20261101-pages-articles.xml", HEAD, "Der Hund bellt. Die Katze schläft.")
    [part] = download(["wikipedia"], from_dump=dump, workdir=tmp_path / "data")
    assert part.folder == tmp_path / "data" / "download" / "wikicorpus_de"
    made = shard(workdir=tmp_path / "data", test_fraction=0.0)
    assert (next(iter(made.folders.values())).name, language_of(made)) == ("wikicorpus_de", "de")
    with pytest.warns(BertprepWarning, match=f"^{dump}: names de as its language, but en is used"):
        [part] = download(["wikipedia"], from_dump=dump, language="en", workdir=tmp_path / "data")
    assert part.folder.name == "wikicorpus_en"


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        ("", r"line 1, column 0: is not the XML of a complete MediaWiki export \(no element found"),
        ("A book.", r"line 1, column 0: is not the XML of a complete MediaWiki export \(syntax error"),
        ("<html><body/></html>", "expected a MediaWiki export, <mediawiki>, found <html>; give a pages-articles.xml"),
        (f"{HEAD}\n<page></title>", r"line 4, column 8: .*\(mismatched tag"),
        (f"{HEAD}{page('A', 'text')}\n", r"line 4, column 0: .*\(no element found"),
        ('<!DOCTYPE mediawiki [<!ENTITY c SYSTEM "file:///etc/passwd">]><mediawiki>&c;</mediawiki>', "undefined entity"),
    ],
)
def test_a_file_that_is_not_a_complete_export_is_one_line(xml: str, message: str) -> None:
    with pytest.raises(BertprepError, match=f"^dump.xml: .*{message}") as raised:
        read(xml)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_the_shards_of_a_dump_do_not_depend_on_workers_or_interruptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the excerpt of English Wikipedia in gensim's wheel: 106 articles and 100 redirects."""
    (dump := tmp_path / "enwiki-pages-articles.xml.bz2").symlink_to(excerpt())
    monkeypatch.setattr(documents, "BATCH_TEXT_BYTES", 500_000)
    monkeypatch.setattr(text_shards, "PIECE_BYTES", 500_000)
    manifest = shard([dump], shards=4, workdir=tmp_path / "three", corpus="wiki", workers=3).manifest
    found = sum(entry["documents"] for entry in manifest.files.values())
    assert found + manifest.counts["dropped_empty"] + manifest.counts["skipped_disambiguations"] == 106
    assert manifest.counts["skipped_redirects"] == 100
    assert found == 98
    assert manifest.counts["removed_headings"] > 2_000
    assert sum(entry["words"] for entry in manifest.files.values()) > 400_000

    make, made = text_shards._Sort.make, []

    def stop_after_three(self: Any, argument: Any, paths: Any) -> Any:
        made.append(str(paths["runs"]))
        if len(made) == 4:
            raise KeyboardInterrupt
        return make(self, argument, paths)

    monkeypatch.setattr(text_shards._Sort, "make", stop_after_three)
    for _ in range(2):
        try:
            shard([dump], shards=4, workdir=tmp_path / "stopped", corpus="wiki", workers=1)
        except KeyboardInterrupt:
            assert len(made) == 4
    assert sums(tmp_path / "stopped") == sums(tmp_path / "three")
    assert len(made) == len(set(made)) + 1 > 5  # what was finished was not made again
