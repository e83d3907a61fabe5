"""Tokens of valid sets are those that their tokenizer gives for their text again, however odd text and tokenizer are."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import bertprep
from bertprep.check.round_trip import count_changed
from bertprep.sources.sample import read_speeches
from tests.instances.small_tokenizers import KINDS, write_tokenizer

_RANDOM = random.Random(1)
_SPEECHES = [speech[:3000] for speech in list(read_speeches())[60:70]]
TEXTS = {
    "prose": _SPEECHES,
    "code": [Path(__file__).with_name(name).read_text()[:3000] for name in ("plants.py", "edits.py", "faulty.py")],
    "Markdown": ["## " + speech.replace(".", " ### ## ").replace("the", "#the") for speech in _SPEECHES],
    "Chinese": ["".join(chr(_RANDOM.randrange(0x4E00, 0x4F00)) for _ in range(800)) for _ in range(5)],
    "DNA": ["".join(_RANDOM.choices("ACGT", k=2000)) for _ in range(5)],
    "accents and emoji": [speech.replace("e", "é").replace(" the ", " 👍🏽 “x” ") for speech in _SPEECHES],
    "white space": [speech.replace(" the ", " \n\t  the  ") for speech in _SPEECHES],
    "one document": _SPEECHES[:1],
    "documents of a word": _SPEECHES[0].split(),
}


def found_in(folder: Path) -> set[str]:
    [outcome] = bertprep.validate([folder], workers=1)
    return {finding.code for finding in outcome.findings} - {"unknown-tokens", "document-twice"}


def write(folder: Path, text: str) -> Path:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps({"text": each}) + "\n" for each in TEXTS[text]))
    return path


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_found_in_valid_sets(kind: str, text: str, tmp_path: Path) -> None:
    made = bertprep.tokenize(
        inputs=[write(tmp_path, text)], tokenizer=write_tokenizer(tmp_path, kind), output=tmp_path / "out", workers=1
    )
    assert found_in(made.folder) == set()


def test_words_that_begin_with_the_prefix_of_pieces_are_not_compared(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=1000, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(TEXTS["Markdown"], trainer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    made = bertprep.tokenize(
        inputs=[write(tmp_path, "Markdown")], tokenizer=tmp_path / "tokenizer.json", output=tmp_path / "out", workers=1
    )
    assert found_in(made.folder) == set()


def letters(text: str) -> list[str]:
    return list(text.replace(" ", ""))


@pytest.mark.parametrize("how", [{"words": letters}, {"append_eod": True}])
def test_given_words_and_ends_of_documents_are_right(how: dict[str, object], tmp_path: Path) -> None:
    made = bertprep.tokenize(
        inputs=[write(tmp_path, "prose")], tokenizer=write_tokenizer(tmp_path, "byte_bpe"), output=tmp_path / "out", workers=1,
        **how,  # type: ignore[arg-type]
    )  # fmt: skip
    assert found_in(made.folder) == set()


def test_pairs_are_counted_as_often_as_they_occur() -> None:
    assert count_changed(np.array([1, 2, 1, 2]), np.array([1, 2, 3])) == 2
    assert count_changed(np.array([1, 2]), np.array([1, 2, 1, 2])) == 0
