"""Convert wikitext to prose with mwparserfromhell.

Tables, references, files, categories, headings, formulas, code, final sections and most templates are removed. The words of
links stay, and those of some templates. A line is kept if it ends like a sentence or is long. Gaps that templates leave, as in
"Bach (; 1685)", are closed.
"""

import re
from typing import Any

from bertprep.sources import import_extra
from bertprep.sources.dump import SiteInfo
from bertprep.sources.plain_text import ends_sentence

MAX_HEADING = 80
"""The most characters of a heading. A longer line is kept whatever its end, so a script without full stops loses nothing."""
# Headings of sections after the article, in lower case. Their list items may end with a dot, but are not sentences.
_APPENDICES = frozenset(
    """references|external links|see also|further reading|notes|bibliography|footnotes|citations|sources|works cited|
    notes and references|references and notes|general references|explanatory notes|gallery|filmography|discography|
    einzelnachweise|weblinks|siehe auch|literatur|anmerkungen|quellen|belege|fußnoten|
    notes et références|références|liens externes|voir aussi|articles connexes|bibliographie|annexes|lien externe|
    referencias|enlaces externos|véase también|bibliografía|notas|notas y referencias|
    note|collegamenti esterni|voci correlate|bibliografia|altri progetti|
    referências|ligações externas|ver também|bronnen, noten en/of referenties|externe links|zie ook|
    примечания|ссылки|см. также|литература|источники|przypisy|linki zewnętrzne|zobacz też|примітки|посилання|
    参考文献|参考资料|參考資料|參考文獻|外部链接|外部連結|外部鏈接|外部リンク|参见|參見|参看|注释|註釋|注釋|脚注|腳註|
    出典|関連項目|관련 항목|같이 보기|각주|참고 문헌|외부 링크|
    مراجع|المراجع|وصلات خارجية|انظر أيضا|انظر أيضًا|सन्दर्भ|संदर्भ|बाहरी कड़ियाँ|इन्हें भी देखें|
    อ้างอิง|แหล่งข้อมูลอื่น|ดูเพิ่ม""".replace("\n    ", "").split("|")
)
_MAX_NESTED = 20  # levels of templates, tables and links in others
# Each expression reads a character a few times at most, so no page can be made to take very long.
_HEADING = re.compile(r"^(={1,6})([^=\n].*?)\1[ \t]*$", re.MULTILINE)
_WITH_CONTENT = (
    "ref|references|math|chem|ce|pre|syntaxhighlight|source|gallery|imagemap|timeline|score|hiero|graph|table|categorytree|"
    "inputbox|section|templatedata"
)
_DROPPED = re.compile(
    rf"<!--.*?(?:-->|\Z)|<({_WITH_CONTENT})\b[^<>]*/>|<({_WITH_CONTENT})\b[^<>]*>[^<]*(?:<(?!/?\2\b)[^<]*)*</\2\s*>",
    re.DOTALL | re.IGNORECASE,
)
_PLAIN_FORMULA = re.compile(r"<math\b[^<>]*>([^\\{}^_&<>\n]{1,60})</math>", re.IGNORECASE)  # such as the n of "let n be"
_TABLE = re.compile(r"^[ :*#]*\{\|(?:(?!\{\||\|\}).)*\|\}(?!\})", re.DOTALL | re.MULTILINE)
_TEMPLATE = re.compile(r"\{\{([^{}|\n]+)(\|[^{}]*)?\}\}")
_UNBALANCED = re.compile(r"\{\{|\}\}|^[ :*#]*(?:\{\||\|\}|[|!]).*$", re.MULTILINE)  # the parser takes quadratic time on them
_LINK_END = re.compile(r"\[\[|\]\]")
_EXTERNAL_LINK = re.compile(r"\[(?:[a-z]+:)?//[^\s\[\]]*[ \t]*([^\[\]\n]*)\]?", re.IGNORECASE)
_LIST_ITEM = re.compile(r"^[*#:;]+", re.MULTILINE)
_TAG = re.compile(r"</?[A-Za-z]+\b[^<>]*>")
_ARGUMENT = re.compile(r"\|((?:\[\[[^\[\]]*\]\]|[^|])*)")  # up to the next bar outside a link
_FIRST = re.compile(
    "abbr|angbr( ipa)?|big|block ?quote|citation|citazione|cita|code|cquote|flag|grapheme|ill|interlanguage link|ipa(s?link)?|"
    "kbd|lang-.*|lower|math|mvar|nobold|nobr|nombre|nihongo|nowrap|number|quote|sc|sic|small|smallcaps|strong|su[bp]|unicode|"
    "vanchor|var|zitat"
)
_SECOND = frozenset({"lang", "langue", "color", "transl", "transliteration", "wikt-lang"})
_QUANTITY = frozenset({"convert", "cvt"})
_MARKS = {
    "'": "'", "'s": "'s", "!": "", "=": "=", "ndash": "–", "snd": " – ", "spnd": " – ", "mdash": "—", "nbsp": " ", "·": " · ",
    "circa": "c. ", "c.": "c. ", "ca.": "c. ", "us$": "US$", "£": "£", "€": "€",
}  # fmt: skip
_ELISION = re.compile(r"\b([cdjlmnstCDJLMNST]|[Qq]u)'''(?=\w)")  # l'''Iliade'' has an apostrophe and italics
_QUOTES = re.compile(r"'{2,}")
_POWER = re.compile(r"<sup>\s*([-+−]?[0-9]+)\s*</sup>", re.IGNORECASE)
_SUPERSCRIPT = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
_BREAK = re.compile(r"<br\b[^<>]*>|</?(?:p|div|center|blockquote|poem|li|ul|ol)\b[^<>]*>", re.IGNORECASE)
_LANGUAGE = re.compile(r"(?:[a-z]{2,3}|simple)(?:-[a-z]+)*:(?=\S)")  # interlanguage links: [[de:Kunst]], [[zh-min-nan:X]]
_RESIDUE = re.compile(
    r"https?://[^\s<>\]]*|</?[A-Za-z]+\b[^<>\n]*>?|__[A-Z]+__|\{\{|\}\}|\{\||\|\}|\[\[|\]\]|[\xad\u200b\u200e\u200f\u2060\ufeff]"
)
_EMPTY = r"[ ,;:.·/–—，；：、-]*"
_EMPTY_BRACKETS = re.compile(rf"(?<!\w)\({_EMPTY}\)|(?<!\w)\[{_EMPTY}\]|（{_EMPTY}）")
_OPENING = re.compile(r"([(（])[ ,;:，；：、]+")
_CLOSING = re.compile(r"(?<![ ,;:，；：、])[ ,;:，；：、]+([)）])")
_SPACE_BEFORE = re.compile(r" ([,.)\]])(?![\w.])")


def to_prose(wikitext: str, site: SiteInfo) -> str:
    r"""Return the prose of an article, one paragraph per line.

    >>> to_prose("'''Bach''' ({{IPA-de|bax}}; 1685) was a [[composer]].<ref>x</ref>\n== Works ==\n{{Cantatas}}", SiteInfo())
    'Bach (1685) was a composer.'
    """
    parser = import_extra("mwparserfromhell", "dump", "the text of a Wikimedia dump")
    text = _cut_appendices(_DROPPED.sub("", _PLAIN_FORMULA.sub(r"\1", wikitext)))
    text = _POWER.sub(lambda power: power[1].translate(_SUPERSCRIPT), text)  # 10<sup>6</sup> is not 106
    text = _BREAK.sub("\n", text)
    for _ in range(_MAX_NESTED):
        text, count = _TEMPLATE.subn(_template_words, text)
        text = _TABLE.sub("", text)
        if not count:
            break
    text = _UNBALANCED.sub("", text)
    text = _QUOTES.sub("", _ELISION.sub(r"\1'", text))
    # The parser takes quadratic time on unclosed or deeply nested links.
    text = _balance_links(_LIST_ITEM.sub("", _EXTERNAL_LINK.sub(r"\1", _TAG.sub("", text))))
    code = parser.parse(text, skip_style_tags=True)
    code.nodes = [node for node in code.nodes if not _is_dropped(node, site)]
    plain = code.strip_code(normalize=True, collapse=False)
    return prose_of("\n".join(map(_mend, _RESIDUE.sub("", plain).split("\n"))))


def _cut_appendices(text: str) -> str:
    parts: list[str] = []
    position = appendix = 0  # level of the heading of the appendix
    for heading in _HEADING.finditer(text):
        if not appendix:
            parts.append(text[position : heading.start()])
        level = len(heading[1])
        if not appendix or level <= appendix:
            appendix = level if heading[2].strip(" \t'").lower() in _APPENDICES else 0
        position = heading.end()
    if not appendix:
        parts.append(text[position:])
    return "".join(parts)


def _balance_links(text: str) -> str:
    """Remove the brackets of links that are unclosed or nested too deeply."""
    opened: list[re.Match[str]] = []
    dropped: list[re.Match[str]] = []
    for bracket in _LINK_END.finditer(text):
        if bracket[0] == "[[":
            opened.append(bracket)
        elif not opened:
            dropped.append(bracket)
        elif len(opened) > _MAX_NESTED:
            dropped += opened.pop(), bracket
        else:
            opened.pop()
    pieces, position = [], 0
    for bracket in sorted(dropped + opened, key=lambda each: each.start()):
        pieces.append(text[position : bracket.start()])
        position = bracket.end()
    return "".join([*pieces, text[position:]])


def _template_words(template: re.Match[str]) -> str:
    name = template[1].strip().replace("_", " ").lower()
    arguments: list[str] = _ARGUMENT.findall(template[2] or "")
    unnamed = [each.strip() for each in arguments if not re.match(r"\s*[a-z]\w*\s*=", each)]
    words = [each.removeprefix("1=").removeprefix("2=") for each in unnamed] + ["", "", ""]
    if name in _MARKS:
        return _MARKS[name] + words[0]
    if name in _SECOND:
        return words[1]
    if name in _QUANTITY:
        return f"{words[0]}–{words[2]} {words[3]}" if words[1] in ("-", "–", "to") else f"{words[0]} {words[1]}"
    function, colon, value = name.partition(":")
    if colon and function in ("formatnum", "lc", "uc"):
        return value
    return words[0] if _FIRST.fullmatch(name) else ""


def _is_dropped(node: Any, site: SiteInfo) -> bool:
    title = getattr(node, "title", None)
    if title is None:
        return False
    prefix = str(title).partition(":")[0].strip().lower().replace("_", " ")
    return prefix in site.file_namespaces | site.category_namespaces or (
        getattr(node, "text", None) is None and bool(_LANGUAGE.match(str(title)))
    )


def _mend(line: str) -> str:
    line = " ".join(line.split())
    for _ in range(2):  # twice, for an empty pair in an empty pair
        line = _EMPTY_BRACKETS.sub("", line)
    line = _CLOSING.sub(r"\1", _OPENING.sub(r"\1", line))
    return _SPACE_BEFORE.sub(r"\1", " ".join(line.split()))


def prose_of(article: str) -> str:
    r"""Return only the lines of an article that end like a sentence or are too long for a heading.

    >>> prose_of("A cat is an animal.\n\nSee also\n\nDog\nList of cats\n\nReferences\n\nFelines")
    'A cat is an animal.'
    """
    lines = map(str.strip, article.split("\n"))
    return "\n".join(line for line in lines if ends_sentence(line) or len(line) > MAX_HEADING)
