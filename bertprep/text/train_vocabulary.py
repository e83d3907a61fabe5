"""Trains a WordPiece vocabulary by byte-pair merges over counted words, with the same result on every run.

The library `tokenizers` splits text into words, but its trainer depends on hash order. Here ties go to the pair that sorts
first. Training takes about 3 s for 12 MB of text; time and memory grow with the number of distinct words.
"""

import io
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import pairwise, takewhile
from pathlib import Path

from bertprep import pool
from bertprep.errors import BertprepError, UsageError, not_utf8, reading
from bertprep.files.object_cache import open_local
from bertprep.files.outputs import write_output
from bertprep.files.paths import as_path
from bertprep.instances.vocabulary import SPECIAL_TOKENS, load_vocabulary
from bertprep.progress import SILENT, Reporter
from bertprep.sources.plain_text import MAX_DOCUMENT_BYTES, too_long

CONTINUES = "##"
MAX_CHARACTERS = 1_000  # if a text has more distinct characters, words with the rarest become [UNK]
MAX_WORD_LENGTH = 200  # the tokenizer turns longer words into [UNK], whatever the vocabulary

MANY_ACCENTS = 0.005
"""A text with a larger fraction of characters with accents is in a language that needs them.

In English it is at most 0.06% (the sample corpus, 106 articles of Wikipedia), and 0.8%, 1.4% and 2.7% in the Italian, German
and French sentences with which sentencex is tested.
"""

Pair = tuple[str, str]


@dataclass
class WordCounts:
    """The counts of words as they are tokenized, and of the characters of the text, which may lose accents before that."""

    words: Counter[str] = field(default_factory=Counter)
    characters: int = 0
    accented: int = 0

    @property
    def accented_fraction(self) -> float:
        return self.accented / max(1, self.characters)


def train_vocabulary(
    files: Sequence[Path], path: Path, *, size: int = 8000, cased: bool = False, workers: int = 1, reporter: Reporter = SILENT
) -> WordCounts:
    """Write a vocabulary of at most `size` tokens, one per line: special tokens, characters, then merges in order.

    Returns the counts of the words. The vocabulary has fewer tokens if no further pair occurs twice. Raises `UsageError` if
    special tokens and characters exceed `size`.
    """
    counts = count_words(files, cased=cased, workers=workers, reporter=reporter)
    words = counts.words
    alphabet = choose_alphabet(words)
    if not alphabet:
        raise BertprepError(f"{', '.join(map(str, files[:3])) or 'no file'}: no words found to train a vocabulary on")
    pieces = {word: split_characters(word) for word in sorted(words) if alphabet.issuperset(word)}
    characters = alphabet.union(*pieces.values())
    tokens = dict.fromkeys((*SPECIAL_TOKENS, *sorted(characters)))
    if size < len(tokens):
        raise UsageError(
            f"vocabulary of {size:,} tokens: too small; the special tokens and the characters of the text alone "
            f"take {len(tokens):,}; choose a larger --size"
        )
    for token in merge_pairs(list(pieces.values()), [words[word] for word in pieces]):
        if len(tokens) == size:
            break
        tokens[token] = None
    write_output(path, "".join(f"{token}\n" for token in tokens).encode(), is_trained_here, "--output")
    return counts


def is_trained_here(path: Path) -> bool:
    """Return whether a file is a vocabulary in the layout of `train_vocabulary`: special tokens, sorted characters, merges."""
    try:
        tokens = load_vocabulary(path).tokens
    except BertprepError:
        return False
    specials = len(SPECIAL_TOKENS)
    characters = list(takewhile(lambda token: len(token.removeprefix(CONTINUES)) == 1, tokens[specials:]))
    merges = tokens[specials + len(characters) :]
    is_in_order = tokens[:specials] == SPECIAL_TOKENS and characters == sorted(characters)
    return is_in_order and set(characters).issuperset("".join(token.removeprefix(CONTINUES) for token in merges))


def count_words(files: Sequence[Path], *, cased: bool, workers: int = 1, reporter: Reporter = SILENT) -> WordCounts:
    """Return the counts of words, split like those of BERT's basic tokenizer: normalized, with punctuation separate."""
    counts = WordCounts()
    tasks = [(str(path), (path, cased)) for path in files]
    with (
        reporter.progress("count words", len(tasks), "files") as shown,
        closing(pool.run(_count_words_of_file, tasks, workers=workers)) as results,
    ):
        for name, of_file in results:
            counts.words.update(of_file.words)
            counts.characters += of_file.characters
            counts.accented += of_file.accented
            shown.advance(MB_of_text=as_path(name).stat().st_size / 1e6)
    return counts


def _count_words_of_file(task: tuple[Path, bool]) -> WordCounts:
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    path, cased = task
    normalizer, pre_tokenizer = BertNormalizer(lowercase=not cased), BertPreTokenizer()
    counts = WordCounts()
    spelled: Counter[str] = Counter()  # distinct spellings first: they are few, and the tokenizer is slow
    try:
        with reading(path, "; give text files"), io.TextIOWrapper(open_local(path), "utf-8", newline="\n") as lines:
            while line := lines.readline(MAX_DOCUMENT_BYTES):
                if len(line) == MAX_DOCUMENT_BYTES:
                    raise too_long(str(path), "a line")
                spelled.update(line.split())
    except UnicodeDecodeError as error:
        raise not_utf8(str(path), error) from error
    for spelling, count in spelled.items():
        for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(spelling)):
            if len(word) <= MAX_WORD_LENGTH:
                counts.words[word] += count
        counts.characters += len(spelling) * count
        if not spelling.isascii():
            counts.accented += _count_accented(spelling) * count
    return counts


def _count_accented(spelling: str) -> int:
    """Return the number of characters that lose an accent in lower case, or are one: marks of category Mn, as in BERT."""
    parts = [unicodedata.normalize("NFD", character) for character in spelling]
    return sum(any(unicodedata.category(part) == "Mn" for part in of_character) for of_character in parts)


def choose_alphabet(words: Mapping[str, int]) -> set[str]:
    """Return the characters of the words, or the `MAX_CHARACTERS` most frequent if there are more."""
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    return set(sorted(characters, key=lambda character: (-characters[character], character))[:MAX_CHARACTERS])


def split_characters(word: str) -> list[str]:
    """Return the initial pieces of a word, one per character.

    >>> split_characters("bit")
    ['b', '##i', '##t']
    """
    return [word[0], *(CONTINUES + character for character in word[1:])]


def merge_pairs(words: list[list[str]], counts: list[int]) -> Iterator[str]:
    """Merge the most frequent pair of adjacent pieces until no pair occurs twice; yield the token of each merge.

    `words` are lists of pieces, which are modified in place; `counts` are their frequencies. Two merges may yield the same
    token.

    >>> list(merge_pairs([["a", "##b", "##c"], ["b", "##c"], ["a", "##b"]], [3, 2, 1]))
    ['ab', 'abc', 'bc']
    """
    pair_counts: dict[Pair, int] = defaultdict(int)
    words_with: dict[Pair, set[int]] = defaultdict(set)
    for index, pieces in enumerate(words):
        for pair in pairwise(pieces):
            pair_counts[pair] += counts[index]
            words_with[pair].add(index)
    # The top is the most frequent pair or, among ties, the one that sorts first. Every change of a count pushes a new entry.
    # An entry is stale if its count is no longer that of the pair.
    heap = [(-count, pair) for pair, count in pair_counts.items()]
    heapify(heap)
    while heap:
        count, pair = heappop(heap)
        if -count != pair_counts[pair]:
            continue
        if -count < 2:
            return
        token = pair[0] + pair[1].removeprefix(CONTINUES)
        yield token
        changed: set[Pair] = set()
        for index in words_with.pop(pair):
            joined = join(words[index], pair, token)
            for old in pairwise(words[index]):
                pair_counts[old] -= counts[index]
                changed.add(old)
            for new in pairwise(joined):
                pair_counts[new] += counts[index]
                words_with[new].add(index)
                changed.add(new)
            words[index] = joined
        for one in changed:
            if pair_counts[one] > 0:
                heappush(heap, (-pair_counts[one], one))


def join(pieces: list[str], pair: Pair, token: str) -> list[str]:
    """Return the pieces with each adjacent `pair`, from left to right, replaced by `token`.

    >>> join(["a", "##a", "##a", "##a"], ("##a", "##a"), "##aa")
    ['a', '##aa', '##a']
    """
    joined: list[str] = []
    position = 0
    while position < len(pieces):
        if pieces[position] == pair[0] and pieces[position + 1 : position + 2] == [pair[1]]:
            joined.append(token)
            position += 2
        else:
            joined.append(pieces[position])
            position += 1
    return joined
