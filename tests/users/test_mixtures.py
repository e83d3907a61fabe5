"""Mixtures of data sets that differ, that are filtered, capped or sorted by length, and the masks and recipes of their rows."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertprep
from bertprep import Mixture, PairDataset, TokenDataset
from bertprep.errors import UsageError
from bertprep.tokens import reference
from bertprep.tokens.documents import TokenizerInfo
from bertprep.tokens.masking import Masking
from bertprep.tokens.shard import DOCUMENT_FILES, write_token_shard
from bertprep.work.manifest import TOKEN_SHARDS, Manifest
from tests.tokens.test_dataset import INFO

SEQ = 32


def write_documents(folder: Path, lengths: list[int], *, info: TokenizerInfo = INFO, seed: int = 1) -> Path:
    """Write one shard of documents of these lengths, whose tokens are random."""
    folder.mkdir()
    random = np.random.default_rng(seed)
    paths = {end: folder / f"x_training_00000.{end}" for end in DOCUMENT_FILES}
    with write_token_shard(paths, width=info.width) as writer:
        for length in lengths:
            tokens = random.integers(5, info.width, length).astype(np.int32)
            writer.add(tokens, np.array([length]), begins_word=random.random(length) < 0.6)
    files: dict[str, Any] = {paths[end].name: entry for end, entry in writer.entries.items()}
    files[paths["bin"].name] |= {"documents": writer.documents, "tokens": writer.tokens}
    (folder / "manifest.json").write_bytes(
        Manifest(TOKEN_SHARDS, {"tokenizer": info.made_with}, files, {"bertprep": "0"}).as_bytes()
    )
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three sets of documents of 1 to 100 tokens; the second is a third of the first, and the last has few documents."""
    folder, random = tmp_path_factory.mktemp("mixtures"), np.random.default_rng(5)
    sizes = [random.integers(1, 101, count).tolist() for count in (900, 300, 90)]
    return [write_documents(folder / f"set{index}", each, seed=index) for index, each in enumerate(sizes)]


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sentences")
    words = [f"w{number}" for number in range(400)]
    lines = [" ".join(words[at : at + 1 + at % 9]) for at in range(0, 390, 3)]
    (folder / "a.txt").write_text("\n\n".join("\n".join(lines[at : at + 10]) for at in range(0, 130, 10)) + "\n")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n")
    bertprep.tokenize(
        inputs=[folder / "a.txt"], vocab=folder / "vocab.txt", output=folder / "data", lines_are_sentences=True, workers=1
    )
    return folder / "data" / "tokens"


def test_sets_have_different_columns(sentences: Path) -> None:
    order = PairDataset(sentences, pairs="order", seq=SEQ)
    segments = PairDataset(sentences, pairs="segments", seq=SEQ)
    alone = TokenDataset(sentences, seq=SEQ, packed=False)
    for sets in ([order, alone], [alone, order], [order, segments], [segments, alone]):
        with pytest.raises(UsageError, match=r"has the columns .*; mix only data sets with the same columns$"):
            Mixture([(each, 0.5) for each in sets])
    two = Mixture([(order, 0.5), (PairDataset(sentences, pairs="order", seq=SEQ, seed=1), 0.5)])
    assert set(np.unique(two.rows(np.arange(64))["sentence_order_label"])) == {0, 1}


def test_weights_by_size_are_those_of_the_documents_that_are_read(folders: list[Path]) -> None:
    """Long documents of one set beside all documents of another, as for a phase of long rows."""
    lengths = np.random.default_rng(5).integers(1, 101, 900)
    long = TokenDataset(folders[0], seq=SEQ, min_document_tokens=80)
    every = TokenDataset(folders[1], seq=SEQ)
    tokens = np.array([lengths[lengths >= 80].sum(), every.documents.tokens])
    assert Mixture([long, every]).weights == pytest.approx((tokens / tokens.sum()).tolist())
    assert Mixture([long, every], temperature=0.5).weights == pytest.approx((tokens**0.5 / (tokens**0.5).sum()).tolist())
    described = Mixture([long, every]).describe(100)
    assert (described[0]["documents"], described[0]["tokens"]) == ((lengths >= 80).sum(), tokens[0])
    assert repr(long).startswith(f"TokenDataset({folders[0]}: {(lengths >= 80).sum()} of 900 documents")
    both = TokenDataset(folders[0], seq=SEQ, min_document_tokens=20, max_document_tokens=40)
    is_between = (lengths >= 20) & (lengths <= 40)
    assert both.selected == (is_between.sum(), lengths[is_between].sum())


@pytest.mark.parametrize("rows", [150, 1000, 20_000])
@pytest.mark.parametrize("by_length", [False, True])
def test_no_set_is_read_more_often_than_the_cap_whatever_the_seed(folders: list[Path], rows: int, by_length: bool) -> None:
    settings: dict[str, Any] = {"packed": False, "by_length": True} if by_length else {}
    sets = [TokenDataset(folder, seq=SEQ, **settings) for folder in folders]
    least = rows / sum(each.rows_in_epoch for each in sets)
    for max_epochs in (1.5 * least, 3 * least):
        for seed in range(30):
            mixture = Mixture(sets, temperature=0, max_epochs=max_epochs, rows=rows, seed=seed)
            epochs = [each["epochs"] for each in mixture.describe(rows)]
            assert max(epochs) <= max_epochs
            assert sum(mixture.counts(rows)) == rows
            assert epochs[2] > 0.8 * max_epochs or rows < 1000


def test_every_prefix_has_the_weights_to_within_a_row_or_two(folders: list[Path]) -> None:
    sets = [TokenDataset(folder, seq=SEQ) for folder in folders]
    for weights in ((0.7, 0.2, 0.1), (0.5, 0.25, 0.25), (0.9, 0.07, 0.03)):
        for seed in range(5):
            mixture = Mixture(zip(sets, weights, strict=True), seed=seed)
            of_set, _ = mixture.locate(np.arange(70_000))
            counts = np.cumsum(of_set[:, None] == np.arange(3), axis=0)
            expected = np.arange(1, 70_001)[:, None] * np.array(weights)
            assert np.abs(counts - expected).max() < 2
    assert Mixture(zip(sets[:2], (0.7, 0.3), strict=True)).counts(1000) == [700, 300]
    assert len({tuple(Mixture(sets, seed=seed).locate(np.arange(50))[0].tolist()) for seed in range(9)}) > 5


def test_many_sets_keep_their_weights_in_every_prefix(folders: list[Path]) -> None:
    sets = [TokenDataset(folders[0], seq=SEQ, seed=seed) for seed in range(100)]
    mixture = Mixture([(each, 1 + number) for number, each in enumerate(sets)])
    for rows in (1000, 4321, 65_536, 100_000):
        expected = np.array(mixture.weights) * rows
        assert np.abs(np.array(mixture.counts(rows)) - expected).max() < 3


def share_of_padding(batches: Any) -> float:
    masks = [batch["attention_mask"] for batch in batches]
    return float(1 - sum(mask.sum() for mask in masks) / sum(mask.size for mask in masks))


def test_rows_of_similar_length_stay_together(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    long = write_documents(tmp_path / "long", np.minimum(random.lognormal(5, 1, 3000) + 1, 510).astype(int).tolist())
    short = write_documents(tmp_path / "short", np.minimum(random.lognormal(4, 1, 6000) + 1, 510).astype(int).tolist(), seed=2)

    def mix(by_length: bool) -> Mixture:
        return Mixture([TokenDataset(folder, seq=512, packed=False, by_length=by_length) for folder in (long, short)])

    for size in (8, 32, 64):
        assert share_of_padding(mix(by_length=True).batches(size, stop=4000 // size)) < 0.06
        assert share_of_padding(mix(by_length=False).batches(size, stop=4000 // size)) > 0.3
    mixture = mix(by_length=True)
    of_set, positions = mixture.locate(np.arange(30_000))
    for index in range(2):
        assert positions[of_set == index].tolist() == list(range(mixture.counts(30_000)[index]))
        assert mixture.counts(30_000)[index] == pytest.approx(30_000 * mixture.weights[index], abs=1024)
    again = [batch["input_ids"].tolist() for batch in mixture.batches(32, first=7, stop=9)]
    assert again == [batch["input_ids"].tolist() for batch in mixture.batches(32, stop=9)][7:]


def test_the_same_set_is_given_twice(folders: list[Path]) -> None:
    first, again = (TokenDataset(folders[0], seq=SEQ) for _ in range(2))
    for sets in ([first, first], [first, again], [first, TokenDataset(folders[1], seq=SEQ), again]):
        with pytest.raises(UsageError, match="is given twice, so that each of its rows would come twice with the same masks"):
            Mixture([(each, 0.5) for each in sets])
    Mixture([(first, 0.5), (TokenDataset(folders[0], seq=SEQ, seed=1), 0.5)])
    Mixture([(first, 0.5), (TokenDataset(folders[0], seq=SEQ, min_document_tokens=50), 0.5)])


def test_sets_with_the_same_seed_draw_other_shares(folders: list[Path]) -> None:
    sets = [TokenDataset(folder, seq=SEQ, masked_lm_prob=(0.0, 1.0)) for folder in folders[:2]]
    sets.append(TokenDataset(folders[0], seq=SEQ, masked_lm_prob=(0.0, 1.0), min_document_tokens=10))
    numbers = np.arange(min(each.rows_in_epoch for each in sets))
    shares = []
    for each in sets:
        ids = each.row_ids(np.arange(each.rows_in_epoch))
        rows = each.rows(np.argsort(ids.windows * 2**32 + ids.rows)[numbers])
        shares.append((rows["labels"] != -100).mean(1))
    assert np.abs(np.corrcoef(shares) - np.eye(3)).max() < 0.25


@pytest.mark.parametrize("seed", [-1, 1.5, "x", None, float("nan"), b"x"])
def test_a_seed_is_no_whole_number(seed: Any, folders: list[Path], sentences: Path) -> None:
    message = r"^seed .*: (expected a whole number|must be at least 0)$"
    with pytest.raises(UsageError, match=message):
        Mixture([(TokenDataset(folders[0], seq=SEQ), 1)], seed=seed)
    with pytest.raises(UsageError, match=message):
        bertprep.LiveExamples(sentences, seed=seed)
    with pytest.raises(UsageError, match=message):
        TokenDataset(folders[0], seq=SEQ, seed=seed)


# --- masks


def test_short_rows_draw_each_number_of_masks_alike(tmp_path: Path) -> None:
    """As a loss that is divided by the share that was masked needs it: rows of four tokens, shares from 0 to 1."""
    folder = write_documents(tmp_path / "short", [4] * 6000)
    rows = TokenDataset(folder, seq=SEQ, packed=False, masked_lm_prob=(0.0, 1.0), mask_as=(1, 0, 0))[:]
    counts = Counter((rows["labels"] != -100).sum(1).tolist())
    assert set(counts) == {1, 2, 3, 4}
    assert all(abs(count - 1500) < 5 * np.sqrt(1500 * 0.75) for count in counts.values())
    fixed = TokenDataset(folder, seq=SEQ, packed=False, masked_lm_prob=0.3)[:]
    assert set((fixed["labels"] != -100).sum(1).tolist()) == {1}
    most = TokenDataset(folder, seq=6, packed=False, masked_lm_prob=(0.1, 0.6))
    assert (most[:]["labels"] != -100).sum(1).max() == most.most_predictions == 3


def mask_as_spanbert(sizes: list[int], share: float, random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Mask spans that begin at the word of a random token and have a geometric number of words, up to ten."""
    words = np.repeat(np.arange(len(sizes)), sizes)
    probabilities = 0.2 * 0.8 ** np.arange(10)
    masked = np.zeros(len(words), np.bool_)
    while masked.sum() < round(share * len(words)):
        length, anchor = random.choice(10, p=probabilities / probabilities.sum()) + 1, random.integers(len(words))
        if masked[anchor]:
            continue
        for position in np.flatnonzero((words >= words[anchor]) & (words < words[anchor] + length)):
            if masked.sum() < round(share * len(words)):
                masked[position] = True
    return masked


def test_spans_begin_at_the_word_of_a_random_token() -> None:
    """So a long word is masked more often, in the same proportion as by SpanBERT's rule."""
    law = reference.MaskLaw(
        share=0.15, mask_below=reference.ONE, random_below=reference.ONE, is_spanbert=True,
        up_to=Masking(span=10).for_kernel["span_below"].tolist(), mask=4, special=frozenset(range(5)), width=300,
    )  # fmt: skip
    random, found = np.random.default_rng(1), {size: np.zeros(3) for size in range(1, 6)}
    for row in range(250):
        sizes = np.minimum(random.geometric(0.5, 500), 5).tolist()
        starts = np.cumsum(sizes) - sizes
        words = [list(range(start, start + size)) for start, size in zip(starts.tolist(), sizes, strict=True)]
        key = int.from_bytes(hashlib.sha256(str(row).encode()).digest()[:8], "little")
        ours = np.array(reference.mask_row([9] * sum(sizes), [0] * sum(sizes), words, law, key)) != -100
        theirs = mask_as_spanbert(sizes, 0.15, random)
        for start, size in zip(starts.tolist(), sizes, strict=True):
            found[size] += (ours[start : start + size].sum(), theirs[start : start + size].sum(), size)
    ratios = [found[size][0] / found[1][0] * found[1][2] / found[size][2] for size in (2, 3, 4)]
    expected = [found[size][1] / found[1][1] * found[1][2] / found[size][2] for size in (2, 3, 4)]
    assert ratios == pytest.approx(expected, rel=0.1)
    assert ratios[2] > 1.2  # by word it would be 0.95


# --- recipes


def test_recipes_of_models_with_pairs_go_with_pairs(sentences: Path) -> None:
    albert = PairDataset(sentences, pairs="order", **{**bertprep.recipe("albert"), "seq": SEQ})
    assert (albert.ngram, albert.masked_lm_prob, albert.packed) == (3, 0.15, False)
    electra = PairDataset(sentences, pairs="segments", **bertprep.recipe("electra", seq=SEQ))
    assert electra.mask_as == (0.85, 0.0, 0.15)
    assert PairDataset(sentences, **bertprep.recipe("bert")).seq == 128
    for recipe, setting in (("modernbert", "packed"), ("roberta", "packed"), ("clm-then-mlm", "packed")):
        with pytest.raises(UsageError, match=rf"^{setting}: is a setting of TokenDataset that PairDataset does not have"):
            PairDataset(sentences, **bertprep.recipe(recipe))


def test_pairs_take_the_name_of_transformers_for_the_share_of_masks(sentences: Path) -> None:
    assert PairDataset(sentences, seq=SEQ).masked_lm_prob == 0.15
    assert PairDataset(sentences, seq=SEQ, mlm_probability=0.2).masked_lm_prob == 0.2
    assert PairDataset(sentences, seq=SEQ, masked_lm_prob=0.3).masked_lm_prob == 0.3
    with pytest.raises(UsageError, match="are one setting; give only one"):
        PairDataset(sentences, seq=SEQ, masked_lm_prob=0.2, mlm_probability=0.2)


def test_recipes_have_the_values_of_their_sources() -> None:
    """90,000 steps of 128 and 10,000 of 512 tokens; one-token grams; one document a row; 2.3 T, 600 B and 100 B tokens."""
    bert = [phase.fraction for phase in bertprep.recipe("bert").phases]
    assert bert == pytest.approx([90_000 * 128 / 16_640_000, 10_000 * 512 / 16_640_000], abs=5e-4)
    assert "whole_word" not in bertprep.recipe("deberta-v3")
    llm_jp = bertprep.recipe("llm-jp-modernbert")
    assert not llm_jp["packed"]
    tokens = np.array([500_000 * 3328 * 1024, 200_000 * 384 * 8192])
    assert [phase.fraction for phase in llm_jp.phases] == pytest.approx((tokens / tokens.sum()).tolist(), abs=5e-3)
    mmbert = [phase.fraction for phase in bertprep.recipe("mmbert").phases]
    assert mmbert == pytest.approx([2.3 / 3, 0.6 / 3, 0.1 / 3], abs=5e-4)
