"""Faults as changes: of the values of one record or of all, of a file's bytes, of the manifest; each is one function.

A change of values takes a record's lists of numbers and spoils them in place. What takes a `Spoiled` plants it in the data set.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from bertprep.instances import load_vocabulary
from bertprep.layout import MANIFEST, VOCABULARY
from tests.check.faulty import Change, Spoiled, Values
from tests.golden import GOLDEN
from tests.records.handmade import Dialect, Number, field, float_list, message

TOKENS = load_vocabulary(GOLDEN / "vocab.txt")
CLS, SEP, MASK, THE = TOKENS.cls, TOKENS.sep, TOKENS.mask, TOKENS.tokens.index("the")
RECORD = 3  # that faults of one record are planted in

Place = int | Callable[[Values], int]
Plant = Callable[[Spoiled], object]


def length(values: Values) -> int:
    return int(sum(values["input_mask"]))


def predictions(values: Values) -> int:
    return int(sum(values["masked_lm_weights"]))


def put(feature: str, place: Place, value: Number) -> Change:
    """Another value at a place of a feature."""

    def change(values: Values) -> None:
        values[feature][place(values) if callable(place) else place] = value

    return change


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


def restore(values: Values, prediction: int) -> None:
    """Put the label back at the place of a prediction."""
    values["input_ids"][int(values["masked_lm_positions"][prediction])] = values["masked_lm_ids"][prediction]


def move_mask(prediction: Callable[[Values], int], place: Callable[[Values], int]) -> Callable[[Values], None]:
    """Predict what stands at `place` in place of another prediction."""

    def change(values: Values) -> None:
        number, to = prediction(values), place(values)
        restore(values, number)
        values["masked_lm_ids"][number] = values["input_ids"][to]
        values["masked_lm_positions"][number] = to
        values["input_ids"][to] = MASK

    return change


def last(values: Values) -> int:
    return predictions(values) - 1


def swap_predictions(values: Values) -> None:
    for feature in ("masked_lm_positions", "masked_lm_ids"):
        values[feature][0], values[feature][1] = values[feature][1], values[feature][0]


def repeat_prediction(values: Values) -> None:
    for feature in ("masked_lm_positions", "masked_lm_ids"):
        values[feature][1] = values[feature][0]


def drop_prediction(values: Values) -> None:
    number = last(values)
    restore(values, number)
    for feature in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
        values[feature][number] = 0


def drop_predictions(values: Values) -> None:
    while predictions(values):
        drop_prediction(values)


def add_prediction(values: Values) -> None:
    """One more than there may be, at the last place of B."""
    taken = [int(p) for p in values["masked_lm_positions"][: predictions(values)]]
    number = len(taken)
    place = next(p for p in range(length(values) - 2, 0, -1) if p > taken[-1] and values["input_ids"][p] != SEP)
    for feature, value in (("positions", place), ("ids", values["input_ids"][place]), ("weights", 1.0)):
        values[f"masked_lm_{feature}"][number] = value
    values["input_ids"][place] = MASK


def masks_on(values: Values, wanted: Callable[[random.Random, Number], Number], rng: random.Random) -> None:
    """Let `wanted` say, of the label, what stands at each predicted place."""
    for number in range(predictions(values)):
        label = values["masked_lm_ids"][number]
        values["input_ids"][int(values["masked_lm_positions"][number])] = wanted(rng, label)


def redraw(*shares: float) -> Plant:
    """[MASK] and the token itself at these shares, any token at the rest."""
    rng = random.Random(1)

    def draw(rng: random.Random, label: Number) -> Number:
        chance = rng.random()
        return MASK if chance < shares[0] else label if chance < sum(shares) else rng.randrange(len(TOKENS))

    return lambda data: data.change_all(lambda values: masks_on(values, draw, rng))


def mask_first_half(values: Values) -> None:
    count, half = predictions(values), length(values) // 2
    for number in range(count):
        restore(values, number)
    places = [place for place in range(1, half) if values["input_ids"][place] != SEP]
    chosen = sorted(random.Random(str(values)).sample(places, min(count, len(places))))
    for number, place in enumerate(chosen):
        values["masked_lm_positions"][number] = place
        values["masked_lm_ids"][number] = values["input_ids"][place]
        values["input_ids"][place] = MASK if number % 10 > 1 else values["input_ids"][place]
    for number in range(len(chosen), count):  # a short record has no room for all
        for feature in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
            values[feature][number] = 0


def predict_the(values: Values) -> None:
    values["masked_lm_ids"][: predictions(values)] = [THE] * predictions(values)


def longer(values: Values) -> None:
    for feature in ("input_ids", "input_mask", "segment_ids"):
        values[feature] += [0] * 8


def write_as_floats(data: Spoiled) -> None:
    """The segments of record RECORD, in a float_list."""
    values = data.values(data.first)[RECORD]
    entry = field(1, field(1, b"segment_ids") + field(2, field(2, float_list(values.pop("segment_ids")))))
    rest = message(values, Dialect(data.record_format))
    data.replace_data(RECORD, lambda _: rest + (field(1, entry) if data.record_format == "tfrecord" else entry))


def flip(place: int) -> Plant:
    """A bit of a byte of record RECORD, counted from the start of its frame, or from its end."""
    return lambda data: data.flip(RECORD, place)


def with_message(content: bytes) -> Plant:
    """Record RECORD in a sound frame."""
    return lambda data: data.replace_data(RECORD, lambda _: content)


def whole_file(content: bytes) -> Plant:
    """Other content of the first file."""
    return lambda data: (data.folder / data.first).write_bytes(content)


def in_all(change: Change) -> Plant:
    """Change every training record."""
    return lambda data: data.change_all(change)


def in_second_file(change: Change) -> Plant:
    """Change every record of the second training file."""
    return lambda data: data.change_file(data.files("training")[1], change)


def in_manifest(change: Callable[[dict[str, Any], str], object]) -> Plant:
    """Change what the manifest says of the first file, given all its entries and that file's name."""
    return lambda data: data.change_manifest(lambda content: change(content["files"], data.first))


def exchange_segments(values: Values) -> None:
    values["segment_ids"] = [mask - segment for mask, segment in zip(values["input_mask"], values["segment_ids"], strict=True)]


def no_next_sentence(values: Values) -> None:
    values["next_sentence_labels"] = [1]


def last_place(values: Values) -> int:
    return length(values) - 1


def first_sep(values: Values) -> int:
    return values["segment_ids"].index(1) - 1


def repeat_file(data: Spoiled) -> None:
    data.write(data.files("training")[1], data.frames(data.first))


def spoil_manifest(data: Spoiled) -> None:
    (data.folder / MANIFEST).write_text("{}")


def remove_file(data: Spoiled) -> None:
    (data.folder / data.first).unlink()


def cut_file(data: Spoiled) -> None:
    content = (data.folder / data.first).read_bytes()
    (data.folder / data.first).write_bytes(content[:-10])


def append_to_file(end: bytes) -> Plant:
    return lambda data: data.write(data.first, data.frames(data.first), end)


def copy_test_to_training(data: Spoiled) -> None:
    (test,) = data.files("test")
    data.write(data.first, data.frames(data.first) + data.frames(test))


def repeat_records(data: Spoiled) -> None:
    """Every fourth record of the second file is one of the first."""
    second = data.files("training")[1]
    data.write(second, data.frames(second) + data.frames(data.first)[::4])


def swap_records(data: Spoiled) -> None:
    frames = data.frames(data.first)
    data.write(data.first, [frames[1], frames[0], *frames[2:]])


def other_vocabulary(data: Spoiled) -> None:
    path = data.folder / VOCABULARY
    path.write_text(path.read_text(encoding="utf-8") + "somethingelse\n", encoding="utf-8")


def put_in_text(token: int) -> Change:
    """A token at a place of A that is not predicted."""

    def change(values: Values) -> None:
        place = next(p for p in range(2, 60) if p not in values["masked_lm_positions"] and values["input_ids"][p] != SEP)
        values["input_ids"][place] = token

    return change


def count_one_less(files: dict[str, Any], name: str) -> None:
    files[name]["examples"] -= 1
