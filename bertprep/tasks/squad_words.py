"""Splits SQuAD's contexts into words, and finds the words of each answer: Google's `read_squad_examples`, over arrays.

Offsets count code points in the text of all contexts, each followed by a newline. Google's script drops a training example if
its answer is not found in these words, such as one with a no-break space. Here it is kept if the context has it at its offset.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertprep.instances.tokenizer import TokenizedLines, Tokenizer
from bertprep.tasks.squad import NO_ANSWER, WHITE_SPACE, SquadData

_NARROW_SPACE = "\u202f".encode()
_LINES = bytes.maketrans(b" \t\r", b"\n\n\n")


@dataclass(frozen=True)
class Words:
    """The words of all contexts: word w is text[starts[w]:ends[w]], and context c has words firsts[c] to firsts[c + 1] - 1."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    firsts: NDArray[np.int64]  # (contexts + 1,)
    context_starts: NDArray[np.int64]  # (contexts + 1,) where each context begins in the text
    tokens: NDArray[np.int32]  # of all words
    token_ends: NDArray[np.int64]  # the end of each word's tokens; a word may have none

    @property
    def token_starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], self.token_ends[:-1]]).astype(np.int64)

    def first_tokens(self) -> NDArray[np.int64]:
        """Return the index of each context's first token (contexts + 1,)."""
        ends = np.concatenate([[0], self.token_ends]).astype(np.int64)
        return ends[self.firsts]

    def of_offsets(self, contexts: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index, in its context, of the word at each offset or of the last word before it; -1 if there is none."""
        found = np.searchsorted(self.starts, self.context_starts[contexts] + offsets, side="right") - 1
        return found - self.firsts[contexts]

    def in_context(self, contexts: list[str], context: int) -> list[str]:
        words = slice(self.firsts[context], self.firsts[context + 1])
        base = int(self.context_starts[context])
        pairs = zip(self.starts[words].tolist(), self.ends[words].tolist(), strict=True)
        return [contexts[context][start - base : end - base] for start, end in pairs]


def split_contexts(contexts: list[str], tokenizer: Tokenizer) -> Words:
    """Return the words and tokens of all contexts; each word is tokenized by itself, as in Google's script."""
    text = "".join(f"{context}\n" for context in contexts)
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    is_space = np.zeros(len(points), bool)
    for character in WHITE_SPACE:
        is_space |= points == ord(character)
    ends = np.flatnonzero(is_space)  # each white-space character ends a line, and most lines have a word
    starts = np.concatenate([[0], ends[:-1] + 1])
    is_word = ends > starts
    lengths = np.fromiter(map(len, contexts), np.int64, len(contexts)) + 1
    context_starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    lines = text.encode().replace(_NARROW_SPACE, b"\n").translate(_LINES)
    tokenized = tokenizer.tokenize_lines(lines)
    starts = starts[is_word]
    return Words(
        starts=starts,
        ends=ends[is_word],
        firsts=np.searchsorted(starts, context_starts),
        context_starts=context_starts,
        tokens=tokenized.tokens,
        token_ends=tokenized.ends[is_word],
    )


def tokenize_texts(texts: list[str], tokenizer: Tokenizer) -> TokenizedLines:
    lines = [text.replace("\r", " ").replace("\n", " ") if "\r" in text or "\n" in text else text for text in texts]
    return tokenizer.tokenize_lines("".join(f"{line}\n" for line in lines).encode())


@dataclass(frozen=True)
class Answers:
    """The first and last word of each answer, as indices in its context; -1 if there is no answer.

    `kept` are the indices of the questions that can be used for training; the other two arrays have the same rows.
    """

    kept: NDArray[np.int64]
    firsts: NDArray[np.int64]
    lasts: NDArray[np.int64]
    recovered: list[str]
    """The ids of questions that Google's script drops, but that are kept here."""
    dropped: list[str]
    """The ids of questions whose answer is neither at its offset nor in the words there."""
    misplaced: list[int]
    """The questions whose answer is not at its offset: those that are dropped, and those that Google's script keeps too."""


def find_answers(data: SquadData, words: Words) -> Answers:
    """Return the words of each question's answer, or of the first of several answers (Google's script accepts only one)."""
    questions = np.flatnonzero(data.answer_starts != NO_ANSWER)
    contexts, starts = data.paragraphs[questions], data.answer_starts[questions]
    sizes = np.fromiter((len(data.answers[question][0]) for question in questions.tolist()), np.int64, len(questions))
    firsts = np.full(len(data), -1, np.int64)
    lasts = firsts.copy()
    firsts[questions] = words.of_offsets(contexts, starts)
    lasts[questions] = words.of_offsets(contexts, starts + sizes - 1)
    recovered, dropped, misplaced = [], [], []
    is_kept = np.ones(len(data), bool)
    for question, context, start in zip(questions.tolist(), contexts.tolist(), starts.tolist(), strict=True):
        text = data.answers[question][0]
        is_there = data.contexts[context].startswith(text, start)
        if is_there and " ".join(text.split()) == text:
            continue  # words with single spaces between them are found by Google's script too
        if not is_there:
            misplaced.append(question)
        if start < 0 or start + len(text) > len(data.contexts[context]):
            is_kept[question] = False  # Google's script fails here
            dropped.append(data.ids[question])
            continue
        names = words.in_context(data.contexts, context)
        first, last = int(firsts[question]), int(lasts[question])
        if " ".join(text.split()) in " ".join(names[first : last + 1]):
            firsts[question] = first % len(names)  # Google's script uses index -1, Python's last word
        elif is_there:
            stripped = start + len(text) - len(text.lstrip()), start + len(text.rstrip()) - 1
            firsts[question], lasts[question] = words.of_offsets(np.array([context, context]), np.array(stripped))
            recovered.append(data.ids[question])
        else:
            is_kept[question] = False
            dropped.append(data.ids[question])
    kept = np.flatnonzero(is_kept)
    return Answers(kept, firsts[kept], lasts[kept], recovered, dropped, misplaced)
