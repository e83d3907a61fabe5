"""Find the text of a row: --field names a column of a table or a key of an object.

It may be a path: `text.en` goes through structs and objects, `messages.content` also through lists, whose texts become the
lines of a document. It may be several: `title,body` are joined in this order. A column or key that has exactly the name that
--field gives comes first.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bertprep.errors import BertprepError, UsageError, not_utf8
from bertprep.sources.plain_text import FIELD_GAP, MAX_DOCUMENT_BYTES, too_long
from bertprep.terminal import listed

if TYPE_CHECKING:
    import pyarrow as pa

_WITH_TOKENS = ("attention_mask", "labels")
_SHOWN = 40  # the limit on the characters of a name or value in a message, and on the names
_MAX_DEPTH = 8  # the limit on nested fields in a message, and on lists in lists
_ABSENT = object()
_NONE = "none"  # shown if there are no names


def fields_in(field: str, names: Container[str]) -> list[str]:
    """Return the fields that --field names, separated by commas, or only one if a column has that whole name.

    >>> fields_in("title, body", ["title", "body"]), fields_in("a,b", ["a,b"])
    (['title', 'body'], ['a,b'])
    """
    return [field] if field in names else [name.strip() for name in field.split(",")]


def join_fields(texts: Iterable[str]) -> str:
    """Join the texts of several fields to one document, each as a new paragraph; blank texts are left out."""
    return FIELD_GAP.join(text for text in texts if text and not text.isspace())


def find_columns(schema: pa.Schema, field: str, location: str) -> list[str]:
    """Return the names of the columns that contain the fields. Raises `UsageError` if one is missing or has no text."""
    names = (find_column(schema, each, location) for each in fields_in(field, schema.names))
    return list(dict.fromkeys(names))


def find_column(schema: pa.Schema, field: str, location: str) -> str:
    """Return the name of the column that contains a field. Raises `UsageError` if it is missing or has no text."""
    texts = [each.name for each in schema if "string" in str(each.type)]
    if "input_ids" in schema.names and not texts and not set(_WITH_TOKENS).isdisjoint(schema.names):
        raise UsageError(
            f"{location}: these are records, not text: {show_names(schema.names)}; give them to bertprep validate, convert "
            "or the trainer, and give shard the text that they were made from"
        )
    # a name that two columns have is ambiguous
    name = next((prefix for prefix, _ in _splits(field) if schema.names.count(prefix) == 1), None)
    if name is None:
        raise no_field(f"{location}: has no column", field, schema.names)
    if name not in texts:
        raise UsageError(
            f"{location}: column {name!r} has type {str(schema.field(name).type)[:_SHOWN]}, expected text or lists of text; "
            f"convert it to text{_or_another('the file', texts)}"
        )
    return name


def batch_texts(batches: Iterable[Any], names: Sequence[str], field: str, location: str) -> Iterator[str]:
    """Yield the texts of the fields, which are in the columns `names` of record batches or tables."""
    start = 0
    for batch in batches:
        columns = [_column_values(batch.column(name), name, location, start) for name in names]
        for row, values in enumerate(zip(*columns, strict=True), start):
            value = values[0]
            if names[0] == field and type(value) is str and len(value) <= MAX_DOCUMENT_BYTES:
                yield value
            else:
                yield row_text(dict(zip(names, values, strict=True)), field, f"{location}: row {row:,}")
        start += batch.num_rows


def _column_values(column: Any, name: str, location: str, start: int) -> list[Any]:
    """Return the values of a column of a batch, whose first row has the index `start` in the file."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError as error:
        where = f"{location}: rows {start:,} to {start + len(column) - 1:,}: column {name!r}"
        raise not_utf8(where, error, "write the column again as UTF-8") from error
    return values


def row_text(row: dict[str, Any], field: str, where: str) -> str:
    """Return the text of the fields of a row. Null is an empty text; each text of a list becomes a line.

    Raises `UsageError` for a missing field, `BertprepError` for a value that is not text or is too long.
    """
    fields = fields_in(field, row)
    if len(fields) == 1:
        return _field_text(row, fields[0], where)
    text = join_fields(_field_text(row, each, where) for each in fields)
    if len(text) > MAX_DOCUMENT_BYTES:
        raise too_long(f"{where}: fields {field!r}", "their text")
    return text


def _field_text(row: dict[str, Any], field: str, where: str) -> str:
    value = _pick(row, field)
    if value is _ABSENT:
        raise no_field(f"{where}: has no field", field, _keys(row))
    texts = list(_flat(value))
    for wrong in texts:
        if not isinstance(wrong, str):
            raise BertprepError(
                f"{where}: field {field!r}: expected text, found {type(wrong).__name__} {repr(wrong)[:_SHOWN]}; "
                f"write text or null there{_or_another('the row', _keys(row, str))}"
            )
    text = value if isinstance(value, str) else "\n".join(each.replace("\n", " ") for each in texts)
    if len(text) > MAX_DOCUMENT_BYTES:
        raise too_long(f"{where}: field {field!r}", "it")
    return text


def _or_another(what: str, names: Iterable[str]) -> str:
    others = show_names(names)
    return (
        f"; {what} has no other text"
        if others == _NONE
        else f", or name another field with --field; {what} has text in {others}"
    )


def _pick(value: Any, field: str) -> Any:
    """Return the value of a field, or `_ABSENT`. For a list, return the values of those of its objects that have the field."""
    if isinstance(value, dict):
        for prefix, rest in _splits(field):
            if prefix in value and (found := _pick(value[prefix], rest) if rest else value[prefix]) is not _ABSENT:
                return found
        return _ABSENT
    if isinstance(value, list):
        inner = [found for each in value if (found := _pick(each, field)) is not _ABSENT]
        return inner if inner or not value else _ABSENT
    return value if value is None else _ABSENT


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """Yield a name, then the text before and after each of its dots, from the last dot to the first.

    >>> list(_splits("a.b.c"))
    [('a.b.c', ''), ('a.b', 'c'), ('a', 'b.c')]
    """
    yield name, ""
    at = len(name)
    while (at := name.rfind(".", 0, at)) >= 0:
        yield name[:at], name[at + 1 :]


def _flat(value: Any, depth: int = 0) -> Iterator[Any]:
    if isinstance(value, list) and depth < _MAX_DEPTH:
        for each in value:
            yield from _flat(each, depth + 1)
    elif value is not None:
        yield value


def _keys(value: dict[str, Any], holds: type = object, depth: int = 0) -> Iterator[str]:
    for key, inner in value.items():
        first = next(_flat(inner), None) if isinstance(inner, list) else inner
        if isinstance(first, dict) and first and depth < _MAX_DEPTH:
            yield from (f"{key}.{name}" for name in _keys(first, holds, depth + 1))
        elif isinstance(first, holds):
            yield key


def no_field(what: str, field: str, found: Iterable[str]) -> UsageError:
    """Return the error for a missing field: `what` says where it is missing, `found` are the fields that exist."""
    names = list(found)
    several = ", or join several: --field title,body" if len(names) > 1 else ""
    return UsageError(f"{what} {field!r}, found {show_names(names)}; use --field to name the one with the text{several}")


def show_names(names: Iterable[str]) -> str:
    r"""Return the names of fields for an error message, or the first of them if they are many.

    >>> show_names(["id", "te\nxt"]), show_names([])
    ("'id', 'te\\nxt'", 'none')
    """
    shown = [repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "...") for name in names]
    return listed(shown, _SHOWN) or _NONE
