"""Instances of the compiled generator and of the reference, as plain lists that can be compared and digested."""

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

from bertprep.config import InstanceSettings
from bertprep.instances import Tokenizer, Vocabulary, generate_instances, reference
from bertprep.kernels.numbers import NO_SEGMENT, UNCHANGED


@dataclass(frozen=True)
class PlainExample:
    """A record's features without padding."""

    input_ids: list[int]
    segment_ids: list[int]
    masked_lm_positions: list[int]
    masked_lm_ids: list[int]
    next_sentence_label: int


def compiled_examples(path: Path, vocabulary: Vocabulary, settings: InstanceSettings, *, seed: int) -> list[PlainExample]:
    shard = Tokenizer(vocabulary, lower=not settings.cased).tokenize_file(path)
    made = generate_instances(shard, vocabulary, settings, seed=seed)
    examples = []
    for instance in made.order.tolist():
        a_start, a_size, b_start, b_size = made.slices[instance].tolist()
        a, b = (made.tokens[start : start + size].tolist() for start, size in ((a_start, a_size), (b_start, max(b_size, 0))))
        input_ids = [vocabulary.cls, *a, vocabulary.sep, *([*b, vocabulary.sep] if b_size != NO_SEGMENT else [])]
        masks = slice(made.mask_ends[instance - 1] if instance else 0, made.mask_ends[instance])
        positions = made.mask_positions[masks].tolist()
        labels = [input_ids[position] for position in positions]
        for position, replacement in zip(positions, made.mask_replacements[masks].tolist(), strict=True):
            if replacement != UNCHANGED:
                input_ids[position] = replacement
        segments = [0] * (a_size + 2) + [1] * (b_size + 1)
        examples.append(PlainExample(input_ids, segments, positions, labels, int(made.is_random_next[instance])))
    return examples


def reference_examples(path: Path, vocabulary: Vocabulary, settings: InstanceSettings, *, seed: int) -> list[PlainExample]:
    ids = {token: number for number, token in enumerate(vocabulary.tokens)}
    return [
        PlainExample(
            [ids[token] for token in instance.tokens],
            instance.segment_ids,
            instance.masked_positions,
            [ids[token] for token in instance.masked_labels],
            int(instance.is_random_next),
        )
        for instance in reference.generate(path.read_bytes(), vocabulary.tokens, settings, seed=seed)
    ]


def golden_digest(examples: list[PlainExample], settings: InstanceSettings) -> str:
    """The digest that tests/golden/README.md defines."""
    digest = hashlib.sha256()
    for example in examples:
        length = len(example.input_ids)
        masks = len(example.masked_lm_positions)
        for values, width in (
            (example.input_ids, settings.seq),
            ([1] * length, settings.seq),
            (example.segment_ids, settings.seq),
            (example.masked_lm_positions, settings.pred),
            (example.masked_lm_ids, settings.pred),
        ):
            digest.update(struct.pack(f"<{width}q", *values, *[0] * (width - len(values))))
        digest.update(struct.pack(f"<{settings.pred}f", *[1.0] * masks, *[0.0] * (settings.pred - masks)))
        digest.update(struct.pack("<q", example.next_sentence_label))
    return digest.hexdigest()
