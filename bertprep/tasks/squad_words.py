"""The words of SQuAD's contexts, and which of them an answer is: Google's `read_squad_examples`, over arrays.

Offsets count code points in `text`, the contexts with a newline after each. Google drops a training example whose answer is not
in these words (such as with a no-break space); here it is kept if the context has it at its offset.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertprep.instances.tokenizer import TokenizedLines, Tokenizer
from bertprep.tasks.squad import WHITE_SPACE, SquadData

_NARROW_SPACE = "\u202f".encode()
_LINES = bytes.maketrans(b" \t\r", b"\n\n\n")


@dataclass(frozen=True)
class Words:
    """Word w is text[starts[w]:ends[w]]; the words of context c are those from firsts[c] to firsts[c + 1] - 1."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    firsts: NDArray[np.int64]  # (contexts + 1,)
    context_starts: NDArray[np.int64]  # (contexts + 1,) where each context begins in the text
    tokens: NDArray[np.int32]  # of all words
    token_ends: NDArray[np.int64]  # for each word, where its tokens end; a word may have none

    @property
    def token_starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], self.token_ends[:-1]]).astype(np.int64)

    def first_tokens(self) -> NDArray[np.int64]:
        """(contexts + 1,) where the tokens of each context begin."""
        ends = np.concatenate([[0], self.token_ends]).astype(np.int64)
        return ends[self.firsts]

    def of_offsets(self, contexts: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the word at an offset of its context, or the last one before; -1 before the first."""
        found = np.searchsorted(self.starts, self.context_starts[contexts] + offsets, side="right") - 1
        return found - self.firsts[contexts]

    def in_context(self, contexts: list[str], context: int) -> list[str]:
        words = slice(self.firsts[context], self.firsts[context + 1])
        base = int(self.context_starts[context])
        pairs = zip(self.starts[words].tolist(), self.ends[words].tolist(), strict=True)
        return [contexts[context][start - base : end - base] for start, end in pairs]


def split_contexts(contexts: list[str], tokenizer: Tokenizer) -> Words:
    """The words and tokens of all contexts; each word is tokenized on its own, as in Google's script."""
    text = "".join(f"{context}\n" for context in contexts)
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    is_space = np.zeros(len(points), bool)
    for character in WHITE_SPACE:
        is_space |= points == ord(character)
    ends = np.flatnonzero(is_space)  # of lines: every white-space character ends one, and most hold a word
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
    """Which words answer a question: first and last, in their context; -1 for none.

    `kept` has a row for each question that can be trained on, like the other two arrays.
    """

    kept: NDArray[np.int64]
    firsts: NDArray[np.int64]
    lasts: NDArray[np.int64]
    recovered: list[str]
    """The ids of questions that Google drops and that are kept."""
    dropped: list[str]
    """The ids of questions whose answer is not in the context at its position."""


def find_answers(data: SquadData, words: Words) -> Answers:
    """Return the words of each question's answer; of several answers the first, where Google accepts only one."""
    questions = np.flatnonzero(data.answer_starts >= 0)
    contexts, starts = data.paragraphs[questions], data.answer_starts[questions]
    sizes = np.fromiter((len(data.answers[question][0]) for question in questions.tolist()), np.int64, len(questions))
    firsts = np.full(len(data), -1, np.int64)
    lasts = firsts.copy()
    firsts[questions] = words.of_offsets(contexts, starts)
    lasts[questions] = words.of_offsets(contexts, starts + sizes - 1)
    recovered, dropped = [], []
    is_kept = np.ones(len(data), bool)
    for question, context, start in zip(questions.tolist(), contexts.tolist(), starts.tolist(), strict=True):
        text = data.answers[question][0]
        is_there = data.contexts[context].startswith(text, start)
        if is_there and " ".join(text.split()) == text:
            continue  # the words between single spaces: Google finds it
        names = words.in_context(data.contexts, context)
        first, last = int(firsts[question]), int(lasts[question])
        if " ".join(text.split()) in " ".join(names[first : last + 1]):
            firsts[question] = first % len(names)  # Python's index -1
        elif is_there:
            stripped = start + len(text) - len(text.lstrip()), start + len(text.rstrip()) - 1
            firsts[question], lasts[question] = words.of_offsets(np.array([context, context]), np.array(stripped))
            recovered.append(data.ids[question])
        else:
            is_kept[question] = False
            dropped.append(data.ids[question])
    kept = np.flatnonzero(is_kept)
    return Answers(kept, firsts[kept], lasts[kept], recovered, dropped)
