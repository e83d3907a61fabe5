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


def _group(number: str) -> str:
    """Separate the thousands of a number: 652230 -> 652,230."""
    whole, point, fraction = number.partition(".")
    return f"{int(whole):,}{point}{fraction}" if whole.isascii() and whole.isdigit() and len(whole) > 3 else number


# --- dates ---------------------------------------------------------------------------------------------------------------

_MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "ru": "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    "pl": "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia",
    "nl": "januari februari maart april mei juni juli augustus september oktober november december",
}


def _month(text: str, language: str) -> str:
    """Return the name of a month that is given as a number; other text is returned as it is."""
    names = _MONTHS[language].split()
    return names[int(text) - 1] if text.isascii() and text.isdigit() and 1 <= int(text) <= 12 else text


def year_first(arguments: Arguments) -> str:
    """English dates, {{birth date|1809|2|12}}: the month before the day, unless df=y is given."""
    return _english_date(arguments, day_first=bool(arguments.get("df")))


def _english_date(arguments: Arguments, *, day_first: bool) -> str:
    year, month, day = arguments.get(1), _month(arguments.get(2), "en"), arguments.get(3).lstrip("0")
    if not (month and day):
        return f"{month} {year}".strip()
    return f"{day} {month} {year}" if day_first else f"{month} {day}, {year}"


def day_first(language: str, between: str = " ") -> Rule:
    """Dates of other languages, {{fecha|12|2|1809}}; the month is a number or a word."""

    def render(arguments: Arguments) -> str:
        words = [each for each in arguments.words() if each.lower() not in ("link", "edad", "s", "no")][:3]
        if len(words) > 1:
            words[-2] = _month(words[-2], language)
        return between.join(words) if all(len(word) < 30 for word in words) else ""

    return render


def as_of(arguments: Arguments) -> str:
    if words := arguments.get("alt"):
        return words
    is_american = arguments.get("df", "mdy").lower() in ("us", "mdy", "usa") and bool(arguments.get("df"))
    date = _english_date(arguments, day_first=not is_american)
    start = "since" if arguments.get("since") else "as of"
    start = start if arguments.get("lc") else start.capitalize()
    return f"{start} {date}{arguments.get('post')}"


def lifetime(arguments: Arguments) -> str:
    """Chinese {{bd|1950年|1月2日|2000年|3月4日}}."""
    start, end = arguments.get(1) + arguments.get(2), arguments.get(3) + arguments.get(4)
    return f"（{start}－{end}）" if start or end else ""


def circa(arguments: Arguments) -> str:
    return " – ".join(f"c. {year}" for year in arguments.words()[:2]) or "c. "


def old_style(arguments: Arguments) -> str:
    """{{OldStyleDate|February 2|1905|January 20}}."""
    new, year, old = arguments.get(1), arguments.get(2), arguments.get(3)
    return f"{new} [O.S. {old}] {year}" if old else f"{new} {year}"


def years_between(arguments: Arguments) -> str:
    """{{age|1809|2|12|1865|4|15}} is 56; an age of today has no fixed number."""
    numbers = [int(word) for word in arguments.words() if word.isascii() and word.isdigit()]
    if len(numbers) != 6:
        return ""
    return str(numbers[3] - numbers[0] - (numbers[4:] < numbers[1:3]))


def density(arguments: Arguments) -> str:
    """{{pop density|3645257|640081.87|km2|sqmi|prec=1}}: the quotient."""
    try:
        people, area = (float(arguments.get(index).replace(",", "")) for index in (1, 2))
        digits = int(arguments.get("prec") or 0)
        return f"{people / area:,.{digits}f}/{unit_name(arguments.get(3))}"
    except (ValueError, ZeroDivisionError):
        return ""


def reign(arguments: Arguments) -> str:
    return f"r. {'–'.join(arguments.words()[:2])}"


# --- numbers and units ---------------------------------------------------------------------------------------------------

_BETWEEN = {
    "-": "–", "–": "–", "to": " to ", "to(-)": " to ",
    "and": " and ", "and(-)": " and ", "or": " or ", "by": " by ", "x": " × ",
    "×": " × ", "*": " × ", "xx": " × ", "+/-": " ± ", "±": " ± ", "+-": " ± ", "&": " & ", "to about": " to about ",
}  # fmt: skip
_UNITS = {
    "km2": "km²", "sqkm": "km²", "m2": "m²", "sqm": "m²", "cm2": "cm²", "m3": "m³", "km3": "km³", "cm3": "cm³", "sqmi": "sq mi",
    "mi2": "sq mi", "sqft": "sq ft", "ft2": "sq ft", "sqyd": "sq yd", "sqin": "sq in", "cuft": "cu ft", "ft3": "cu ft",
    "cuyd": "cu yd", "cuin": "cu in", "cumi": "cu mi", "acre": "acres", "C": "°C", "F": "°F", "C-change": "°C",
    "F-change": "°F", "USgal": "US gal", "impgal": "imp gal", "LT": "long tons", "ST": "short tons",
    "usgal": "US gal", "um": "µm", "/km2": "per km²", "/sqmi": "per square mile", "PD/sqmi": "per square mile",
    "PD/km2": "per km²", "ft-lbf": "ft⋅lbf", "Nm": "N⋅m", "kn": "kn", "mph": "mph", "hp": "hp", "kg/m3": "kg/m³",
    "m/s2": "m/s²",
    "foot": "foot", "mile": "mile", "tonne": "tonnes", "knot": "knots", "oz": "oz", "PS": "PS", "ftin": "ft", "pound": "pounds",
}  # fmt: skip
_POWERS = {"e3": "thousand ", "e6": "million ", "e9": "billion ", "e12": "trillion "}
_POWER = re.compile(r"(e3|e6|e9|e12)([^\d\s].*)")
_SMALLER = {("ft", "in"), ("mi", "yd"), ("mi", "ft"), ("yd", "ft"), ("yd", "in"), ("lb", "oz"), ("st", "lb"), ("mi", "chain"),
            ("h", "min"), ("min", "s"), ("long cwt", "lb"), ("LT", "long cwt")}  # fmt: skip
"""Units of which a second, smaller one may follow: {{convert|6|ft|2|in}}."""


def unit_name(code: str) -> str:
    power = _POWER.fullmatch(code)
    return _POWERS[power[1]] + _UNITS.get(power[2], power[2]) if power else _UNITS.get(code, code)


def _is_number(text: str) -> bool:
    return bool(re.match(r"[-−+]?[\d.]", text))


def quantity(arguments: Arguments) -> str:
    """{{convert|5|to|10|km|mi}} is "5 to 10 km": the value and unit that the author gave, not the converted ones."""
    words = [arguments.get(index) for index in range(1, 1 + len(arguments.unnamed))]
    text, index = "", 0
    while index < len(words) and _is_number(words[index]):
        text += _measure(words[index])
        index += 1
        if index + 1 < len(words) and words[index] in _BETWEEN and _is_number(words[index + 1]):
            text += _BETWEEN[words[index]]
            index += 1
    if not text or index >= len(words):
        return text
    unit, rest = words[index], words[index + 1 :]
    gap = "-" if arguments.get("adj") in ("on", "mid") else " "
    text += gap + unit_name(unit)
    while len(rest) > 1 and (unit, rest[1]) in _SMALLER and _is_number(rest[0]):
        text += f" {_measure(rest[0])} {unit_name(rest[1])}"
        unit, rest = rest[1], rest[2:]
    return text


def _measure(number: str) -> str:
    """Write a number as {{convert}} does: thousands, a real minus, and fractions as in 2+1/2."""
    number = re.sub(r"^-", "−", number.replace("//", "/"))
    number = re.sub(r"(?<=\d)\+(?=\d+/)", " ", number)
    return re.sub(r"^\d+(?:\.\d+)?$", lambda whole: _group(whole[0]), number)


def _power_of_ten(exponent: str) -> str:
    return f"×10{exponent.translate(SUPERSCRIPT)}"


def exponent(arguments: Arguments) -> str:
    """{{e|24}} is ×10²⁴; French {{e}}, as in XIX{{e}} siècle, is the ending of an ordinal."""
    exponent = arguments.get(1)
    if re.fullmatch(r"[-−+]?[\d,.]+", exponent):
        return _power_of_ten(exponent)
    return f"e {exponent}" if exponent else "e"


def value(arguments: Arguments) -> str:
    """{{val|6.02|e=23|u=kg}}, with an uncertainty as the second number or in parentheses; also French {{unité|5|km}}."""
    number, *others = arguments.words() or [""]
    text = number
    uncertain = [each for each in others if _is_number(each)]
    for each in others:
        if each.startswith("("):
            text += each
    if len(uncertain) == 1:
        text += f"±{uncertain[0]}"
    elif uncertain:
        text += f"+{uncertain[0].lstrip('+')}−{uncertain[1].lstrip('-−')}"
    if exponent := arguments.get("e"):
        text += _power_of_ten(exponent)
    unit, divisor = arguments.get("u", "ul"), arguments.get("up", "upl")
    text = " ".join(filter(None, [f"{arguments.get('p')}{text}{arguments.get('s')}", unit]))
    return f"{text}/{divisor}" if divisor else text


def unit_after(arguments: Arguments) -> str:
    """{{unité|5|km}}, {{fmtn|1234|km}}, {{M|5|u=km}}: a number, a power of ten, and a unit with its exponent."""
    number, *units = arguments.words() or [""]
    if exponent := arguments.get("e"):
        number += _power_of_ten(exponent)
    text = ""
    for unit in [*units, arguments.get("u", "ul")]:
        is_power = bool(re.fullmatch(r"[-−]?\d", unit))
        text += unit.translate(SUPERSCRIPT) if is_power else f" {unit}" if unit else ""
    return number + text


def fraction(arguments: Arguments) -> str:
    words = arguments.words()
    if len(words) == 1:
        return f"1/{words[0]}"
    if len(words) > 2:
        return f"{words[0]} {words[1]}/{words[2]}"
    return "/".join(words)


def ordinal(arguments: Arguments) -> str:
    number = arguments.get(1)
    if arguments.get(2):
        return number + arguments.get(2)
    teens = number[-2:] in ("11", "12", "13")
    return number + ("th" if teens else {"1": "st", "2": "nd", "3": "rd"}.get(number[-1:], "th"))


def coordinates(arguments: Arguments) -> str:
    if "title" in (display := arguments.get("display").lower()) and "inline" not in display and display not in ("it", "i,t"):
        return ""
    words = [each for each in arguments.words() if ":" not in each]
    if len(words) == 2 and all(map(_is_number, words)):
        signs = zip(words, ("NS", "EW"), strict=True)
        return " ".join(f"{number.lstrip('-−')}°{names[number[0] in '-−']}" for number, names in signs)
    text, marks = "", iter("°′″")
    for word in words:
        if word.upper() in ("N", "S", "E", "W"):
            text += word.upper() + " "
            marks = iter("°′″")
        else:
            text += word + next(marks, "")
    return text.strip()


def gauge(arguments: Arguments) -> str:
    gauge = arguments.get(1)
    if named := {"ussg": "standard", "standard": "standard", "sg": "standard", "uksg": "standard", "std": "standard"}.get(
        gauge.lower()
    ):
        return f"{named} gauge"
    parts = re.findall(r"([\d.,/]+)\s*(mm|ft|in|cm|m)\b|([\d.,/]+)\s*(ft|in)", gauge)
    found = [(number or other, unit or another) for number, unit, other, another in parts]
    return " ".join(f"{_group(number)} {unit}" for number, unit in found) or gauge


def currency(sign: str) -> Rule:
    def render(arguments: Arguments) -> str:
        return sign + _group(arguments.get(1)) if arguments.get(1) else sign.strip()

    return render


SIGNS = {  # wtf, but for the names after "no source"
    "£": "£", "gbp": "£", "gb£": "£", "us$": "US$", "usd": "US$", "€": "€", "euro": "€", "eur": "€", "¥": "¥", "jpy": "¥",
    "yen": "¥", "cny": "CN¥", "cn¥": "CN¥", "rmb": "RMB ", "a$": "A$", "au$": "A$", "aud": "A$", "ca$": "CA$", "cad": "CA$",
    "hk$": "HK$", "hkd": "HK$", "nz$": "NZ$", "nzd": "NZ$", "s$": "S$", "sgd": "S$", "inr": "₹", "₹": "₹", "indian rupee": "₹",
    "indian rupees": "₹", "pkr": "₨ ", "brl": "R$", "r$": "R$", "rub": "₽", "₽": "₽", "₩": "₩", "sk won": "₩", "₱": "₱",
    "philippine peso": "₱", "peso": "₱", "chf": "CHF ", "sfr": "CHF ", "sek": "SEK ", "nok": "NOK ", "dkk": "DKK ",
    "czk": "CZK ", "ils": "₪", "nis": "₪", "shekel": "₪", "zar": "R", "ttd": "TT$", "bdt": "৳", "৳": "৳", "myr": "RM ",
    "try": "₺", "turkish lira": "₺",
    # no source
    "krw": "₩", "php": "₱", "ntd": "NT$", "nt$": "NT$", "twd": "NT$", "uah": "₴", "pln": "PLN ", "mxn": "MX$",
    "inrconvert": "₹",     "iep": "IR£", "lsd": "£", "thb": "฿", "idr": "Rp ", "vnd": "₫",
}  # fmt: skip


def named_currency(arguments: Arguments) -> str:
    """{{currency|100|GBP}} and {{monnaie|100|EUR}}."""
    code = arguments.get(2, "code", "type") or "US$"
    sign = SIGNS.get(code.lower())
    return f"{sign}{_group(arguments.get(1))}" if sign else f"{arguments.get(1)} {code}"


# --- names ---------------------------------------------------------------------------------------------------------------

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
