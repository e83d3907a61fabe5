"""What single templates of a wiki become: a function for each kind, which `wiki.templates` lists by names.

A rule gets the arguments of a template, whose own templates and links are already words, and returns words. It gives what the
author wrote, not what a wiki computes from it: {{convert|5|km|mi}} is "5 km".
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

APOSTROPHE = "\x03"
"""Stands for an apostrophe from a template until the quotes of italics and bold are removed: ''Eagle''{{'s}} is Eagle's."""
SUPERSCRIPT = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
_NAMED = re.compile(r"\s*([^\W_][\w -]{0,29}?)\s*=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Arguments:
    """The arguments of a template: the unnamed in order, and the named. "1=" names the first unnamed one."""

    unnamed: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)

    def get(self, *names: int | str) -> str:
        """Return the first of these arguments that is given and not blank, or ""."""
        for name in names:
            if isinstance(name, int) and name <= len(self.unnamed) and self.unnamed[name - 1]:
                return self.unnamed[name - 1]
            if value := self.named.get(str(name), ""):
                return value
        return ""

    def words(self) -> list[str]:
        """Return the unnamed arguments that are not blank."""
        return [*filter(None, [self.get(index) for index in range(1, 1 + max(len(self.unnamed), len(self.named)))])]


Rule = Callable[[Arguments], str]


def read_arguments(texts: list[str]) -> Arguments:
    """Return the arguments between the bars of a template."""
    arguments = Arguments()
    for text in texts:
        if match := _NAMED.fullmatch(text):
            arguments.named[match[1].lower()] = match[2].strip()
        else:
            arguments.unnamed.append(text.strip())
    return arguments


def fixed(text: str) -> Rule:
    return lambda _: text


def first(arguments: Arguments) -> str:
    return arguments.get(1, "text", "content")


def second(arguments: Arguments) -> str:
    return arguments.get(2, "text", "texte", "texto", "testo", "content")


def last(arguments: Arguments) -> str:
    words = arguments.words()
    return words[-1] if words else arguments.get("text", "content")


def nothing(_: Arguments) -> str:
    return ""


def joined(separator: str) -> Rule:
    return lambda arguments: separator.join(arguments.words())


def before(text: str) -> Rule:
    return lambda arguments: text + first(arguments)


def around(before: str, after: str) -> Rule:
    return lambda arguments: f"{before}{first(arguments)}{after}" if first(arguments) else ""


def block(arguments: Arguments) -> str:
    """A quotation that is a paragraph of its own."""
    text = arguments.get("text", "quote", "content", "texte", "texto", "testo", "1", 1)
    return f"\n\n{text}\n\n" if text else ""


def list_lines(arguments: Arguments) -> str:
    content = arguments.get("content") or last(arguments)
    return f"\n{content}\n" if content[:1] in "*#" else ""


SHIP_PREFIXES = (
    "hms|uss|ss|rms|ms|mv|mt|hmas|hmcs|hmnzs|hmis|hmsas|sms|usns|uscgc|usat|usrc|uscs|css|ins|orp|hnlms|hnoms|hdms|hswms|smu|"
    "gts|ps|rv|ts|tss|yp|bap|arc|ara|rfa|mts|pns|roks|jds|js|hmt|hmhs|hmy|hmbs|rrs|sy|mf|nms|hmm|frs|drv|german submarine"
)


def ship(prefix: str, arguments: Arguments) -> str:
    """{{USS|Hornet|CV-12|6}}: the last number chooses what is printed; by default prefix, name and number of the hull."""
    name, hull, style = arguments.get(1), arguments.get(2), arguments.get(3) or arguments.get("up")
    prefix = prefix.upper() if prefix.isalpha() else prefix.capitalize()
    in_brackets = f" ({hull})" if hull else ""
    styles = {"1": hull, "2": f"{prefix} {name}", "3": f"{name}{in_brackets}", "6": name}
    return styles.get(style) or f"{prefix} {name}{in_brackets}"


def any_ship(arguments: Arguments) -> str:
    """{{ship|SS|Name|1912|2}}."""
    prefix, *others = [arguments.get(index) for index in range(1, 5)]
    shown = ship(prefix, Arguments(others))
    return shown.replace(prefix.upper(), prefix, 1).strip()


def ship_class(arguments: Arguments) -> str:
    style = arguments.get(3)
    name = arguments.get(1)
    return (
        name
        if style in ("4", "5", "6")
        else " ".join(filter(None, [f"{name}-class" if style != "2" else name, arguments.get(2)]))
    )


def nihongo(arguments: Arguments) -> str:
    """{{nihongo|Aikido|合気道|Aikidō}} is Aikido (合気道, Aikidō)."""
    english, others = arguments.get(1), [arguments.get(2), arguments.get(3), arguments.get(4, "extra")]
    inside = ", ".join(filter(None, others))
    return f"{english} ({inside})" if english and inside else english or inside


def nihongo3(arguments: Arguments) -> str:
    romaji, inside = arguments.get(3), ", ".join(filter(None, [arguments.get(2), arguments.get(1)]))
    return f"{romaji} ({inside})" if romaji and inside else romaji or inside


_CHINESE = {
    "c": "Chinese: ", "s": "simplified Chinese: ", "t": "traditional Chinese: ", "p": "pinyin: ", "w": "Wade–Giles: ",
    "j": "Jyutping: ", "cy": "Cantonese Yale: ", "poj": "Pe̍h-ōe-jī: ", "l": "lit. ",
}  # fmt: skip


def chinese(arguments: Arguments) -> str:
    if not arguments.named:
        return last(arguments)
    labels = "-" not in arguments.get("labels") and arguments.get("labels") != "no"
    return "; ".join(
        (label if labels else "") + (f"{APOSTROPHE}{text}{APOSTROPHE}" if key == "l" else text)
        for key, label in _CHINESE.items()
        if (text := arguments.get(key))
    )


def link_to_other_wiki(arguments: Arguments) -> str:
    """{{ill|Name|de|Other name|lt=shown}}: the words that are shown."""
    return arguments.get("lt", "label", "texte", "text", 1, "fr", "d")


def russian_link(arguments: Arguments) -> str:
    """Russian {{нп5|Статья|текст|en|Article}}."""
    return arguments.get(2, "текст", 1, "есть")


def chinese_link(arguments: Arguments) -> str:
    """Chinese {{le|中文|English|显示}}."""
    return arguments.get(3, "d", 1)


def chinese_link_by_language(arguments: Arguments) -> str:
    """Chinese {{tsl|en|English|中文}}."""
    return arguments.get(4, 3, 2)


def ruby(arguments: Arguments) -> str:
    base, reading = arguments.get(1), arguments.get(2)
    return f"{base} ({reading})" if reading else base


def reading(arguments: Arguments) -> str:
    """Japanese {{読み仮名|漢字|かんじ}}."""
    base, reading = arguments.get(1), arguments.get(2)
    return f"{base}（{reading}）" if reading else base


def roman(name: str) -> str:
    """Write the numeral of a French century in capitals: xixe siècle is XIXe siècle."""
    numeral = re.match("-?[ivxl]+", name)
    assert numeral
    written = f"{numeral[0].lstrip('-').upper()}{name[numeral.end() :]}"
    return f"{written} av. J.-C." if name.startswith("-") else written


def ordinal_of_century(arguments: Arguments) -> str:
    """French {{s-|XIX|e}}: XIXe."""
    return f"{arguments.get(1).upper()}{arguments.get(2) or 'e'}"


def century(arguments: Arguments) -> str:
    """French {{s|XIX|e}}: XIXe siècle. Russian {{s|5 км}} only keeps words on one line."""
    is_century = re.fullmatch("[ivxl]+", arguments.get(1).lower())
    return f"{ordinal_of_century(arguments)} siècle" if is_century else arguments.get(1)


def century_before(arguments: Arguments) -> str:
    """French {{-s|V|e}}: Ve siècle av. J.-C."""
    return f"{ordinal_of_century(arguments)} siècle av. J.-C."


def era(name: str) -> Rule:
    return lambda arguments: f"{arguments.get(1)} {name}".strip()


def chemical(arguments: Arguments) -> str:
    """{{chem|Si|4|4-}}: elements and numbers; a charge comes last."""
    *words, last = arguments.words() or [""]
    return "".join(words) + (last.translate(SUPERSCRIPT) if re.fullmatch(r"\d*[-+−]", last) else last)


def formula(arguments: Arguments) -> str:
    """{{chem2|SO4(2-)}} and {{chem2|^{235}U}}, without their marks for levels."""
    return re.sub(r"[{}_^]|(?<=\()\((?=\))", "", joined("")(arguments))


def nuclide(arguments: Arguments) -> str:
    return "-".join(arguments.words()[:2])


def superscript(arguments: Arguments) -> str:
    text = first(arguments)
    return text.translate(SUPERSCRIPT) if re.fullmatch(r"[-+−]?\d+", text) else text


def up_and_down(arguments: Arguments) -> str:
    """{{su|p=2|b=4}}."""
    return arguments.get("p", 1).translate(SUPERSCRIPT) + arguments.get("b", 2)


def named_source(arguments: Arguments) -> str:
    """{{harvtxt|Smith|Jones|1990|p=5}}: Smith & Jones (1990)."""
    *authors, year = arguments.words() or [""]
    return f"{' & '.join(authors)} ({year})" if authors else year


def sic(arguments: Arguments) -> str:
    return "".join(arguments.words()[:2]) + ("" if arguments.get("hide", "nolink") else " [sic]")


def name_for_sorting(arguments: Arguments) -> str:
    return " ".join(arguments.words()[:2])


def altitude(arguments: Arguments) -> str:
    """German {{Höhe|1234|DE-NHN}}."""
    return f"{arguments.get(1)} m"


def key_press(arguments: Arguments) -> str:
    return "+".join(arguments.words())


MUSIC = {"flat": "♭", "b": "♭", "sharp": "♯", "#": "♯", "natural": "♮", "n": "♮", "doubleflat": "𝄫", "doublesharp": "𝄪"}
