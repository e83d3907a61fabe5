"""The words that templates carry.

A template can show anything, so nearly all are dropped with their content. Kept are those within sentences, which would
otherwise have gaps: words in another language, quantities, typographic marks, styled words, quotations. The names are those of
the English Wikipedia, many of which other wikis share, and the common ones of some others. The tables are data: another wiki
may need a line or two more.
"""

from collections.abc import Callable

from bertprep.sources.wikimedia.dump import SiteInfo
from bertprep.sources.wikimedia.tags import SUPERSCRIPT

Arguments = dict[str, str]  # positional ones are named "1", "2", ...
Words = Callable[[Arguments], str]


def template_words(name: str, arguments: str, site: SiteInfo) -> str:
    """The visible words of {{name|arguments}}, with `arguments` from the first bar on; '' if unknown.

    >>> template_words("lang", "|grc|ἀρχή", SiteInfo()), template_words("cvt", "|5|-|6|km|mi", SiteInfo())
    ('ἀρχή', '5–6 km')
    >>> template_words("Infobox", "|name=Art", SiteInfo())
    ''
    """
    name = name.strip().replace("_", " ").lower()
    if marks := _MARKS.get(name):
        return marks
    words = _OF_LANGUAGE.get(site.language, {}).get(name) or _WORDS.get(name)
    if words:
        return words(parse_arguments(arguments))
    if name.startswith(("lang-", "link-", "script/")):
        return _first(parse_arguments(arguments))
    function, colon, value = name.partition(":")
    return value.strip() if colon and function in _FUNCTIONS else ""


def parse_arguments(arguments: str) -> Arguments:
    """Arguments by name.

    >>> parse_arguments("|5|km|abbr = on|2=mi")
    {'1': '5', '2': 'mi', 'abbr': 'on'}
    """
    found: Arguments = {}
    position = 0
    for argument in arguments.split("|")[1:]:
        name, equals, value = argument.partition("=")
        if not equals:
            position += 1
            name, value = str(position), argument
        found[name.strip()] = value.strip()
    return found


def _first(given: Arguments) -> str:
    return given.get("1", "")


def _second(given: Arguments) -> str:
    return given.get("2") or given.get("text", "")


def _last(given: Arguments) -> str:
    return given.get("3") or given.get("2") or given.get("1", "")


def _joined(given: Arguments) -> str:
    return "".join(value for name, value in given.items() if name.isdecimal())


def _spaced(given: Arguments) -> str:
    return " ".join(value for name, value in given.items() if name.isdecimal())


def _quotation(given: Arguments) -> str:
    return f"\n\n{given.get('text') or given.get('quote') or _first(given)}\n\n"


def _after(mark: str) -> Words:
    return lambda given: mark + _first(given)


def _always(words: str) -> Words:
    return lambda _: words


def _fraction(given: Arguments) -> str:
    parts = [given[name] for name in "123" if given.get(name)]
    whole = f" {parts.pop(0)}" if len(parts) == 3 else ""
    return f"{whole} {'/'.join(parts if len(parts) == 2 else ['1', *parts])}"  # 1{{frac|1|4}} is not 11/4


_RANGES = {
    "-": "–",
    "–": "–",
    "to": " to ",
    "to(-)": " to ",
    "and": " and ",
    "or": " or ",
    "x": " × ",
    "by": " by ",
    "+/-": " ± ",
}
_UNITS = {
    "sqmi": "sq mi", "sqft": "sq ft", "sqkm": "km²", "km2": "km²", "m2": "m²", "cm2": "cm²", "m3": "m³", "km3": "km³",
    "cm3": "cm³", "C": "°C", "F": "°F", "impgal": "imp gal", "USgal": "US gal", "mi/h": "mph",
}  # fmt: skip


def _quantity(given: Arguments) -> str:
    """The original quantity without its conversion: all of |5|ft|10|in and |5|-|6|km, but only 5 km of |5|km|mi."""
    position = 1

    def take() -> str:
        nonlocal position
        position += 1
        return given.get(str(position - 1), "")

    words = take()
    while (unit := take()) in _RANGES:
        words += _RANGES[unit] + take()
    words += f" {_UNITS.get(unit, unit)}" if unit else ""
    more, unit = take(), take()
    return f"{words} {more} {unit}" if more.isdecimal() and unit in ("in", "oz", "lb", "ft") else words


def _value(given: Arguments) -> str:
    unit = given.get("u") or given.get("ul", "")
    return f"{_first(given)} {unit}" if unit else _first(given)


_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def _as_of(given: Arguments) -> str:
    if "alt" in given:
        return given["alt"]
    year, month, day = (given.get(name, "") for name in "123")
    month = _MONTHS[int(month) - 1] if month.isdecimal() and 1 <= int(month) <= 12 else month
    words = "Since" if "since" in given else "As of"
    return " ".join(word for word in (words.lower() if "lc" in given else words, day, month, year) if word)


_FUNCTIONS = ("formatnum", "lc", "uc", "lcfirst", "ucfirst")

_MARKS = {
    "!": "", "=": "=", "'": "'", "'s": "'s", "' \"": "' \"", "\" '": "\" '", "ndash": "–", "mdash": "—", "mdashb": "—",
    "snd": " – ", "snds": " – ", "spaced ndash": " – ", "spnd": " – ", "–": " – ", "—": "—", "·": " · ", "•": " • ",
    "dot": " · ", "nbsp": " ", "spaces": " ", "space": " ", "thinsp": " ", "thin space": " ", "hair space": " ", "nbs": " ",
    "\\": " / ", "eqm": "⇌", "-\"": "'\"", "degree": "°", "minus": "−", "times": "×",
}  # fmt: skip


def _by_name(names: dict[Words, str]) -> dict[str, Words]:
    return {name: words for words, joined in names.items() for name in joined.split("|")}


_WORDS = _by_name(
    {
        _first: (
            "abbr|abbrlink|big|char|chem2|code|em|flag|flagcountry|flagu|gloss|ill|illm|interlanguage link|ipa|ipalink|"
            "ipaslink|kbd|key|keypress|larger|linktext|lower|math|mono|mvar|nastaliq|nihongo|nihongo2|nobold|nobr|noitalic|"
            "not a typo|nowrap|nq|nts|number|rail gauge|railgauge|sc|sic|small|smallcaps|smaller|strong|sub|sup|tooltip|tt|"
            "typo|unicode|vanchor|var|visible anchor|xt"
        ),
        _second: "color|colour|font color|lang|resize|rtl-lang|script|wikt-lang",
        _last: "transl|transliteration",
        _joined: "chem",
        (lambda given: f"{_first(given)} {given.get('2', '')}"): "bibleref|ship",
        _quotation: "block quote|blockquote|bquote|cquote|quotation|quote",
        _quantity: "convert|cvt",
        _value: "val",
        _fraction: "frac|fraction|sfrac",
        _as_of: "as of",
        _after("c. "): "c.|ca.|circa",
        _after("fl. "): "fl.|floruit",
        _after("US$"): "us$|usd",
        _after("£"): "gbp|pound sterling|£",
        _after("€"): "eur|euro|€",
        _after("₹"): "inr|₹",
        _after("US patent "): "us patent",
        (lambda given: f"⟨{_first(given)}⟩"): "angbr|angbr ipa|vr",
        (lambda given: f"×10{_first(given).translate(SUPERSCRIPT)}"): "e",
        (lambda given: {"flat": "♭", "sharp": "♯", "natural": "♮"}.get(_first(given), "")): "music",
        (lambda given: f"{_first(given)}-class {given.get('2', '')}"): "sclass-",
        **{_after(f"{ship.upper()} "): ship for ship in ("hmas", "hmcs", "hms", "ms", "mv", "rms", "ss", "sms", "uss")},
    }
)

# Names that mean something else on other wikis, or nothing.
_OF_LANGUAGE = {
    "de": _by_name(
        {
            _first: "els|ens|ess|frs|grcs|its|las|nls|pls|pts|rus",
            _quotation: "zitat",
            (lambda given: f"„{given.get('Text') or _first(given)}“"): '"',
        }
    ),
    "es": _by_name({_quotation: "cita|cita larga", _spaced: "unidad"}),
    "fr": _by_name(
        {
            _first: "citation|citation étrangère|nombre|petit|souverain|terme défini",
            _spaced: "date|date-|heure|unité",
            _quotation: "citation bloc|début citation",
            (lambda given: f"{_first(given)}{given.get('2') or 'e'} siècle"): "s|s-|siècle",
            **{_always(ordinal): ordinal for ordinal in ("1er", "1re", "2e", "3e", "e", "er", "re")},
        }
    ),
    "it": _by_name({_quotation: "citazione", _value: "m"}),
    "ja": _by_name({_first: "ruby|仮リンク|読み仮名"}),
    "zh": _by_name({_first: "internal link helper/en|le", (lambda given: given.get("4") or given.get("3", "")): "tsl"}),
}
