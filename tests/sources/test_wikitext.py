"""Wikitext becomes prose by mwparserfromhell: the words of its markup in many languages, no markup whatever its balance."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.sources.dump import SiteInfo, read_dump
from bertprep.sources.readers import open_stream
from bertprep.sources.wiki.paragraphs import MAX_HEADING
from bertprep.sources.wiki.wikitext import to_prose
from tests.golden.wikimedia import EXPECTED, excerpt

ENGLISH = SiteInfo()
FILES = frozenset({"datei", "fichier", "文件", "ملف", "चित्र", "file", "image"})
OTHERS = SiteInfo(FILES, frozenset({"kategorie", "catégorie", "分类", "تصنيف", "श्रेणी", "category"}))
MARKUP = re.compile(
    r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|<ref|&nbsp;|__[A-Z]+__|''|https?://|thumb\||\burl ?=|\( *\)| ,|^[*#:=|]|  ", re.MULTILINE
)


@pytest.fixture(scope="module")
def articles() -> dict[str, str]:
    with open_stream(str(excerpt())) as file:
        site, pages = read_dump(file, excerpt().name)
        return {page.title: to_prose(page.wikitext, site) for page in pages}


@pytest.mark.parametrize("title", ["Actrius", "Agnostida", "International Atomic Time"])
def test_nearly_all_words_of_hand_edited_text_are_there(articles: dict[str, str], title: str) -> None:
    expected = (EXPECTED / f"{title.lower().replace(' ', '_')}.txt").read_text(encoding="utf-8").split()
    found = articles[title].split()
    assert len({*expected} - {*found}) < 0.02 * len({*expected})
    assert abs(len(found) - len(expected)) < 0.15 * len(expected)


def test_no_markup_is_left_in_any_article_and_all_have_prose(articles: dict[str, str]) -> None:
    assert not {title: match[0] for title, prose in articles.items() if (match := MARKUP.search(prose))}
    assert sum(not prose for prose in articles.values()) < 3  # lists of names
    assert 2_650_000 < sum(map(len, articles.values())) < 2_800_000


@pytest.mark.parametrize(
    ("wikitext", "prose"),
    [
        ("[[Bus]]es, [[bus|Coach]] and [[:Category:Art]].", "Buses, Coach and :Category:Art."),
        ("A [[:fr:Chien|a dog]][[de:Hund]][[zh-min-nan:Káu]], [[CSI: Miami]].", "A a dog, CSI: Miami."),
        ("[[File:A.png|thumb|A [[cat]] by [[B|C]].{{cn}}]]It is.[[Image:B.jpg]][[Category:Cats]]", "It is."),
        ("It has [http://a.b/c?d=e a site] [http://x.y] http://z.w/q here.", "It has a site here."),
        ("It ''is'' '''so''' '''''here'''''. L'''Iliade'' is.", "It is so here. L'Iliade is."),
        ("One.<ref name='a b'>''x'' {{cite|y}}</ref><ref name=c /> Two.<REF>z</Ref >", "One. Two."),
        ("Ten<sup>6</sup> m<sup>−2</sup>, H<sub>2</sub>O, 19<sup>th</sup>.", "Ten⁶ m⁻², H2O, 19th."),
        ("Let <math>n</math> be <math>\\frac{1}</math> so.", "Let n be so."),
        ("A<!-- [[ --> b.<!-- never closed [[ B.", "A b."),
        ("One is.<br>Two<br>is.<div>Three is.</div>", "One is.\nTwo is.\n\nThree is."),
        ("1 < 2 & 3 > 2 R&D&nbsp;AT&amp;T.", "1 < 2 & 3 > 2 R&D AT&T."),
        ("__NOTOC__So it is.__FORCETOC__ But __init__ stays.", "So it is. But __init__ stays."),
        ("<table><tr><td>A cell</td></tr></table>\nIt is.<gallery>\nA.png|It was.\n</gallery>", "It is."),
        ("It {{Infobox|a={{b|[[c]]}}|\nd=e}}is.{{citation needed|date=May 2010}}", "It is."),
        ("It is {{lang|fr|''mot''}}, {{lang-de|Wort}}, {{nowrap|[[kilogram|5 kg]]}}.", "It is mot, Wort, 5 kg."),
        (
            "{{convert|5|km|mi|abbr=on}}, {{cvt|5|to|10|km}}, {{circa|1900}}{{snd}}{{formatnum:5000}}.",
            "5 km, 5 to 10 km, c. 1900 – 5000.",
        ),
        ("Bach ({{IPA-de|bax|lang}}; {{Audio|Bach.ogg}}, 1685 {{dash}} ) was {{cn}} , so {{cn}} .", "Bach (1685) was, so."),
        ("东京（{{x-en}}，；）是（{{a}}、首都）。", "东京是（首都）。"),
        ("{{Infobox}}\n[[Category:A]]\n* [[B]]\n", ""),
        ("", ""),
    ],
)
def test_markup_leaves_its_words(wikitext: str, prose: str) -> None:
    assert to_prose(wikitext, ENGLISH) == prose


def test_only_prose_stays_a_blank_line_between_paragraphs() -> None:
    long = f"A long line that leads {'on and ' * 10}to a list:"
    wikitext = (
        "{{Infobox}}\nA line of a paragraph.\n== A heading ==\nA caption\n\n"
        f"{long}\n* an item\n*# A sentence in a list.\n; Term\n"
        '{| class="wikitable"\n! A header is.\n|-\n| A cell is. || Another is.\n{|\n| nested.\n|}\n|}\n'
        "Still a paragraph.\n=== See also ===\n* Nothing from here on.\n==== Nor this is ====\nOr this.\n"
        "== Life ==\nIt goes on.\n== References ==\nA book.\n== Works ==\nIt ends."
    )
    expected = ["A line of a paragraph.", long, "A sentence in a list.", "Still a paragraph.", "It goes on.", "It ends."]
    assert len(long) > MAX_HEADING
    assert to_prose(wikitext, ENGLISH).split("\n\n") == expected


OTHER_LANGUAGES = {
    "[[Datei:Hund.jpg|mini|Ein [[Haushund|Hund]] im Garten.]]\nDer '''Hund''' ({{laS|Canis}}) ist ein [[Haustier]]."
    "<ref>S.&nbsp;5.</ref>\n== Einzelnachweise ==\n* Ein Buch, Berlin 1990.\n[[Kategorie:Hund| ]]\n[[en:Dog]]": (
        "Der Hund (Canis) ist ein Haustier."
    ),
    "[[Fichier:Iliade.jpg|vignette|Une page.]]\nL'''Iliade'' ({{lang|grc|Ἰλιάς}}) est une [[épopée]].\n[[Catégorie:X]]": (
        "L'Iliade (Ἰλιάς) est une épopée."
    ),
    "[[文件:B.jpg|thumb|街道。]]\n'''北京'''是[[中国|中华]]的首都。\n== 参考文献 ==\n* 某书，1990年。": "北京是中华的首都。",
    "[[ملف:C.jpg|تصغير|صورة.]]\n'''القاهرة''' عاصمة [[مصر]]. هل زرتها؟<ref>م</ref>\n== مراجع ==\n* كتاب.": (
        "القاهرة عاصمة مصر. هل زرتها؟"
    ),
    "'''दिल्ली''' [[भारत]] की राजधानी है।<ref>स्रोत</ref>\n* लाल किला\n[[श्रेणी:दिल्ली]]": "दिल्ली भारत की राजधानी है।",
}


@pytest.mark.parametrize("wikitext", OTHER_LANGUAGES)
def test_other_languages(wikitext: str) -> None:
    assert to_prose(wikitext, OTHERS) == OTHER_LANGUAGES[wikitext]


REPEATED = {
    "arguments": "{{lang" + "|" * 200_000 + "}}", "references": "<ref><math>" * 20_000, "links": "[[a|" * 50_000,
    "nested links": "[[a|" * 50_000 + "]]" * 50_000, "external links": "[http://a " * 50_000, "lists": "\n:*" * 50_000,
    "headings": "=" * 100_000 + "a" + "=" * 99_999,
}  # fmt: skip


@pytest.mark.parametrize("markup", REPEATED.values(), ids=REPEATED)
def test_markup_without_an_end_costs_no_square_of_its_length(markup: str) -> None:
    """Each took minutes to hours: a dump may hold pages of 2 MB that anybody has written."""
    assert to_prose(f"A cat is an animal.\n{markup}", ENGLISH).startswith("A cat is an animal.")


TOKENS = [
    *("{{", "}}", "[[", "]]", "{|", "|}", "\n{|", "\n|}", "[", "]", "{", "}", "(", ")", "|", "=", ",", ";", " ", "\n"),
    *("<ref>", "<ref", "</ref>", "<ref/>", "<!--", "-->", "<nowiki>", "</nowiki>", "<math>", "</math>", "<br>", "<div>"),
    *("''", "'''", "\n*", "\n: ", "\n==", "__NOTOC__", "__", "[http://a b", "http://", "&nbsp;", "{{!}}", "lang|x", "File:a"),
    *("a", "is.", "。"),
]


@given(st.lists(st.sampled_from(TOKENS) | st.text(max_size=3), max_size=60).map("".join))
def test_no_markup_survives_whatever_its_balance(wikitext: str) -> None:
    prose = to_prose(wikitext, ENGLISH)
    assert not re.search(r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|<ref|__NOTOC__", prose)
    assert all(line and line == line.strip() for line in prose.split("\n")) or prose == ""
