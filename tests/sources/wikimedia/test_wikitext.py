"""Wikitext becomes prose: the words of its markup in every language, no markup whatever its balance, in linear time."""

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.sources.streams import open_stream
from bertprep.sources.wikimedia.dump import DumpReader, SiteInfo
from bertprep.sources.wikimedia.paragraphs import MIN_CHARACTERS
from bertprep.sources.wikimedia.wikitext import to_prose
from tests.golden.wikimedia import EXPECTED, excerpt

ENGLISH = SiteInfo()
GERMAN = SiteInfo("de", frozenset({"datei", "file", "image"}), frozenset({"kategorie", "category"}))
FRENCH = SiteInfo("fr", frozenset({"fichier", "file", "image"}), frozenset({"catégorie", "category"}))
CHINESE = SiteInfo("zh", frozenset({"文件", "file", "image"}), frozenset({"分类", "category"}))
ARABIC = SiteInfo("ar", frozenset({"ملف", "file", "image"}), frozenset({"تصنيف", "category"}))
HINDI = SiteInfo("hi", frozenset({"चित्र", "file", "image"}), frozenset({"श्रेणी", "category"}))

MARKUP = re.compile(
    r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|<ref|&nbsp;|__[A-Z]+__|''|https?://|thumb\||\burl ?=|\( *\)| ,|^[*#:=|]|  ", re.MULTILINE
)


@pytest.fixture(scope="module")
def articles() -> dict[str, str]:
    with open_stream(str(excerpt())) as file:
        reader = DumpReader(file, excerpt().name)
        return {page.title: to_prose(page.wikitext, reader.site) for page in reader}


@pytest.mark.parametrize("title", ["Actrius", "Agnostida", "International Atomic Time"])
def test_whole_articles_match_hand_edited_text(articles: dict[str, str], title: str) -> None:
    expected = EXPECTED / f"{title.lower().replace(' ', '_')}.txt"
    assert articles[title] + "\n" == expected.read_text(encoding="utf-8")


def test_no_markup_is_left_in_any_article(articles: dict[str, str]) -> None:
    found = {title: match[0] for title, prose in articles.items() if (match := MARKUP.search(prose))}
    assert not found


def test_nearly_all_articles_have_prose(articles: dict[str, str]) -> None:
    assert [title for title, prose in articles.items() if not prose] == ["Ada", "List of anthropologists"]  # lists of names
    assert 2_700_000 < sum(map(len, articles.values())) < 2_740_000


@pytest.mark.parametrize(
    ("wikitext", "prose"),
    [
        ("[[Bus]]es, [[Mercury (planet)|]] and [[Paris, Texas|]].", "Buses, Mercury and Paris."),
        ("[[bus|Coach]] and [[Help:Contents|]], [[:Category:Art]].", "Coach and Contents, Category:Art."),
        ("A [[wikt:run]], [[:fr:Chien|a dog]][[de:Hund]][[zh-min-nan:Káu]], [[CSI: Miami]].", "A run, a dog, CSI: Miami."),
        ("[[File:A.png|thumb|A [[cat]] by [[B|C]].{{cn}}]]It is.[[Image:B.jpg]][[Category:Cats]]", "It is."),
        ("[http://a.b/c?d=e The site], [http://x.y], http://z.w/q [//a.b one [sic] more].", "The site, one [sic] more."),
        ("It ''is'' '''so''' '''''here'''''.", "It is so here."),
        ("L'''Iliade'' is.\nIt is ''Eagle'''s, '''so'''s.", "L'Iliade is. It is Eagle's, sos."),
        ("One.<ref name='a b'>''x'' {{cite|y}}</ref><ref name=c /> Two.<REF>z</Ref >", "One. Two."),
        ("One.<ref>Not closed.\n\n== Heading ==\nTwo.<ref>x</ref>", "One.Not closed.\nTwo."),
        ("Ten<sup>6</sup> m<sup>−2</sup>, H<sub>2</sub>O, 19<sup>th</sup>.", "Ten⁶ m⁻², H2O, 19th."),
        ("Let <math>n</math> be <math>\\frac{1}</math> <code>f()</code> <nowiki>''[x]</nowiki>.", "Let n be f() ''[x]."),
        ("A<!-- [[ --> b.<!-- never closed [[ B.", "A b."),
        ("One\n<!-- a comment fills its line -->\ntwo.", "One two."),
        ("One<br>two<br/><br />Three is.<div>Four is.</div>", "Three is.\nFour is."),
        ("1 < 2 & 3 > 2 &lt;b&gt; R&D&nbsp;&amp;nbsp;&amp;ndash; AT&amp;T.", "1 < 2 & 3 > 2 <b> R&D – AT&T."),
        ("__NOTOC__So it is.__FORCETOC__ But __init__ stays.", "So it is. But __init__ stays."),
        ("<poem>\nRoses are red,\nviolets are blue.\n</poem>", "Roses are red, violets are blue."),
        ("<table><tr><td>A cell.</td></tr></table>It is.<gallery>\nA.png|It was.\n</gallery>", "It is."),
    ],
)
def test_markup_leaves_its_words(wikitext: str, prose: str) -> None:
    assert to_prose(wikitext, ENGLISH) == prose


@pytest.mark.parametrize(
    ("wikitext", "prose"),
    [
        ("It {{Infobox|a={{b|[[c]]}}|\nd=e}}is.{{citation needed|date=May 2010}}", "It is."),
        ("It is {{lang|fr|''mot''}}, {{lang-de|Wort}}, {{transl|ar|al-Jazā'ir}}.", "It is mot, Wort, al-Jazā'ir."),
        ("{{nowrap|[[kilogram|5 kg]] {{small|of}}}} {{abbr|U.S.|United States}} tea.", "5 kg of U.S. tea."),
        ("{{convert|5|km|mi|abbr=on}}, {{cvt|5|to|10|sqmi}}, {{convert|6|ft|2|in|m}}.", "5 km, 5 to 10 sq mi, 6 ft 2 in."),
        ("{{val|1.2|u=m}}, 1{{frac|1|4}}, {{frac|3|1|2}}, {{chem|H|2|O}}, 5{{e|24}}.", "1.2 m, 1 1/4, 3 1/2, H2O, 5×10²⁴."),
        ("{{As of|2015|6|30}} or {{as of|2010|lc=y}}.", "As of 30 June 2015 or as of 2010."),
        ("It was {{circa|1900}}{{snd}}{{formatnum:5000}}.", "It was c. 1900 – 5000."),
        ("He said:{{quote|It is {{'}}so{{'}}.|Bob}}No.", "It is 'so'.\nNo."),
        ("{{USS|Nimitz}}, a {{sclass-|Nimitz|carrier}}, {{US$|5}}.", "USS Nimitz, a Nimitz-class carrier, US$5."),
    ],
)
def test_templates_in_the_middle_of_sentences_leave_their_words(wikitext: str, prose: str) -> None:
    assert to_prose(wikitext, ENGLISH) == prose


@pytest.mark.parametrize(
    ("wikitext", "prose"),
    [
        ("Bach ({{IPA-de|bax|lang}}; {{Audio|Bach.ogg}}, 1685 {{dash}} ) was.", "Bach (1685) was."),
        ("Bach ({{IPA-de|bax}} ({{x}}); ) [{{y}}] was {{cn}} , so {{cn}} .", "Bach was, so."),
        ("The function main() was ({{a}}{{b}}) [sic] a .NET one.", "The function main() was [sic] a .NET one."),
        ("东京（{{lang-en}}，；）是（{{a}}、首都）。", "东京是（首都）。"),
        ("{{a}}, {{b}}. So it is,{{cn}}, {{cn}}, he said.", "So it is, he said."),
        (".NET is.", ".NET is."),
    ],
)
def test_traces_of_dropped_markup_are_repaired(wikitext: str, prose: str) -> None:
    assert to_prose(wikitext, ENGLISH) == prose


def test_only_prose_stays_a_paragraph_a_line() -> None:
    wikitext = f"""{{{{Infobox}}}}
Lines of a paragraph
are joined.
 This one stands for itself.
== A heading ==
A caption

A long line that leads {"on and " * 9}to a list:
* an item
*# A sentence in a list.
*"An item (as a quotation.)"
# Number two
; Term
: Indented verses of a song,
: to the end of its sentence.
: x = y
{{| class="wikitable"
! A header is.
|-
| A cell is. || Another is.
{{|
| nested.
|}}
|}}
----
| Debris is.
Still a paragraph.
=== See also ===
* Nothing from here on.
Not even this.
==== Nor this is ====
Or this.
== Life ==
It goes on."""
    assert to_prose(wikitext, ENGLISH).split("\n") == [
        "Lines of a paragraph are joined.",
        "This one stands for itself.",
        f"A long line that leads {'on and ' * 9}to a list:",
        "A sentence in a list.",
        '"An item (as a quotation.)"',
        "Indented verses of a song, to the end of its sentence.",
        "Still a paragraph.",
        "It goes on.",
    ]


def test_nothing_left_is_the_empty_string() -> None:
    assert to_prose("{{Infobox}}\n[[Category:A]]\n* [[B]]\n...", ENGLISH) == "..."
    assert to_prose("{{Infobox}}\n[[Category:A]]\n* [[B]]\n", ENGLISH) == ""
    assert to_prose("", ENGLISH) == ""


def test_german() -> None:
    wikitext = """[[Datei:Hund.jpg|mini|Ein [[Haushund|Hund]] im Garten.]][[Bild:Alt.png|mini|Ein altes Bild.]]
Der '''Hund''' ({{laS|Canis lupus}}) ist ein [[Haustier]].<ref>Quelle, S.&nbsp;5.</ref> Er wiegt z.&nbsp;B. 20&nbsp;kg.
== Haltung ==
* Er braucht Auslauf.
* Futter
== Einzelnachweise ==
<references />
* Ein Buch, Berlin 1990.
[[Kategorie:Hund| ]]
[[en:Dog]]"""
    assert to_prose(wikitext, GERMAN) == ("Der Hund (Canis lupus) ist ein Haustier. Er wiegt z. B. 20 kg.\nEr braucht Auslauf.")


def test_french() -> None:
    wikitext = """[[Fichier:Iliade.jpg|vignette|Une page de l'''Iliade''.]]
L'''Iliade'' ({{lang|grc|Ἰλιάς}}) est une [[épopée]] du {{s-|VIII|e}}{{,}}<ref>Note.</ref>.
Elle dit : «&nbsp;la colère&nbsp;» ; L{{'}}auteur est {{1er}}.
[[Catégorie:Épopée]]"""
    assert to_prose(wikitext, FRENCH) == (
        "L'Iliade (Ἰλιάς) est une épopée du VIIIe siècle. Elle dit : « la colère » ; L'auteur est 1er."
    )


def test_chinese() -> None:
    wikitext = """[[文件:Beijing.jpg|thumb|北京的街道。]]
'''北京'''（{{lang-en|Beijing}}，{{bd}}；）是[[中华人民共和国]]的首都，位于-{zh-hans:华北;zh-hant:華北}-平原。-{T|zh:北京;zh-hant:北京市}-人口为2,000万<ref>统计。</ref>。
* 故宫
* 1949年，-{北京}-成为首都。
== 参考文献 ==
* 某书，1990年。
[[分类:北京]]
[[en:Beijing]]"""
    assert to_prose(wikitext, CHINESE) == (
        "北京（Beijing）是中华人民共和国的首都，位于华北平原。人口为2,000万。\n1949年，北京成为首都。"
    )


def test_arabic_and_hindi_end_sentences_in_their_own_way() -> None:
    arabic = """[[ملف:Cairo.jpg|تصغير|صورة.]]
'''القاهرة''' عاصمة [[مصر|جمهورية مصر]]. هل زرتها؟<ref>م</ref>
== مراجع ==
* كتاب.
[[تصنيف:مدن]]"""
    hindi = """[[चित्र:Delhi.jpg|अंगूठाकार|एक दृश्य।]]
'''दिल्ली''' [[भारत]] की राजधानी है।<ref>स्रोत</ref>
* लाल किला
[[श्रेणी:दिल्ली]]"""
    assert to_prose(arabic, ARABIC) == "القاهرة عاصمة جمهورية مصر. هل زرتها؟"
    assert to_prose(hindi, HINDI) == "दिल्ली भारत की राजधानी है।"


def test_thai_has_no_sentence_ends_and_is_kept_by_its_length() -> None:
    line = "กรุงเทพมหานคร เป็น[[เมืองหลวง]]และนครที่มีประชากรมากที่สุดของประเทศไทย เป็นศูนย์กลางการปกครอง"
    assert len(line) > MIN_CHARACTERS
    assert to_prose(f"{line}\n\nประเทศไทย", SiteInfo("th")) == line.replace("[[", "").replace("]]", "")


def test_unbalanced_markup_costs_its_brackets_only() -> None:
    assert to_prose("It is {{lang|fr|a [[b}} c]] so.", ENGLISH) == "It is a b c so."
    assert to_prose("It is [[File:A.png|thumb|a cap\nNext [[b]] is.", ENGLISH) == "It is\nNext b is.".replace("\n", " ")
    assert to_prose("A |} b }} c ]] is {{ no [[ end.", ENGLISH) == "A b c is no end."
    assert to_prose("{|\n| A cell is.\n\nIt is.", ENGLISH) == "It is."


TOKENS = [
    *(
        "{{",
        "}}",
        "[[",
        "]]",
        "{|",
        "|}",
        "\n{|",
        "\n|}",
        "-{",
        "}-",
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        "|",
        "=",
        ",",
        ";",
        " ",
        "\n",
    ),
    *("<ref>", "<ref", "</ref>", "<ref/>", "<!--", "-->", "<nowiki>", "</nowiki>", "<math>", "</math>", "<br>", "<div>"),
    *("''", "'''", "\n*", "\n: ", "\n==", "__NOTOC__", "__", "NOTOC", "[http://a b", "http://", "&nb", "sp;", "\u200b"),
    *("&nbsp;", "&amp;nbsp;", "&amp;amp;nbsp;", "&#91;", "&#x7b;", "&lt;ref", "{{!}}", "quote|", "lang|x", "File:a"),
    *("a", "is.", "。"),
]


@given(st.lists(st.sampled_from(TOKENS) | st.text(max_size=3), max_size=60).map("".join))
def test_no_markup_survives_whatever_its_balance(wikitext: str) -> None:
    prose = to_prose(wikitext, ENGLISH)
    assert not re.search(r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|<ref|&nbsp;|__NOTOC__", prose)
    assert all(line and line == " ".join(line.split()) for line in prose.split("\n")) or prose == ""


NASTY = [
    *("[[", "]]", "{{", "}}", "\n{|", "\n|}", "{{{", "[[a|", "[[a|x[[b|", "[[File:a|", "[[a:.jpg ", "{{lang|x|", "[[{{\n{|"),
    *("'", "''\n", "l'''a ", "<ref>", "</ref>", "<ref", "<ref>\n==", "<!--", "<nowiki>", "<br> ", "<br", "<", "(", "( ", " )"),
    *("(,", ", ", ", ;", "，", "=", "\n=", "\n:a", "\n*", " ", "[http://", "[http://a ", "[http://a [b] ", "http://."),
    *("-{", "-{a", "&amp;", "&#", "__A", "{{convert|1|-|"),
]


def assert_linear(text_of: Callable[[int], str]) -> None:
    """Four times as much text takes at most eight times as long, or 3 microseconds a character.

    That is many times what linear code takes, even where a text outgrows the caches, and little for quadratic code.
    """
    for size in (16_000, 128_000):  # the smaller one finds slow code soon, the larger one quick code
        for _ in range(3):  # in case the processor was slowed down meanwhile
            short, long = seconds(text_of(size)), seconds(text_of(4 * size))
            if long < max(8 * short, 3e-6 * 4 * size):
                break
        else:
            pytest.fail(f"{long:.3f} s for {4 * size:,} characters, {short:.3f} s for {size:,}")


def seconds(wikitext: str) -> float:
    """The processor's time for a text."""
    before = time.process_time()
    to_prose(wikitext, ENGLISH)
    return time.process_time() - before


@pytest.mark.parametrize("pattern", NASTY)
def test_time_is_linear_whatever_repeats(pattern: str) -> None:
    assert_linear(lambda size: pattern * (size // len(pattern)))


@pytest.mark.parametrize("pattern", [",", ", ", ",;", ":,", ": ", "(", "( ,", "，", ".", ". "])
def test_time_is_linear_in_a_row_of_marks_before_a_letter(pattern: str) -> None:
    assert_linear(lambda size: f"A text ( ,{pattern * (size // len(pattern))}x end.")


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("[[a|x", "]]"), ("{{lang|a|x", "}}"), ("\n{|\n", "\n|}"), ("[[a|{{lang|a|", "}}]]"), ("(", ")"), ("<ref>", "\n==</ref>")],
)
def test_time_is_linear_in_the_depth_of_nesting_and_nothing_recurses(opening: str, closing: str) -> None:
    assert_linear(lambda size: opening * (size // len(opening)) + closing * (size // len(opening)))


def test_a_list_that_is_one_sentence_is_kept_as_one() -> None:
    wikitext = "Change is of three kinds:\n# growth, which is in quantity;\n# [[locomotion]]; and\n# alteration, in quality.\n"
    assert (
        to_prose(wikitext, SiteInfo()).split("\n")[-1]
        == "growth, which is in quantity; locomotion; and alteration, in quality."
    )
    assert to_prose("* one;\n* two;\n\nA sentence.\n* Another.", SiteInfo()) == "A sentence.\nAnother."
