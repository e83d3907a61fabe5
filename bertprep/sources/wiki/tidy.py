"""Tidy a line of a wiki: choose a variant of its language, remove stray marks, close gaps as in "Bach (; 1685)"."""

import re

_SWITCH = re.compile(r"__([^\s_](?:\S{0,60}?[^\s_])?)__")
_RESIDUE = re.compile(
    r"'{2,}|https?://[^\s<>\]]*|</?[A-Za-z]+\b[^<>\n]*>?|\{\{|\}\}|\{\||\|\}|\[\[|\]\]|[\xad\u200b\u200e\u200f\u2060\ufeff]"
)
_EMPTY = r"[ ,;:.·/–—，；：、-]*"
_EMPTY_BRACKETS = re.compile(rf"(?<!\w)\({_EMPTY}\)|(?<!\w)\[{_EMPTY}\]|（{_EMPTY}）")
_OPENING = re.compile(r"([(（])[ ,;:，；：、]+")
_CLOSING = re.compile(r"(?<![ ,;:，；：、])[ ,;:，；：、]+([)）])")
_SPACE_BEFORE = re.compile(r" ([,.)\]])(?![\w.])")
_TWICE = re.compile(r"([,;，；、])(?:\s*[,;，；、])+")
_VARIANTS = re.compile(r"-\{([^{}]*)\}-")
_FLAGS = re.compile(r"\s*([A-Za-z+-]*(?:\s*;\s*[a-z-]+)*)\s*\|")
_HIDDEN = frozenset("HTD-")  # rules for the rest of a page, for its title, descriptions, and the ends of rules
_VARIANT = re.compile(r"(?:^|;)\s*(?:[^;:=>]*=>\s*)?((?:zh|sr|sh|kk|ku|iu|tg|uz|gan|crh|shi|ike|wuu)(?:-[a-z]+)*)\s*:")
_PREFERRED = ("zh-cn", "zh-hans", "zh", "sr-ec")


def choose_variants(text: str) -> str:
    """Choose a variant of Chinese or another language where the page has several: zh-cn if it is there, else the first.

    >>> choose_variants("-{zh-tw:資訊; zh-cn:信息}-和-{A}-。-{H|zh-cn:甲;zh-tw:乙}-"), choose_variants("-{zh-hk:電郵}-")
    ('信息和A。', '電郵')
    """
    for _ in range(3):
        text, count = _VARIANTS.subn(lambda found: _variant(found[1]), text)
        if not count:
            break
    return text


def _variant(content: str) -> str:
    flags = _FLAGS.match(content)
    if flags:
        content = content[flags.end() :]
        if _HIDDEN & {flag.strip() for flag in flags[1].split(";")}:
            return ""
    variants = [*_VARIANT.finditer(content)]
    if not variants:
        return content
    ends = [variant.start() for variant in variants[1:]] + [len(content)]
    words = {variant[1]: content[variant.end() : end].strip(" ;\n") for variant, end in zip(variants, ends, strict=True)}
    return next((words[name] for name in _PREFERRED if words.get(name)), next(iter(words.values())))


def tidy(line: str) -> str:
    """Remove the marks that are left of a line's markup, and close the gaps of removed templates.

    >>> tidy("__NOTOC__Bach (; 1685) [[was]] , so https://a.b/c it is.")
    'Bach (1685) was, so it is.'
    """
    line = _SWITCH.sub(lambda found: "" if found[1] == found[1].upper() else found[0], _RESIDUE.sub("", line))
    line = " ".join(line.split())
    for _ in range(2):  # twice, for an empty pair in an empty pair
        line = _EMPTY_BRACKETS.sub("", line)
    line = _TWICE.sub(r"\1", _CLOSING.sub(r"\1", _OPENING.sub(r"\1", line)))
    return _SPACE_BEFORE.sub(r"\1", " ".join(line.split()))
