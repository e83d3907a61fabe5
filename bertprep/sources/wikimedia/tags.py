"""Removes wikitext's comments and tags; their content is dropped, protected or kept.

Tags whose content is not wikitext prose (references, formulas, code, galleries, scores) are removed with everything up to the
first closing tag, as MediaWiki reads them. Of the HTML tags that MediaWiki allows, only the tags are removed; block tags leave
a blank line. Other text between angle brackets is text. Every closing tag is searched for once, so time is linear.
"""

import html
import re
from collections.abc import Callable

_DROPPED = (
    "ref|references|math|chem|ce|pre|syntaxhighlight|source|gallery|imagemap|timeline|score|hiero|graph|mapframe|maplink|"
    "templatestyles|templatedata|categorytree|inputbox|indicator|includeonly|rt|rp|style|script|nowiki"
)
_INLINE = (
    "abbr|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|ins|kbd|langvar|mark|noinclude|nobr|onlyinclude|q|rb|rtc|ruby|s|samp|"
    "section|small|span|strike|strong|sub|sup|time|translate|tt|tvar|u|var|wbr"
)
_BLOCKS = "blockquote|caption|center|div|dl|h1|h2|h3|h4|h5|h6|hr|ol|p|poem|tbody|td|th|thead|tr|ul"
_MORE = "br|dd|dt|li|table"

_OPENING = re.compile(rf"<!--|<({_DROPPED})(?=[\s/>])([^<>]*)>", re.IGNORECASE)
_CLOSING = {tag: re.compile(rf"</{tag}\s*>", re.IGNORECASE) for tag in _DROPPED.split("|")}
_TAG = re.compile(
    rf"<(?:(/?(?:{_INLINE}|{_BLOCKS}|{_MORE}|{_DROPPED}))(?=[\s/>])[^<>]*>"
    r"|/?ref\b[^<>\n]*>?)",  # also where a reference lacks its bracket
    re.IGNORECASE,
)
_LEFT_BY = {
    **{tag: "\n\n" for block in _BLOCKS.split("|") for tag in (block, f"/{block}")},
    "br": " ",
    "/br": " ",
    "table": "\n{|\n",
    "/table": "\n|}\n",
    "li": "\n*",
    "dd": "\n:",
    "dt": "\n;",
}
_BREAKS = re.compile(r"<br[^<>]*>(?:\s*<br[^<>]*>)+", re.IGNORECASE)
_POWER = re.compile(r"<sup>\s*([-+−]?[0-9]+)\s*</sup>", re.IGNORECASE)
SUPERSCRIPT = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
_PLAIN_FORMULA = re.compile(r"[^\\{}^_&<>\n]{1,60}")
_MARKUP = re.compile(r"[][{}<>|'=*#:;_]")


def remove_tags(wikitext: str) -> str:
    """Wikitext without comments and tags, with the text of those that carry some.

    >>> remove_tags("It<ref>''Source'', <b>1</b>.</ref> is <small>5 <b>m<sup>2</sup></b></small><!-- sic --> < 6.")
    'It is 5 m² < 6.'
    """
    if "<" not in wikitext:
        return wikitext
    text = _drop_enclosed(wikitext)
    text = _POWER.sub(_write_power, text)  # 10<sup>6</sup> is not 106
    text = _BREAKS.sub("\n\n", text)
    return _TAG.sub(_replace_tag, text)


def _replace_tag(tag: re.Match[str]) -> str:
    return _LEFT_BY.get(tag[1].lower(), "") if tag[1] else ""


def _write_power(power: re.Match[str]) -> str:
    return power[1].translate(SUPERSCRIPT)


def _drop_enclosed(text: str) -> str:
    parts: list[str] = []
    # The next position of each closing tag, and of a heading: searched again only when passed, so time is linear.
    closing: dict[str, re.Match[str] | None] = {}
    heading = position = 0
    while opening := _OPENING.search(text, position):
        start, end = opening.span()
        parts.append(text[position:start])
        position = end
        if not opening[1]:
            position = _end_of_comment(text, start, end)
            continue
        tag = opening[1].lower()
        if opening[2].endswith("/"):
            continue
        found = closing.get(tag, opening)
        if found and found.start() < end:
            found = closing[tag] = _CLOSING[tag].search(text, end)
        if heading < end:
            heading = text.find("\n==", end) % (len(text) + 1)  # the end of the text if there is none
        # An unclosed tag is an empty one; so is a reference closed in another section, whose slash was forgotten.
        if found and (tag != "ref" or found.start() < heading):
            position = found.end()
            if keep := _KEPT.get(tag):
                parts.append(keep(text[end : found.start()]))
    parts.append(text[position:])
    return "".join(parts)


def _end_of_comment(text: str, start: int, end: int) -> int:
    """Where text resumes after a comment: at the end of the text if it never ends, after its line if it fills one."""
    end = text.find("-->", end) + 3
    if end < 3:
        return len(text)
    fills_line = text[max(start - 1, 0) : start] in ("", "\n") and text[end : end + 1] == "\n"
    return end + fills_line


def protect(text: str) -> str:
    """Protect text from further parsing: markup characters become entities, decoded at the end."""
    return _MARKUP.sub(lambda character: f"&#{ord(character[0])};", text)


def _keep_plain_formula(formula: str) -> str:
    """A formula that reads the same without TeX, such as the n of "let n be"; '' for others."""
    formula = formula.removesuffix("\\,").strip()
    return protect(formula) if _PLAIN_FORMULA.fullmatch(formula) else ""


_KEPT: dict[str, Callable[[str], str]] = {"nowiki": protect, "math": _keep_plain_formula}

_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


def decode_entities(text: str) -> str:
    r"""Text with its entities decoded, also doubly escaped ones (&amp;nbsp;); an & that begins none is kept.

    >>> decode_entities("R&D &lt; 5&nbsp;km &amp;ndash; T&eacute;")
    'R&D < 5\xa0km – Té'
    """
    for _ in range(2):
        if "&" in text:
            text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    return text
