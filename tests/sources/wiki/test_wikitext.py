"""Wikitext becomes prose: the words of its markup in many languages, and no markup whatever its balance."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.sources.dump import SiteInfo, read_dump
from bertprep.sources.readers import open_stream
from bertprep.sources.wiki.paragraphs import MAX_HEADING, Removed
from bertprep.sources.wiki.wikitext import to_prose
from tests.golden.wikimedia import EXPECTED, excerpt
from tests.golden.wikimedia.languages import PAGES, Page

ENGLISH = SiteInfo()
FILES = frozenset({"datei", "fichier", "文件", "ملف", "चित्र", "file", "image"})
CATEGORIES = frozenset({"kategorie", "catégorie", "分类", "تصنيف", "श्रेणी", "категория", "หมวดหมู่", "category"})
OTHERS = SiteInfo(FILES, CATEGORIES)
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
        ("[[Bus]]es, [[bus|Coach]] and [[:Category:Art]].", "Buses, Coach and Category:Art."),
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.language)
def test_whole_pages_of_seven_languages(page: Page) -> None:
    removed = Removed()
    assert to_prose(page.wikitext, OTHERS, removed) == page.prose
    assert not removed.templates


WRAPPED = """This is the first line of a paragraph that is wrapped in the
source of the page, as some editors do,<ref>A
note</ref> so that the
<!-- a remark -->
lines are short. The second sentence is here and it is
[[File:A.png|thumb|A picture.]]
also wrapped over lines."""


def test_a_wrapped_paragraph_is_joined_before_its_lines_are_judged() -> None:
    assert to_prose(f"{WRAPPED}\n\nAnother is here.", ENGLISH).split("\n\n") == [
        "This is the first line of a paragraph that is wrapped in the source of the page, as some editors do, so that the "
        "lines are short. The second sentence is here and it is also wrapped over lines.",
        "Another is here.",
    ]


@pytest.mark.parametrize(
    ("wikitext", "prose"),
    [
        ("-{zh-cn:信息; zh-tw:資訊}-是-{X}-。-{H|zh-cn:a;zh-tw:b}--{T|zh-cn:c}-", "信息是X。"),
        ("它是-{zh-hans:软件;zh-hant:軟體}-，-{zh-tw:網路}-。", "它是软件，網路。"),
        ("__NICHT_INDEXIEREN__Der Hund bellt.__KEIN_INHALTSVERZEICHNIS__", "Der Hund bellt."),
        ("__无目录__它是。__БЕЗ_ОГЛ__", "它是。"),
        ("यह है।__विषयसूचीहीन__", "यह है।"),
        ("-{zh-hans|简}-和-{zh-hant;zh-tw|繁}-，他说1+1=2。", "简和繁，他说1+1=2。"),
        (":''Para otros usos, véase [[B]].''\nA es B. [[Imagen:C.jpg|thumb|Una foto.]]", "A es B."),
        ("{{Infobox\n| a = [[Washington, D.C.]]\n'''X''' was a man.", "X was a man."),
        ("{{Infobox\n| a = {{b|{{c}}\n| d = e.\n}}\n'''X''' was a man.", "X was a man."),
        ("He said:\n{{quote|It is {{nowrap|so}}.}}\nThe towns are:\n* Rome\n* Paris", "He said:\n\nIt is so."),
        ("<poem>\nRoses are red\nViolets are blue\n</poem>", "Roses are red\nViolets are blue"),
        ("The mean is\n:<math>\\frac{a+b}{2}</math>,\nwhere it is so.", "The mean is (a+b)/2, where it is so."),
        ("It is <nowiki>[[not]] a {{link}}</nowiki> here.", "It is not a link here."),
        ("It is {{#if:x|y}}{{DEFAULTSORT:a}}so {{lc:ABC}}.", "It is so abc."),
        ("Smith, ''A book'', {{ISBN|3-16-148410-0}}.\n\nIt is so.", "It is so."),
    ],
)
def test_markup_of_other_kinds(wikitext: str, prose: str) -> None:
    assert to_prose(wikitext, OTHERS) == prose


def test_what_is_removed_is_counted_by_reason() -> None:
    removed = Removed()
    wikitext = (
        "It is <math>\\begin{matrix}a\\end{matrix}</math> {{unheard of}} so.\n== A heading ==\nA caption\n* An item\n| a row\n"
        "== References ==\n* A book.\n\n* Another.\n== Life ==\n* B, ISBN 3-16-148410-0."
    )
    assert to_prose(wikitext, ENGLISH, removed) == "It is so."
    assert removed.counts == {
        "formulas": 1, "templates": 1, "headings": 3, "short_lines": 1, "list_items": 1, "rows": 1, "appendices": 2,
        "bibliography": 1,
    }  # fmt: skip


REPEATED = {
    "arguments": "{{lang" + "|" * 200_000 + "}}", "references": "<ref><math>" * 20_000, "links": "[[a|" * 50_000,
    "nested links": "[[a|" * 50_000 + "]]" * 50_000, "external links": "[http://a " * 50_000, "lists": "\n:*" * 50_000,
    "hatnotes": ":''" + "[[a " * 50_000,
    "headings": "=" * 100_000 + "a" + "=" * 99_999, "nowiki": "<nowiki>" * 50_000, "comments": "<!-- a --> b" * 50_000,
    "templates": "{{a|" * 50_000 + "}}" * 50_000, "words of templates": "{{small|a " * 50_000 + "}}" * 50_000,
    "open templates": "\n{{a|" * 50_000, "tables": "\n{|" * 50_000 + "\n|}" * 50_000,
    "crossed": "{{[[" * 50_000 + "}}]]" * 50_000,
    "ends": "}}]]\n|}" * 50_000, "spaces": "a" + " " * 300_000 + "{{x}}(", "lead-ins": "\n\nHe said:" * 50_000,
    "breaks": "a<br>" * 100_000, "variants": "-{zh-cn:a;" * 50_000, "asides": "({{x}}" * 30_000, "formulas": "<math>a" * 50_000,
    "marks": " ,;" * 100_000 + ")",
}  # fmt: skip


@pytest.mark.parametrize("markup", REPEATED.values(), ids=REPEATED)
def test_markup_without_an_end_costs_no_square_of_its_length(markup: str) -> None:
    """Each would take minutes to hours: a dump may hold pages of 2 MB that anybody has written."""
    started = time.process_time()
    assert to_prose(f"A cat is an animal.\n\n{markup}", ENGLISH).startswith("A cat is an animal.")
    assert time.process_time() - started < 20


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
