"""Planted faults of a data set: in single records, in many, in a file's bytes, in the manifest."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from bertprep.work.layout import MANIFEST, VOCABULARY
from tests.check.edits import TOKENS, draw_shown, drop_prediction, last, length, mask_again
from tests.check.faulty import Change, Spoiled, Values
from tests.records.handmade import Variant, field, float_list, message

RECORD = 3
"""Of the first training file: where faults of one record are planted."""

Plant = Callable[[Spoiled], object]


def in_record(change: Change) -> Plant:
    """Change record RECORD of the first file."""
    return lambda data: data.change_record(RECORD, change)


def in_short_record(change: Change) -> Plant:
    """Make record RECORD one that has padding, as it is found elsewhere in the file, and change it."""

    def plant(data: Spoiled) -> None:
        frames = data.frames(data.first)
        short = data.find(lambda values: 20 < length(values) < 100)
        frames[RECORD], frames[short] = frames[short], frames[RECORD]
        data.write(data.first, frames)
        data.change_record(RECORD, change)

    return plant


def take_back(is_of_pieces: bool) -> Plant:
    """The last prediction of a record, which is of the last piece of a word of several, or of a word of one piece."""

    def plant(data: Spoiled) -> None:
        number = data.find(
            lambda values: bool(TOKENS.continues_word[int(values["masked_lm_ids"][last(values)])]) == is_of_pieces
        )
        data.change_record(number, drop_prediction)

    return plant


def in_all(change: Change) -> Plant:
    """Change every training record."""
    return lambda data: data.change_all(change)


def in_second_file(change: Change) -> Plant:
    """Change every record of the second training file."""
    return lambda data: data.change_file(data.files("training")[1], change)


def in_manifest(change: Callable[[dict[str, Any], str], object]) -> Plant:
    """Change what the manifest says of the first file, given all its entries and that file's name."""
    return lambda data: data.change_manifest(lambda content: change(content["files"], data.first))


def redraw(masked: float, kept: float) -> Plant:
    """[MASK] and the token itself in these fractions of all training predictions."""
    rng = random.Random(1)
    return in_all(lambda values: draw_shown(values, rng, masked, kept))


def swap_labels(share: float) -> Plant:
    """Other next-sentence labels for this fraction of all training records, drawn at random."""
    rng = random.Random(1)

    def change(values: Values) -> None:
        if rng.random() < share:
            values["next_sentence_labels"] = [1 - values["next_sentence_labels"][0]]

    return in_all(change)


def flip(offset: int) -> Plant:
    """A bit of a byte of record RECORD, counted from the start of its frame, or from its end."""
    return lambda data: data.flip(RECORD, offset)


def with_message(content: bytes) -> Plant:
    """Record RECORD in a sound frame."""
    return lambda data: data.replace_data(RECORD, lambda _: content)


def write_as_floats(data: Spoiled) -> None:
    """The segments of record RECORD, in a float_list."""
    values = data.values(data.first)[RECORD]
    entry = field(1, field(1, b"segment_ids") + field(2, field(2, float_list(values.pop("segment_ids")))))
    rest = message(values, Variant(data.record_format))
    data.replace_data(RECORD, lambda _: rest + (field(1, entry) if data.record_format == "tfrecord" else entry))


def whole_file(content: bytes) -> Plant:
    """Other content of the first file."""
    return lambda data: (data.folder / data.first).write_bytes(content)


def cut_file(data: Spoiled) -> None:
    content = (data.folder / data.first).read_bytes()
    (data.folder / data.first).write_bytes(content[:-10])


def append_to_file(end: bytes) -> Plant:
    return lambda data: data.write(data.first, data.frames(data.first), end)


def repeat_file(data: Spoiled) -> None:
    data.write(data.files("training")[1], data.frames(data.first))


def swap_records(data: Spoiled) -> None:
    frames = data.frames(data.first)
    data.write(data.first, [frames[1], frames[0], *frames[2:]])


def repeat_records(data: Spoiled) -> None:
    """Every fourth record of the second file is one of the first."""
    second = data.files("training")[1]
    data.write(second, data.frames(second) + data.frames(data.first)[::4])


def masked_again(data: Spoiled, name: str) -> list[bytes]:
    """The records of a file under other masks."""
    changed = data.values(name)
    for values in changed:
        mask_again(values)
    return data.encode_all(changed)


def repeat_texts(data: Spoiled) -> None:
    """The second file is the first in another order, under other masks."""
    data.write(data.files("training")[1], masked_again(data, data.first)[::-1])


def copy_test_texts(data: Spoiled) -> None:
    """Every tenth record of the test file is in training, under other masks."""
    (test,) = data.files("test")
    data.write(data.first, data.frames(data.first) + masked_again(data, test)[::10])


def sort_by_length(data: Spoiled) -> None:
    for name in data.files("training"):
        data.write(name, data.encode_all(sorted(data.values(name), key=length)))


def sort_by_text(data: Spoiled) -> None:
    for name in data.files("training"):
        data.write(name, data.encode_all(sorted(data.values(name), key=lambda values: values["input_ids"])))


def halve_training(data: Spoiled) -> None:
    """As many records as the test split has, or one more, in both training files."""
    (test,) = data.files("test")
    left = (len(data.frames(test)) + 1) // 2
    for name in data.files("training"):
        data.write(name, data.frames(name)[:left])


def shrink_training(data: Spoiled) -> None:
    for name in data.files("training"):
        data.write(name, data.frames(name)[:50])


def leave_a_gap(data: Spoiled) -> None:
    """No manifest, and the second file by the third one's name."""
    second = data.folder / data.files("training")[1]
    second.rename(second.with_name(re.sub(r"1(?=\D*$)", "2", second.name)))
    (data.folder / MANIFEST).unlink()


def copy_test_to_training(data: Spoiled) -> None:
    (test,) = data.files("test")
    data.write(data.first, data.frames(data.first) + data.frames(test))


def remove_file(data: Spoiled) -> None:
    (data.folder / data.first).unlink()


def count_one_less(files: dict[str, Any], name: str) -> None:
    files[name]["examples"] -= 1


def other_vocabulary(data: Spoiled) -> None:
    path = data.folder / VOCABULARY
    path.write_text(path.read_text(encoding="utf-8") + "somethingelse\n", encoding="utf-8")


def spoil_manifest(data: Spoiled) -> None:
    (data.folder / MANIFEST).write_text('{"format": 1}')


def say_pairs(data: Spoiled) -> None:
    """Records that are said to be of sentence pairs."""
    data.change_manifest(lambda content: content["made_with"].update(pairs="next-sentence"))
