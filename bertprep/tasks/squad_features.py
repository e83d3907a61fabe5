"""SQuAD's features: windows of a paragraph after the question, those of Google's `convert_examples_to_features`.

A paragraph is tokenized once, and a window is an offset and a size until its rows are read, 1,024 at a time.
"""

import random
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bertprep.config import SquadSettings
from bertprep.errors import BertprepError
from bertprep.instances.tokenizer import Tokenizer
from bertprep.instances.vocabulary import Vocabulary
from bertprep.records.examples import SquadEvalExamples, SquadExamples
from bertprep.tasks.segments import Segments, lay_out
from bertprep.tasks.squad import SquadData
from bertprep.tasks.squad_words import Answers, Words, find_answers, split_contexts, tokenize_texts

FIRST_UNIQUE_ID = 1_000_000_000  # of each split, as run_squad.py numbers its windows
SHUFFLE_SEED = 12345  # of run_squad.py
BLOCK_ROWS = 1024


@dataclass(frozen=True)
class SquadFeatures:
    """The windows of a file's questions: row r is a window of example examples[r]."""

    data: SquadData
    vocabulary: Vocabulary
    settings: SquadSettings
    words: Words
    order: NDArray[np.int64]
    """The question of each example, in the order of the examples."""
    queries: NDArray[np.int32]  # the tokens of all questions
    query_starts: NDArray[np.int64]  # (examples,) where each example's begin
    query_sizes: NDArray[np.int64]  # (examples,) at most max_query
    first_rows: NDArray[np.int64]  # (examples + 1,) the first row of each example; it may have none
    examples: NDArray[np.int64]  # (rows,)
    window_starts: NDArray[np.int64]  # (rows,) in words.tokens
    window_sizes: NDArray[np.int64]  # (rows,)
    spans: tuple[NDArray[np.int64], NDArray[np.int64]] | None
    """For training, the first and the last token of each example's answer in words.tokens; -1 where it has none."""
    recovered: list[str]
    """The ids of questions that Google drops, and that have features here."""
    dropped: list[str]
    """The ids of questions for training that have no features, since their answer is not in the context."""

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, rows: slice) -> SquadExamples | SquadEvalExamples:
        """Return some of the rows: with answers for training, without for evaluation."""
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError("rows are taken in order, all of a range")
        taken = slice(start, max(start, stop))
        examples = self.examples[taken]
        queries = Segments(self.queries, self.query_starts[examples], self.query_sizes[examples])
        windows = Segments(self.words.tokens, self.window_starts[taken], self.window_sizes[taken])
        unique_ids = np.arange(FIRST_UNIQUE_ID + start, FIRST_UNIQUE_ID + taken.stop, dtype=np.int32)
        inputs = lay_out(queries, windows, self.vocabulary, self.settings.seq)
        if self.spans is None:
            return SquadEvalExamples(unique_ids, *inputs)
        impossible = (self.data.answer_starts[self.order[examples]] < 0).astype(np.int32)
        return SquadExamples(unique_ids, *inputs, *self._positions(taken, *self.spans), impossible)

    def _positions(
        self, rows: slice, first_tokens: NDArray[np.int64], last_tokens: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        starts = self.window_starts[rows]
        firsts, lasts = first_tokens[self.examples[rows]], last_tokens[self.examples[rows]]
        inside = (firsts >= starts) & (lasts < starts + self.window_sizes[rows])
        offsets = self.query_sizes[self.examples[rows]] + 2 - starts  # the context is after [CLS], the question and [SEP]
        return np.where(inside, firsts + offsets, 0).astype(np.int32), np.where(inside, lasts + offsets, 0).astype(np.int32)

    def rows_of(self, example: int) -> slice:
        return slice(int(self.first_rows[example]), int(self.first_rows[example + 1]))

    def max_context(self, example: int) -> NDArray[np.bool_]:
        """Return (rows, tokens of the context) whether the token has its most context in this row.

        Context is the lesser of the tokens left and right, plus a hundredth of the window's size; of equals the first.
        """
        starts, sizes = (values[self.rows_of(example)].reshape(-1, 1) for values in (self.window_starts, self.window_sizes))
        tokens = np.arange(starts[:1].sum(), (starts + sizes)[-1:].sum())
        left = tokens - starts
        right = sizes - 1 - left
        scores = np.where((left >= 0) & (right >= 0), np.minimum(left, right) + 0.01 * sizes, -1.0)
        is_best = scores == scores.max(axis=0, initial=-1.0)
        first_best: NDArray[np.bool_] = is_best & (is_best.cumsum(axis=0) == 1)
        return first_best


def make_features(
    data: SquadData, vocabulary: Vocabulary, settings: SquadSettings, *, training: bool, shuffle: bool = True
) -> SquadFeatures:
    """Return the features of a file that was read for the same purpose; training examples are shuffled before."""
    tokenizer = Tokenizer(vocabulary, lower=not settings.cased)
    words = split_contexts(data.contexts, tokenizer)
    queries = tokenize_texts(data.questions, tokenizer)
    order, spans = np.arange(len(data)), None
    recovered: list[str] = []
    dropped: list[str] = []
    if training:
        answers = find_answers(data, words)
        order, spans = answers.kept, _answer_tokens(data, words, tokenizer, answers)
        vanish = spans[0] > spans[1]  # all characters; Google keeps these, at a position that is not theirs
        dropped = [data.ids[question] for question in order[vanish].tolist()]
        order, spans = order[~vanish], (spans[0][~vanish], spans[1][~vanish])
        recovered = [name for name in answers.recovered if name not in dropped]
        dropped = answers.dropped + dropped
        if shuffle:
            shuffled = list(range(len(order)))
            random.Random(SHUFFLE_SEED).shuffle(shuffled)
            order, spans = order[shuffled], (spans[0][shuffled], spans[1][shuffled])
    first_tokens = words.first_tokens()
    contexts = data.paragraphs[order]
    query_starts = np.concatenate([[0], queries.ends[:-1]])[order]
    query_sizes = np.minimum(queries.ends[order] - query_starts, settings.max_query)
    examples, starts, sizes = _cut(np.diff(first_tokens)[contexts], settings.seq - 3 - query_sizes, settings.doc_stride)
    if not len(examples):
        raise BertprepError(f"{data.path}: none of its {len(data):,} questions has features; see that it is the right file")
    return SquadFeatures(
        data=data,
        vocabulary=vocabulary,
        settings=settings,
        words=words,
        order=order,
        queries=queries.tokens,
        query_starts=query_starts,
        query_sizes=query_sizes,
        first_rows=np.searchsorted(examples, np.arange(len(order) + 1)),
        examples=examples,
        window_starts=first_tokens[contexts[examples]] + starts,
        window_sizes=sizes,
        spans=spans,
        recovered=recovered,
        dropped=dropped,
    )


def _answer_tokens(
    data: SquadData, words: Words, tokenizer: Tokenizer, answers: Answers
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and last token of each answer: those of its words, or the ones that are exactly the answer's.

    So "1895" in "(1895-1943)." is one token, but "Japan" in "Japanese" is the complete word.
    """
    impossible = answers.firsts < 0
    base = words.firsts[data.paragraphs[answers.kept]]
    starts = words.token_starts[base + answers.firsts]
    ends = words.token_ends[base + answers.lasts] - 1
    starts[impossible], ends[impossible] = -1, -1
    kept = zip(answers.kept.tolist(), impossible.tolist(), strict=True)
    own = tokenize_texts(["" if none else data.answers[question][0] for question, none in kept], tokenizer)
    for answer, (first, last) in enumerate(pairwise([0, *own.ends.tolist()])):
        wanted, span = own.tokens[first:last].tolist(), words.tokens[starts[answer] : ends[answer] + 1].tolist()
        runs = range(len(span) - len(wanted) + 1) if wanted else ()
        if (run := next((run for run in runs if span[run : run + len(wanted)] == wanted), None)) is not None:
            starts[answer] += run
            ends[answer] = starts[answer] + len(wanted) - 1
    return starts, ends


def _cut(
    sizes: NDArray[np.int64], capacities: NDArray[np.int64], stride: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return (example, start, size) of each window of contexts of `sizes` tokens, of which `capacities` fit.

    >>> [column.tolist() for column in _cut(np.array([5, 9]), np.array([6, 6]), 2)]
    [[0, 1, 1, 1], [0, 0, 2, 4], [5, 6, 6, 5]]
    """
    steps = np.minimum(capacities, stride)
    further = np.maximum(0, -(-(sizes - capacities) // steps))  # windows after the first
    counts = np.where(sizes == 0, 0, 1 + further)
    examples = np.repeat(np.arange(len(sizes)), counts)
    windows = np.arange(len(examples)) - np.repeat(np.cumsum(counts) - counts, counts)  # of each example, from 0
    starts = windows * steps[examples]
    return examples, starts, np.minimum(capacities[examples], sizes[examples] - starts)
