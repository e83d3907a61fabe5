"""Every row that Google's run_squad.py made of two files, in two sizes, is made again: examples, features, predictions."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.instances import Tokenizer, load_vocabulary
from bertprep.tasks.squad import SquadData, read_squad
from bertprep.tasks.squad_answers import SquadPredictions, predict_answers
from bertprep.tasks.squad_features import SquadFeatures, SquadSettings, make_features
from bertprep.tasks.squad_words import find_answers, split_contexts
from tests.golden import GOLDEN
from tests.tasks.squad_files import FINETUNE

VERSIONS = {"v1": "v1.1", "v2": "v2.0"}
SETTINGS = {
    64: SquadSettings(seq=64, doc_stride=24, max_query=16),
    384: SquadSettings(seq=384, doc_stride=128, max_query=64),
}
VOCABULARY = load_vocabulary(GOLDEN / "vocab.txt")
both_versions = pytest.mark.parametrize("version", VERSIONS)
both_sizes = pytest.mark.parametrize("size", SETTINGS)
both_purposes = pytest.mark.parametrize("purpose", ["train", "eval"])


def rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(FINETUNE / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read(version: str, purpose: str) -> SquadData:
    return read_squad(FINETUNE / f"squad_{version}.json", VERSIONS[version], training=purpose == "train")


def features_of(version: str, size: int, purpose: str, *, like_google: bool = True) -> SquadFeatures:
    data, training = read(version, purpose), purpose == "train"
    return make_features(data, VOCABULARY, SETTINGS[size], training=training, shuffle=False, like_google=like_google)


def predict(version: str, size: int) -> tuple[SquadPredictions, dict[str, Any]]:
    """What is predicted from the golden logits, and what Google's code predicts."""
    features, logits = features_of(version, size, "eval"), rows(f"squad_{version}_logits_{size}")
    assert [row["unique_id"] for row in logits] == features[:].unique_ids.tolist()
    starts, ends = (np.array([row[name] for row in logits], np.float32) / np.float32(1024) for name in ("start", "end"))
    with gzip.open(FINETUNE / f"squad_{version}_decoded_{size}.json.gz", "rt", encoding="utf-8") as file:
        return predict_answers(features, starts, ends), json.load(file)


@both_versions
@both_purposes
def test_examples(version: str, purpose: str) -> None:
    data, wanted = read(version, purpose), rows(f"squad_{version}_examples_{purpose}")
    words = split_contexts(data.contexts, Tokenizer(VOCABULARY, lower=True))
    names: Any = None
    answers = find_answers(data, words, like_google=True)
    kept = answers.kept.tolist() if purpose == "train" else list(range(len(data)))
    assert [row["qas_id"] for row in wanted] == [data.ids[question] for question in kept]
    for number, (row, question) in enumerate(zip(wanted, kept, strict=True)):
        names = names if row["doc_tokens"] == "as previous" else row["doc_tokens"]
        assert words.in_context(data.contexts, int(data.paragraphs[question])) == names
        if purpose == "train":
            assert (answers.firsts[number], answers.lasts[number]) == (row["start_position"], row["end_position"])
            assert (data.answer_starts[question] < 0) == row["is_impossible"]


@both_versions
@both_sizes
@both_purposes
def test_features(version: str, size: int, purpose: str) -> None:
    features, wanted = features_of(version, size, purpose), rows(f"squad_{version}_features_{size}_{purpose}")
    assert len(features) == len(wanted)
    names = ["input_ids", "input_mask", "segment_ids"]
    singles = {"unique_ids": "unique_id"}
    if purpose == "train":
        singles |= {"start_positions": "start_position", "end_positions": "end_position", "is_impossible": "is_impossible"}
    blocks = list(features.blocks(50))
    assert [feature.name for feature in blocks[0].features] == ["unique_ids", *names, *list(singles)[1:]]
    for name in names:
        assert np.concatenate([getattr(block, name) for block in blocks]).tolist() == [row[name] for row in wanted]
    for name, key in singles.items():
        assert np.concatenate([getattr(block, name) for block in blocks]).tolist() == [row[key] for row in wanted]


@both_versions
@both_sizes
@both_purposes
def test_maps_from_positions_to_words(version: str, size: int, purpose: str) -> None:
    features = features_of(version, size, purpose)
    for number, row in enumerate(rows(f"squad_{version}_features_{size}_{purpose}")):
        positions = row["doc_first"] + np.arange(len(row["token_to_orig"]))
        numbers = np.full(len(positions), number)
        assert features.examples[number] == row["example_index"]
        assert number - features.first_rows[row["example_index"]] == row["doc_span_index"]
        assert features.words_at(numbers, positions).tolist() == row["token_to_orig"]
        assert "".join("01"[flag] for flag in features.is_max_context(numbers, positions).tolist()) == row["max_context"]


@both_versions
@both_sizes
def test_predictions(version: str, size: int) -> None:
    found, wanted = predict(version, size)
    assert found.answers() == wanted["predictions"]
    assert list(found.answers()) == list(wanted["predictions"])
    assert found.null_odds == wanted.get("null_odds")
    for name, entries in wanted["nbest"].items():
        assert [{**entry, "probability": 0} for entry in found.nbest[name]] == [
            {**entry, "probability": 0} for entry in entries
        ]
        probabilities = [entry["probability"] for entry in entries]
        assert [entry["probability"] for entry in found.nbest[name]] == pytest.approx(probabilities, rel=1e-12)


def test_written_predictions_are_the_files_of_run_squad(tmp_path: Path) -> None:
    found, wanted = predict("v2", 64)
    found.write(tmp_path)
    assert (tmp_path / "predictions.json").read_text() == json.dumps(wanted["predictions"], indent=4) + "\n"
    assert (tmp_path / "null_odds.json").read_text() == json.dumps(wanted["null_odds"], indent=4) + "\n"
    assert json.loads((tmp_path / "nbest_predictions.json").read_text()) == found.nbest


@both_versions
@both_sizes
def test_examples_that_google_drops_are_kept_beside_its_own(version: str, size: int) -> None:
    """Answers with a no-break space (u1) and a thin one (u3), and one that begins in leading white space (w1)."""
    google, ours = features_of(version, size, "train"), features_of(version, size, "train", like_google=False)
    lost = [("" if version == "v1" else "v2-") + name for name in ("u1", "u3", "w1")]
    assert (google.dropped, google.recovered) == (lost, [])
    assert (ours.dropped, ours.recovered) == ([], lost)
    is_googles = np.isin(ours.order, google.order)[ours.examples]
    for mine, theirs in zip(ours[:].arrays[1:], google[:].arrays[1:], strict=True):
        assert (mine[is_googles] == theirs).all()
    rest = {
        name: ours[:].start_positions[ours.examples == ours.order.tolist().index(ours.data.ids.index(name))] for name in lost
    }
    assert all(positions.any() for positions in rest.values())


def test_a_blank_context_has_no_rows() -> None:
    """Google has "empty" for it in v1.1; there must be another question to make features of."""
    blank = read_squad(FINETUNE / "squad_blank.json", "v1.1", training=False)
    words = split_contexts(blank.contexts, Tokenizer(VOCABULARY, lower=True))
    assert words.firsts.tolist() == [0, 0]
