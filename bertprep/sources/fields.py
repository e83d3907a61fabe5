"""The field that holds the text: a column or key by its name, a nested one by its path `text.en`, and the text in its values.

A path leads through structs, objects and lists of these: `messages.content` is the list of the contents of all messages. Each
text of a list (sentences, paragraphs) is a line of the document. A name that is there as it stands wins over a path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from bertprep.errors import BertprepError, UsageError
from bertprep.sources.plain_text import MAX_DOCUMENT_BYTES, too_long
from bertprep.terminal import listed

if TYPE_CHECKING:
    import pyarrow as pa

_WITH_TOKENS = ("attention_mask", "labels")
_SHOWN = 40  # characters of a name or value, and names
_MAX_DEPTH = 8  # of nested fields that a message lists, and of lists in lists
_ABSENT = object()


def column_texts(columns: Iterable[Any], path: list[str], what: str, location: str) -> Iterator[str]:
    """Yield the texts of a column that is given in arrays, row by row; `path` leads to the field within its values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    start = 0
    for column in columns:
        rest = list(path)
        while rest and pa.types.is_struct(column.type):
            column = pc.struct_field(column, [column.type.get_field_index(rest.pop(0))])
        for row, value in enumerate(_to_python(column, start, what, location), start):
            if type(value) is str and len(value) <= MAX_DOCUMENT_BYTES:
                yield value
            else:
                yield to_text(_pick(value, ".".join(rest)) if rest else value, f"{location}: row {row:,}: {what}")
        start += len(column)


def _to_python(column: Any, start: int, what: str, location: str) -> list[Any]:
    try:
        return cast(list[Any], column.to_pylist())
    except UnicodeDecodeError:
        for row, value in enumerate(column, start):
            try:
                value.as_py()
            except UnicodeDecodeError as error:
                raise BertprepError(
                    f"{location}: row {row:,}: {what}: expected UTF-8, found 0x{error.object[error.start]:02x} "
                    f"({error.reason}); write the column again as UTF-8"
                ) from error
        raise


def row_text(row: dict[str, Any], field: str, where: str) -> str:
    """Return the text of a field of an object, which `where` names; raises `UsageError` if it has no such field."""
    value = row[field] if field in row else _pick(row, field)
    if value is _ABSENT:
        raise no_field(f"{where}: has no field", field, _keys(row))
    return to_text(value, f"{where}: field {field!r}", row)


def to_text(value: Any, where: str, row: dict[str, Any] | None = None) -> str:
    """Return a value, which `where` names, as the text of a document: null is empty; each text of a list is a line."""
    if value is None or value is _ABSENT:
        return ""
    texts = list(_flat(value))
    wrong = next((each for each in texts if not isinstance(each, str)), None)
    if wrong is not None:
        advice = f"; fields of text are {show_names(_keys(row, str))}; name one by --field" if row is not None else ""
        shown = repr(wrong)[:_SHOWN]
        raise BertprepError(f"{where}: expected text, found {type(wrong).__name__} {shown}{advice}")
    text = value if isinstance(value, str) else "\n".join(each.replace("\n", " ") for each in texts)
    if len(text) > MAX_DOCUMENT_BYTES:
        raise too_long(where, "it")
    return text


def _flat(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the values of lists in lists, without nulls."""
    if isinstance(value, list) and depth < _MAX_DEPTH:
        for each in value:
            yield from _flat(each, depth + 1)
    elif value is not None:
        yield value


def _pick(value: Any, field: str) -> Any:
    """Return the value of a field of an object, `_ABSENT` if it has none; of a list, the values of those that have it."""
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
    """Yield a name, then its parts before and after each dot, the longest first.

    >>> list(_splits("a.b.c"))
    [('a.b.c', ''), ('a.b', 'c'), ('a', 'b.c')]
    """
    yield name, ""
    at = len(name)
    while (at := name.rfind(".", 0, at)) >= 0:
        yield name[:at], name[at + 1 :]


def _keys(value: dict[str, Any], holds: type = object, depth: int = 0) -> Iterator[str]:
    """Yield the paths of the innermost values of an object that are of type `holds` or lists of it."""
    for key, inner in value.items():
        first = next(_flat(inner), None) if isinstance(inner, list) else inner
        if isinstance(first, dict) and first and depth < _MAX_DEPTH:
            yield from (f"{key}.{name}" for name in _keys(first, holds, depth + 1))
        elif isinstance(first, holds):
            yield key


def find_column(schema: pa.Schema, field: str, location: str) -> list[str]:
    """Return the names that lead to a column of text, from the outermost; raises `UsageError` if there is none."""
    check_no_tokens(schema, location)
    found = _resolve(list(schema), field)
    if found is None:
        raise no_field(f"{location}: has no column", field, _columns(schema))
    path, kind = found
    if not _is_text(kind):
        raise UsageError(
            f"{location}: column {field!r} is of type {str(kind)[:_SHOWN]}, expected text or lists of it; "
            f"columns of text are {show_names(_columns(schema, _is_text))}; name one by --field"
        )
    return path


def check_no_tokens(schema: pa.Schema, location: str) -> None:
    """Raise `UsageError` where the columns are those of tokens, made by bertprep or any tokenizer, and none is text."""
    names = set(schema.names)
    if "input_ids" in names and not names.isdisjoint(_WITH_TOKENS) and next(_columns(schema, _is_text), None) is None:
        raise UsageError(
            f"{location}: these are records, not text: {show_names(schema.names)}; bertprep validate, convert "
            "and the trainer take them as they are, shard takes the text that they were made of"
        )


def no_field(what: str, field: str, found: Iterable[str]) -> UsageError:
    return UsageError(f"{what} {field!r}, but {show_names(found)}; name the one with the text by --field")


def _resolve(fields: list[pa.Field], name: str) -> tuple[list[str], pa.DataType] | None:
    """Return (the names that lead to a column, its type), or None."""
    for prefix, rest in _splits(name):
        same = [each for each in fields if each.name == prefix]
        if len(same) != 1:  # of two with one name neither can be meant
            continue
        if not rest:
            return [prefix], same[0].type
        if found := _resolve(_children(same[0].type), rest):
            return [prefix, *found[0]], found[1]
    return None


def _columns(fields: Iterable[pa.Field], wanted: Callable[[pa.DataType], bool] = bool, depth: int = 0) -> Iterator[str]:
    """Yield the paths of the innermost columns whose types are `wanted`."""
    for each in fields:
        children = _children(each.type)
        if children and depth < _MAX_DEPTH:
            yield from (f"{each.name}.{name}" for name in _columns(children, wanted, depth + 1))
        elif wanted(each.type):
            yield each.name


def _children(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields of a struct or of lists of it."""
    import pyarrow as pa

    kind = _without_lists(kind)
    return [kind.field(index) for index in range(kind.num_fields)] if pa.types.is_struct(kind) else []


def _without_lists(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return kind


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    kind = _without_lists(kind)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def show_names(names: Iterable[str]) -> str:
    r"""Return the names of fields for a one-line error message, whatever they contain; only the first of many.

    >>> show_names(["id", "te\nxt"]), show_names([])
    ("'id', 'te\\nxt'", 'none')
    """
    shown = [repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "...") for name in names]
    return listed(shown, _SHOWN) or "none"
