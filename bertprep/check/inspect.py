"""Show the examples of a record file as a person reads them: tokens, with each masked place and what stood there.

A masked token is written as `[MASK→original]`, or `shown→original` where the generator put a random token, and
`=original=` where it left the token as it was. Segment B follows the first [SEP].
"""

from pathlib import Path

from bertprep import records
from bertprep.errors import UsageError
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.layout import VOCABULARY
from bertprep.records.examples import Examples

_LEVELS_UP = 3  # a record file may lie in SPLIT below the folder that holds the vocabulary


def show_examples(path: Path, *, first: int = 0, count: int = 3, vocab: Path | None = None) -> None:
    """Print `count` examples of a record file, from record number `first` on."""
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a record file in it, such as part-00000")
    with records.open(path) as file:
        if not 0 <= first < len(file):
            raise UsageError(f"--record {first}: {path} holds records 0 to {len(file) - 1}")
        vocabulary = load_vocabulary(vocab or _vocabulary_beside(path))
        examples = file[first : first + max(count, 0)]
        print(f"{path}: {file.format}, {len(file):,} records, {file.seq} tokens, {file.pred} predictions")
        for number in range(len(examples)):
            print(f"\nrecord {first + number}: {_describe(examples, number)}\n{example_text(examples, number, vocabulary)}")


def example_text(examples: Examples, number: int, vocabulary: Vocabulary) -> str:
    """One example as a line of text."""

    def token(identity: int) -> str:
        return vocabulary.tokens[identity] if 0 <= identity < len(vocabulary) else f"<{identity}: not in the vocabulary>"

    length = int(examples.input_mask[number].sum())
    shown = [token(int(identity)) for identity in examples.input_ids[number, :length]]
    for position, label, weight in zip(
        examples.masked_lm_positions[number],
        examples.masked_lm_ids[number],
        examples.masked_lm_weights[number],
        strict=True,
    ):
        if weight and position < length:
            original = token(int(label))
            if shown[position] == original:
                shown[position] = f"={original}="
            else:
                shown[position] = f"[MASK→{original}]" if shown[position] == "[MASK]" else f"{shown[position]}→{original}"
    return " ".join(shown)


def _describe(examples: Examples, number: int) -> str:
    length, seq = int(examples.input_mask[number].sum()), examples.input_mask.shape[1]
    second = int(examples.segment_ids[number].sum())
    masks = int((examples.masked_lm_weights[number] > 0).sum())
    label = "a random text" if examples.next_sentence_labels[number] else "the next sentence"
    return f"{length} of {seq} tokens, B has {second} and is {label}, {masks} predictions"


def _vocabulary_beside(path: Path) -> Path:
    for folder in list(path.absolute().parents)[:_LEVELS_UP]:
        if (folder / VOCABULARY).is_file():
            return folder / VOCABULARY
    raise UsageError(f"{path}: no {VOCABULARY} lies beside it; name the vocabulary with --vocab FILE")
