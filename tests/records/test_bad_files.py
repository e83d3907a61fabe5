"""Files that are not as they must be: each fault has its one line, and no bytes whatever crash the reader or deceive it."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep import records
from bertprep.errors import BertprepError
from bertprep.records import PretrainingExamples
from tests.records.handmade import FIRST, SECOND, Dialect, Record, field, file_of, frame, masked, message
from tests.records.test_reader import write

OFRECORD = Dialect("ofrecord")
TWO = file_of(FIRST, SECOND)
SIZE = len(file_of(FIRST))  # of the first of the two in a TFRecord file


def complaint(path: Path, content: bytes) -> str:
    """What the reader says of a file with this content, without the file's name; the same in every way of reading."""
    path.write_bytes(content)
    said = set()
    for read in (read_all, read_blocks, gather):
        with pytest.raises(BertprepError) as error:
            read(path)
        said.add(str(error.value))
    (line,) = said
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
    return line.removeprefix(f"{path}: ")


def read_all(path: Path) -> PretrainingExamples:
    with records.open(path) as file:
        return file[:]


def read_blocks(path: Path) -> None:
    with records.open(path) as file:
        for _ in file.blocks(1):
            pass


def gather(path: Path) -> PretrainingExamples:
    with records.open(path) as file:
        return file[np.arange(len(file))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records"


def changed(content: bytes, at: int, byte: int) -> bytes:
    return content[:at] + bytes([byte]) + content[at + 1 :]


def second(record: Record, record_format: str = "tfrecord") -> bytes:
    """A file whose first record is sound, and this its second."""
    return file_of(FIRST, record, dialect=Dialect(record_format))


def without(name: str) -> Record:
    return {key: values for key, values in FIRST.items() if key != name}


def test_no_file(path: Path) -> None:
    with pytest.raises(BertprepError) as error:
        records.open(path)
    assert str(error.value) == f"{path}: cannot be read: No such file or directory"


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(BertprepError) as error:
        records.open(tmp_path)
    assert str(error.value) == f"{tmp_path}: is not a plain file; name a record file"


def test_empty(path: Path) -> None:
    assert complaint(path, b"") == "is empty, it holds no records; make it again"
    assert complaint(path, gzip.compress(b"")) == "is empty, it holds no records; make it again"


@pytest.mark.parametrize("content", [b"x", b"[CLS] is text", b'{"input_ids": [101, 2054]}', bytes(100), b"\xfe" * 100])
def test_neither_format(path: Path, content: bytes) -> None:
    assert complaint(path, content) == (
        f"is neither TFRecord, OFRecord, Arrow nor Parquet: it has {len(content)} bytes and begins with "
        f"{content[:12].hex(' ')}; give a file that bertprep create or a tool like it has made"
    )


def test_bad_gzip(path: Path) -> None:
    whole = gzip.compress(TWO)
    assert complaint(path, whole[:-20]) == (
        "cannot be decompressed: Compressed file ended before the end-of-stream marker was reached; the file is damaged, "
        "make it again"
    )
    assert "the file is damaged, make it again" in complaint(path, changed(whole, len(whole) - 5, whole[-5] ^ 1))


def test_wrong_checksum_of_the_data(path: Path) -> None:
    content = changed(TWO, SIZE + 12 + 40, TWO[SIZE + 12 + 40] ^ 1)
    stored, computed = content[-4:], masked(content[SIZE + 12 : -4])
    assert complaint(path, content) == (
        f"record 1: the checksum of its data should be {computed[::-1].hex()}, it is {stored[::-1].hex()}; "
        "damaged, make the file again"
    )


def test_wrong_checksum_of_the_length(path: Path) -> None:
    content = changed(TWO, SIZE, TWO[SIZE] ^ 1)
    stored, computed = content[SIZE + 8 : SIZE + 12], masked(content[SIZE : SIZE + 8])
    assert complaint(path, content) == (
        f"record 1: the checksum of its length should be {computed[::-1].hex()}, it is {stored[::-1].hex()}; "
        "damaged, make the file again"
    )


def test_truncated(path: Path) -> None:
    data = len(TWO) - SIZE - 16
    assert complaint(path, TWO[:-1]) == (
        f"record 1: by its length {data + 4} more bytes must follow, there are {data + 3}; "
        "truncated or damaged, make the file again"
    )
    of = file_of(FIRST, SECOND, dialect=OFRECORD)
    data = len(file_of(SECOND, dialect=OFRECORD)) - 8
    assert complaint(path, of[:-1]) == (
        f"record 1: by its length {data} more bytes must follow, there are {data - 1}; "
        "truncated or damaged, make the file again"
    )
    assert complaint(path, of[:20]) == (
        f"record 0: by its length {len(of) - data - 16} more bytes must follow, there are 12; "
        "truncated or damaged, make the file again"
    )


def test_impossible_length(path: Path) -> None:
    content = file_of(FIRST, dialect=OFRECORD) + struct.pack("<q", -1) + bytes(100)
    assert complaint(path, content) == ("record 1: its length is beyond any file's; damaged, make the file again")
    huge = struct.pack("<Q", 2**63 - 1)
    assert complaint(path, TWO + huge + masked(huge) + bytes(100)).startswith("record 2: its length is beyond any file")


def test_trailing_bytes(path: Path) -> None:
    assert complaint(path, TWO + b"\n") == (
        "record 2: 1 bytes are left for it, it needs 16 or more; truncated or appended to, make the file again"
    )
    assert complaint(path, file_of(FIRST, dialect=OFRECORD) + b"1234567") == (
        "record 1: 7 bytes are left for it, it needs 8 or more; truncated or appended to, make the file again"
    )


@pytest.mark.parametrize("record_format", ["tfrecord", "ofrecord"])
@pytest.mark.parametrize("name", FIRST)
def test_missing_feature(path: Path, name: str, record_format: str) -> None:
    line = f"feature {name} is missing; give a file of BERT pretraining records"
    assert complaint(path, second(without(name), record_format)) == f"record 1: {line}"
    if name != "next_sentence_labels":  # without these in any record, they are records without sentence pairs
        assert complaint(path, file_of(without(name), dialect=Dialect(record_format))) == f"record 0: {line}"


def test_feature_given_twice(path: Path) -> None:
    both = {**FIRST, "input_word_ids": FIRST["input_ids"]}
    assert complaint(path, second(both)) == "record 1: feature input_ids occurs in it more than once; make the file again"


@pytest.mark.parametrize(
    ("record_format", "expected", "weights"),
    [("tfrecord", "int64_list", "float_list"), ("ofrecord", "int32_list or int64_list", "float_list or double_list")],
)
def test_wrong_type(path: Path, record_format: str, expected: str, weights: str) -> None:
    def with_feature(name: str, feature: bytes) -> bytes:
        dialect = Dialect(record_format)
        entry = field(1, field(1, name.encode()) + field(2, feature))
        body = message(without(name), dialect) + (field(1, entry) if record_format == "tfrecord" else entry)
        return file_of(FIRST, dialect=dialect) + frame(body, record_format)

    for feature, found in ((b"", "no list"), (field(1, b""), "a bytes_list"), (field(2, b""), "a float_list")):
        assert complaint(path, with_feature("input_mask", feature)) == (
            f"record 1: feature input_mask should be {expected}, it is {found}; give a file of BERT pretraining records"
        )
    found = "an unknown list" if record_format == "tfrecord" else "an int64_list"
    assert complaint(path, with_feature("masked_lm_weights", field(5, b""))) == (
        f"record 1: feature masked_lm_weights should be {weights}, it is {found}; give a file of BERT pretraining records"
    )


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "one by one"])
@pytest.mark.parametrize("record_format", ["tfrecord", "ofrecord"])
def test_wrong_number_of_values(path: Path, record_format: str, packed: bool) -> None:
    sound = file_of(FIRST, dialect=Dialect(record_format))
    for name, values in FIRST.items():
        for wrong in (values[:-1], [*values, 0]):
            content = sound + file_of({**FIRST, name: wrong}, dialect=Dialect(record_format, packed=packed))
            reason = {8: " as input_ids has in record 0", 2: " as masked_lm_positions has in record 0", 1: ""}[len(values)]
            assert complaint(path, content) == (
                f"record 1: feature {name} has {len(wrong)} values, expected {len(values)}{reason}; make the file again"
            )


def test_the_first_record_must_agree_with_itself(path: Path) -> None:
    assert complaint(path, file_of({**FIRST, "segment_ids": [0] * 9})) == (
        "record 0: feature segment_ids has 9 values, expected 8 as input_ids has in record 0; make the file again"
    )
    empty: Record = {name: [] for name in FIRST}
    assert (
        complaint(path, file_of(empty)) == "record 0: feature input_ids has 0 values, expected 1 or more; make the file again"
    )


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "one by one"])
@pytest.mark.parametrize("value", [-1, 2**31, -(2**31), 2**63 - 1])
def test_numbers_that_no_int32_holds(path: Path, value: int, packed: bool) -> None:
    record: Record = {**FIRST, "masked_lm_ids": [4937, value]}
    for record_format in ("tfrecord", "ofrecord"):
        content = file_of(FIRST, dialect=Dialect(record_format)) + file_of(
            record, dialect=Dialect(record_format, packed=packed)
        )
        assert complaint(path, content) == (
            "record 1: feature masked_lm_ids has a value that is negative or above 2,147,483,647; make the file again"
        )


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05", b"\x07", b"\x00\x00", b"\x0a\x01\x0a", b"\x08" + b"\xff" * 12])
def test_malformed_message(path: Path, data: bytes) -> None:
    assert complaint(path, file_of(FIRST) + frame(data)) == (
        "record 1: it is no valid tf.train.Example message; damaged or something else, make the file again"
    )
    assert complaint(path, file_of(FIRST, dialect=OFRECORD) + frame(data, "ofrecord")) == (
        "record 1: it is no valid OFRecord message; damaged or something else, make the file again"
    )


def read_anything(content: bytes, folder: Path) -> PretrainingExamples | None:
    path = write(folder, content)
    try:
        return read_all(path)
    except BertprepError:
        return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any")


@given(at=st.integers(0, 8 * len(TWO) - 1))
def test_any_flipped_bit_in_a_tfrecord_is_found(folder: Path, at: int) -> None:
    assert read_anything(changed(TWO, at // 8, TWO[at // 8] ^ 1 << at % 8), folder) is None


@given(size=st.integers(0, len(TWO) - 1))
def test_any_truncation_is_found_or_leaves_whole_records(folder: Path, size: int) -> None:
    examples = read_anything(TWO[:size], folder)
    assert (examples is not None) == (size == SIZE)


damages = st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=6), st.booleans()), min_size=1, max_size=4)


@given(damage=damages, as_example=st.booleans())
def test_damaged_messages_never_crash(folder: Path, damage: list[tuple[int, bytes, bool]], as_example: bool) -> None:
    """Bytes replaced or inserted anywhere in a message, in frames that are right for it."""
    dialect = Dialect() if as_example else OFRECORD
    data = message(SECOND, dialect)
    for at, piece, insert in damage:
        start = at % len(data)
        data = data[:start] + piece + data[start + (0 if insert else len(piece)) :]
    content = file_of(FIRST, dialect=dialect) + frame(data, dialect.record_format)
    examples = read_anything(content, folder)
    if examples is not None:  # what is read are numbers that the bytes hold, one for one
        assert len(examples) == 2
        assert all((array >= 0).all() for array in examples.arrays if array.dtype == np.int32)
