"""Tag words of the sample corpus by rule, in CoNLL's format, and score a model's predictions with seqeval.

    python -m examples.tagging.speech_tags make SHARDS FOLDER N
    python -m examples.tagging.speech_tags score FOLDER/dev.txt PREDICTIONS

SHARDS is `WORKDIR/sharded/sample`, N is the number of training sentences. Countries, institutions, months, years and amounts of
money get tags, by the patterns of examples/end_to_end/sample_tasks.py. Since regular expressions find all of them, a model's
scores only show that training works, not how well it would learn human annotations. train.txt comes from the training split of
pretraining, dev.txt from its test split. `score` needs seqeval 1.2.2.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

from bertprep.files.outputs import write_output
from examples.end_to_end.sample_tasks import SEED, find_answers, read_documents

TAGS = {
    "how much": "MONEY",
    "what year": "YEAR",
    "which month": "MONTH",
    "which institution": "ORG",
    "which country": "COUNTRY",
}
WORDS_OF_A_SENTENCE = range(5, 41)
SHARE_OF_DEV = 5  # training sentences per dev sentence


def tag_words(sentence: str) -> list[tuple[str, str]]:
    """Return the words and punctuation marks of a sentence with their tags in IOB2.

    >>> tag_words("In 1818, Great Britain signed.")[1:5]
    [('1818', 'B-YEAR'), (',', 'O'), ('Great', 'B-COUNTRY'), ('Britain', 'I-COUNTRY')]
    """
    answers = find_answers(sentence)
    tagged = []
    for match in re.finditer(r"[$]?\w+(?:[-,.]\w+)*|[^\w\s]", sentence):
        inside = [answer for answer in answers if answer.start <= match.start() < answer.end]
        tag = "O"
        if inside:
            tag = f"{'B' if match.start() == inside[0].start else 'I'}-{TAGS[inside[0].kind]}"
        tagged.append((match[0], tag))
    return tagged


def make(shards: Path, folder: Path, sentences: int) -> None:
    """Write train.txt and dev.txt. Half of the sentences have a tag, or fewer if there are not enough."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, source, count in (("train", "training", sentences), ("dev", "test", sentences // SHARE_OF_DEV)):
        texts = dict.fromkeys(sentence for document in read_documents(shards / source) for sentence in document)
        tagged = [tag_words(text) for text in texts]
        tagged = [words for words in tagged if len(words) in WORDS_OF_A_SENTENCE]
        random.Random(SEED).shuffle(tagged)
        has_tag = [any(tag != "O" for _, tag in words) for words in tagged]
        chosen = [words for words, has in zip(tagged, has_tag, strict=True) if has][: count // 2]
        chosen += [words for words, has in zip(tagged, has_tag, strict=True) if not has][: count - len(chosen)]
        random.Random(SEED).shuffle(chosen)
        lines = ("".join(f"{word} {tag}\n" for word, tag in words) for words in chosen)
        write_output(folder / f"{split}.txt", "\n".join(lines).encode())
        entities = sum(tag.startswith("B-") for words in chosen for _, tag in words)
        print(f"{split}: {len(chosen):,} sentences, {entities:,} entities")


def read_tags(labelled: Path, predictions: Path) -> tuple[list[list[str]], list[list[str]]]:
    """Return the tags of each sentence of a file in CoNLL's format, and the tags that a model predicted."""
    blocks = labelled.read_text(encoding="utf-8").strip().split("\n\n")
    expected = [[line.rsplit(" ", 1)[1] for line in block.split("\n")] for block in blocks]
    found = [line.split() for line in predictions.read_text(encoding="utf-8").splitlines()]
    if len(expected) != len(found):
        raise SystemExit(
            f"{predictions}: has {len(found):,} lines, {labelled} has {len(expected):,} sentences; give files of the same run"
        )
    for number, (tags, predicted) in enumerate(zip(expected, found, strict=True), 1):
        if len(tags) != len(predicted):
            raise SystemExit(
                f"{predictions}: line {number} has {len(predicted)} tags, sentence {number} of {labelled} has {len(tags)} words"
                "; make the records with a larger --seq"
            )
    return expected, found


def score(labelled: Path, predictions: Path) -> dict[str, float]:
    """Return seqeval's precision, recall and F1."""
    from seqeval.metrics import f1_score, precision_score, recall_score

    expected, found = read_tags(labelled, predictions)
    metrics = {"precision": precision_score, "recall": recall_score, "f1": f1_score}
    return {name: float(metric(expected, found)) for name, metric in metrics.items()}


def main() -> None:
    match sys.argv[1:]:
        case ["make", shards, folder, count] if count.isdecimal():
            make(Path(shards), Path(folder), int(count))
        case ["score", labelled, predictions]:
            print(json.dumps(score(Path(labelled), Path(predictions))))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
