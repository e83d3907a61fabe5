"""Clean data sets of 61 settings, made by the generator itself: no check may find a fault.

The tests make each once; `validated_sets` makes more, each with a seed of its own.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np

import bertprep
from bertprep.check.outcome import Outcome
from bertprep.commands.validate import validate
from bertprep.config import InstanceSettings, masks_cut_off
from bertprep.instances import generator
from bertprep.work.layout import MANIFEST
from tests.check.faulty import split_frames
from tests.corpora import deal
from tests.golden import GOLDEN

_TINY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "##a", "##b", "##c", "."]


@dataclass(frozen=True)
class CleanSet:
    """A text, settings, and how the records are laid out."""

    text: str
    settings: InstanceSettings
    layout: str = "as made"

    @property
    def warnings(self) -> list[str]:
        """What is found: limits of predictions, documents too short for the settings, and words that are only letters."""
        few = ["few-predictions"] * bool(masks_cut_off(self.settings.seq, self.settings.pred, self.settings.masked_lm_prob))
        if self.text in ("documents of one sentence", "documents of one word") and self.settings.has_pairs:
            is_padded = self.settings.seq == 128 or self.text == "documents of one word"
            return few + (["next-sentence-share", "padding-share"] if is_padded else ["next-sentence-share"])
        if self.text in ("one document", "one sentence") and self.settings.has_pairs:
            few = [*few, "lone-document"]
        if self.text == "tiny vocabulary":
            few = [*few, "split-words"]
        return [*few, "padding-share"] if self.text == "sentences of one word" and self.settings == _settings() else few

    def __str__(self) -> str:
        changed = {name: value for name, value in vars(self.settings).items() if value != getattr(InstanceSettings, name)}
        return f"{self.text}, {self.layout}, {changed}"


def _settings(seq: int = 128, pred: int = 20, **others: object) -> InstanceSettings:
    return InstanceSettings(seq=seq, pred=pred, **others)  # type: ignore[arg-type]


SETTINGS = (
    _settings(),
    _settings(dupe=20),
    _settings(short_seq_prob=0.0),
    _settings(short_seq_prob=1.0),
    _settings(one_seed=True),
    _settings(cased=True),
    _settings(pred=13, masked_lm_prob=0.1),
    _settings(pred=120, masked_lm_prob=0.9),
    _settings(pred=125, masked_lm_prob=1.0),
    _settings(30, 5),
    _settings(8, 1),
    _settings(8, 5, masked_lm_prob=0.9),
    _settings(whole_word=True, dupe=4),
    _settings(whole_word=True, short_seq_prob=1.0),
    _settings(64, 60, whole_word=True, masked_lm_prob=0.95),
    _settings(8, 3, whole_word=True, masked_lm_prob=0.5, dupe=10),
    _settings(pairs="none"),
    _settings(pairs="none", dupe=20),
    _settings(512, 154, pairs="none", masked_lm_prob=0.3),
    _settings(128, 126, pairs="none", masked_lm_prob=1.0),
    _settings(8, 1, pairs="none"),
    _settings(pairs="none", whole_word=True),
)
TEXTS = (
    "one document", "one sentence", "documents of one sentence", "documents of one word", "sentences of one word",
    "few documents", "tiny vocabulary",
)  # fmt: skip
LAYOUTS = (
    "four shards", "four shards", "dealt over 3 files", "dealt over 12 files", "converted",
    "no manifest", "no manifest, dealt by turns", "no manifest, rounded up", "no manifest, rounded up",
)  # fmt: skip
SETS = (
    *(CleanSet("golden", settings) for settings in SETTINGS),
    *(
        CleanSet(text, settings)
        for text in TEXTS
        for settings in (
            _settings(),
            _settings(16, 8, masked_lm_prob=0.9, dupe=10),
            _settings(24, 4, whole_word=True),
            _settings(24, 20, pairs="none", masked_lm_prob=0.9, dupe=10),
        )
    ),
    *(
        CleanSet("golden", _settings(dupe=2 + number, one_seed=number == 1, seq=30 if number == 8 else 128), layout)
        for number, layout in enumerate(LAYOUTS)
    ),
    CleanSet("long documents", _settings(512, 80, dupe=10)),
    # few documents, so that one round with a short target length gives a large fraction of the records
    CleanSet("three long documents", _settings(short_seq_prob=0.4, dupe=8)),
)


def write_texts(corpus: Path, folder: Path) -> dict[str, list[Path]]:
    """The files of each text; `four shards` are the golden corpus too."""
    rng = random.Random(1)
    words = [word for word in (GOLDEN / "vocab.txt").read_text(encoding="utf-8").split() if word.isalpha()]

    def sentence(mean: float = 14, words: list[str] = words) -> str:
        return " ".join(rng.choices(words, k=1 + int(rng.expovariate(1 / mean))))

    def letters() -> str:
        return " ".join("".join(rng.choices("abc", k=rng.randint(1, 6))) for _ in range(rng.randint(1, 30)))

    documents = [d for d in corpus.read_text(encoding="utf-8").split("\n\n") if d.strip()]
    content = {
        "golden": "\n\n".join(documents),
        "one document": "\n".join(sentence() for _ in range(600)),
        "one sentence": sentence(40),
        "documents of one sentence": "\n\n".join(sentence() for _ in range(400)),
        "documents of one word": "\n\n".join(rng.choices(words, k=400)),
        "sentences of one word": "\n\n".join("\n".join(rng.choices(words, k=rng.randint(1, 60))) for _ in range(60)),
        "few documents": "\n\n".join(documents[:3]),
        "long documents": "\n\n".join("\n".join(documents[at : at + 10]) for at in range(0, len(documents), 10)),
        "tiny vocabulary": "\n\n".join("\n".join(letters() for _ in range(rng.randint(1, 20))) for _ in range(60)),
        "three long documents": "\n\n".join("\n".join(sentence(words=words[:200]) for _ in range(2000)) for _ in range(3)),
    }
    files = {}
    for name, text in content.items():
        files[name] = [folder / f"{name.replace(' ', '_')}.txt"]
        files[name][0].write_text(text + "\n\n", encoding="utf-8")
    (folder / "tiny.vocab").write_text("\n".join(_TINY) + "\n", encoding="utf-8")
    tokens = (GOLDEN / "vocab.txt").read_text(encoding="utf-8").split()
    capitals = [token.title() for token in tokens if token.isalpha() and token.isascii()]
    (folder / "cased.vocab").write_text("\n".join(dict.fromkeys([*tokens, *capitals])) + "\n", encoding="utf-8")
    return {**files, "four shards": deal(corpus, folder, 4)}


def write_set(clean: CleanSet, seed: int, texts: dict[str, list[Path]], folder: Path) -> Path:
    """Make the records of a set with a seed, TFRecord or OFRecord in turn; returns their folder."""
    settings = replace(clean.settings, seed=1000 * seed)
    name = ("tfrecord", "ofrecord")[seed % 2]
    vocab = GOLDEN / "vocab.txt"
    if clean.settings.cased or clean.text == "tiny vocabulary":
        vocab = texts["golden"][0].with_name("cased.vocab" if clean.settings.cased else "tiny.vocab")
    inputs = texts["four shards" if "shards" in clean.layout else clean.text]
    with mock.patch.object(generator, "predictions_by_length", _rounded_up if "rounded up" in clean.layout else _as_made):
        how = {"lines_are_sentences": True, "vocab": vocab, "formats": name}
        bertprep.create(inputs=inputs, **vars(settings), output=folder, **how, workers=1)
    made = folder / name
    if clean.layout.startswith(("dealt over", "converted")):
        shards = int(clean.layout.split()[2]) if "dealt" in clean.layout else None
        return bertprep.convert(made, folder / "converted", to=name if shards else None, shards=shards, workers=1).folder
    if clean.layout.startswith("no manifest"):
        (made / MANIFEST).unlink()
    if clean.layout.endswith("by turns"):
        _deal_by_turns(made / "training", name)
    return made


_as_made = generator.predictions_by_length


def _rounded_up(seq: int, pred: int, masked_lm_prob: float, special: int = 3) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """As Google's script counts under Python 2, whose `round` takes a half up."""
    counts = [int(n * masked_lm_prob + 0.5) for n in range(seq + 1)]
    return np.array([min(pred, max(1, min(count, n - special))) for n, count in enumerate(counts)], np.int64)


def _deal_by_turns(folder: Path, record_format: str) -> None:
    """Each record into the next of three files, as Google's script writes them."""
    (path,) = folder.iterdir()
    frames = split_frames(path.read_bytes(), record_format)
    path.unlink()
    for number in range(3):
        (folder / f"tf_examples.tfrecord-{number:05d}-of-00003").write_bytes(b"".join(frames[number::3]))


def validated_sets(numbers: range, corpus: Path, folder: Path) -> Iterator[tuple[CleanSet, Outcome]]:
    """Make the sets of these numbers, all of `SETS` in turn, each with its number as seed, and validate them."""
    texts = write_texts(corpus, folder)
    for number in numbers:
        clean, place = SETS[number % len(SETS)], folder / f"set_{number}"
        (outcome,) = validate([write_set(clean, number, texts, place)], workers=1)
        shutil.rmtree(place)
        yield clean, outcome
