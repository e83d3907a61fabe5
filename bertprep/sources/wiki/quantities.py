"""What templates of dates, numbers, units and currencies become; `wiki.templates` lists these functions by names."""

import re

from bertprep.sources.wiki.template_rules import SUPERSCRIPT, Arguments, Rule

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


def _group(number: str) -> str:
    """Separate the thousands of a number: 652230 -> 652,230."""
    whole, point, fraction = number.partition(".")
    return f"{int(whole):,}{point}{fraction}" if whole.isascii() and whole.isdigit() and len(whole) > 3 else number
