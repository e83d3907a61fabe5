"""Live examples: epoch 0 is `create`'s, each further one is drawn anew, and any step can be begun at."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bertprep
from bertprep.check.expected import expect
from bertprep.check.records import RecordChecker
from bertprep.check.rules import RecordRules
from bertprep.check.statistics import judge_split
from bertprep.config import InstanceSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.instances import Instances, Tokenizer, Vocabulary, load_vocabulary, reference
from bertprep.records import Examples
from bertprep.records.columns import COLUMNS
from bertprep.records.records import Records
from bertprep.tokens.live import LiveExamples
from bertprep.tokens.order import FileOrder, permute
from bertprep.tokens.shard_instances import ShardInstances, epoch_seed
from bertprep.work.layout import token_files
from tests.corpora import deal
from tests.golden import GOLDEN
from tests.instances.test_twin import corpora, instance_settings, small_tokens
from tests.tokens.test_shard import write_sentences

SHARDS = 5
SMALL = InstanceSettings(seq=32, pred=5, dupe=2, seed=7)


@pytest.fixture(scope="module")
def texts(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return deal(golden_corpus, tmp_path_factory.mktemp("texts"), SHARDS)


@pytest.fixture(scope="module")
def tokens(texts: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokens")
    return bertprep.tokenize(inputs=texts, output=folder, vocab=GOLDEN / "vocab.txt", workers=1).folder


def copy_of(examples: Examples) -> Examples:
    return type(examples)(*(array.copy() for array in examples.arrays))


def assert_equal(found: Examples, expected: Examples) -> None:
    assert type(found) is type(expected)
    for one, other in zip(found.arrays, expected.arrays, strict=True):
        np.testing.assert_array_equal(one, other)


def read(live: LiveExamples, first: int, stop: int, size: int = 64) -> list[Examples]:
    return [copy_of(examples) for examples in live.batches(size, first=first, stop=stop)]


def test_with_one_seed_all_shards_have_the_seed_of_shard_0_in_further_epochs_too() -> None:
    of_shards = [epoch_seed(replace(SMALL, one_seed=True), epoch=1, shard=shard) for shard in range(3)]
    assert of_shards == [epoch_seed(SMALL, epoch=1, shard=0)] * 3


@pytest.mark.parametrize(
    "asked",
    [
        SMALL,
        InstanceSettings(seq=64, pred=10, whole_word=True, one_seed=True, short_seq_prob=0.5),
        InstanceSettings(seq=48, pred=14, masked_lm_prob=0.3, pairs="none"),
    ],
    ids=["pairs", "whole words", "no pairs"],
)
def test_epoch_0_is_what_create_writes(asked: InstanceSettings, texts: list[Path], tokens: Path, tmp_path: Path) -> None:
    made = bertprep.create(
        **vars(asked), formats="tfrecord", inputs=texts, output=tmp_path, vocab=GOLDEN / "vocab.txt", workers=1
    )
    with Records([made.folders["tfrecord"]]) as records, LiveExamples(tokens, settings=asked, shuffle_shards=2) as live:
        assert (len(live), live.shape) == (len(records), records.shape)
        assert live.counts.tolist() == records.file_records.tolist()
        order = FileOrder(records.file_records, seed=live.seed, group=2)
        positions = np.arange(len(live))[::-1]  # over all shards in one call
        found = live.kind.empty(len(live), seq=live.seq, pred=live.pred)
        live.gather_into(found, positions)
        assert_equal(found, records[order.indices(positions)])
        for position in (0, 100):
            index = int(order.indices(np.array([position]))[0])
            assert live.origin_of(position)[1] == records.origin_of(index)[1]

        # and past the end of the epoch where that is repeated
        repeated = LiveExamples(tokens, settings=asked, shuffle_shards=2, repeat_epochs=True)
        steps = len(live) // 64 + 3
        batch = live.kind.empty(64, seq=live.seq, pred=live.pred)
        for step, (anew, again) in enumerate(zip(live.batches(64, stop=steps), repeated.batches(64, stop=steps), strict=True)):
            records.gather_into(batch, order.indices(np.arange(step * 64, (step + 1) * 64)))
            assert_equal(again, batch)
            if (step + 1) * 64 <= len(live):
                assert_equal(anew, batch)
        assert not np.array_equal(anew.input_ids, again.input_ids)
        repeated.close()


def padded(examples: Sequence[reference.ReferenceInstance], vocabulary: Vocabulary, live: LiveExamples) -> Examples:
    """Records of the plain generator's instances."""
    ids = {token: number for number, token in enumerate(vocabulary.tokens)}
    found = live.kind.empty(len(examples), seq=live.seq, pred=live.pred)
    for array in found.arrays:
        array[...] = 0
    found.input_ids[...] = vocabulary.pad
    for row, one in enumerate(examples):
        size, masks = len(one.tokens), len(one.masked_positions)
        found.input_ids[row, :size] = [ids[token] for token in one.tokens]
        found.input_mask[row, :size] = 1
        found.segment_ids[row, :size] = one.segment_ids
        found.masked_lm_positions[row, :masks] = one.masked_positions  # type: ignore[attr-defined]
        found.masked_lm_ids[row, :masks] = [ids[token] for token in one.masked_labels]  # type: ignore[attr-defined]
        found.masked_lm_weights[row, :masks] = 1  # type: ignore[attr-defined]
        if live.settings.has_pairs:
            found.next_sentence_labels[row] = one.is_random_next  # type: ignore[attr-defined]
    return found


@settings(max_examples=25)
@given(
    made_of=st.lists(corpora, min_size=1, max_size=3), asked=instance_settings(), group=st.integers(1, 3),
    seed=st.integers(0, 2**40), size=st.integers(1, 40), repeats=st.booleans(),
)  # fmt: skip
def test_batches_equal_the_plain_twin(
    made_of: list[str], asked: InstanceSettings, group: int, seed: int, size: int, repeats: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("twin")
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in small_tokens()), encoding="utf-8")
    vocabulary = load_vocabulary(folder / "vocab.txt")
    tokenizer = Tokenizer(vocabulary, lower=True)
    asked = InstanceSettings(**{**vars(asked), "seed": seed, "cased": False})
    shards = [f"the of\nthe lon\n\n{text}".encode() for text in made_of]  # two sentences in one document at least
    for number, text in enumerate(shards):
        (folder / "text").write_bytes(text)
        shard = tokenizer.tokenize_file(folder / "text")
        write_sentences(shard, token_files(folder / f"c_training_{number:05d}.bin"), width=len(vocabulary))
    with LiveExamples(folder, settings=asked, seed=seed, shuffle_shards=group, repeat_epochs=repeats) as live:
        expected: list[reference.ReferenceInstance] = []  # of three epochs, in their order
        counts: dict[int, int] = {}  # of the shards in epoch 0, which all epochs keep
        for epoch in range(3):
            of_shards = permute(np.arange(len(shards)), len(shards), seed=seed, epoch=epoch).tolist()
            for number, start in enumerate(range(0, len(shards), group)):
                of_group = []
                for shard in of_shards[start : start + group]:
                    of_seed = epoch_seed(asked, epoch=0 if repeats else epoch, shard=shard)
                    made = reference.generate(shards[shard], vocabulary.tokens, asked, seed=of_seed)
                    of_group += [made[row % len(made)] for row in range(counts.setdefault(shard, len(made)))]
                places = np.arange(len(of_group))
                order = permute(places, len(places), seed=seed, epoch=epoch, group=number)
                expected += [of_group[place] for place in order.tolist()]
        steps = len(expected) // size
        wanted = padded(expected, vocabulary, live)
        for step in (*range(min(steps, 6)), steps - 1):
            for examples in live.batches(size, first=max(step, 0), stop=min(steps, step + 1)):
                assert_equal(examples, wanted[step * size : (step + 1) * size])


def test_any_step_can_be_begun_at(tokens: Path) -> None:
    with LiveExamples(tokens, settings=SMALL, shuffle_shards=2) as live:
        whole = read(live, 0, 100)
        assert len(live) < 100 * 64 / 2  # in three epochs
    for first in (1, 40, 99):
        with LiveExamples(tokens, settings=SMALL, shuffle_shards=2) as live:
            for found, expected in zip(read(live, first, 100), whole[first:], strict=True):
                assert_equal(found, expected)
    for rows in (range(16), range(48, 64)):  # of a rank
        with LiveExamples(tokens, settings=SMALL, shuffle_shards=2) as live:
            for step, found in enumerate(live.batches(64, first=30, stop=50, rows=rows)):
                assert_equal(found, whole[30 + step][rows.start : rows.stop])


def test_a_position_is_an_example_of_a_shard_in_an_epoch(tokens: Path) -> None:
    live, again = (LiveExamples(tokens, settings=SMALL, shuffle_shards=2) for _ in range(2))
    count = len(live)
    every_example = [(shard, row) for shard, of_shard in enumerate(live.counts.tolist()) for row in range(of_shard)]
    for epoch in range(3):
        ids = live.row_ids(np.arange(epoch * count, (epoch + 1) * count))
        assert set(ids.epochs.tolist()) == {epoch}
        assert sorted(zip(ids.windows.tolist(), ids.rows.tolist(), strict=True)) == every_example
    shard, row = int(ids.windows[7]), int(ids.rows[7])
    assert live.origin_of(2 * count + 7) == (live.token_shards[shard].path, row)
    first, stop = count // 64 - 1, 2 * count // 64 + 1  # from the end of epoch 0 to the beginning of epoch 2
    found = live.kind.empty(64, seq=live.seq, pred=live.pred)
    for step, expected in zip(range(first, stop), live.batches(64, first=first, stop=stop), strict=True):
        again.gather_into(found, np.arange(step * 64, (step + 1) * 64))
        assert_equal(found, expected)
    live.close()
    again.close()


def test_equal_examples_have_one_sha256(tokens: Path, texts: list[Path], tmp_path: Path) -> None:
    """The trainer refuses to resume on examples with another."""
    of_same = {LiveExamples(tokens, settings=SMALL, **more).sha256 for more in ({}, {"seed": 1}, {"shuffle_shards": 2})}
    assert len(of_same) == 1  # of the examples, not of their order
    [expected] = of_same
    assert pickle.loads(pickle.dumps(LiveExamples(tokens, settings=SMALL))).sha256 == expected
    others = [
        LiveExamples(tokens, settings=SMALL, repeat_epochs=True),
        LiveExamples(tokens, settings=replace(SMALL, dupe=3)),
        LiveExamples(tokens, settings=replace(SMALL, seed=8)),
        LiveExamples([tokens, tokens], settings=SMALL),
    ]
    bertprep.tokenize(inputs=texts[:-1], output=tmp_path / "fewer", vocab=GOLDEN / "vocab.txt", workers=1)
    others.append(LiveExamples(tmp_path / "fewer", settings=SMALL))
    assert len({expected, *(each.sha256 for each in others)}) == 6


def test_threads_may_read_while_another_closes(tokens: Path) -> None:
    with LiveExamples(tokens, settings=SMALL, shuffle_shards=1) as live:
        expected = live[:]["input_ids"]

        def read(seed: int) -> bool:
            indices = np.random.default_rng(seed).integers(0, len(live), 20)
            if seed % 3 == 0:
                live.close()
            return np.array_equal(live[indices]["input_ids"], expected[indices])

        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(read, range(30)))


def test_examples_are_made_ahead_once_or_where_they_are_needed(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a thread, or if that has no memory or cannot be started, without it."""
    with LiveExamples(tokens, settings=SMALL, shuffle_shards=2) as live:
        expected = read(live, 0, 40)
    make, made, made_ahead = ShardInstances._make, [], []

    def record(self: ShardInstances, key: tuple[int, int]) -> Instances:
        made.append(key)
        return make(self, key)

    def fail_ahead(self: ShardInstances, key: tuple[int, int]) -> Instances:
        if threading.current_thread().name == "examples-ahead":
            made_ahead.append(key)
            raise MemoryError
        return make(self, key)

    monkeypatch.setattr(ShardInstances, "_make", record)
    with LiveExamples(tokens, settings=SMALL, shuffle_shards=2, repeat_epochs=True) as live:
        read(live, 0, 3 * len(live) // 64)
        live.close()
        of_epochs = {epoch for epoch, _ in made}
        made.clear()
        read(live, 0, 1)
    assert of_epochs == {0}
    assert len(made) >= 2  # again, since `close` gave the memory back

    monkeypatch.setattr(ShardInstances, "_make", fail_ahead)
    with LiveExamples(tokens, settings=SMALL, shuffle_shards=2) as live:
        for found, of_step in zip(read(live, 0, 40), expected, strict=True):
            assert_equal(found, of_step)
    assert made_ahead

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with LiveExamples(tokens, settings=SMALL, shuffle_shards=2) as live:
        assert_equal(read(live, 39, 40)[0], expected[39])


@pytest.fixture
def own(tokens: Path, tmp_path: Path) -> Path:
    """Token shards of its own, without a manifest, so that a shard may be missing."""
    for path in tokens.iterdir():
        if path.suffix in (".bin", ".idx", ".txt"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_an_epoch_that_cannot_be_is_refused(tokens: Path) -> None:
    with LiveExamples(tokens, settings=SMALL) as live:
        live.set_epoch(10**6)
        assert len(live) != 0
        for epoch in (-1, 1 << 31, 1.5):
            with pytest.raises(ValueError, match=r"epoch [-0-9.]+; expected a whole number from 0 to "):
                live.set_epoch(epoch)  # type: ignore[arg-type]


# --- what is drawn


@pytest.mark.parametrize("asked", [SMALL, InstanceSettings(seq=64, pred=10, whole_word=True)], ids=["tokens", "whole words"])
def test_masks_of_five_epochs_are_as_validate_expects(asked: InstanceSettings, tokens: Path) -> None:
    """Shares of masks and replacements, no position or token favoured, random next sentences, lengths: all at once."""
    with LiveExamples(tokens, settings=asked) as live:
        words, documents = live.vocabulary, 0
        rules = RecordRules(
            asked.seq, asked.pred, len(words), words.cls, words.sep, words.mask, asked.masked_lm_prob, asked.whole_word,
            words.continues_word.tobytes(),
        )  # fmt: skip
        checker = RecordChecker(rules)
        values: set[int] = set()
        for epoch in range(5):
            positions = np.arange(epoch * len(live), (epoch + 1) * len(live))
            shards = live.row_ids(positions).windows
            for shard, count in enumerate(live.counts.tolist()):
                examples = live.kind.empty(count, seq=live.seq, pred=live.pred)
                live.gather_into(examples, positions[shards == shard])
                values |= set(checker.check(examples, np.arange(count))[:, 1].tolist())
            documents += sum(live.token_shards[shard].read(words).documents for shard in range(SHARDS))
        assert checker.findings("live") == []
        uses = documents * asked.dupe
        expected = expect(checker.counts, rules, uses=uses, short_seq_prob=asked.short_seq_prob)
        assert judge_split(checker.counts, rules, "live", expected, uses=uses) == []
        assert len(values) > 0.97 * checker.counts.records > 5000  # no epoch is another, but for what fills its counts


# --- as a data set


def test_rows_are_those_of_the_order(tokens: Path) -> None:
    live = LiveExamples(tokens, settings=SMALL)
    count = len(live)
    rows = live.__getitems__(range(64))
    (batch,) = live.batches(64, stop=1)
    np.testing.assert_array_equal(rows.columns["input_ids"], batch.input_ids)
    assert list(rows[0]) == [column.name for column in COLUMNS[live.kind]]
    np.testing.assert_array_equal(live[-1]["input_ids"], live[count - 1 : count]["input_ids"][0])
    np.testing.assert_array_equal(live[[5, 3]]["labels"], rows.columns["labels"][[5, 3]])
    for wrong in (count, -count - 1, 10**30, [0, count]):
        with pytest.raises(IndexError, match=f"expected -{count:,} to {count - 1:,}"):
            live[wrong]  # type: ignore[call-overload]
    is_wanted = np.zeros(count, np.bool_)
    is_wanted[[3, 5]] = True
    np.testing.assert_array_equal(live[is_wanted]["labels"], rows.columns["labels"][[3, 5]])
    for unlike in ([1.5], "a", [[1, 2]], True):
        with pytest.raises(TypeError, match="integer"):
            live[unlike]  # type: ignore[index]
    for size, first in ((0, 0), (-1, 0), (4, -1)):
        with pytest.raises(ValueError, match=f"batch size {size}, first batch {first}: expected at least 1 and at"):
            next(live.batches(size, first=first))
    live.set_epoch(1)
    following = np.concatenate([batch.input_ids.copy() for batch in live.batches(64, stop=2 * count // 64)])[count:]
    np.testing.assert_array_equal(live[: len(following)]["input_ids"][: len(live)], following[: len(live)])
    live.close()


def test_workers_of_a_loader_read_too(tokens: Path) -> None:
    live = LiveExamples(tokens, settings=SMALL)
    expected = live[100]["input_ids"].tolist()
    again = "import pickle, sys; print(pickle.load(sys.stdin.buffer)[100]['input_ids'].tolist())"
    run = subprocess.run([sys.executable, "-c", again], input=pickle.dumps(live), capture_output=True, check=True)
    assert run.stdout.decode().strip() == str(expected)
    child = os.fork()  # whose parent has a thread
    if child == 0:
        os._exit(0 if live[100]["input_ids"].tolist() == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    live.close()


# --- what is wrong with the data


def test_what_does_not_fit_is_refused_in_one_line(own: Path, tokens: Path, texts: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_bytes(b"".join(f"{token}\n".encode() for token in small_tokens()))
    with pytest.raises(
        BertprepError, match=r"^[^\n]*other.txt: is not the vocabulary that [^\n]* name the right one with --vocab FILE$"
    ):
        LiveExamples(tokens, vocab=other)
    bertprep.tokenize(inputs=texts[:1], output=tmp_path / "theirs", vocab=other, workers=1)
    with pytest.raises(BertprepError, match=r"^[^\n]*: is not the vocabulary that [^\n]*/theirs/tokens was made with: "):
        LiveExamples([tokens, tmp_path / "theirs"])
    live = LiveExamples(own, vocab=other)  # nothing tells
    with pytest.raises(BertprepError, match=r"^[^\n]*_00000.bin: [^\n]*vocabulary"):
        len(live)
    with pytest.raises(UsageError, match=r"^[^\n]*: has no test split of token shards; name a folder that has it$"):
        LiveExamples(own, "test")
    with pytest.raises(UsageError, match=r"^no data; name at least one folder of token shards$"):
        LiveExamples([])
    with pytest.raises(UsageError, match=r"expected token shards|has no record"):
        LiveExamples(texts[0].parent)


def test_shards_without_sentences_make_no_pairs(texts: list[Path], tmp_path: Path) -> None:
    vocabulary = load_vocabulary(GOLDEN / "vocab.txt")
    shard = Tokenizer(vocabulary, lower=True).tokenize_file(texts[0])
    ends = shard.sentence_starts[shard.document_starts]
    whole = type(shard)(shard.tokens, ends, np.arange(len(ends)), 0, 0)
    write_sentences(whole, token_files(tmp_path / "a.bin"), width=len(vocabulary))
    with (
        pytest.raises(UsageError, match=r"^[^\n]*a.bin: has no sentences: [^\n]*--pairs none$"),
        LiveExamples(tmp_path, vocab=vocabulary.path) as live,
    ):
        len(live)
    with LiveExamples(tmp_path, vocab=vocabulary.path, settings=InstanceSettings(pairs="none")) as live:
        assert len(live) > 0


def test_a_shard_that_cannot_be_read_is_told_at_its_turn(own: Path) -> None:
    live = LiveExamples(own, settings=InstanceSettings(seq=32, pred=5, dupe=20), shuffle_shards=1)
    count, last = len(live), int(live.row_ids([len(live) - 1]).windows[0])
    path = next(own.glob(f"*_{last:05d}.bin"))
    path.write_bytes(path.read_bytes()[:-2])
    assert len(read(live, 0, 10)) == 10
    with pytest.raises(BertprepError, match=rf"^{path}: has [^\n]* bytes, expected "):
        read(live, 0, count // 64)
    live.close()
