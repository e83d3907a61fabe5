"""Turns a model's logits into answers, like Google's `write_predictions`.

The best starts and ends of each window are paired. A question's pairs are sorted by the sum of their logits, with ties in
the same order as in Google's script. If normalization changes the number of characters, the answer is complete words
(`project`).
"""

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.instances.reference import split_words
from bertprep.tasks.squad import V2
from bertprep.tasks.squad_features import FIRST_UNIQUE_ID, SquadFeatures

NO_ANSWER_SCORE = 1_000_000.0
"""The score of "no answer" with which Google's script begins. Here it is also used if a question has no possible answer."""
PREDICTION_FILES = ("predictions", "nbest_predictions", "null_odds")
"""The names of the JSON files that `SquadPredictions.write` writes, as in Google's script; the last one is only for v2.0."""
_DISTINCT_WORDS = 1 << 17


@dataclass(frozen=True)
class SquadPredictions:
    """The predictions for each question, by its id, in the order of the file."""

    best: dict[str, str]
    """The best answer that is not blank. If there is none, it is "empty" for v1.1 and "" for v2.0."""
    nbest: dict[str, list[dict[str, Any]]]
    """Up to `nbest_size` answers, best first, each with text, probability among these answers, start_logit and end_logit."""
    null_odds: dict[str, float] | None
    """For v2.0: the score of "no answer" minus the score of the best answer."""

    def answers(self, threshold: float = 0.0) -> dict[str, str]:
        """Return the prediction for each question; for v2.0 it is blank if `null_odds` is above the threshold."""
        if self.null_odds is None:
            return dict(self.best)
        return {name: "" if self.null_odds[name] > threshold else text for name, text in self.best.items()}

    def write(self, folder: Path, threshold: float = 0.0) -> None:
        contents = (self.answers(threshold), self.nbest, self.null_odds)
        for name, content in zip(PREDICTION_FILES, contents, strict=True):
            if content is None:
                continue
            with atomic_file(folder / f"{name}.json") as file:
                file.write((json.dumps(content, indent=4) + "\n").encode())


def predict_answers(
    features: SquadFeatures,
    start_logits: NDArray[np.float32],
    end_logits: NDArray[np.float32],
    *,
    nbest_size: int = 20,
    max_answer_length: int = 30,
) -> SquadPredictions:
    """Return the answers to all questions, from the start and end logits (rows, seq).

    Raises `BertprepError` if a logit is NaN or infinite.
    """
    shape = (len(features), features.settings.seq)
    for logits in (start_logits, end_logits):
        if logits.shape != shape or logits.dtype != np.float32:
            raise ValueError(f"logits are {logits.dtype} {logits.shape}, expected float32 {shape}")
        if not np.isfinite(logits).all():
            row = int(np.argmin(np.isfinite(logits).all(axis=1)))
            raise BertprepError(
                f"{features.data.path}: the logits of unique_id {FIRST_UNIQUE_ID + row} are NaN or infinite; "
                "predict with another checkpoint"
            )
    with_null = features.data.version == V2
    texts = _Texts(features)
    predictions = SquadPredictions({}, {}, {} if with_null else None)
    for example, identifier in enumerate(features.data.ids):
        rows = features.rows_of(example)
        pairs = _find_pairs(features, example, start_logits[rows], end_logits[rows], nbest_size, max_answer_length)
        null: tuple[float, float] | None = None
        if with_null:
            starts = start_logits[rows, 0].astype(np.float64)
            ends = end_logits[rows, 0].astype(np.float64)
            least = int(np.argmin(starts + ends)) if len(starts) else -1
            null = (float(starts[least]), float(ends[least])) if len(starts) else (0.0, 0.0)
        entries = _order(pairs, null, example, texts, nbest_size)
        best = next((entry for entry in entries if entry[0]), None)
        if predictions.null_odds is not None and null is not None:
            odds = null[0] + null[1] - best[1] - best[2] if best else NO_ANSWER_SCORE
            predictions.null_odds[identifier] = odds
            predictions.best[identifier] = best[0] if best else ""
        else:
            predictions.best[identifier] = entries[0][0]
        predictions.nbest[identifier] = _with_probabilities(entries)
    return predictions


Pairs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]
"""The possible answers to a question: their first and last tokens, as indices of words.tokens, and the logits of both."""
Entry = tuple[str, float, float]  # text, start_logit, end_logit


def _order(pairs: Pairs, null: tuple[float, float] | None, example: int, texts: "_Texts", nbest_size: int) -> list[Entry]:
    """Return the best entries with distinct texts. If `null` is given, "no answer" is among them or added at the end."""
    firsts, lasts, start_logits, end_logits = pairs
    scores = start_logits + end_logits
    if null is not None:
        scores = np.append(scores, null[0] + null[1])
    entries: dict[str, Entry] = {}
    spans: set[tuple[int, int]] = set()
    for index in np.argsort(-scores, kind="stable").tolist():
        if len(entries) >= nbest_size:
            break
        if index == len(firsts) and null is not None:
            entries[""] = ("", *null)
            continue
        span = int(firsts[index]), int(lasts[index])
        if span not in spans:  # several windows may have the same span
            spans.add(span)
            text = texts.text(example, *span)
            entries.setdefault(text, (text, float(start_logits[index]), float(end_logits[index])))
    if null is not None:
        entries.setdefault("", ("", *null))
    return list(entries.values()) or [("empty", 0.0, 0.0)]


def _with_probabilities(entries: list[Entry]) -> list[dict[str, Any]]:
    scores = [start + end for _, start, end in entries]
    largest = max(scores)
    exponentials = [math.exp(score - largest) for score in scores]
    total = 0.0
    for value in exponentials:  # sum() adds floats in another way since Python 3.12
        total += value
    return [
        {"text": text, "probability": value / total, "start_logit": start, "end_logit": end}
        for (text, start, end), value in zip(entries, exponentials, strict=True)
    ]


def _find_pairs(
    features: SquadFeatures,
    example: int,
    start_logits: NDArray[np.float32],
    end_logits: NDArray[np.float32],
    nbest_size: int,
    max_answer_length: int,
) -> Pairs:
    """Return the possible answers to a question, ordered by row, rank of the start and rank of the end."""
    rows, first = features.rows_of(example), int(features.queries.sizes[example]) + 2  # after [CLS], the question and [SEP]
    _, window_starts, sizes = features.windows.of((rows, None))  # (rows, 1)
    starts = _best_positions(start_logits, nbest_size) - first  # (rows, best)
    ends = _best_positions(end_logits, nbest_size) - first
    can_start = (starts >= 0) & (starts < sizes)
    can_end = (ends >= 0) & (ends < sizes)
    tokens = np.where(can_start, starts + window_starts - window_starts[:1], 0)
    can_start &= np.take_along_axis(features.max_context(example), tokens, axis=1)
    lengths = ends[:, None, :] - starts[:, :, None] + 1  # (rows, best starts, best ends)
    possible = can_start[:, :, None] & can_end[:, None, :] & (lengths >= 1) & (lengths <= max_answer_length)
    row, start_rank, end_rank = np.nonzero(possible)
    start, end = starts[row, start_rank], ends[row, end_rank]
    return (
        start + window_starts[row, 0], end + window_starts[row, 0],
        start_logits[row, start + first].astype(np.float64), end_logits[row, end + first].astype(np.float64),
    )  # fmt: skip


def _best_positions(logits: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Return the positions (rows, count) of the largest logits of each row, in descending, stable order.

    >>> _best_positions(np.array([[1, 3, 2, 3]], np.float32), 3).tolist()
    [[1, 3, 2]]
    """
    return np.argsort(-logits, axis=1, kind="stable")[:, :count]


class _Texts:
    """Extracts the texts of answers, and caches the words and tokens of the last context."""

    def __init__(self, features: SquadFeatures) -> None:
        self._features = features
        self._first_tokens = features.words.first_tokens()
        self._context = -1
        self._words: list[str] = []
        self._normalized: list[str] = []  # each word normalized by the tokenizer, before it is split into pieces
        self._pieces: list[str] = []
        self._word_of_token: list[int] = []
        self._split = lru_cache(_DISTINCT_WORDS)(lambda word: " ".join(split_words(word, lower=not features.settings.cased)))

    def text(self, example: int, first: int, last: int) -> str:
        features = self._features
        context = int(features.data.paragraphs[features.order[example]])
        if context != self._context:
            self._load(context)
        base = int(self._first_tokens[context])
        pieces = " ".join(self._pieces[first - base : last - base + 1])
        tokens = " ".join(pieces.replace(" ##", "").replace("##", "").split())
        words = slice(self._word_of_token[first - base], self._word_of_token[last - base] + 1)
        return project(tokens, " ".join(self._words[words]), " ".join(filter(None, self._normalized[words])))

    def _load(self, context: int) -> None:
        features, words = self._features, self._features.words
        self._context = context
        self._words = words.in_context(features.data.contexts, context)
        self._normalized = [self._split(word) for word in self._words]
        tokens = words.tokens[self._first_tokens[context] : self._first_tokens[context + 1]]
        self._pieces = [features.vocabulary.tokens[token] for token in tokens.tolist()]
        of_context = slice(words.firsts[context], words.firsts[context + 1])
        counts = np.diff(words.token_ends[of_context], prepend=self._first_tokens[context])
        self._word_of_token = np.repeat(np.arange(len(counts)), counts).tolist()


def project(tokens: str, text: str, normalized: str) -> str:
    """Return the part of `text` that became `tokens`; `normalized` is the normalized form of all of `text`.

    This is Google's `get_final_text`. If the characters other than spaces do not correspond one to one, it returns `text`.

    >>> project("steve smith", "Steve Smith's", "steve smith ' s")
    'Steve Smith'
    """
    start = normalized.find(tokens)
    if start < 0 or not tokens or len(text.replace(" ", "")) != len(normalized.replace(" ", "")):
        return text
    end = start + len(tokens) - 1
    characters = [index for index, character in enumerate(text) if character != " "]
    first = characters[start - normalized.count(" ", 0, start)]
    return text[first : characters[end - normalized.count(" ", 0, end)] + 1]
