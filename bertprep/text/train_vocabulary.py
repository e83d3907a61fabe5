"""Trains a WordPiece vocabulary by byte-pair merges over counted words, with the same result on every run.

A vocabulary has the special tokens, then the characters of the text, sorted, then the merged pairs in the order of merging.
Training takes about 1 s for 12 MB of text; time and memory grow with the number of distinct words.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from pathlib import Path

from bertprep.config import VocabularySettings
from bertprep.errors import BertprepError, UsageError
from bertprep.files.outputs import write_output
from bertprep.instances.reference import split_words
from bertprep.instances.vocabulary import SPECIAL_TOKENS, load_vocabulary
from bertprep.kernels.numbers import LONGEST_WORD
from bertprep.progress import SILENT, Reporter
from bertprep.terminal import counted
from bertprep.text.count_words import WordCounts, count_words
from bertprep.text.merge_pairs import CONTINUES, merge_pairs

_MANY_TOO_LONG = 0.01
"""With a larger fraction of the characters in words that are too long, the text has no spaces between its words."""
_TOO_LONG = (
    f"more than {LONGEST_WORD} characters, which BERT's tokenizer turns into [UNK]; put spaces between the words of text that "
    "has none, such as Thai or DNA"
)


@dataclass(frozen=True)
class TrainedVocabulary:
    """The tokens of a vocabulary; how many characters of the text had no space in it, and their fraction of the text."""

    tokens: tuple[str, ...]
    left_out: int
    left_out_fraction: float


def train_vocabulary(
    files: Sequence[Path], path: Path, settings: VocabularySettings, *, workers: int = 1, reporter: Reporter = SILENT
) -> list[str]:
    """Write a vocabulary of at most `settings.size` tokens, one per line, and return warnings if much text becomes [UNK].

    Raises `BertprepError` if the text has no words, and `UsageError` if the special tokens leave no space for characters.
    """
    counts = count_words(files, cased=settings.cased, workers=workers, reporter=reporter)
    if not counts.words:
        raise BertprepError(f"{', '.join(map(str, files[:3])) or 'no file'}: {_why_no_words(counts)}")
    trained = choose_tokens(counts.words, settings, reporter)
    write_output(path, "".join(f"{token}\n" for token in trained.tokens).encode(), is_trained_here, "--output")
    return [f"{path}: {line}" for line in _losses(trained, counts, settings)]


def choose_tokens(words: Mapping[str, int], settings: VocabularySettings, reporter: Reporter = SILENT) -> TrainedVocabulary:
    """Return the tokens of a vocabulary for words with these counts.

    Each character is a token, and if it continues words, its ## form too. Once characters take half of the size, a further one
    has to be as frequent as the pairs that are merged, since a large text of any language has thousands that are rare.
    """
    reserved = reserved_tokens(settings)
    room = settings.size - len(reserved)
    counts = _count_characters(words)
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    total = sum(counts.values())
    sums = accumulate(counts[character] for character in ranked)
    covered = ranked[: 1 + sum(1 for _ in takewhile(lambda so_far: so_far < settings.coverage * total, sums))]
    if len(covered) < len(ranked):
        known = set(covered)
        words = {word: count for word, count in words.items() if known.issuperset(word)}
    continuing = {character for word in words for character in word[1:]}
    forms_of = {each: [each, CONTINUES + each] if each in continuing else [each] for each in covered}
    if room < len(forms_of[covered[0]]):
        raise UsageError(
            f"--size {settings.size:,}: too small, since {len(reserved):,} tokens are special; choose a larger one"
        )

    characters: list[str] = []
    merged: dict[str, None] = {}
    waiting = deque(covered)

    def take_characters(most: int, least: int) -> None:
        """Take the next characters that occur `least` times, as long as there are at most `most` tokens."""
        while waiting and counts[waiting[0]] >= least:
            forms = forms_of[waiting[0]]
            if len(characters) + len(merged) + len(forms) > most:
                return
            characters.extend(forms)
            shown.advance(len(forms))
            waiting.popleft()

    with reporter.progress("merge pairs", settings.size, "tokens") as shown:
        shown.advance(len(reserved))
        take_characters(room // 2, 1)
        for token, count in merge_pairs(words, settings.min_frequency):
            take_characters(room, count)
            if len(characters) + len(merged) >= room:
                break
            if token not in merged:
                merged[token] = None
                shown.advance()
        take_characters(room, 1)
    left_out = sum(counts[character] for character in waiting)
    return TrainedVocabulary((*reserved, *sorted(characters), *merged), len(waiting), left_out / total)


def reserved_tokens(settings: VocabularySettings) -> list[str]:
    """Return the special tokens: BERT's, with those for later use after [PAD] as in Google's vocabularies, then the user's.

    Raises `UsageError` for a special token that a text can have as a word, or that is given twice.

    >>> reserved_tokens(VocabularySettings(unused=2, special=("[ENT]",)))
    ['[PAD]', '[unused0]', '[unused1]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', '[ENT]']
    """
    reserved = [SPECIAL_TOKENS[0], *(f"[unused{number}]" for number in range(settings.unused)), *SPECIAL_TOKENS[1:]]
    for token in settings.special:
        if token in reserved:
            raise UsageError(f"--special {token}: is already a token; leave it out")
        if not token or not token.isprintable() or " " in token:
            raise UsageError(f"--special {token!r}: must have only printable characters, without spaces; choose another name")
        if token.startswith(CONTINUES) or [*split_words(token, lower=not settings.cased)] in ([], [token], [token.lower()]):
            raise UsageError(f"--special {token}: text may have this as a word; put it in brackets, as in [{token.strip('#')}]")
        reserved.append(token)
    return reserved


def is_trained_here(path: Path) -> bool:
    """Return whether a file is a vocabulary in the layout of `train_vocabulary`: special tokens, sorted characters, merges."""
    try:
        tokens = load_vocabulary(path).tokens
    except BertprepError:
        return False
    if len(set(tokens)) < len(tokens) or not all(tokens):
        return False
    unused = [*takewhile(lambda token: token.startswith("[unused"), tokens[1:])]
    begins = len(unused) + len(SPECIAL_TOKENS)
    if (tokens[0], *tokens[1 + len(unused) : begins]) != SPECIAL_TOKENS:
        return False
    own = [*takewhile(lambda token: len(token.removeprefix(CONTINUES)) > 1, tokens[begins:])]
    rest = tokens[begins + len(own) :]
    characters = [*takewhile(lambda token: len(token.removeprefix(CONTINUES)) == 1, rest)]
    is_in_order = characters == sorted(characters)
    return is_in_order and set(characters).issuperset(
        "".join(token.removeprefix(CONTINUES) for token in rest[len(characters) :])
    )


def _count_characters(words: Mapping[str, int]) -> Counter[str]:
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    return characters


def _why_no_words(counts: WordCounts) -> str:
    if counts.too_long:
        return f"all words have {_TOO_LONG}"
    return (
        "no words found to train a vocabulary on: the text has only white space and characters that BERT's tokenizer removes, "
        "such as those without width; name other text"
    )


def _losses(trained: TrainedVocabulary, counts: WordCounts, settings: VocabularySettings) -> Iterator[str]:
    """Yield what part of the text becomes [UNK], and the option or the property of the text that is the cause."""
    if trained.left_out:
        yield (
            f"has no token for {counted(trained.left_out, 'rare character')}, {trained.left_out_fraction:.2%} of the text, so "
            f"words with them become [UNK]; choose a --size above {settings.size:,}"
        )
    in_words = sum(len(word) * count for word, count in counts.words.items())
    if counts.too_long_characters > _MANY_TOO_LONG * (in_words + counts.too_long_characters):
        yield f"{counted(counts.too_long, 'word')} of the text had {_TOO_LONG}"
