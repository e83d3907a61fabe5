"""The generator in plain Python, for people who want to read the algorithm and for tests of the compiled generator.

It makes the same random draws as `create_pretraining_data.py` and `tokenization.py` of google-research/bert (commit eedf5716),
in the same order. It is a thousand times slower than `generator`. It uses the running Python's version of Unicode, while the
compiled tokenizer uses a table (Unicode 15.1).
"""

import random
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bertprep.config import InstanceSettings

MAX_WORD_LENGTH = 200
RANDOM_DOCUMENT_TRIES = 10
_CJK = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF),
        (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))  # fmt: skip

Sentence = list[str]  # of tokens
Document = list[Sentence]


@dataclass
class ReferenceInstance:
    """One example as strings: the tokens that the model sees, and the labels that it should predict."""

    tokens: list[str]  # [CLS] A [SEP] B [SEP], or for full sentences [CLS] A [SEP], with the replacements in place
    segment_ids: list[int]
    is_random_next: bool  # False for full sentences
    masked_positions: list[int]  # ascending
    masked_labels: list[str]


def generate(text: bytes, vocabulary: Sequence[str], settings: InstanceSettings, *, seed: int) -> list[ReferenceInstance]:
    """Return the instances of a text shard, in the order of its records."""
    rng = random.Random(seed)
    vocabulary = [*dict.fromkeys(vocabulary)]  # a repeated token is drawn once, since Google's generator has them in a dict
    documents = read_documents(text, vocabulary, lower=not settings.cased)
    if settings.has_pairs:
        rng.shuffle(documents)
        instances = [
            instance
            for _ in range(settings.dupe)
            for index in range(len(documents))
            for instance in instances_of_document(documents, index, vocabulary, settings, rng)
        ]
    else:
        instances = [
            instance for _ in range(settings.dupe) for instance in instances_of_round(documents, vocabulary, settings, rng)
        ]
    rng.shuffle(instances)
    return instances


def instances_of_round(
    documents: list[Document], vocabulary: Sequence[str], settings: InstanceSettings, rng: random.Random
) -> Iterator[ReferenceInstance]:
    """Yield the full-sentence instances of one round: documents are shuffled again, packed into sequences, and masked."""
    rng.shuffle(documents)
    for text in pack_sentences(documents, settings.seq - 2):  # [CLS], [SEP]
        tokens = ["[CLS]", *text, "[SEP]"]
        positions, labels = mask_tokens(tokens, vocabulary, settings, rng)
        yield ReferenceInstance(tokens, [0] * len(tokens), False, positions, labels)


def pack_sentences(documents: list[Document], longest: int) -> Iterator[list[str]]:
    """Yield sequences of at most `longest` tokens, made of full sentences with [SEP] between documents.

    A sentence that does not fit begins the next sequence. A sentence of more than `longest` tokens is split.
    """
    text: list[str] = []
    for number, document in enumerate(documents):
        separator = ["[SEP]"] if number else []
        for sentence in document:
            if text and len(text) + len(separator) + len(sentence) > longest:
                yield text
                text = []
            elif text:
                text += separator
            separator = []
            while len(sentence) > longest:
                yield sentence[:longest]
                sentence = sentence[longest:]
            text += sentence
    yield text


def instances_of_document(
    documents: list[Document], index: int, vocabulary: Sequence[str], settings: InstanceSettings, rng: random.Random
) -> Iterator[ReferenceInstance]:
    """Yield the masked sentence pairs of a document, each of about the target length."""
    document = documents[index]
    longest = settings.seq - 3  # [CLS], [SEP], [SEP]
    # Most sequences are as long as possible. Some documents get shorter ones, because fine-tuning data will be shorter, too.
    target = rng.randint(2, longest) if rng.random() < settings.short_seq_prob else longest
    chunk: list[Sentence] = []
    chunk_length = 0
    i = 0
    while i < len(document):
        chunk.append(document[i])
        chunk_length += len(document[i])
        if i == len(document) - 1 or chunk_length >= target:
            a_end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            a = [token for sentence in chunk[:a_end] for token in sentence]
            is_random_next = len(chunk) == 1 or rng.random() < 0.5
            if is_random_next:
                b = random_next(documents, index, target - len(a), rng)
                i -= len(chunk) - a_end  # the sentences after A are used again by the next pair
            else:
                b = [token for sentence in chunk[a_end:] for token in sentence]
            truncate_pair(a, b, longest, rng)
            tokens = ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
            segment_ids = [0] * (len(a) + 2) + [1] * (len(b) + 1)
            positions, labels = mask_tokens(tokens, vocabulary, settings, rng)
            yield ReferenceInstance(tokens, segment_ids, is_random_next, positions, labels)
            chunk, chunk_length = [], 0
        i += 1


def random_next(documents: list[Document], index: int, target: int, rng: random.Random) -> list[str]:
    """Return consecutive sentences of another random document, at least one, until they have `target` tokens.

    If ten draws all give the document itself, its own sentences are returned, and the pair is still labelled random.
    """
    for _ in range(RANDOM_DOCUMENT_TRIES):
        other = rng.randint(0, len(documents) - 1)
        if other != index:
            break
    document = documents[other]
    tokens: list[str] = []
    for sentence in document[rng.randint(0, len(document) - 1) :]:
        tokens.extend(sentence)
        if len(tokens) >= target:
            break
    return tokens


def truncate_pair(a: list[str], b: list[str], longest: int, rng: random.Random) -> None:
    """Remove tokens from the front or the back of the longer segment (B on a tie) until both fit in `longest` tokens."""
    while len(a) + len(b) > longest:
        longer = a if len(a) > len(b) else b
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()


def mask_tokens(
    tokens: list[str], vocabulary: Sequence[str], settings: InstanceSettings, rng: random.Random
) -> tuple[list[int], list[str]]:
    """Mask some tokens in place; return their positions in ascending order, and the original tokens there."""
    groups: list[list[int]] = []
    for position, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if settings.whole_word and groups and token.startswith("##"):
            groups[-1].append(position)
        else:
            groups.append([position])
    rng.shuffle(groups)
    wanted = min(settings.pred, max(1, round(len(tokens) * settings.masked_lm_prob)))
    original = list(tokens)
    masked: list[int] = []
    for group in groups:
        if len(masked) >= wanted:
            break
        if len(masked) + len(group) > wanted:
            continue
        for position in group:
            if rng.random() < 0.8:
                tokens[position] = "[MASK]"
            elif rng.random() >= 0.5:
                tokens[position] = vocabulary[rng.randint(0, len(vocabulary) - 1)]
            masked.append(position)
    masked.sort()
    return masked, [original[position] for position in masked]


def read_documents(text: bytes, vocabulary: Sequence[str], *, lower: bool) -> list[Document]:
    """Return the documents of a text shard as tokenized sentences.

    Blank lines separate documents. Lines without tokens, and documents without sentences, are dropped.
    """
    known = set(vocabulary)
    documents: list[Document] = [[]]
    for line in text.decode().replace("\r", "").split("\n"):
        if not line.strip():
            documents.append([])
        elif tokens := tokenize(line, known, lower=lower):
            documents[-1].append(tokens)
    return [document for document in documents if document]


def tokenize(line: str, known: set[str], *, lower: bool) -> list[str]:
    """Return the WordPiece tokens of a line of text.

    >>> tokenize("Unaffable!", {"un", "##aff", "##able", "!"}, lower=True)
    ['un', '##aff', '##able', '!']
    """
    return [piece for word in split_words(line, lower=lower) for piece in split_pieces(word, known)]


def split_words(line: str, *, lower: bool) -> Iterator[str]:
    """Yield the words of a line; a punctuation mark or a CJK character is a word of its own.

    With `lower`, words are in lower case and without accents.
    """
    cleaned = "".join(_cleaned(character) for character in line)
    for word in cleaned.split():
        if lower:
            decomposed = unicodedata.normalize("NFD", word.lower())
            word = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        yield from "".join(f" {c} " if _is_punctuation(c) else c for c in word).split()


def _cleaned(character: str) -> str:
    point, category = ord(character), unicodedata.category(character)
    if character in " \t\n\r" or category == "Zs":
        return " "
    if point in (0, 0xFFFD) or category in ("Cc", "Cf"):
        return ""
    return f" {character} " if any(first <= point <= last for first, last in _CJK) else character


def _is_punctuation(character: str) -> bool:
    # Unicode does not count $, +, ^ and some others as punctuation, but BERT splits at every ASCII symbol.
    return (character.isascii() and character.isprintable() and not character.isalnum() and character != " ") or (
        unicodedata.category(character).startswith("P")
    )


def split_pieces(word: str, known: set[str]) -> list[str]:
    """Split a word into pieces, taking the longest known piece at each point from left to right, or return [UNK]."""
    if len(word) > MAX_WORD_LENGTH:
        return ["[UNK]"]
    pieces: list[str] = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        end = next((end for end in range(len(word), start, -1) if prefix + word[start:end] in known), None)
        if end is None:
            return ["[UNK]"]
        pieces.append(prefix + word[start:end])
        start = end
    return pieces
