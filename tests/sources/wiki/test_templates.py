"""Templates that carry words become these words; what has no rule is counted by name."""

import pytest

from bertprep.sources.dump import SiteInfo
from bertprep.sources.wiki.paragraphs import TEMPLATES, Removed
from bertprep.sources.wiki.templates import RULES, TABLE, find_rule
from bertprep.sources.wiki.wikitext import to_prose

WORDS = {
    "{{As of|2014}}, it was so": "As of 2014, it was so",
    "so {{as of|2014|6|5|lc=y}}": "so as of 5 June 2014",
    "so {{as of|2014|6|5|df=US}}": "so As of June 5, 2014",
    "5.98{{e|24}} kg, {{val|6.241|e=18}}, {{val|5|0.2|u=km}}, {{val|1.00794|(7)}}": (
        "5.98×10²⁴ kg, 6.241×10¹⁸, 5±0.2 km, 1.00794(7)"
    ),
    "''Eagle''{{'s}} footpads": "Eagle's footpads",
    "it{{spaced ndash}}on, it{{snd}}on, it{{--}}on, 5{{ndash}}6": "it – on, it – on, it – on, 5–6",
    "{{frac|1|2}}, {{frac|3}}, {{sfrac|2|1|2}}, {{1/2}}": "1/2, 1/3, 2 1/2, 1/2",
    "{{convert|22|e6acre|km2}}, {{convert|652230|km2|sqmi|0}}, {{cvt|3|e3km}}": (
        "22 million acres, 652,230 km², 3 thousand km"
    ),
    "{{convert|6|ft|2|in}}, {{convert|105|and|130|cm}}, {{convert|5|-|10|°C}}, {{convert|5|x|6|m}}": (
        "6 ft 2 in, 105 and 130 cm, 5–10 °C, 5 × 6 m"
    ),
    "a {{convert|4000|ha|acre|adj=on}} park at {{convert|-5|C}}, {{convert|2+1/2|in}}": "a 4,000-ha park at −5 °C, 2 1/2 in",
    "{{chem|O|2|-}}, {{chem|H|2|O}}, {{chem2|H2O}}": "O2⁻, H2O, H2O",
    "{{coord|57|18|22|N|4|27|32|W}} and {{coord|32.7|-86.7|display=inline,title}}{{coord|1|2|display=title}}": (
        "57°18′22″N 4°27′32″W and 32.7°N 86.7°W"
    ),
    "{{GBP|100}}, {{US$|5 million}}, {{€|1234}}, {{currency|7|JPY}}": "£100, US$5 million, €1,234, ¥7",
    "{{HMS|Victory}}, {{USS|Hornet|CV-12|6}}, {{SS|Rio|1912}}, {{ship|MV|A||2}}": "HMS Victory, Hornet, SS Rio (1912), MV A",
    "{{sclass|Nimitz|aircraft carrier}}": "Nimitz-class aircraft carrier",
    "{{track gauge|1435mm}}, {{RailGauge|ussg}}, {{gauge|3ft6in}}": "1,435 mm, standard gauge, 3 ft 6 in",
    "{{birth date|1809|2|12}}, {{start date|1929|5|16|df=y}}, {{OldStyleDate|26 April|1711|15 April}}": (
        "February 12, 1809, 16 May 1929, 26 April [O.S. 15 April] 1711"
    ),
    "{{nihongo|Aikido|合気道|Aikidō}}, {{transl|ar|DIN|al}}, {{lang|fr|mot}}, {{laS|Canis}}, {{zh|c=北|p=Běi}}": (
        "Aikido (合気道, Aikidō), al, mot, Canis, Chinese: 北; pinyin: Běi"
    ),
    "{{circa|1900}}, {{abbr|SR|Strike Rate}}, {{tooltip|SR|Strike}}, {{angle bracket|a}}, {{gaps|1|234}}": (
        "c. 1900, SR, SR, ⟨a⟩, 1 234"
    ),
    "{{formatnum:5000}}, {{nowrap|a b}}, {{small|c}}, {{lang-de|{{nowrap|d}}}}, {{Template:small|e}}": "5000, a b, c, d, e",
    "{{pop density|3645257|640081.87|km2|prec=1}}, {{age|1809|2|12|1865|4|15}} years": "5.7/km², 56 years",
    "{{ill|A name|de|Ein Name}}, {{仮リンク|白湖|en|White Lake}}, {{tsl|en|Book|书}}, {{нп5|А|б|en|A}}": "A name, 白湖, 书, б",
    "{{unité|3,5|km|2|e=6}}, {{fecha|12|2|1809}}, {{дата рождения|12|2|1809}}, {{dni|12|2|1809}}": (
        "3,5×10⁶ km², 12 de febrero de 1809, 12 февраля 1809, 12 de fevereiro de 1809"
    ),
    "{{XIXe siècle}}, {{-s|V|e}}, {{1er}}, {{citation|mot}}": "XIXe siècle, Ve siècle av. J.-C., 1er, « mot »",
}


@pytest.mark.parametrize("wikitext", WORDS)
def test_a_template_becomes_the_words_that_it_prints(wikitext: str) -> None:
    removed = Removed()
    assert to_prose(f"It is {wikitext}.", SiteInfo(), removed) == f"It is {WORDS[wikitext]}."
    assert not removed.templates


def test_what_has_no_rule_is_counted_by_name_where_it_leaves_a_hole() -> None:
    removed = Removed()
    wikitext = "{{Navigation\n|a=b}}\n{{Some box}}\nIt is {{Unheard of|1}} so.{{cn}} It was (5, {{unheard_of|2}} today) good."
    assert to_prose(wikitext, SiteInfo(), removed) == "It is so. It was good."
    assert to_prose("It has {{formatnum:{{#expr:1+2}}}} towns.{{#tag:ref|A note.}}", SiteInfo(), removed) == "It has towns."
    assert removed.templates == {"unheard of": 1, "unheard_of": 1, "#expr": 1}
    assert removed.counts[TEMPLATES] == 3


def test_each_name_stands_once_in_the_table_and_in_lower_case() -> None:
    names = [name for _, of_rule in TABLE for name in of_rule.split("|")]
    assert len(names) == len(set(names)), sorted({name for name in names if names.count(name) > 1})
    assert all(name == name.lower().strip() and find_rule(name) is RULES[name] for name in names)
