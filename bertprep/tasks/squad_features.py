"""Makes SQuAD's features: the question and a window of its paragraph, like Google's `convert_examples_to_features`.

A paragraph is tokenized only once. A window is just an offset and a size until its row is read, with up to 1,023 others.
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
from bertprep.tasks.squad_offsets import explain_offsets
from bertprep.tasks.squad_words import Answers, Words, find_answers, split_contexts, tokenize_texts

FIRST_UNIQUE_ID = 1_000_000_000  # run_squad.py numbers the windows of each split from here
SHUFFLE_SEED = 12345  # the seed of run_squad.py
BLOCK_ROWS = 1024


@dataclass(frozen=True)
class SquadFeatures:
    """The windows of a file's questions. Row r is a window of the example examples[r]."""

    data: SquadData
    vocabulary: Vocabulary
    settings: SquadSettings
    words: Words
    order: NDArray[np.int64]
    """The index of each example's question."""
    queries: Segments  # for each example, at most max_query tokens
    first_rows: NDArray[np.int64]  # (examples + 1,) the first row of each example; it may have none
    examples: NDArray[np.int64]  # (rows,)
    windows: Segments  # for each row
    spans: NDArray[np.int64] | None
    """For training: the first and last token of each answer (2, examples), as indices of words.tokens; -1 for no answer."""
    recovered: list[str]
    """The ids of training questions that Google's script drops, but that have features here."""
    dropped: list[str]
    """The ids of training questions without features, because their answer is not at its offset."""
    misplaced: list[int]
    """All training questions whose answer is not at its offset, dropped or not."""
    without_tokens: list[str]
    """The ids of training questions without features, because no token is left of their answer."""

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, rows: slice) -> SquadExamples | SquadEvalExamples:
        """Return the rows of a slice with step 1, with answers if they are for training."""
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"the slice has step {step}, expected 1")
        taken = slice(start, max(start, stop))
        examples, windows = self.examples[taken], self.windows.of(taken)
        queries = self.queries.of(examples)
        unique_ids = np.arange(FIRST_UNIQUE_ID + start, FIRST_UNIQUE_ID + taken.stop, dtype=np.int32)
        inputs = lay_out(queries, windows, self.vocabulary, self.settings.seq)
        if self.spans is None:
            return SquadEvalExamples(unique_ids, *inputs)
        firsts, lasts = self.spans[:, examples]
        is_inside = (firsts >= windows.starts) & (lasts < windows.starts + windows.sizes)
        offsets = queries.sizes + 2 - windows.starts  # the context is after [CLS], the question and [SEP]
        positions = [np.where(is_inside, tokens + offsets, 0).astype(np.int32) for tokens in (firsts, lasts)]
        is_impossible = (self.data.answer_starts[self.order[examples]] < 0).astype(np.int32)
        return SquadExamples(unique_ids, *inputs, *positions, is_impossible)

    def rows_of(self, example: int) -> slice:
        return slice(int(self.first_rows[example]), int(self.first_rows[example + 1]))

    def max_context(self, example: int) -> NDArray[np.bool_]:
        """Return whether a token has the most context in a row, for each row and each token of the context (rows, tokens).

        A token's context is the smaller number of tokens to its left or right in the window, plus 0.01 times the size of the
        window. Among equal rows the first one counts.
        """
        _, starts, sizes = self.windows.of((self.rows_of(example), None))
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
    """Return the features of a file that was read with the same value of `training`.

    Training examples are shuffled like those of run_squad.py, unless `shuffle` is False.
    """
    tokenizer = Tokenizer(vocabulary, lower=not settings.cased)
    words = split_contexts(data.contexts, tokenizer)
    queries = tokenize_texts(data.questions, tokenizer)
    order, spans = np.arange(len(data)), None
    recovered: list[str] = []
    dropped: list[str] = []
    misplaced: list[int] = []
    without_tokens: list[str] = []
    if training:
        answers = find_answers(data, words)
        order, spans = answers.kept, _answer_tokens(data, words, tokenizer, answers)
        vanishes = spans[0] > spans[1]  # no token is left; Google's script keeps these answers, at a wrong position
        dropped, misplaced = answers.dropped, answers.misplaced
        without_tokens = [data.ids[question] for question in order[vanishes].tolist()]
        recovered = [name for name in answers.recovered if name not in without_tokens]
        kept = np.flatnonzero(~vanishes).tolist()
        if shuffle:
            random.Random(SHUFFLE_SEED).shuffle(kept)
        order, spans = order[kept], spans[:, kept]
    first_tokens = words.first_tokens()
    contexts = data.paragraphs[order]
    query_starts = np.concatenate([[0], queries.ends[:-1]])[order]
    query_sizes = np.minimum(queries.ends[order] - query_starts, settings.max_query)
    examples, starts, sizes = _cut(np.diff(first_tokens)[contexts], settings.seq - 3 - query_sizes, settings.doc_stride)
    if not len(examples):
        cause = f": their answers are not at answer_start ({explain_offsets(data, misplaced)})" if misplaced else ""
        raise BertprepError(
            f"{data.path}: none of its {len(data):,} questions has features{cause}; check that this is the right file"
        )
    return SquadFeatures(
        data=data,
        vocabulary=vocabulary,
        settings=settings,
        words=words,
        order=order,
        queries=Segments(queries.tokens, query_starts, query_sizes),
        first_rows=np.searchsorted(examples, np.arange(len(order) + 1)),
        examples=examples,
        windows=Segments(words.tokens, first_tokens[contexts[examples]] + starts, sizes),
        spans=spans,
        recovered=recovered,
        dropped=dropped,
        misplaced=misplaced,
        without_tokens=without_tokens,
    )


def _answer_tokens(data: SquadData, words: Words, tokenizer: Tokenizer, answers: Answers) -> NDArray[np.int64]:
    """Return the first and last token of each answer (2, answers).

    Within the tokens of the answer's words, the span is narrowed to the tokens of the answer itself if they occur there.
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
    return np.stack([starts, ends])


def _cut(
    sizes: NDArray[np.int64], capacities: NDArray[np.int64], stride: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Split contexts of `sizes` tokens into windows of at most `capacities` tokens; return (example, start, size) of each.

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
