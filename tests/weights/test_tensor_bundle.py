"""Checkpoints are written with TensorFlow's bytes and read as TensorFlow reads them; damaged ones are one line."""

import json
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.errors import BertprepError
from bertprep.protobuf import fixed, integer, message, varint
from bertprep.records.formats import masked_checksum
from bertprep.weights.sstable import decode_table, encode_table
from bertprep.weights.tensor_bundle import TensorBundle, bundle_files, find_prefix, holds, write_bundle
from tests.weights.tensorflow_checkpoints import CHECKPOINT, MANY, SUMS, WEIGHTS, save, sums

NAME = "bert/pooler/dense/kernel"


@pytest.mark.parametrize(("name", "variables"), [("weights", WEIGHTS), ("many", MANY)])
def test_the_bytes_are_those_that_tensorflow_writes(name: str, variables: dict[str, np.ndarray], tmp_path: Path) -> None:
    write_bundle(tmp_path / "model.ckpt", variables)
    assert sums(tmp_path / "model.ckpt") == json.loads(SUMS.read_text())[name]


def test_what_tensorflow_wrote_is_read_from_both_data_files() -> None:
    bundle = TensorBundle(CHECKPOINT)
    assert len(bundle.entries) == 3 * len(WEIGHTS) + 1
    assert {entry.shard for entry in bundle.entries.values()} == {0, 1}
    for name, values in WEIGHTS.items():
        np.testing.assert_array_equal(bundle.read(name), values)
        np.testing.assert_array_equal(bundle.read(f"{name}/adam_m"), np.full_like(values, 7))
    with pytest.raises(BertprepError, match=r"google_checkpoint: global_step: is of TensorFlow's type 9, expected floating-"):
        bundle.read("global_step")


def test_a_checkpoint_is_meant_by_its_prefix_and_by_each_of_its_files(tmp_path: Path) -> None:
    for name in ("google_checkpoint", "google_checkpoint.index", "google_checkpoint.data-00001-of-00002"):
        assert find_prefix(CHECKPOINT.with_name(name)) == CHECKPOINT
    assert find_prefix(tmp_path) is None


def test_views_are_written_in_row_major_order_and_never_whole(tmp_path: Path) -> None:
    table = np.arange(6_000_000, dtype=np.float32).reshape(3000, 2000)
    tracemalloc.start()
    write_bundle(tmp_path / "model.ckpt", {"transposed": table.T, "number": np.float32(3) * np.ones((), np.float32)})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < table.nbytes / 2
    bundle = TensorBundle(tmp_path / "model.ckpt")
    assert bundle.shapes == {"number": (), "transposed": (2000, 3000)}
    np.testing.assert_array_equal(bundle.read("transposed"), table.T)
    assert bundle.read("number") == 3


def test_what_is_there_is_told_from_what_is_not(tmp_path: Path) -> None:
    prefix = tmp_path / "model.ckpt"
    assert not holds(prefix, WEIGHTS)
    write_bundle(prefix, WEIGHTS)
    assert holds(prefix, WEIGHTS)
    assert not holds(prefix, {**WEIGHTS, NAME: WEIGHTS[NAME] + 1})
    assert not holds(prefix, {NAME: WEIGHTS[NAME]})


def set_entry(prefix: Path, entry: bytes) -> None:
    """A sound index that says this of one variable."""
    index, _ = bundle_files(prefix)
    index.write_bytes(encode_table({**decode_table(index.read_bytes()), NAME.encode(): entry}.items()))


def entry(*, shape: tuple[int, ...] = (8, 8), **more: int) -> bytes:
    numbers = {"data_type": 1, "shard": 0, "offset": 0, "size_bytes": 256, **more}
    fields = dict(zip(numbers, (1, 3, 4, 5), strict=True))
    sizes = b"".join(message(2, integer(1, size)) for size in shape)
    return b"".join(integer(fields[name], value) for name, value in numbers.items()) + message(2, sizes) + fixed(6, bytes(4))


def cut(prefix: Path, suffix: int, size: int) -> None:
    path = bundle_files(prefix)[suffix]
    path.write_bytes(path.read_bytes()[:size])


def flip(prefix: Path, suffix: int, position: int) -> None:
    path = bundle_files(prefix)[suffix]
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (lambda prefix: cut(prefix, 0, 0), r"ckpt\.index: is damaged, .*its 0 bytes do not end as those of a table do"),
    (lambda prefix: cut(prefix, 0, 900), r"ckpt\.index: is damaged, .*its 900 bytes do not end as"),
    (lambda prefix: flip(prefix, 0, 100), r"ckpt\.index: is damaged, .*the block at 0 has another checksum than its bytes"),
    (lambda prefix: flip(prefix, 0, -45), r"ckpt\.index: is damaged, or no index of a TensorFlow checkpoint"),
    (lambda prefix: bundle_files(prefix)[0].write_bytes(encode_table([(b"a", b"")])), r"\(it has no header\)"),
    (lambda prefix: bundle_files(prefix)[0].write_bytes(encode_table([(b"", b"\x10\x01")])), r"\(its values are big-endian\)"),
    (lambda prefix: bundle_files(prefix)[0].write_bytes(encode_table([(b"", b"")])), r"its number of data files is 0"),
    (lambda prefix: bundle_files(prefix)[0].write_bytes(encode_table([(b"b", b""), (b"a", b"")])), r"b'a' comes after b'b'"),
    (lambda prefix: set_entry(prefix, b"\x0f"), r"a field at byte 1 is cut off, or of a kind that does not exist"),
    (lambda prefix: set_entry(prefix, b"\x08\xff"), r"a number at byte 1 has no end"),
    (lambda prefix: set_entry(prefix, entry(shape=(1,) * 255)), r"a shape has 255 dimensions"),
    (lambda prefix: set_entry(prefix, entry(shape=(2**63,))), r"a shape is larger than any array can be"),
    (lambda prefix: set_entry(prefix, entry(data_type=7)), r"kernel: is of TensorFlow's type 7, expected floating-point"),
    (lambda prefix: set_entry(prefix, entry() + message(7, b"")), r"kernel: is saved in slices, expected"),
    (lambda prefix: set_entry(prefix, entry(shard=1)), r"ckpt\.data-00001-of-00001: cannot be read: No such file"),
    (lambda prefix: set_entry(prefix, entry()), r"00001: bert/pooler/dense/kernel: has another checksum than its values"),
    (lambda prefix: set_entry(prefix, entry(offset=2**62)), r"found 256 bytes at 4,611,686,018,427,387,904 of 5,704;"),
    (
        lambda prefix: set_entry(prefix, entry(shape=(2**40, 2**20), size_bytes=2**62)),
        r"kernel: 1,152,921,504,606,846,976 values of 4 bytes; found 4,611,686,018,427,387,904 bytes at 0 of 5,704; the",
    ),
    (lambda prefix: cut(prefix, 1, 1000), r"kernel: 64 values of 4 bytes; found 256 bytes at \d,\d+ of 1,000; the file is cut"),
    (lambda prefix: bundle_files(prefix)[1].unlink(), r"data-00000-of-00001: cannot be read: No such file"),
    (lambda prefix: bundle_files(prefix)[0].unlink(), r"ckpt\.index: cannot be read: No such file"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "text"), DAMAGE, ids=[text for _, text in DAMAGE])
def test_damage_is_one_line(spoil: Callable[[Path], None], text: str, tmp_path: Path) -> None:
    write_bundle(tmp_path / "model.ckpt", WEIGHTS)
    spoil(tmp_path / "model.ckpt")
    with pytest.raises(BertprepError, match=text) as caught:
        TensorBundle(tmp_path / "model.ckpt").read(NAME)
    assert "\n" not in str(caught.value)


def table_of(block: bytes, times: int = 1) -> bytes:
    """A table with this block, whatever it holds, listed once or more, and right checksums."""
    handle = b"k" + varint(0) + varint(len(block))
    index = (varint(0) + varint(1) + varint(len(handle) - 1) + handle) * times + struct.pack("<II", 0, 1)
    table = b""
    for content in (block, index):
        table += content + b"\0" + struct.pack("<I", masked_checksum(np.frombuffer(content + b"\0", np.uint8)))
    footer = varint(0) + varint(0) + varint(len(block) + 5) + varint(len(index))
    return table + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def test_keys_that_share_all_of_long_ones_take_no_memory() -> None:
    """A table of 0.1 MB that would be one of 120 MB, were its keys written out."""
    first = varint(0) + varint(60_000) + varint(0) + b"k" * 60_000
    others = b"".join(varint(60_000) + varint(2) + varint(0) + number.to_bytes(2, "big") for number in range(2000))
    with pytest.raises(ValueError, match="its keys and values take more than 67,108,864 bytes"):
        decode_table(table_of(first + others + struct.pack("<II", 0, 1)))


def test_a_block_that_is_listed_again_takes_no_time() -> None:
    with pytest.raises(ValueError, match=r"a block of 8 bytes at 0 does not fit into its \d+ bytes"):
        decode_table(table_of(struct.pack("<II", 0, 1), times=2))


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_bytes_with_right_checksums_are_one_line_at_the_worst(
    tmp_path_factory: pytest.TempPathFactory, block: bytes, value: bytes
) -> None:
    prefix = tmp_path_factory.getbasetemp() / "any.ckpt"
    header = integer(1, 1)
    for table in (table_of(block), encode_table([(b"", header), (b"a", value)]), encode_table([(b"", value), (b"a", b"")])):
        bundle_files(prefix)[0].write_bytes(table)
        with suppress(BertprepError):
            for name in (bundle := TensorBundle(prefix)).entries:
                bundle.read(name)


@pytest.mark.tensorflow
def test_tensorflow_writes_the_same_bytes(tmp_path: Path) -> None:
    save(tmp_path / "theirs", WEIGHTS)
    write_bundle(tmp_path / "ours", WEIGHTS)
    assert sums(tmp_path / "theirs") == sums(tmp_path / "ours")


@pytest.mark.tensorflow
def test_tensorflow_reads_what_is_written(tmp_path: Path) -> None:
    import tensorflow as tf

    prefix = str(tmp_path / "bert_model.ckpt")
    write_bundle(Path(prefix), WEIGHTS)
    assert dict(tf.train.list_variables(prefix)) == {name: list(value.shape) for name, value in WEIGHTS.items()}
    reader = tf.train.load_checkpoint(prefix)
    for name, value in WEIGHTS.items():
        np.testing.assert_array_equal(reader.get_tensor(name), value)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.set_random_seed(1)  # wanted where operations are deterministic
        names = [NAME, "cls/predictions/output_bias"]
        first, second = (tf.compat.v1.get_variable(name, WEIGHTS[name].shape) for name in names)
        tf.compat.v1.train.init_from_checkpoint(prefix, {NAME: NAME})  # as Google's and NVIDIA's scripts begin
        session.run(tf.compat.v1.global_variables_initializer())
        np.testing.assert_array_equal(session.run(first), WEIGHTS[NAME])
        tf.compat.v1.train.Saver([second]).restore(session, prefix)  # as they go on
        np.testing.assert_array_equal(session.run(second), WEIGHTS[names[1]])
