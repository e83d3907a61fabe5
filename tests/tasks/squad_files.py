"""Small SQuAD files and a small vocabulary, for tests that a person can check by eye."""

import json
from pathlib import Path
from typing import Any

from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.tasks.squad import read_squad
from bertprep.tasks.squad_features import SquadFeatures, SquadSettings, make_features
from tests.golden import GOLDEN

FINETUNE = GOLDEN / "finetune"
TOKENS = [
    *("[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *"abcdefghijklmnopqrstuvwxyz0123456789.,;:'()-/#?$σς北京大学",
    *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789σς"),
    *("the", "japanese", "1895", "1943", "cafe", "naive", "The", "Cafe", "steve", "smith", "[PAD]"),
]  # fmt: skip


def vocabulary(folder: Path) -> Vocabulary:
    path = folder / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in TOKENS), encoding="utf-8")
    return load_vocabulary(path)


def question(identifier: str = "q1", text: str = "q", **values: Any) -> dict[str, Any]:
    return {"id": identifier, "question": text, **values}


def answer(context: str, text: str, start: int | None = None) -> dict[str, Any]:
    """Return an answer at its first occurrence, or where it is said to be."""
    return {"text": text, "answer_start": context.index(text) if start is None else start}


def write(folder: Path, content: Any) -> Path:
    path = folder / "squad.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def squad(version: str, *paragraphs: tuple[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the content of a file with one article."""
    return {
        "version": version,
        "data": [{"title": "T", "paragraphs": [{"context": context, "qas": questions} for context, questions in paragraphs]}],
    }


def features_of(
    folder: Path, context: str, *questions: dict[str, Any], version: str = "v1.1", training: bool = False, **settings: Any
) -> SquadFeatures:
    """Return the features of one paragraph's questions, unshuffled."""
    data = read_squad(write(folder, squad(version, (context, list(questions)))), version, training=training)
    chosen = SquadSettings(**{"seq": 8, "doc_stride": 2, "max_query": 4, **settings})
    return make_features(data, vocabulary(folder), chosen, training=training, shuffle=False)


def tokens_of(features: SquadFeatures, row: int) -> str:
    """Return the tokens of a row without its padding."""
    ids = features[row : row + 1].input_ids[0].tolist()
    return " ".join(features.vocabulary.tokens[token] for token in ids if token != features.vocabulary.pad)
