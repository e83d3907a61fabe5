"""Every row that Google's run_squad.py made of two files, in two sizes, is made again: examples, features, predictions."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.instances import load_vocabulary
from bertprep.tasks.squad import read_squad
from bertprep.tasks.squad_answers import SquadPredictions, predict_answers
from bertprep.tasks.squad_features import SquadFeatures, SquadSettings, make_features
from tests.golden import GOLDEN
from tests.tasks.squad_files import FINETUNE

VERSIONS = {"v1": "v1.1", "v2": "v2.0"}
SETTINGS = {64: SquadSettings(seq=64, doc_stride=24, max_query=16), 384: SquadSettings(seq=384, doc_stride=128, max_query=64)}
VOCABULARY = load_vocabulary(GOLDEN / "vocab.txt")
both_versions = pytest.mark.parametrize("version", VERSIONS)
both_sizes = pytest.mark.parametrize("size", SETTINGS)


def rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(FINETUNE / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def features_of(version: str, size: int, purpose: str) -> SquadFeatures:
    training = purpose == "train"
    data = read_squad(FINETUNE / f"squad_{version}.json", VERSIONS[version], training=training)
    return make_features(data, VOCABULARY, SETTINGS[size], training=training, shuffle=False)


def predict(version: str, size: int) -> tuple[SquadPredictions, dict[str, Any]]:
    """Return the predictions from the golden logits, and those of Google's code."""
    features, logits = features_of(version, size, "eval"), rows(f"squad_{version}_logits_{size}")
    assert [row["unique_id"] for row in logits] == features[:].unique_ids.tolist()
    starts, ends = (np.array([row[name] for row in logits], np.float32) / np.float32(1024) for name in ("start", "end"))
    with gzip.open(FINETUNE / f"squad_{version}_decoded_{size}.json.gz", "rt", encoding="utf-8") as file:
        return predict_answers(features, starts, ends), json.load(file)


@both_versions
@both_sizes
@pytest.mark.parametrize("purpose", ["train", "eval"])
def test_features(version: str, size: int, purpose: str) -> None:
    """All that Google makes; besides it, answers with a no-break space (u1) or a thin one (u3), or in leading space (w1)."""
    features, wanted = features_of(version, size, purpose), rows(f"squad_{version}_features_{size}_{purpose}")
    found = features[:]
    recovered = [("" if version == "v1" else "v2-") + name for name in ("u1", "u3", "w1")] if purpose == "train" else []
    assert (features.dropped, features.recovered) == ([], recovered)
    names = np.array(features.data.ids)[features.order[features.examples]]
    ours = np.isin(names, recovered)
    assert set(names[ours]) == set(recovered)
    keys = {"input_ids": "input_ids", "input_mask": "input_mask", "segment_ids": "segment_ids"}
    if purpose == "train":
        keys |= {"start_positions": "start_position", "end_positions": "end_position", "is_impossible": "is_impossible"}
        assert all(found.start_positions[names == name].any() for name in recovered)
    else:
        keys |= {"unique_ids": "unique_id"}
    for name, key in keys.items():
        assert getattr(found, name)[~ours].tolist() == [row[key] for row in wanted]
    for number, row in zip(np.flatnonzero(~ours), wanted, strict=True):
        example = int(features.examples[number])
        first = int(features.first_rows[example])
        start = int(features.windows.starts[number] - features.windows.starts[first])
        flags = features.max_context(example)[number - first, start : start + len(row["token_to_orig"])]
        assert "".join("01"[flag] for flag in flags.tolist()) == row["max_context"]


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
