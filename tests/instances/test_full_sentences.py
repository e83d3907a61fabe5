"""Full sentences without pairs are what docs/formats.md says they are: an independent twin, written from its rules alone."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertprep.config import InstanceSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.instances import TokenizedShard, Vocabulary, generate_instances, generator
from bertprep.kernels.numbers import NO_SEGMENT, UNCHANGED

PAD, UNK, CLS, SEP, MASK, FIRST_WORD, TOKENS = 0, 1, 2, 3, 4, 5, 40
CONTINUES = range(30, TOKENS)
NAMES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"{'##' * (n in CONTINUES)}w{n}" for n in range(FIRST_WORD, TOKENS))]
VOCABULARY = Vocabulary(Path("vocab.txt"), tuple(NAMES), "", PAD, UNK, CLS, SEP, MASK)
Record = tuple[list[int], list[int], list[int]]  # input_ids, positions and labels, without padding


def twin(documents: list[list[list[int]]], asked: InstanceSettings, seed: int) -> list[Record]:
    """Rules 1 to 5 of docs/formats.md on numbers, with masks as `create_masked_lm_predictions` of BERT's script draws them."""
    rng, records, space = random.Random(seed), [], asked.seq - 2
    documents = list(documents)
    for _ in range(asked.dupe):
        rng.shuffle(documents)
        texts: list[list[int]] = []
        for d, document in enumerate(documents):
            for s, sentence in enumerate(document):
                mark = [SEP] if d and not s else []
                if texts and len(texts[-1] + mark + sentence) <= space:
                    texts[-1] += mark + sentence
                else:
                    texts += [sentence[start : start + space] for start in range(0, len(sentence), space)]
        for text in texts:
            ids, words, chosen = [CLS, *text, SEP], [], []
            for position, token in enumerate(ids):
                if token not in (CLS, SEP):
                    joins = asked.whole_word and words and token in CONTINUES
                    words[-1:] = [[*words[-1], position]] if joins else [*words[-1:], [position]]
            rng.shuffle(words)
            most = min(asked.pred, max(1, round(len(ids) * asked.masked_lm_prob)))
            shown = list(ids)
            for word in words:
                for position in word if len(chosen) + len(word) <= most else []:
                    chosen.append(position)
                    if rng.random() < 0.8:
                        shown[position] = MASK
                    elif rng.random() >= 0.5:
                        shown[position] = rng.randint(0, TOKENS - 1)
            records.append((shown, sorted(chosen), [ids[position] for position in sorted(chosen)]))
    rng.shuffle(records)
    return records


def shard_of(documents: list[list[list[int]]]) -> TokenizedShard:
    sentences = [sentence for document in documents for sentence in document]
    starts, ends = (np.cumsum([0, *map(len, each)], dtype=np.int64) for each in (sentences, documents))
    return TokenizedShard(np.concatenate(sentences).astype(np.int32), starts, ends, 0, 0)


def compiled(documents: list[list[list[int]]], asked: InstanceSettings, seed: int) -> list[Record]:
    made = generate_instances(shard_of(documents), VOCABULARY, asked, seed=seed)
    assert (made.slices[:, 3] == NO_SEGMENT).all()
    assert not made.is_random_next.any()
    records = []
    for number in made.order.tolist():
        start, size, *_ = made.slices[number].tolist()
        ids = [CLS, *made.tokens[start : start + size].tolist(), SEP]
        masks = slice(made.mask_ends[number - 1] if number else 0, made.mask_ends[number])
        positions = made.mask_positions[masks].tolist()
        labels = [ids[position] for position in positions]
        for position, replacement in zip(positions, made.mask_replacements[masks].tolist(), strict=True):
            ids[position] = ids[position] if replacement == UNCHANGED else replacement
        records.append((ids, positions, labels))
    return records


sentence = st.lists(st.integers(FIRST_WORD, TOKENS - 1), min_size=1, max_size=30)
# a special token comes from other tools' token files only
odd_sentence = st.lists(st.sampled_from([CLS, SEP, MASK, FIRST_WORD, TOKENS - 1]), min_size=1, max_size=9)
corpus = st.lists(st.lists(sentence | odd_sentence, min_size=1, max_size=6), min_size=1, max_size=6)


@st.composite
def asked_settings(draw: st.DrawFn) -> InstanceSettings:
    seq = draw(st.integers(8, 70))
    pred = draw(st.integers(1, seq - 2))
    prob = draw(st.sampled_from([0.15, 0.3, 1.0]) | st.floats(0.01, 1.0))
    return InstanceSettings(
        seq=seq, pred=pred, dupe=draw(st.integers(1, 4)), masked_lm_prob=prob, whole_word=draw(st.booleans()), pairs="none"
    )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(documents=corpus, asked=asked_settings(), seed=st.integers(0, 2**40))
def test_the_generator_equals_the_twin(documents: list[list[list[int]]], asked: InstanceSettings, seed: int) -> None:
    assert compiled(documents, asked, seed) == twin(documents, asked, seed)


def test_a_person_can_follow_an_example() -> None:
    """Sequences of up to six tokens of text: sentences join, [SEP] divides documents, a long sentence goes on in the next."""
    asked = InstanceSettings(seq=8, pred=6, dupe=1, masked_lm_prob=0.01, pairs="none")
    documents = [[[5, 6], [7, 8, 9, 10]], [[11]], [[*range(12, 20)]]]
    orders = {}
    for seed in range(20):
        texts = []
        for ids, positions, labels in compiled(documents, asked, seed):
            for position, label in zip(positions, labels, strict=True):
                ids[position] = label
            texts.append(tuple(ids[1:-1]))
        orders[tuple(sorted(texts))] = seed
    assert set(orders) == {
        tuple(sorted(texts))
        for texts in (
            [(5, 6, 7, 8, 9, 10), (11,), (12, 13, 14, 15, 16, 17), (18, 19)],  # the documents as they are
            [(5, 6, 7, 8, 9, 10), (12, 13, 14, 15, 16, 17), (18, 19, SEP, 11)],
            [(11, SEP, 5, 6), (7, 8, 9, 10), (12, 13, 14, 15, 16, 17), (18, 19)],
            [(11,), (12, 13, 14, 15, 16, 17), (18, 19, SEP, 5, 6), (7, 8, 9, 10)],
            [(12, 13, 14, 15, 16, 17), (18, 19, SEP, 5, 6), (7, 8, 9, 10, SEP, 11)],
            [(12, 13, 14, 15, 16, 17), (18, 19, SEP, 11), (5, 6, 7, 8, 9, 10)],
        )
    }


def test_each_round_has_every_token_once_and_another_order() -> None:
    rng = random.Random(1)
    documents = [
        [[rng.randint(FIRST_WORD, TOKENS - 1) for _ in range(rng.randint(1, 40))] for _ in range(9)] for _ in range(20)
    ]
    made = generate_instances(shard_of(documents), VOCABULARY, InstanceSettings(seq=32, pred=5, dupe=3, pairs="none"), seed=1)
    words = made.tokens[made.tokens != SEP].reshape(3, -1)
    assert (np.sort(words) == np.sort(words[0])).all()
    assert all((one != other).any() for one, other in pairwise(words))
    assert sorted(made.order.tolist()) == list(range(len(made)))


def test_what_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "MAX_TOKENS_IN_SHARD", 30)
    with pytest.raises(
        BertprepError, match="a shard of 10 tokens is too large; at most 30 in --dupe 5 rounds without pairs; make"
    ):
        generate_instances(shard_of([[[5] * 10]]), VOCABULARY, InstanceSettings(pairs="none"), seed=1)


@pytest.mark.parametrize(
    ("given_settings", "message"),
    [
        ({"pairs": "sentence"}, "--pairs sentence: unknown; choose one of next-sentence, none"),
        ({"pairs": "none", "short_seq_prob": 0.5}, "--short-seq-prob 0.5: is for sentence pairs; with --pairs none every"),
        ({"pairs": "none", "pred": 127}, "--pred 127: must be at least 1 and at most 126, the 128 tokens of a sequence less "),
        ({"pred": 126}, r"--pred 126: must be at least 1 and at most 125, .* less \[CLS\] and two \[SEP\]"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(given_settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        InstanceSettings(**given_settings)  # type: ignore[arg-type]
