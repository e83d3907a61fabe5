"""Faults of a record: edits of its values, lists of numbers by feature, in place."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from bertprep.instances import load_vocabulary
from tests.check.faulty import Change, Values
from tests.golden import GOLDEN
from tests.records.handmade import Number

TOKENS = load_vocabulary(GOLDEN / "vocab.txt")
SEP, MASK, THE = TOKENS.sep, TOKENS.mask, TOKENS.tokens.index("the")

Position = int | Callable[[Values], int]


def length(values: Values) -> int:
    return int(sum(values["input_mask"]))


def predictions(values: Values) -> int:
    return int(sum(values["masked_lm_weights"]))


def last(values: Values) -> int:
    return predictions(values) - 1


def last_position(values: Values) -> int:
    return length(values) - 1


def first_sep(values: Values) -> int:
    return values["segment_ids"].index(1) - 1


def put(feature: str, position: Position, value: Number) -> Change:
    """Another value at a position of a feature."""

    def change(values: Values) -> None:
        values[feature][position(values) if callable(position) else position] = value

    return change


def put_in_text(token: int) -> Change:
    """A token at a position of A that is not predicted."""

    def change(values: Values) -> None:
        position = next(p for p in range(2, 60) if p not in values["masked_lm_positions"] and values["input_ids"][p] != SEP)
        values["input_ids"][position] = token

    return change


def begin_with_sep(values: Values) -> None:
    """A [SEP] for the first token of the text; without pairs there may be any number, but not of nothing."""
    assert values["masked_lm_positions"][0] != 1
    values["input_ids"][1] = SEP


def exchange_segments(values: Values) -> None:
    values["segment_ids"] = [mask - segment for mask, segment in zip(values["input_mask"], values["segment_ids"], strict=True)]


def no_next_sentence(values: Values) -> None:
    values["next_sentence_labels"] = [1]


def longer(values: Values) -> None:
    for feature in ("input_ids", "input_mask", "segment_ids"):
        values[feature] += [0] * 8


def restore(values: Values, prediction: int) -> None:
    """Put the label back at the position of a prediction."""
    values["input_ids"][int(values["masked_lm_positions"][prediction])] = values["masked_lm_ids"][prediction]


def move_mask(prediction: Callable[[Values], int], position: Callable[[Values], int]) -> Callable[[Values], None]:
    """Predict the token at a position instead of that of another prediction."""

    def change(values: Values) -> None:
        number, to = prediction(values), position(values)
        restore(values, number)
        values["masked_lm_ids"][number] = values["input_ids"][to]
        values["masked_lm_positions"][number] = to
        values["input_ids"][to] = MASK

    return change


def swap_predictions(values: Values) -> None:
    for feature in ("masked_lm_positions", "masked_lm_ids"):
        values[feature][0], values[feature][1] = values[feature][1], values[feature][0]


def drop_prediction(values: Values) -> None:
    number = last(values)
    restore(values, number)
    for feature in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
        values[feature][number] = 0


def add_prediction(values: Values) -> None:
    """One more than there may be, at the last position of B."""
    taken = [int(p) for p in values["masked_lm_positions"][: predictions(values)]]
    number = len(taken)
    position = next(p for p in range(length(values) - 2, 0, -1) if p > taken[-1] and values["input_ids"][p] != SEP)
    for feature, value in (("positions", position), ("ids", values["input_ids"][position]), ("weights", 1.0)):
        values[f"masked_lm_{feature}"][number] = value
    values["input_ids"][position] = MASK


def predict_the(values: Values) -> None:
    values["masked_lm_ids"][: predictions(values)] = [THE] * predictions(values)


def draw_shown(values: Values, rng: random.Random, masked: float, kept: float) -> None:
    """Draw again what each prediction shows: [MASK] and the token itself with these probabilities, else any token."""
    for number in range(predictions(values)):
        chance, label = rng.random(), values["masked_lm_ids"][number]
        shown = MASK if chance < masked else label if chance < masked + kept else rng.randrange(len(TOKENS))
        values["input_ids"][int(values["masked_lm_positions"][number])] = shown


def shift_labels(values: Values) -> None:
    """The label of each prediction is the token after it, and so is the token where it is left as it is."""
    count = predictions(values)
    positions, labels, shown = values["masked_lm_positions"], values["masked_lm_ids"], values["input_ids"]
    text = list(shown)
    for number in range(count):
        text[int(positions[number])] = labels[number]
    for number in range(count):
        position = int(positions[number])
        if text[position + 1] != SEP:
            if shown[position] == labels[number]:
                shown[position] = text[position + 1]
            labels[number] = text[position + 1]


def halve_random(values: Values) -> None:
    """Random tokens are drawn from the first half of the vocabulary only."""
    for number in range(predictions(values)):
        position, label = int(values["masked_lm_positions"][number]), values["masked_lm_ids"][number]
        if values["input_ids"][position] not in (MASK, label):
            values["input_ids"][position] = int(values["input_ids"][position]) // 2


def invert_next(values: Values) -> None:
    values["next_sentence_labels"] = [1 - values["next_sentence_labels"][0]]


def reverse_a(values: Values) -> None:
    """The tokens of A from last to first, each with its prediction."""
    end, count = first_sep(values), predictions(values)
    values["input_ids"][1:end] = values["input_ids"][1:end][::-1]
    positions = [int(p) for p in values["masked_lm_positions"][:count]]
    moved = sorted((end - p if p < end else p, label) for p, label in zip(positions, values["masked_lm_ids"], strict=False))
    values["masked_lm_positions"][:count] = [position for position, _ in moved]
    values["masked_lm_ids"][:count] = [label for _, label in moved]


def copy_a_to_b(values: Values) -> None:
    """The tokens of A in the place of B's, again and again, with the masks where they were."""
    shown, count = values["input_ids"], predictions(values)
    labels = dict(zip(map(int, values["masked_lm_positions"][:count]), range(count), strict=True))
    text = [values["masked_lm_ids"][labels[p]] if p in labels else token for p, token in enumerate(shown)]
    of_a, start = text[1 : first_sep(values)], first_sep(values) + 1
    for position in range(start, last_position(values)):
        token, number = of_a[(position - start) % len(of_a)], labels.get(position)
        if number is None or shown[position] == values["masked_lm_ids"][number]:
            shown[position] = token
        if number is not None:
            values["masked_lm_ids"][number] = token


def renumber(numbers: Sequence[int]) -> Change:
    """Another number for each token."""

    def change(values: Values) -> None:
        count = predictions(values)
        values["input_ids"] = [numbers[int(token)] for token in values["input_ids"]]
        values["masked_lm_ids"][:count] = [numbers[int(token)] for token in values["masked_lm_ids"][:count]]

    return change


_WORDS = [number for number in range(len(TOKENS)) if number not in (TOKENS.pad, TOKENS.unk, TOKENS.cls, SEP, MASK)]


_SHUFFLED = dict(zip(_WORDS, random.Random(1).sample(_WORDS, len(_WORDS)), strict=True))
SHUFFLED_NUMBERS = [_SHUFFLED.get(number, number) for number in range(len(TOKENS))]


def label_next(label: int) -> Change:
    return put("next_sentence_labels", 0, label)


def mask_again(values: Values) -> None:
    """Other masks for the same text, as many."""
    count, rng = predictions(values), random.Random(str(values))
    for number in range(count):
        restore(values, number)
    positions = [position for position in range(1, last_position(values)) if position != first_sep(values)]
    chosen = sorted(rng.sample(positions, count))
    values["masked_lm_positions"][:count] = chosen
    values["masked_lm_ids"][:count] = [values["input_ids"][position] for position in chosen]
    draw_shown(values, rng, 0.8, 0.1)


def mask_first_half(values: Values) -> None:
    """Predict as many positions, but of the first half of the text only."""
    count, half = predictions(values), length(values) // 2
    for number in range(count):
        restore(values, number)
    positions = [position for position in range(1, half) if values["input_ids"][position] != SEP]
    rng = random.Random(str(values))
    chosen = sorted(rng.sample(positions, min(count, len(positions))))  # a short text has too few
    empty = [0] * (len(values["masked_lm_ids"]) - len(chosen))
    values["masked_lm_positions"] = [*chosen, *empty]
    values["masked_lm_ids"] = [*(values["input_ids"][position] for position in chosen), *empty]
    values["masked_lm_weights"] = [*([1.0] * len(chosen)), *empty]
    draw_shown(values, rng, 0.8, 0.1)
