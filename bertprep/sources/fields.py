"""The field that holds the text: a column or key by its name, a nested one by its path, `text.en`, and the text in its values.

A value is text, or a list of texts (sentences, paragraphs; also in lists), of which each becomes a line of the document. A path
leads through structs, objects and lists of these: `messages.content` is the list of the contents of all messages. A name that
is there as it stands wins over a path. Columns of Arrow are converted in pieces of some megabytes, measured first: an array may
hold the same long text in a million rows, as numbers into a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertprep.errors import BertprepError, UsageError
from bertprep.files.arrow_messages import is_list
from bertprep.text.documents import MOST_DOCUMENT_BYTES, too_long

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_BYTES = 4 << 20
_SHOWN = 40  # characters of a name or value, and names
_MOST_DEPTH = 8  # of the names that a message lists
_ABSENT = object()
_WITH_TOKENS = ("attention_mask", "labels")


def find_column(schema: pa.Schema, field: str, location: str) -> list[str]:
    """The names that lead to a column of text, from the outermost; raises `UsageError` if there is none."""
    found = _resolve(list(schema), field)
    if holds_records(schema):
        raise UsageError(
            f"{location}: these are records, not text: {show_names(schema.names)}; bertprep validate, convert "
            "and the trainer take them as they are, shard takes the text that they were made of"
        )
    if found is None:
        raise no_field(f"{location}: has no column", field, _names(schema, lambda _: True))
    path, kind = found
    if not _is_text(kind):
        texts = show_names(_names(schema, _is_text))
        raise UsageError(
            f"{location}: column {field!r} is of type {shorten(str(kind))}, expected text or lists of it; "
            f"columns of text are {texts}; name one by --field"
        )
    return path


def holds_records(schema: pa.Schema) -> bool:
    """Whether these columns are those of tokens, made by bertprep or any tokenizer, and none of them is text."""
    names = set(schema.names)
    return "input_ids" in names and not names.isdisjoint(_WITH_TOKENS) and next(_names(schema, _is_text), None) is None


def no_field(what: str, field: str, found: Iterable[str]) -> UsageError:
    return UsageError(f"{what} {field!r}, but {show_names(found)}; name the one with the text by --field")


def find_value(row: dict[str, Any], field: str, where: Callable[[], str]) -> Any:
    """The value of a field of an object; raises `UsageError` if there is none. `where` names the object."""
    value = _pick(row, field)
    if value is _ABSENT:
        raise no_field(f"{where()}: has no field", field, _keys(row))
    return value


def to_text(value: Any, where: Callable[[], str], row: dict[str, Any] | None = None) -> str:
    """A value as the text of a document: null is empty; each text of a list is a line. `where` names the value."""
    if value is None:
        return ""
    if isinstance(value, list):
        value = "\n".join(text.replace("\n", " ") for text in _flat(value, where, row))
    elif not isinstance(value, str):
        raise _not_text(value, where, row)
    if len(value) > MOST_DOCUMENT_BYTES:
        raise too_long(where(), "it")
    return str(value)


def column_texts(columns: Iterable[pa.Array], field: str, location: str) -> Iterator[str]:
    """The texts of a column that is given in arrays, row by row; the arrays are valid, or conversion would crash."""
    start = 0

    def where(row: int) -> str:
        return f"{location}: row {row:,}: column {field!r}"

    for column in columns:
        for piece in _pieces(column, start, where):
            for row, value in enumerate(to_python(piece, start, where), start):
                if type(value) is str and len(value) <= MOST_DOCUMENT_BYTES:
                    yield value
                else:
                    yield to_text(value, lambda row=row: where(row))  # type: ignore[misc]
            start += len(piece)


def to_python(column: pa.Array, start: int, where: Callable[[int], str]) -> list[Any]:
    """The values of an array as Python objects; `where` names a row, the first of which is `start`."""
    try:
        values = _values(column)
    except UnicodeDecodeError:
        for row, value in enumerate(column, start):
            try:
                value.as_py()
            except UnicodeDecodeError as error:
                raise BertprepError(
                    f"{where(row)}: expected UTF-8, found 0x{error.object[error.start]:02x} ({error.reason}); "
                    "write the column again as UTF-8"
                ) from error
        raise
    return values


def _values(column: pa.Array) -> list[Any]:
    """What to_pylist gives, several times as fast for lists and for numbers into a dictionary; a list that is null is empty."""
    import pyarrow as pa

    if is_list(column.type):
        inner, offsets = _values(column.flatten()), _offsets(column).tolist()
        return [inner[start:end] for start, end in pairwise(offsets)]
    values: list[Any] = (column.dictionary_decode() if pa.types.is_dictionary(column.type) else column).to_pylist()
    return values


def _offsets(lists: pa.Array) -> npt.NDArray[np.int64]:
    """Where each list begins in the flattened array, and the end of the last."""
    import pyarrow as pa

    if pa.types.is_fixed_size_list(lists.type):
        sizes = _is_valid(lists) * np.int64(lists.type.list_size)
    else:
        sizes = _is_valid(lists) * np.diff(_numbers(lists.offsets, np.int64 if lists.offsets.type == pa.int64() else np.int32))
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def _is_valid(column: pa.Array) -> npt.NDArray[np.int8]:
    import pyarrow as pa

    return _numbers(column.is_valid().cast(pa.int8()), np.int8)


def _numbers(column: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """What to_numpy gives, which imports pandas where it is installed: a second."""
    if not len(column):
        return np.empty(0, dtype)
    return np.frombuffer(column.buffers()[1], dtype)[column.offset : column.offset + len(column)]


def _from_numbers(numbers: npt.NDArray[np.int64]) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def select(column: pa.Array, path: list[str]) -> pa.Array:
    """The inner column of one of structs, or of lists of structs, to which the names `path` lead."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not path:
        return column
    if pa.types.is_struct(column.type):
        return select(pc.struct_field(column, [column.type.get_field_index(path[0])]), path[1:])
    return pa.LargeListArray.from_arrays(_from_numbers(_offsets(column)), select(column.flatten(), path))


def show_names(names: Iterable[str]) -> str:
    r"""The names of fields for a one-line error message, whatever they contain; only the first of many.

    >>> show_names(["id", "te\nxt"]), show_names([])
    ("'id', 'te\\nxt'", 'none')
    """
    shown = [repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "...") for name in names]
    more = len(shown) - _SHOWN
    return ", ".join(shown[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "") or "none"


def shorten(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _resolve(fields: list[pa.Field], name: str) -> tuple[list[str], pa.DataType] | None:
    """(the names that lead to a column, its type), or None."""
    import pyarrow as pa

    for prefix, rest in _splits(name):
        same = [each for each in fields if each.name == prefix]
        if len(same) != 1:  # of two with one name neither can be meant
            continue
        if not rest:
            return [prefix], same[0].type
        inner = _without_lists(same[0].type)
        if pa.types.is_struct(inner) and (found := _resolve(_children(inner), rest)):
            return [prefix, *found[0]], found[1]
    return None


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """A name, then its parts before and after each dot, the longest first.

    >>> list(_splits("a.b.c"))
    [('a.b.c', ''), ('a.b', 'c'), ('a', 'b.c')]
    """
    yield name, ""
    at = len(name)
    while (at := name.rfind(".", 0, at)) >= 0:
        yield name[:at], name[at + 1 :]


def _children(struct: pa.StructType) -> list[pa.Field]:
    return [struct.field(number) for number in range(struct.num_fields)]


def _without_lists(kind: pa.DataType) -> pa.DataType:
    while is_list(kind):
        kind = kind.value_type
    return kind


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    kind = _without_lists(kind)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _names(fields: Iterable[pa.Field], wanted: Callable[[pa.DataType], bool], depth: int = 0) -> Iterator[str]:
    """The paths of the innermost columns whose types are `wanted`."""
    import pyarrow as pa

    for each in fields:
        inner = _without_lists(each.type)
        if pa.types.is_struct(inner) and depth < _MOST_DEPTH:
            yield from (f"{each.name}.{name}" for name in _names(_children(inner), wanted, depth + 1))
        elif wanted(each.type):
            yield each.name


def _keys(value: Any, holds: type = object, depth: int = 0) -> Iterator[str]:
    """The paths of the innermost values of an object that are of type `holds` or lists of it."""
    for key, inner in value.items():
        while isinstance(inner, list) and inner:
            inner = next((each for each in inner if each is not None), None)
        if isinstance(inner, dict) and inner and depth < _MOST_DEPTH:
            yield from (f"{key}.{name}" for name in _keys(inner, holds, depth + 1))
        elif isinstance(inner, holds):
            yield key


def _pick(value: Any, field: str, depth: int = 0) -> Any:
    """The value of a field of an object, `_ABSENT` if it has none; of a list, the values of those that have it."""
    if isinstance(value, dict):
        if field in value:
            return value[field]
        for prefix, rest in islice(_splits(field), 1, None):
            if prefix in value and (found := _pick(value[prefix], rest)) is not _ABSENT:
                return found
        return _ABSENT
    if isinstance(value, list) and depth < _MOST_DEPTH:
        inner = [_pick(each, field, depth + 1) for each in value]
        there = [each for each in inner if each is not _ABSENT]
        return there if there or not value else _ABSENT
    return value if value is None else _ABSENT


def _flat(values: list[Any], where: Callable[[], str], row: dict[str, Any] | None, depth: int = 0) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list) and depth < _MOST_DEPTH:
            yield from _flat(value, where, row, depth + 1)
        elif value is not None:
            raise _not_text(value, where, row)


def _not_text(value: Any, where: Callable[[], str], row: dict[str, Any] | None) -> BertprepError:
    texts = f"; fields of text are {show_names(_keys(row, str))}; name one by --field" if row is not None else ""
    return BertprepError(f"{where()}: expected text, found {type(value).__name__} {shorten(repr(value))}{texts}")


def _pieces(column: pa.Array, start: int, where: Callable[[int], str]) -> Iterator[pa.Array]:
    """Slices of an array of about `PIECE_BYTES` at most when converted, or of one row."""
    size = _size_bytes(column)
    if size <= PIECE_BYTES:
        yield column
    elif len(column) == 1:
        if size > 2 * MOST_DOCUMENT_BYTES:  # the rest is measured once it is text
            raise too_long(where(start), "it")
        yield column
    else:
        half = len(column) // 2
        yield from _pieces(column.slice(0, half), start, where)
        yield from _pieces(column.slice(half), start + half, where)


def _size_bytes(column: pa.Array) -> int:
    """The size of an array of texts when they are written out, at least a byte each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if is_list(column.type):
        return len(column) + _size_bytes(column.flatten())
    if pa.types.is_dictionary(column.type):
        return len(column) + int(pc.sum(_lengths(column.dictionary).take(column.indices)).as_py() or 0)
    if pa.types.is_string_view(column.type):
        return len(column) + int(pc.sum(_lengths(column)).as_py() or 0)
    return len(column) + int(column.nbytes)


def _lengths(texts: pa.Array) -> pa.Array:
    """The bytes of each text, as int64."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_string_view(texts.type):
        return pc.binary_length(texts).cast(pa.int64())
    if not len(texts):
        return _from_numbers(np.empty(0, np.int64))
    views = np.frombuffer(texts.buffers()[1], np.int32)[::4][texts.offset : texts.offset + len(texts)]  # length, then 12 bytes
    return _from_numbers(np.multiply(_is_valid(texts), views, dtype=np.int64))
