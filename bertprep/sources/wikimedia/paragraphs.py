"""Makes paragraphs of prose from wikitext without its tags and brackets.

Headings, table debris, list items that are not sentences and the sections after the end of an article (references, links) are
dropped. Consecutive lines are one paragraph, as in MediaWiki. Traces of dropped markup are repaired: "Bach (; 1685)" becomes
"Bach (1685)".
"""

import re
from collections.abc import Iterator

from bertprep.text.sentences import ends_sentence

# A paragraph that does not end like a sentence is prose from this length on: for Thai and Lao, which do not mark the end of a
# sentence, and for those that introduce a list, a formula or a quotation. Captions, labels and cells are shorter.
MIN_CHARACTERS = 60

# Sections after the article, in lower case. Their list items are not sentences, despite the dots of bibliographies.
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

_LIST_MARKS = "*#:;"
_ITEM_MARKS = "*#"
_CONTINUES = (";", ",", " and", " or", "；", "，", "、")  # ends of list items that are parts of one sentence
_TABLE_MARKS = "|!"
_BREAKING = ("", " ", "=", "-", *_LIST_MARKS, *_TABLE_MARKS)  # first characters of lines that end a paragraph

_EMPTY = r"[ ,;:.·/–—，；：、-]*"
_HOLES = (
    *(" ,", " ;", " :", " .", " )", " ]", "( ", "(,", "(;", "(:", "()", "[]", ",)", ";)", ":)", ",,", ",;", ";,", ";;", ":,"),
    *("（ ", "（）", "（，", "（；", "（、", "，）", "；）", "、）", " ）"),
)
_EMPTY_BRACKETS = re.compile(rf"(?<!\w)\({_EMPTY}\)|(?<!\w)\[{_EMPTY}\]|（{_EMPTY}）")
_OPENING = re.compile(r"([(（])[ ,;:，；：、]+")
_CLOSING = re.compile(r"(?<![ ,;:，；：、])[ ,;:，；：、]+([)）])")
_DOUBLE = re.compile(r"((?<![,;:])(?<![,;:] )[,;]|:)(?: ?[,;])+(?= |$)")  # only from the first of a run, so time is linear
_LEADING = re.compile(r"(?:[,;:.]+ |[，；：、])+")
_SPACE_BEFORE = re.compile(r" ([,.)\]])(?![\w.])")
_SPACE_BEFORE_COLON = re.compile(r" ([;:])(?= )")


def make_paragraphs(text: str, language: str) -> list[str]:
    r"""The paragraphs of prose in text.

    >>> make_paragraphs("== Life ==\nHe was born (; in \n[[Paris]]) .\n* a list\n* It counts.\n\nSee also", "en")
    ['He was born (in [[Paris]]).', 'It counts.']
    """
    return [paragraph for lines, is_item in _gather(text) if (paragraph := _make_prose(lines, language, is_item=is_item))]


def _gather(text: str) -> Iterator[tuple[str, bool]]:
    """The lines of each paragraph joined, and whether it is a list item.

    Indented lines are joined up to the end of a sentence: they are verses of a quotation, or a formula and its continuation. So
    are list items that end like parts of one sentence.
    """
    lines: list[str] = []
    indented: list[str] = []
    items: list[str] = []
    appendix = 0  # level of the heading of the appendix that lines are in
    for line in text.split("\n"):
        mark = line[:1]
        if lines and (mark in _BREAKING or line.isspace()):
            yield " ".join(lines), False
            lines.clear()
        if indented and mark != ":":
            yield " ".join(indented), True
            indented.clear()
        if items and mark not in _ITEM_MARKS:
            items.clear()  # without an end
        if mark == "=" and line.rstrip().endswith("="):
            level = len(line) - len(line.lstrip("="))
            if not appendix or level <= appendix:
                appendix = level if line.strip("= \t\r'").lower() in _APPENDICES else 0
        elif appendix or not mark or mark in _TABLE_MARKS or line.startswith("----"):
            pass
        elif mark == ":" and not ends_sentence(line.rstrip()):
            indented.append(line.lstrip(_LIST_MARKS))
        elif mark == ":":
            yield " ".join([*indented, line.lstrip(_LIST_MARKS)]), True
            indented.clear()
        elif mark in _ITEM_MARKS and line.rstrip().endswith(_CONTINUES):
            items.append(line.lstrip(_LIST_MARKS))
        elif mark in _LIST_MARKS:
            yield " ".join([*items, line.lstrip(_LIST_MARKS)]), True
            items.clear()
        elif mark == " ":
            yield line, False  # set as it stands
        else:
            lines.append(line)
    if lines:
        yield " ".join(lines), False
    if indented:
        yield " ".join(indented), True


def _make_prose(text: str, language: str, *, is_item: bool) -> str:
    """The paragraph, or '' if it is not prose."""
    text = " ".join(text.split())
    if any(hole in text for hole in _HOLES):
        text = _mend(text, language)
    if leading := _LEADING.match(text):
        text = text[leading.end() :]
    return text if ends_sentence(text) or (len(text) >= MIN_CHARACTERS and not is_item) else ""


def _mend(text: str, language: str) -> str:
    text = _DOUBLE.sub(r"\1", text)
    for _ in range(2):  # an empty pair in an empty pair
        text = _EMPTY_BRACKETS.sub("", text)
    text = _OPENING.sub(r"\1", text)
    text = _CLOSING.sub(r"\1", text)
    text = " ".join(text.split())
    if language != "fr":  # if these marks follow a space
        text = _SPACE_BEFORE_COLON.sub(r"\1", text)
    return _SPACE_BEFORE.sub(r"\1", text)
