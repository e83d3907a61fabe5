"""Reads words and their tags from columns, as in CoNLL's shared tasks, and finds out which columns have them.

    Anna NNP I-NP B-PER                 CoNLL 2003: the word first, its tag last
    1 Anna NNP I-NP B-PER               a column with the number of the word before it
    1 <tab> Anna <tab> B-PER <tab> O    GermEval: the tags of entities, then of those inside them; the first are taken
    1 <tab> Anna <tab> B-PER <tab> - <tab> ann        Universal NER: columns after the tag, not in all lines
    bc/cctv/00 0 0 Anna NNP ... (PERSON*) ...         CoNLL 2012, OntoNotes: entities in brackets

A blank line ends a sentence. A line that begins with # is a comment, unless it has the columns of the others and a tag of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bertprep.terminal import counted

OUTSIDE = "O"
ENTITY_TAG = re.compile(r"O|[BIESLUMW]-.+")
_DOCUMENT = "-DOCSTART-"  # begins the line between two documents in CoNLL 2003
_BEGIN_2012 = "#begin document"
_WORD_2012, _ENTITY_2012 = 3, 10
_NAMES = {"ner_tags", "ner_tag"}  # in the first line of a table that pandas wrote
_CONLL_U = 10  # columns
_PART = re.compile(r"\d+[-.]\d+")  # the number of several words in one, or of an empty word, in CoNLL-U

Sentence = tuple[list[str], list[str]]
"""The words of a sentence and their tags."""


@dataclass(frozen=True)
class _Line:
    number: int
    fields: list[str]


def has_no_prefix(tag: str) -> bool:
    """Return whether a tag is only the type of an entity, without what says where in the entity a word is.

    >>> [has_no_prefix(tag) for tag in ("PER", "B-PER", "O", "B_PER")]
    [True, False, False, False]
    """
    return len(tag) > 1 and tag[1].isalnum()


def explain_plain_tag(tag: str) -> str:
    """Return what scores make of a tag that has no prefix."""
    return (
        f"{tag[:40]} is scored as I-{tag[:40]}, while seqeval takes the first letter of any tag for its prefix, and so reads "
        "ORG as O"
    )


def read_columns(text: str) -> Iterator[Sentence]:
    """Yield the sentences of a text; raise `ValueError` for the first invalid line."""
    sentences = list(_split(text))
    if text.lstrip().startswith(_BEGIN_2012):
        yield from map(_from_brackets, sentences)
        return
    if sentences and {field.lower() for field in sentences[0][0].fields} & _NAMES:
        del sentences[0][0]
    word = 0
    if _is_numbered(sentences):
        word = 1
        sentences = [_without_parts(sentence) for sentence in sentences]
    sentences = [sentence for sentence in sentences if sentence]
    lines = [line for sentence in sentences for line in sentence]
    if not lines:
        return
    tag = _find_tags(lines, word)
    for sentence in sentences:
        yield [line.fields[word] for line in sentence], [line.fields[tag] for line in sentence]


def _split(text: str) -> Iterator[list[_Line]]:
    """Yield the lines of each sentence, without comments and the lines between documents."""
    rows = text.split("\n")
    content = [row for row in rows if row.strip(" \t") and not row.startswith(("#", _DOCUMENT))]
    has_tabs = bool(content) and all("\t" in row for row in content)
    split = [_fields(row, has_tabs) for row in content]
    widths, tags = {len(fields) for fields in split}, {fields[-1] for fields in split}
    sentence: list[_Line] = []
    for number, row in enumerate([*rows, ""], 1):
        fields = _fields(row, has_tabs)
        if row.startswith("#") and (len(fields) not in widths or (row.startswith("# ") and fields[-1] not in tags)):
            continue
        if row.strip(" \t") and not row.startswith(_DOCUMENT):
            sentence.append(_Line(number, fields))
        elif sentence:
            yield sentence
            sentence = []


def _fields(row: str, has_tabs: bool) -> list[str]:
    """Return the columns of a row. If all rows have tabs, a word may be empty or have spaces."""
    if has_tabs:
        return [field.strip(" ") for field in row.split("\t")]
    return [field for field in row.replace("\t", " ").split(" ") if field]  # a word may have other spaces


def _is_numbered(sentences: Sequence[Sequence[_Line]]) -> bool:
    """Return whether the first column counts the words, and another column has them."""
    numbered = [[line.fields[0] for line in sentence if not _PART.fullmatch(line.fields[0])] for sentence in sentences]
    if not any(len(numbers) > 1 for numbers in numbered):
        return False
    if min((len(line.fields) for sentence in sentences for line in sentence), default=0) < 3:
        return False
    for numbers in filter(None, numbered):
        first = int(numbers[0]) if numbers[0].isdecimal() and len(numbers[0]) < 10 else None
        if first is None or numbers != [str(number) for number in range(first, first + len(numbers))]:
            return False
    return True


def _without_parts(sentence: Sequence[_Line]) -> list[_Line]:
    return [line for line in sentence if not _PART.fullmatch(line.fields[0])]


def _find_tags(lines: Sequence[_Line], word: int) -> int:
    """Return the index of the column with the tags.

    It is the last one. Where words are numbered and more columns follow in some lines, it is the last one that has tags of
    entities in all lines. Where all columns after the word have such tags, of the same types, the first one is taken.
    """
    width = min(len(line.fields) for line in lines)
    is_even = all(len(line.fields) == width for line in lines)
    columns = {index: {line.fields[index] for line in lines} for index in range(word + 1, width)}
    of_entities = [index for index, tags in columns.items() if all(map(ENTITY_TAG.fullmatch, tags))]
    if is_even and len(of_entities) == len(columns) > 1:
        outer, *inner = ({tag[2:] for tag in tags} - {""} for tags in columns.values())
        if all(types <= outer for types in inner):
            return of_entities[0]
    if not is_even and word and of_entities:
        return of_entities[-1]
    if width < 2:
        line = next(line for line in lines if len(line.fields) == width)
        advice = "; this is CSV: write it with tabs, and without a header" if "," in line.fields[0] else ""
        raise ValueError(
            f"line {line.number:,}: has one column, expected a word and its tag; add the tag ({OUTSIDE} where it is unknown), "
            f"or make the line blank to end a sentence{advice}"
        )
    if not is_even:
        usual = len(lines[0].fields)
        line = next(line for line in lines if len(line.fields) != usual)
        raise ValueError(
            f"line {line.number:,}: has {counted(len(line.fields), 'column')}, expected {usual} as before; the tag is the last "
            "column"
        )
    if width == _CONLL_U and word and width - 1 not in of_entities:
        raise ValueError(
            "has the 10 columns of CoNLL-U, none of which has tags of entities; to tag words with their part of speech, make a "
            "file of two columns: grep -v '^[0-9]*[-.]' FILE | cut -f2,4 > NEW"
        )
    return width - 1


def _from_brackets(sentence: Sequence[_Line]) -> Sentence:
    """Return a sentence of CoNLL 2012 with the tags of its brackets: (GPE * *) is B-GPE I-GPE I-GPE."""
    words, tags, kind = [], [], ""
    for line in sentence:
        if len(line.fields) <= _ENTITY_2012:
            raise ValueError(
                f"line {line.number:,}: has {counted(len(line.fields), 'column')}, expected 12 or more of CoNLL 2012"
            )
        bracket = line.fields[_ENTITY_2012]
        begins = bracket.startswith("(")
        kind = bracket.strip("(*)") if begins else kind
        words.append(line.fields[_WORD_2012])
        tags.append(f"{'B' if begins else 'I'}-{kind}" if kind else OUTSIDE)
        kind = "" if bracket.endswith(")") else kind
    return words, tags
