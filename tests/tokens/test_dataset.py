"""Rows for encoders: all of every document in each epoch, masked anew, and any batch of them from anywhere."""

from __future__ import annotations

import itertools
import json
import pickle
import re
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import bertprep
from bertprep import MaskSchedule, TokenDataset
from bertprep.errors import BertprepError, UsageError
from bertprep.records.record_dataset import stack_rows
from bertprep.tokens import dataset as token_dataset
from bertprep.tokens import packing
from bertprep.tokens.documents import TokenizerInfo
from bertprep.tokens.shard import DOCUMENT_FILES, write_token_shard
from bertprep.work.manifest import TOKEN_SHARDS, Manifest

PAD, UNK, CLS, SEP, MASK = range(5)
INFO = TokenizerInfo("tiny", "0" * 64, "BPE", 300, CLS, SEP, PAD, MASK, UNK, (0, 1, 2, 3, 4), "word_ids")
SEQ = 64
Row = dict[str, NDArray[np.int64]]


def documents(count: int, seed: int) -> list[tuple[NDArray[np.int32], NDArray[np.bool_]]]:
    """Tokens, of which some are [UNK], and which of them begin a word; words have 2.5 tokens on average."""
    random = np.random.default_rng(seed)
    lengths = random.lognormal(3.3, 1.0, count).astype(int) + 1
    found = []
    for length in lengths.tolist():
        begins = random.random(length) < 0.4
        begins[0] = True
        tokens = random.integers(5, INFO.width, length).astype(np.int32)
        found.append((np.where(random.random(length) < 0.02, UNK, tokens).astype(np.int32), begins))
    return found


def write_set(folder: Path, *, shards: int = 3, info: TokenizerInfo = INFO) -> Path:
    """Write token shards of documents(60, shard) each."""
    folder.mkdir()
    files = {}
    for shard in range(shards):
        paths = {end: folder / f"x_training_{shard:05d}.{end}" for end in DOCUMENT_FILES}
        with write_token_shard(paths, width=info.width) as writer:
            for tokens, begins in documents(60, shard):
                writer.add(tokens, np.array([len(tokens)]), begins_word=begins)
        files |= {paths[end].name: entry for end, entry in writer.entries.items()}
        files[paths["bin"].name] |= {"documents": writer.documents, "tokens": writer.tokens}
    (folder / "manifest.json").write_bytes(
        Manifest(TOKEN_SHARDS, {"tokenizer": info.made_with}, files, {"bertprep": "0"}).as_bytes()
    )
    return folder


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_set(tmp_path_factory.mktemp("tokens") / "set")


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small set have many windows, of two in a group, and keep no counts of them."""
    monkeypatch.setattr(packing, "WINDOW_TOKENS", 700)
    monkeypatch.setattr(packing, "MIN_WINDOWS", 1 << 30)
    monkeypatch.setattr(token_dataset, "WINDOWS_IN_GROUP", 2)


def sequences_of(row: Row, *, first_position: int = 0) -> list[list[int]]:
    """Return the tokens of the sequences of a packed row, labels in place of what masks replaced, padding left out."""
    ids = np.where(row["labels"] == -100, row["input_ids"], row["labels"])
    found = []
    for number in range(row["sequence_ids"][-1] + 1):
        is_own = row["sequence_ids"] == number
        assert row["position_ids"][is_own].tolist() == list(range(first_position, first_position + is_own.sum()))
        found.append(ids[is_own].tolist())
    return found if found[-1][0] != PAD else found[:-1]


def test_an_epoch_has_every_document_once(tokens: Path) -> None:
    dataset = TokenDataset(tokens, seq=SEQ, first_position=2)
    expected: Counter[tuple[int, ...]] = Counter()
    for shard in range(3):
        for ids, _ in documents(60, shard):
            chunks = [ids[at : at + SEQ - 2].tolist() for at in range(0, len(ids), SEQ - 2)]
            expected.update((CLS, *chunk, SEP) for chunk in chunks)
    orders = []
    for epoch in (0, 1, 7):
        dataset.set_epoch(epoch)
        rows = [dataset[position] for position in dataset.sampler()]
        found = [tuple(each) for row in rows for each in sequences_of(row, first_position=2)]
        assert Counter(found) == expected
        orders.append(found)
    assert orders[0] != orders[1] != orders[2]
    assert len(rows) * SEQ * 0.9 < sum(map(len, found))  # packed


def test_names_of_transformers_and_datasets_are_understood(tokens: Path) -> None:
    dataset = TokenDataset(tokens, "train", seq=SEQ, mlm_probability=0.15)
    assert dataset.sha256 == TokenDataset(tokens, seq=SEQ, masked_lm_prob=0.15).sha256
    with pytest.raises(UsageError, match=r"^masked_lm_prob 0.2 and mlm_probability 0.15: are one setting; give only one"):
        TokenDataset(tokens, masked_lm_prob=0.2, mlm_probability=0.15)


def test_a_document_may_be_longer_than_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [np.full(size, 9, np.int32) for size in (1, 5000, 1)]
    monkeypatch.setattr(f"{__name__}.documents", lambda *_: [(ids, ids > 0) for ids in made])
    dataset = TokenDataset(write_set(tmp_path / "set", shards=1), seq=SEQ)
    rows = dataset[:]
    assert (rows["sequence_ids"][:, 0] == 0).all()
    assert ((rows["input_ids"] > MASK) | (rows["labels"] > MASK)).sum() == 5002
    assert sorted(len(row) for row in map(sequences_of, dataset)) == [1] * 81 + [
        2
    ]  # the last document is in a window of its own
    assert len(next(dataset.batches(200))["input_ids"]) == 200  # of three epochs


def test_masks_are_as_asked_for_in_every_row(tokens: Path) -> None:
    shares = 0.6, 0.3, 0.1
    dataset = TokenDataset(tokens, seq=SEQ, masked_lm_prob=0.3, mask_as=shares)
    kinds: Counter[str] = Counter()
    at_position = np.zeros((2, SEQ))  # of the tokens that can be masked: those that are, all
    replaced_by: Counter[int] = Counter()
    for epoch in range(5):
        dataset.set_epoch(epoch)
        rows = dataset[:]
        is_masked = rows["labels"] != -100
        truth = np.where(is_masked, rows["labels"], rows["input_ids"])
        candidates = truth > MASK  # neither special nor [UNK]
        assert not (is_masked & ~candidates).any()
        assert is_masked.sum(1).max() <= dataset.most_predictions == round(0.3 * (SEQ - 2))
        assert is_masked.sum(1).tolist() == np.maximum(np.rint(candidates.sum(1) * 0.3), 1).tolist()
        shown, true = rows["input_ids"][is_masked], rows["labels"][is_masked]
        kinds += Counter({"mask": (shown == MASK).sum(), "keep": (shown == true).sum(), "all": len(true)})
        replaced_by.update(shown[(shown != MASK) & (shown != true)].tolist())
        at_position += [(is_masked).sum(0), candidates.sum(0)]
    assert kinds["all"] > 8_000
    for kind, share in zip(("mask", "keep"), (0.6, 0.1 + 0.3 / (INFO.width - 5)), strict=True):
        deviation = (share * (1 - share) / kinds["all"]) ** 0.5
        assert abs(kinds[kind] / kinds["all"] - share) < 3 * deviation
    masked, of = at_position[:, at_position[1] > 0]
    assert (abs(masked - 0.3 * of) < 4 * (0.21 * of + 1) ** 0.5).all()  # nowhere more than elsewhere
    assert min(replaced_by) > MASK
    assert len(replaced_by) == INFO.width - 5


def count_masked(rows: dict[str, Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many tokens of each row are masked, and how many could be."""
    is_masked = rows["labels"] != -100
    return is_masked.sum(1), (np.where(is_masked, rows["labels"], rows["input_ids"]) > MASK).sum(1)


def test_a_share_of_a_range_is_drawn_for_each_row_and_epoch(tokens: Path) -> None:
    dataset = TokenDataset(tokens, seq=SEQ, masked_lm_prob=(0.0, 1.0))
    masked, of = count_masked(dataset.rows(np.arange(12 * dataset.rows_in_epoch)))
    shares = (masked / of).reshape(12, -1)
    counts, _ = np.histogram(shares, 5, (0, 1))
    expected = shares.size / 5
    assert ((counts - expected) ** 2 / expected).sum() < 18.5  # chi-square of 4 degrees: once in a thousand
    assert shares.min() < 0.03
    assert shares.max() > 0.97
    assert (abs(np.diff(shares, axis=0)) > 0.02).mean() > 0.9  # each epoch has others
    assert dataset.most_predictions == SEQ - 2
    firsts = dataset.rows(np.arange(12 * dataset.rows_in_epoch))["labels"][:, 1] != -100
    assert abs(np.corrcoef(firsts, shares.ravel() > 0.5)[0, 1] - 0.5) < 0.2  # the share says no more of the masks than that


def test_a_schedule_changes_the_share_from_row_to_row_until_its_end(tokens: Path) -> None:
    dataset = TokenDataset(tokens, seq=SEQ, masked_lm_prob=MaskSchedule(0.6, 0.2, rows=100))
    masked, of = count_masked(dataset.rows(np.arange(164)))  # two epochs
    expected = np.maximum(0.6 - 0.4 * np.arange(164) / 100, 0.2) * of
    assert (abs(masked - expected) < 0.5001).all()
    assert dataset.most_predictions == round(0.6 * (SEQ - 2))
    assert TokenDataset(tokens, seq=SEQ, masked_lm_prob=MaskSchedule(0.2, 0.6, rows=9)).most_predictions == round(
        0.6 * (SEQ - 2)
    )
    assert dataset.made_of["settings"]["masked_lm_prob"] == {"start": 0.6, "end": 0.2, "rows": 100}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((0, 0.2, 5), "MaskSchedule: start 0: expected a fraction above 0 and below 1"),
        ((0.3, "0.2", 5), "MaskSchedule: end '0.2': expected a fraction"),
        ((0.3, 0.2, 1e6), "MaskSchedule: rows 1000000.0: expected a whole number of rows for the change"),
        ((0.3, 0.2, 0), "MaskSchedule: rows 0: expected a whole number of rows for the change, such as 1_000_000"),
    ],
)
def test_schedules_that_cannot_be_are_refused(given: Any, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        MaskSchedule(*given)


def spans_of(dataset: TokenDataset) -> tuple[list[int], list[bool]]:
    """Return the lengths in words of all runs of masked words, and whether all their tokens were treated alike."""
    lengths, alike = [], []
    words = {}
    for shard in range(3):
        for ids, begins in documents(60, shard):
            for at in range(0, len(ids), SEQ - 2):
                words[tuple(ids[at : at + SEQ - 2].tolist())] = begins[at : at + SEQ - 2]
    for row in map(dataset.__getitem__, range(len(dataset))):
        for number, ids in enumerate(sequences_of(row)):
            is_own = row["sequence_ids"] == number
            masked = (row["labels"] != -100)[is_own][1:-1]
            begins = words[tuple(ids[1:-1])]
            is_mask = row["input_ids"][is_own][1:-1] == MASK
            for run in np.split(np.arange(len(masked)), np.flatnonzero(np.diff(masked)) + 1):
                if masked[run[0]]:
                    lengths.append(int(begins[run].sum()))
                    alike.append(len({*is_mask[run].tolist()}) == 1)
    return lengths, alike


def test_the_longest_span_is_taken(tokens: Path) -> None:
    assert TokenDataset(tokens, seq=16, span=2**20).masking.span == 2**20


def test_a_span_is_replaced_as_one_and_an_ngram_token_by_token(tokens: Path) -> None:
    of_span, of_ngram = (
        TokenDataset(tokens, seq=SEQ, masked_lm_prob=0.05, mask_as=(0.5, 0.0, 0.5), **law)
        for law in ({"span": 10}, {"ngram": 3})
    )
    (_, alike), (lengths, mixed) = spans_of(of_span), spans_of(of_ngram)
    assert np.mean(alike) > 0.95  # some spans touch
    assert np.mean(mixed) < 0.8
    assert max(lengths) >= 3
    assert repr(of_span).endswith("0.05 of the tokens masked by spans of up to 10 whole words (rule word_ids))")
    assert repr(of_ngram).endswith("0.05 of the tokens masked by n-grams of up to 3 whole words (rule word_ids))")


def ids_of(batches: Iterable[dict[str, Any]]) -> list[Any]:
    return [batch["input_ids"].tolist() for batch in batches]


def test_rows_of_like_length_come_together_once_an_epoch_in_batches_of_any_size(
    tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_dataset, "WINDOWS_IN_GROUP", 1000)
    dataset = TokenDataset(tokens, seq=SEQ, packed=False, by_length=True)
    plain = TokenDataset(tokens, seq=SEQ, packed=False)
    count = len(dataset)
    rows = dataset.rows(np.arange(2 * count))
    truth = np.where(rows["labels"] != -100, rows["labels"], rows["input_ids"])
    of_plain = plain.rows(np.arange(count))
    expected = np.where(of_plain["labels"] != -100, of_plain["labels"], of_plain["input_ids"])
    for epoch in range(2):
        assert sorted(truth[epoch * count :][:count].tolist()) == sorted(expected.tolist())  # each once
    assert (truth[:count] != truth[count:]).any()
    lengths = rows["attention_mask"].sum(1)[:count]
    runs = lengths[: count // 8 * 8].reshape(-1, 8)
    assert (np.diff(runs, axis=1) >= 0).all()
    assert (np.diff(runs[:, 0]) < 0).any()  # runs come in random order
    width = [batch["input_ids"].shape[1] for batch in dataset.batches(8, stop=count // 8)]
    of_plain_width = [batch["input_ids"].shape[1] for batch in plain.batches(8, stop=count // 8)]
    real = lengths[: count // 8 * 8].sum() / 8
    assert real / sum(width) > 0.85 > 0.7 > real / sum(of_plain_width)
    assert dataset.sha256 != plain.sha256
    again = pickle.loads(pickle.dumps(dataset))
    assert ids_of(again.batches(8, first=3, stop=5)) == ids_of(dataset.batches(8, stop=5))[3:]


def test_documents_of_other_lengths_are_left_out(tokens: Path) -> None:
    everything = [ids for shard in range(3) for ids, _ in documents(60, shard)]
    dataset = TokenDataset(tokens, seq=SEQ, min_document_tokens=20, max_document_tokens=100)
    expected = sorted(
        tuple(ids[at : at + SEQ - 2].tolist())
        for ids in everything
        if 20 <= len(ids) <= 100
        for at in range(0, len(ids), SEQ - 2)
    )
    found = sorted(tuple(ids[1:-1]) for row in map(dataset.__getitem__, range(len(dataset))) for ids in sequences_of(row))
    assert found == expected
    longest = max(map(len, everything))
    assert len(TokenDataset(tokens, seq=SEQ, min_document_tokens=longest)) > 0
    with pytest.raises(
        UsageError, match=rf"none of its 180 documents has at least {longest + 1} tokens; they have [1-9] to {longest} tokens;"
    ):
        TokenDataset(tokens, min_document_tokens=longest + 1)
    with pytest.raises(UsageError, match="min_document_tokens 9: is more than max_document_tokens 8"):
        TokenDataset(tokens, min_document_tokens=9, max_document_tokens=8)
    assert dataset.sha256 != TokenDataset(tokens, seq=SEQ).sha256


def test_a_batch_is_as_wide_as_its_longest_row(tokens: Path) -> None:
    dataset = TokenDataset(tokens, seq=SEQ, packed=False)
    for number, batch in enumerate(dataset.batches(2, stop=20)):
        whole = dataset.rows(np.arange(2 * number, 2 * number + 2))
        longest = whole["attention_mask"].sum(1).max()
        assert_equal(batch, {name: values[:, :longest] for name, values in whole.items()})
        assert all(values.flags.c_contiguous for values in batch.values())  # which views of tensors need
        assert not whole["attention_mask"][:, longest:].any()


def test_batches_of_tokens_have_as_many_rows_as_fit(tokens: Path) -> None:
    dataset = TokenDataset(tokens, seq=SEQ, packed=False, by_length=True)
    batches = list(itertools.islice(dataset.batches_of_tokens(200), 100))
    position = 0
    for batch in batches:
        rows, width = batch["input_ids"].shape
        assert rows * width <= 200
        following = dataset.rows([position + rows])["attention_mask"].sum()
        assert (rows + 1) * max(width, following) > 200
        whole = dataset.rows(np.arange(position, position + rows))
        assert_equal(batch, {name: values[:, :width] for name, values in whole.items()})
        position += rows
    assert ids_of(itertools.islice(dataset.batches_of_tokens(200, first=7, step=3), 5)) == ids_of(batches[7:22:3])


def test_a_mixture_has_batches_of_tokens_too(tokens: Path) -> None:
    sets = [(TokenDataset(tokens, seq=SEQ, packed=False, by_length=True, seed=seed), 1) for seed in (1, 2)]
    mixture = bertprep.Mixture(sets)
    for batch in itertools.islice(mixture.batches_of_tokens(300), 50):
        assert batch["input_ids"].size <= 300


@pytest.mark.parametrize("span", [None, 10])
def test_whole_words_are_masked_or_left_but_for_the_rest_of_a_share(tokens: Path, span: int | None) -> None:
    dataset = TokenDataset(tokens, seq=SEQ, masked_lm_prob=0.2, whole_word=True, span=span, mask_as=(1, 0, 0))
    words_of = {}  # the words of a sequence's tokens, as numbers
    for shard in range(3):
        for ids, begins in documents(60, shard):
            for at in range(0, len(ids), SEQ - 2):
                chunk = ids[at : at + SEQ - 2]
                first = begins[at : at + SEQ - 2] | (chunk == UNK) | np.insert(chunk[:-1] == UNK, 0, True)
                sizes = np.diff(np.flatnonzero(first), append=len(chunk))
                first |= np.repeat(sizes > 16, sizes)  # too long for a word
                words_of[tuple(chunk.tolist())] = np.cumsum(first)
    runs, in_parts = [], 0
    for row in map(dataset.__getitem__, range(len(dataset))):
        is_masked = row["labels"] != -100
        candidates = (np.where(is_masked, row["labels"], row["input_ids"]) > MASK).sum()
        assert is_masked.sum() == max(round(0.2 * candidates), 1)
        masked_in_part, left = 0, [SEQ]  # tokens of words that are masked in part, and the sizes of these and of other words
        for number, ids in enumerate(sequences_of(row)):
            words = words_of[tuple(ids[1:-1])]
            masked = is_masked[row["sequence_ids"] == number][1:-1]
            of_words = [masked[words == word] for word in np.unique(words)]
            parts = [each.sum() for each in of_words if each.any() and not each.all()]
            masked_in_part += sum(parts)
            left += [
                len(each)
                for word, each in zip(np.unique(words), of_words, strict=True)
                if not each.all() and np.array(ids[1:-1])[words == word][0] != UNK
            ]
            runs += [len(run) for run in "".join("x" if each.all() else " " for each in of_words).split()]
        assert masked_in_part < min(left)  # no whole word fitted
        in_parts += masked_in_part
    assert 0 < in_parts < 30
    assert np.mean(runs) > 1.7 if span else np.mean(runs) < 1.5


@pytest.mark.parametrize("settings", [{"whole_word": True}, {"span": 10}, {"span": 10, "packed": False}])
def test_text_without_words_is_masked_as_much_as_other_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """A document of one word is Chinese for a tokenizer that marks spaces; four of five are so here."""
    made = [(ids, begins if at % 5 == 0 else np.arange(len(ids)) == 0) for at, (ids, begins) in enumerate(documents(60, 0))]
    monkeypatch.setattr(f"{__name__}.documents", lambda *_: made)
    folder = write_set(tmp_path / "set", shards=1)
    with pytest.warns(
        UserWarning,
        match=r"set: by the word rule word_ids, \d\d% of the first tokens are in words of more than 16 tokens; such",
    ):
        dataset = TokenDataset(folder, seq=SEQ, **settings)
    assert re.search(
        r"0.3 of the tokens masked by (spans of up to 10 )?whole words \(rule word_ids\), \d\d% token by token\)$",
        repr(dataset),
    )
    rows = dataset[:]
    is_masked = rows["labels"] != -100
    candidates = np.where(is_masked, rows["labels"], rows["input_ids"]) > MASK
    assert is_masked.sum(1).tolist() == np.maximum(np.rint(candidates.sum(1) * 0.3), 1).tolist()
    assert 0.2 < is_masked[:, 1:11].sum() / candidates[:, 1:11].sum() < 0.4  # not one part of a row alone


@pytest.mark.parametrize("settings", [{}, {"whole_word": True}, {"span": 10}])
@pytest.mark.parametrize("word", [1, 3, 5000], ids=["a token", "three tokens", "no end"])
def test_a_text_of_one_repeated_word_is_masked_as_much_as_other_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: int, settings: dict[str, Any]
) -> None:
    made = [(np.full(size, 9, np.int32), np.arange(size) % word == 0) for size in (1, 2, 61, 2000)]
    monkeypatch.setattr(f"{__name__}.documents", lambda *_: made)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of words that are too long
        rows = TokenDataset(write_set(tmp_path / "set", shards=1), seq=SEQ, **settings)[:]
    is_masked = rows["labels"] != -100
    candidates = np.where(is_masked, rows["labels"], rows["input_ids"]) == 9
    assert is_masked.sum(1).tolist() == np.maximum(np.rint(candidates.sum(1) * 0.3), 1).tolist()


@pytest.mark.parametrize("settings", [{}, {"whole_word": True}, {"span": 10}])
def test_a_row_of_unknown_tokens_alone_has_no_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """docs/how-to/encoders.md says so: there is nothing to predict."""
    made = [(np.full(size, token, np.int32), np.ones(size, np.bool_)) for size, token in ((62, UNK), (62, 9))]
    monkeypatch.setattr(f"{__name__}.documents", lambda *_: made)
    rows = TokenDataset(write_set(tmp_path / "set", shards=1), seq=SEQ, **settings)[:]
    is_unknown = (rows["input_ids"] == UNK).any(1)
    assert (rows["labels"] != -100).sum(1)[np.argsort(is_unknown)].tolist() == [round(0.3 * 62), 0]
    assert rows["input_ids"][is_unknown].tolist() == [[CLS, *[UNK] * 62, SEP]]


def test_words_of_sentence_shards_are_those_of_the_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab c.\nc ab.\n\nab.\n" * 50)
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "c", "."]) + "\n")
    bertprep.tokenize(
        inputs=[tmp_path / "a.txt"], vocab=tmp_path / "vocab.txt", output=tmp_path / "set", lines_are_sentences=True
    )
    rows = TokenDataset(tmp_path / "set", seq=SEQ, whole_word=True)[:]
    masked_a, masked_b = rows["labels"] == 5, rows["labels"] == 6
    assert masked_a.any()
    np.testing.assert_array_equal(masked_a[:, :-1], masked_b[:, 1:])


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_any_batch_is_the_same_from_anywhere(tokens: Path) -> None:
    """Killed and resumed at any batch, by any number of readers and ranks, in batches of any size."""
    dataset = TokenDataset(tokens, seq=SEQ)
    count = -(-2 * len(dataset) // 8)  # batches, of two epochs
    batches = list(dataset.batches(8, stop=count))
    rows = {name: np.concatenate([batch[name] for batch in batches]) for name in ("input_ids", "labels", "position_ids")}
    assert not np.array_equal(rows["labels"][: len(dataset)], rows["labels"][len(dataset) : 2 * len(dataset)])
    dataset.set_epoch(1)
    first = dataset.__getitems__([*dataset.sampler()][:3]).columns
    assert_equal({name: first[name] for name in rows}, {name: array[len(dataset) :][:3] for name, array in rows.items()})
    both = TokenDataset(tokens, seq=SEQ, epochs=2)
    assert len(both) == 2 * len(dataset)
    assert_equal({name: both[-3:][name] for name in rows}, {name: dataset[-3:][name] for name in rows})
    of_both = both.__getitems__([*both.sampler()]).columns  # all of two epochs
    assert_equal({name: of_both[name] for name in rows}, {name: array[: len(both)] for name, array in rows.items()})
    both.set_epoch(1)  # the pass after that
    dataset.set_epoch(2)
    assert_equal({name: both[:3][name] for name in rows}, {name: dataset[:3][name] for name in rows})
    dataset.set_epoch(0)
    assert [len(batch["labels"]) for batch in dataset.batches(8, rows=range(0), stop=2)] == [0, 0]  # of no rank
    for first in range(count):
        resumed = TokenDataset(tokens, seq=SEQ) if first % 10 == 0 else pickle.loads(pickle.dumps(dataset))
        assert_equal(next(resumed.batches(8, first=first, stop=first + 1)), batches[first])
    readers = [dataset.batches(8, first=reader, step=4, stop=count) for reader in range(4)]
    for number in range(count):
        assert_equal(next(readers[number % 4]), batches[number])
    ranks = [dataset.batches(15, rows=range(5 * rank, 5 * rank + 5), stop=6) for rank in range(3)]
    for number, of_ranks in enumerate(zip(*ranks, strict=True)):
        found = {name: np.concatenate([batch[name] for batch in of_ranks]) for name in rows}
        assert_equal(found, {name: array[15 * number :][:15] for name, array in rows.items()})


DIGEST = """
import hashlib, sys
from bertprep import TokenDataset
batch = next(TokenDataset(sys.argv[1], seq=64, whole_word=True).batches(50, first=3))
print(hashlib.sha256(b"".join(batch[name].astype("<i8").tobytes() for name in ("input_ids", "labels"))).hexdigest())
"""


def test_another_process_makes_the_rows_that_are_pinned_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of them is Breaking: a training that is resumed would continue with other data."""
    counted = [np.arange(size, dtype=np.int32) * size % 295 + 5 for size in range(1, 150)]  # the same with any NumPy
    monkeypatch.setattr(f"{__name__}.documents", lambda *_: [(ids, ids % 3 > 0) for ids in counted])
    folder = write_set(tmp_path / "set", shards=2)
    shown = subprocess.run([sys.executable, "-c", DIGEST, folder], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "cdcf6d3b5d64503d920c3dcbd712dc4099bde0d0a2edb41f4c18b580cd852139"


def test_labels_of_causal_language_models(tmp_path: Path) -> None:
    info = TokenizerInfo(**{**vars(INFO), "cls": None, "mask": None, "special": (0, 1, 3)})
    dataset = TokenDataset(write_set(tmp_path / "set", info=info, shards=1), seq=SEQ, objective="clm")
    assert dataset.masks == "no masks"
    rows = dataset[:]
    starts = rows["position_ids"] == 0
    is_padding = (rows["sequence_ids"] == rows["sequence_ids"][:, -1:]) & (rows["input_ids"][:, -1:] == PAD)
    np.testing.assert_array_equal(rows["labels"], np.where(starts | is_padding, -100, rows["input_ids"]))
    assert dataset.most_predictions == SEQ - 1 == (rows["labels"] != -100).sum(1).max()
    ends = np.roll(starts, -1, 1) | np.eye(1, SEQ, SEQ - 1, dtype=np.bool_)
    assert (rows["input_ids"][ends & ~is_padding] == SEP).all()


def test_rows_of_one_sequence_have_an_attention_mask(tokens: Path) -> None:
    dataset = TokenDataset(tokens, seq=SEQ, packed=False)
    chunks = sum(-(-len(ids) // (SEQ - 2)) for shard in range(3) for ids, _ in documents(60, shard))
    rows = dataset[:]
    assert list(rows) == ["input_ids", "attention_mask", "labels"]
    assert rows["input_ids"].shape == (len(dataset), SEQ) == (chunks, SEQ)
    np.testing.assert_array_equal(rows["attention_mask"], rows["input_ids"] != PAD)
    assert (rows["input_ids"][:, 0] == CLS).all()
    assert list(next(dataset.batches(4))) == list(rows)


def test_boundaries_of_a_batch_and_who_attends_to_whom(tokens: Path) -> None:
    dataset = TokenDataset(tokens, seq=SEQ, first_position=2)
    batch = next(dataset.batches(4))
    flat = batch["sequence_ids"] + 100 * np.arange(4)[:, None]
    changes = np.flatnonzero(np.diff(flat.ravel())) + 1
    assert batch["cu_seqlens"].dtype == np.int32
    assert batch["cu_seqlens"].tolist() == [0, *changes.tolist(), 4 * SEQ]
    for row in dataset.batches(1, stop=len(dataset)):
        assert row["max_seqlen"] == np.diff(row["cu_seqlens"]).max()
    full = dataset.attention_masks(batch)
    assert full.shape == (4, 1, SEQ, SEQ)
    for row in range(4):
        for position in (0, 20, SEQ - 1):
            expected = batch["sequence_ids"][row] == batch["sequence_ids"][row, position]
            np.testing.assert_array_equal(full[row, 0, position], expected)
    both = dataset.attention_masks(batch, sliding_window=3)
    np.testing.assert_array_equal(both["full_attention"], full)
    near = np.tril(np.triu(np.ones((SEQ, SEQ), np.bool_), -3), 3)
    np.testing.assert_array_equal(both["sliding_attention"], full & near)
    causal = TokenDataset(tokens, seq=SEQ, first_position=2, objective="clm")
    np.testing.assert_array_equal(causal.attention_masks(batch), np.tril(full))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"seq": 2}, "seq 2: must be at least 3"),
        ({"objective": "nsp"}, "objective 'nsp': expected 'mlm' or 'clm'"),
        ({"masked_lm_prob": 30}, "masked_lm_prob 30: expected a fraction above 0 and below 1"),
        (
            {"mask_as": (0.8, 0.1, 0.2)},
            r"mask_as \(0.8, 0.1, 0.2\): expected three fractions for mask, random and keep, which add up",
        ),
        ({"span": 0}, "span 0: must be at least 1"),
        ({"epochs": 0}, "epochs 0: must be at least 1"),
        ({"seq": "64"}, "seq '64': expected a whole number"),
        ({"first_position": -1}, "first_position -1: must be at least 0"),
        ({"first_position": 2**63}, "first_position 9223372036854775808: must be at most 2,147,483,647"),
        ({"masked_lm_prob": "0.3"}, "masked_lm_prob '0.3': expected a fraction"),
        ({"mask_as": 1}, "mask_as 1: expected three fractions"),
        (
            {"masked_lm_prob": (0.5, 0.2)},
            r"masked_lm_prob \(0.5, 0.2\): expected a fraction above 0 .* two for a range, such as",
        ),
        ({"masked_lm_prob": (0.1, 0.2, 0.3)}, "masked_lm_prob .*: expected a fraction above 0"),
        ({"masked_lm_prob": (0.3, 0.15)}, "masked_lm_prob .* or a MaskSchedule for a fraction that changes over the run"),
        ({"ngram": "3"}, "ngram '3': expected a whole number of words, such as span=10 or ngram=3"),
        ({"span": True}, "span True: expected a whole number of words"),
        ({"ngram": 2**40}, "ngram 1099511627776: must be at most 1,048,576"),
        ({"span": 2**20 + 1}, "span 1048577: must be at most 1,048,576"),
        ({"by_length": True}, "by_length: packed rows all have the same length; use packed=False with it"),
        ({"span": 10, "ngram": 3}, "span 10 and ngram 3: are two distributions of lengths; give one of them"),
    ],
)
def test_settings_that_cannot_be_are_refused(tokens: Path, given: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        TokenDataset(tokens, **given)


@pytest.mark.parametrize(
    ("packed", "tokens_of_batch", "expected"),
    [
        (True, 640, "tokens: packed rows all have 64 tokens; give a batch size instead, 10"),
        (False, 63, "tokens 63: expected at least 64 for a batch, since a row may have that many"),
        (False, 1e300, "tokens 1e\\+300: expected a whole number, such as 65_536"),
        (False, 1 << 40, "tokens 1,099,511,627,776: expected at most 268,435,456 for a batch"),
    ],
)
def test_batches_of_tokens_that_cannot_be_are_refused(tokens: Path, packed: bool, tokens_of_batch: Any, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        TokenDataset(tokens, seq=SEQ, packed=packed).batches_of_tokens(tokens_of_batch)


def test_several_folders_are_refused(tokens: Path) -> None:
    given: Any = [str(tokens), str(tokens)]
    with pytest.raises(UsageError, match="set']: expected a path or a URL"):
        TokenDataset(given)


def test_batches_of_indices_are_read_over_the_epochs_in_any_order(tokens: Path) -> None:
    dataset = TokenDataset(tokens, seq=SEQ, epochs=3)
    of_epoch = len(dataset) // 3
    last = len(dataset) - 1
    for indices in (
        range(of_epoch - 2, of_epoch + 2),
        range(0, len(dataset), 5),
        [last - 1, last, 0, 1],
        [last, 3, of_epoch, 2],
    ):
        batch = stack_rows(dataset.__getitems__(indices))
        assert_equal(batch, {name: np.stack([dataset[index][name] for index in indices]) for name in batch})


@pytest.mark.parametrize("name", ["masked_lm_prob", "seq", "mask_as", "whole_word", "documents", "seed", "epoch", "epochs"])
def test_settings_cannot_be_changed_afterwards(tokens: Path, name: str) -> None:
    dataset = TokenDataset(tokens, seq=SEQ)
    for each in (dataset, pickle.loads(pickle.dumps(dataset))):
        with pytest.raises(
            AttributeError, match=f"^{name} of a TokenDataset cannot be changed; (make another with|call set_epoch)"
        ):
            setattr(each, name, 1)
        each.set_epoch(1)
        assert each.epoch == 1


@pytest.mark.parametrize("size", [1, 4096, 4097, 10_000])
def test_batches_of_any_size_are_the_same_rows(tokens: Path, size: int) -> None:
    """Positions of some 4,096 rows are located at once."""
    dataset = TokenDataset(tokens, seq=SEQ)
    first, second = itertools.islice(dataset.batches(size), 2)
    expected = dataset.rows(np.arange(2 * size))
    for name in ("input_ids", "labels"):
        np.testing.assert_array_equal(np.concatenate([first[name], second[name]]), expected[name])


def test_batches_far_on_are_had_at_once_or_refused(tokens: Path) -> None:
    dataset = TokenDataset(tokens, seq=SEQ)
    of_epoch, near = len(dataset), TokenDataset(tokens, seq=SEQ)
    for first in (10**7, 10**9):
        found = next(dataset.batches(1, first=first))
        near.set_epoch(first // of_epoch)
        position = [*near.sampler()][first % of_epoch]
        assert_equal({"input_ids": found["input_ids"][0]}, {"input_ids": near[position]["input_ids"]})
    for size in (1, 8):
        for first in (-1, (2**63 - 1) // size, 2**63, 2**70):
            with pytest.raises(ValueError, match=rf"^(batch size {size}, )?first batch {first:,}: expected "):
                dataset.batches(size, first=first)
    with pytest.raises(ValueError, match=r"epoch [0-9,]+; expected a whole number from 0 to"):
        next(dataset.batches(8, first=2**59))


@pytest.mark.parametrize("epoch", [-1, 1.5, "1", None, 2**63, 2**40])
def test_an_epoch_that_there_cannot_be_is_refused(tokens: Path, epoch: Any) -> None:
    dataset = TokenDataset(tokens, seq=SEQ)
    with pytest.raises(ValueError, match=r"masked\): epoch .*; expected a whole number from 0 to [\d,]+$"):
        dataset.set_epoch(epoch)
    dataset.set_epoch(np.int64(3))  # as frameworks have it
    assert dataset.epoch == 3


def test_files_are_held_against_the_manifest_on_request(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", shards=1)
    assert len(TokenDataset(folder, seq=SEQ, verify=True)) > 0
    path = folder / "x_training_00000.words"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    TokenDataset(folder, seq=SEQ)
    with pytest.raises(
        BertprepError, match=r"00000\.words: has \w+ \w{16}\.\.\., expected \w+ \w{16}\.\.\. as in its manifest; remove"
    ):
        TokenDataset(folder, seq=SEQ, verify=True)


def test_a_config_cannot_keep_sequences_apart(tokens: Path) -> None:
    config = SimpleNamespace(_attn_implementation="sdpa", model_type="bert")
    with pytest.raises(UsageError, match=r"^collate_for: SimpleNamespace has no model of transformers in it"):
        TokenDataset(tokens, seq=SEQ).collate_for(config)
    assert TokenDataset(tokens, seq=SEQ, packed=False).collate_for(config)


def test_masked_lm_needs_a_mask_token(tmp_path: Path) -> None:
    info = TokenizerInfo(**{**vars(INFO), "mask": None})
    with pytest.raises(
        UsageError, match=r"set: its tokenizer tiny has no mask token, which masked LM needs; use another tokenizer"
    ):
        TokenDataset(write_set(tmp_path / "set", info=info, shards=1))


def test_rows_without_special_tokens_are_text_alone(tmp_path: Path) -> None:
    info = TokenizerInfo(**{**vars(INFO), "cls": None, "sep": None, "pad": None})
    dataset = TokenDataset(write_set(tmp_path / "set", info=info, shards=1), seq=SEQ)
    rows = dataset[:]
    truth = np.where(rows["labels"] == -100, rows["input_ids"], rows["labels"])
    in_text = np.sort(np.concatenate([ids for ids, _ in documents(60, 0)]))
    assert np.sort(truth, axis=None)[-len(in_text) :].tolist() == in_text.tolist()


def test_a_tokenizer_of_special_tokens_alone_is_refused(tmp_path: Path) -> None:
    info = TokenizerInfo(**{**vars(INFO), "special": tuple(range(300))})
    with pytest.raises(UsageError, match="has only special tokens"):
        TokenDataset(write_set(tmp_path / "set", info=info, shards=1))


@pytest.mark.parametrize("token", [10, 800, 1442, 1500, 2100])  # 1,442 is of the second sequence of a row
def test_a_damaged_shard_is_named(tmp_path: Path, token: int) -> None:
    folder = write_set(tmp_path / "set", shards=2)  # of several windows each
    path = folder / "x_training_00001.bin"
    data = bytearray(path.read_bytes())
    data[2 * token + 1] = 0xFF
    path.write_bytes(data)
    dataset = TokenDataset(folder, seq=SEQ)
    expected = rf"x_training_00001.bin: token {token:,} is [\d,]+, expected 0 to 299, the ids of its tokenizer"
    with pytest.raises(BertprepError, match=expected):
        dataset[:]
    with pytest.raises(BertprepError, match=expected):
        dataset[::-1]


def test_positions_that_there_cannot_be_are_refused(tokens: Path) -> None:
    dataset = TokenDataset(tokens, seq=SEQ)
    mixture = bertprep.Mixture([(dataset, 1.0)])
    of: Any
    for of in (dataset.rows, mixture.rows, dataset.row_ids):
        for negative in (np.array([3, -1]), np.array([2**63], np.uint64)):
            with pytest.raises(IndexError, match=r"expected 0 to 2\*\*63 - 1"):
                of(negative)
        for no_numbers in (np.array([1.0]), np.array([True]), np.array(["1"])):
            with pytest.raises(TypeError, match="expected whole numbers"):
                of(no_numbers)
        for shape in ((), (2, 1), (2, 2, 3)):
            with pytest.raises(TypeError, match=rf"the shape \({', '.join(map(str, shape))},?\), expected one dimension"):
                of(np.zeros(shape, np.int64))
        assert of(np.empty(0, np.int64)) is not None
    for of in (dataset.rows, dataset.row_ids):
        with pytest.raises(ValueError, match=r"epoch [0-9,]+; expected a whole number from 0 to"):
            of([2**62])


def test_an_id_is_the_window_of_a_row_and_its_place_there(tokens: Path) -> None:
    """All rows of an epoch have one each, and a position means the same row however it is asked for."""
    dataset = TokenDataset(tokens, seq=SEQ)
    counts = []
    for epoch in (0, 3):
        positions = np.arange(len(dataset)) + epoch * len(dataset)
        ids = dataset.row_ids(positions)
        assert (ids.epochs == epoch).all()
        named = set(zip(ids.windows.tolist(), ids.rows.tolist(), strict=True))
        assert len(named) == len(dataset)
        counts.append(Counter(window for window, _ in named))
        dataset.set_epoch(epoch)
        assert_equal(dataset.rows(positions), dataset.__getitems__([*dataset.sampler()]).columns)
    assert counts[0] == counts[1]
    assert set(counts[0]) == set(range(len(counts[0])))


def test_counts_of_windows_go_with_a_pickled_set(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = TokenDataset(tokens, seq=SEQ)
    expected = len(dataset)
    pickled = pickle.dumps(dataset)
    monkeypatch.setattr(packing.Windows, "counts", property(lambda _: pytest.fail("rows were counted again")))
    assert len(pickle.loads(pickled)) == expected


def test_numbers_of_numpy_are_numbers(tokens: Path) -> None:
    of_numpy = TokenDataset(tokens, seq=np.int64(SEQ), seed=np.uint8(7), masked_lm_prob=np.float32(0.25), epochs=np.int16(2))  # type: ignore[arg-type]
    of_python = TokenDataset(tokens, seq=SEQ, seed=7, masked_lm_prob=0.25, epochs=2)
    assert of_numpy.sha256 == of_python.sha256
    assert_equal(of_numpy.rows([0, 5]), of_python.rows([0, 5]))


def test_threads_that_read_at_once_read_what_one_does(tokens: Path) -> None:
    """Each has scratch memory of its own, in which words are listed and the state of its random numbers is."""
    dataset = TokenDataset(tokens, seq=512, whole_word=True, masked_lm_prob=0.4)
    positions = np.random.default_rng(0).integers(0, 100, 2000)
    expected = dataset.rows(positions)["labels"]
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(dataset.rows, [positions] * 12):
            np.testing.assert_array_equal(found["labels"], expected)


def test_threads_may_read_while_another_closes(tokens: Path) -> None:
    dataset = TokenDataset(tokens, seq=SEQ)
    expected = dataset[:]["input_ids"]

    def read(seed: int) -> bool:
        indices = np.random.default_rng(seed).integers(0, len(dataset), 20)
        if seed % 3 == 0:
            dataset.close()
        return np.array_equal(dataset[indices]["input_ids"], expected[indices])

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(30)))


def test_columns_are_named_as_rows_have_them(tokens: Path) -> None:
    for packed in (True, False):
        dataset = TokenDataset(tokens, seq=SEQ, packed=packed)
        assert dataset.column_names == [*dataset[0]]
        assert bertprep.Mixture([(dataset, 1)]).column_names == dataset.column_names


def test_a_state_has_the_epoch_and_is_refused_by_other_rows(tokens: Path) -> None:
    dataset, other = TokenDataset(tokens, seq=SEQ), TokenDataset(tokens, seq=SEQ)
    dataset.set_epoch(3)
    state = json.loads(json.dumps(dataset.state_dict()))
    other.load_state_dict(state)
    assert other.epoch == 3
    assert state["rows"] == dataset.stream(4).state_dict()["rows"]
    with pytest.raises(UsageError, match=r"^the state belongs to other rows: seed 12345, here 7; use the data and settings "):
        TokenDataset(tokens, seq=SEQ, seed=7).load_state_dict(state)
    for wrong in ({}, None, {"batch": 5}, {"epoch": "3"}):
        with pytest.raises(UsageError, match=r"^state .*: expected the state of a data set, such as \{'epoch': 1\}$"):
            other.load_state_dict(wrong)  # type: ignore[arg-type]


def test_a_state_of_format_1_is_understood(tokens: Path) -> None:
    """It was saved after three batches of these documents; later versions must read it too."""
    kept = """{"format": 1, "batch": 3, "global_batch_size": 4, "rows": {"documents":
        "a7cc00556dba22eb8df9e364e2a4bf9282f7b440f76008981cb18ed635310fc9", "seq": 64, "masked_lm_prob": 0.3,
        "mask_as": [0.8, 0.1, 0.1], "whole_word": true, "span": null, "ngram": null, "packed": true, "by_length": false,
        "objective": "mlm", "first_position": 0, "seed": 12345, "min_document_tokens": null, "max_document_tokens": null}}"""
    dataset = TokenDataset(tokens, seq=SEQ, whole_word=True)
    stream = dataset.stream(4)
    stream.load_state_dict(json.loads(kept))
    assert next(iter(stream))["input_ids"].tolist() == next(dataset.batches(4, first=3))["input_ids"].tolist()
