"""Google's own output raises no alarm, whatever its settings: long words, whole words, upper case, few and many rounds."""

import random
from pathlib import Path

import pytest

import bertprep
from bertprep.config import InstanceSettings
from bertprep.instances import Vocabulary, load_vocabulary
from tests.check.google import write_google_records
from tests.golden import GOLDEN

# Of whole words, rounds, lengths and case every two values come together.
SETTINGS = [
    {},
    {"dupe": 10, "seed": 1},
    {"dupe": 5, "short_seq_prob": 0.5, "cased": True},
    {"seq": 512, "pred": 77, "dupe": 10, "cased": True},
    {"whole_word": True, "cased": True},
    {"whole_word": True, "dupe": 10},
    {"whole_word": True, "seq": 512, "pred": 77},
    {"whole_word": True, "seq": 512, "pred": 77, "dupe": 5},
]


@pytest.fixture(scope="module")
def text(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Long documents, in which every thirtieth sentence has a word of 150 or 60 letters, each of them a piece."""
    rng = random.Random(1)
    sentences = [line for line in golden_corpus.read_text(encoding="utf-8").split("\n") if line.strip()]
    for at in range(0, len(sentences), 30):
        sentences[at] += " " + "".join(rng.choices("qxzjk", k=rng.choice((60, 150)))) + "."
    documents = ["\n".join(sentences[at : at + 100]) for at in range(0, len(sentences), 100)]
    path = tmp_path_factory.mktemp("google") / "text.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def vocabularies(text: Path) -> dict[bool, Vocabulary]:
    """By case: the cased one has each word with a capital too."""
    tokens = (GOLDEN / "vocab.txt").read_text(encoding="utf-8").split()
    with_capitals = [*tokens, *(token.title() for token in tokens if token.isalpha())]
    found = {}
    for cased, chosen in ((False, tokens), (True, with_capitals)):
        path = text.with_name(f"cased_{cased}.txt")
        path.write_text("\n".join(dict.fromkeys(chosen)) + "\n", encoding="utf-8")
        found[cased] = load_vocabulary(path)
    return found


@pytest.mark.parametrize("changed", SETTINGS, ids=str)
def test_googles_output_has_no_finding(
    changed: dict[str, int], text: Path, vocabularies: dict[bool, Vocabulary], tmp_path: Path
) -> None:
    settings = InstanceSettings(**{"dupe": 1, **changed})  # type: ignore[arg-type]
    vocabulary = vocabularies[settings.cased]
    folder = write_google_records(text, vocabulary, settings, tmp_path / "records")
    (outcome,) = bertprep.validate([folder], vocab=vocabulary.path, whole_word=settings.whole_word, workers=1)
    assert [str(finding) for finding in outcome.findings] == []
    assert outcome.ok


def test_whole_words_look_like_another_rule(text: Path, vocabularies: dict[bool, Vocabulary], tmp_path: Path) -> None:
    """Unless they are named, long words are errors whose advice names the option."""
    settings = InstanceSettings(dupe=5, whole_word=True)
    folder = write_google_records(text, vocabularies[False], settings, tmp_path / "records")
    (outcome,) = bertprep.validate([folder], vocab=vocabularies[False].path, workers=1)
    assert {finding.code for finding in outcome.findings} >= {"prediction-count", "label-frequencies"}
    assert all("--whole-word" in finding.advice for finding in outcome.findings)
