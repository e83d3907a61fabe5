"""What the records of a text lack is counted, and said: the ends of long sentences, and what Google's rule takes from pairs."""

import random
from pathlib import Path

import pytest

import bertprep
from bertprep.config import InstanceSettings
from bertprep.errors import BertprepWarning
from bertprep.instances import reference
from bertprep.work.made import Made
from bertprep.work.truncation import Truncation

WORDS = ["the", "law", "of", "a", "state", "is", "what", "it", "says", "."]


@pytest.fixture
def vocab(tmp_path: Path) -> Path:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "long"]) + "\n", encoding="utf-8")
    return path


def write_documents(path: Path, *long_sentences: int) -> list[list[list[str]]]:
    """Write eight documents of ten short sentences, with a sentence of so many words "long" in the first ones."""
    draw = random.Random(3)
    documents = [[draw.choices(WORDS, k=draw.randint(2, 12)) for _ in range(10)] for _ in range(8)]
    for document, length in zip(documents, long_sentences, strict=False):
        document[4] = ["long"] * length
    path.write_text("\n\n".join("\n".join(map(" ".join, document)) for document in documents) + "\n\n", encoding="utf-8")
    return documents


def counts_of(made: Made) -> Truncation:
    counts = Truncation.of_entries(made.manifest.files.values())
    assert counts is not None
    return counts


def test_the_counts_are_those_of_googles_algorithm(tmp_path: Path, vocab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = write_documents(tmp_path / "text.txt", 30, 130)
    settings = {"seq": 32, "pred": 5, "dupe": 4, "short_seq_prob": 0.2}
    pairs = []
    truncate_pair = reference.truncate_pair

    def count_and_truncate(a: list[str], b: list[str], longest: int, rng: random.Random) -> None:
        if "long" not in a + b:
            pairs.append(len(a) + len(b))
        truncate_pair(a, b, longest, rng)

    monkeypatch.setattr(reference, "truncate_pair", count_and_truncate)
    text = (tmp_path / "text.txt").read_bytes()
    reference.generate(
        text, vocab.read_text(encoding="utf-8").split(), InstanceSettings(**settings), seed=InstanceSettings.seed
    )

    with pytest.warns(BertprepWarning, match="are in no record"):
        made = bertprep.create(
            inputs=[tmp_path / "text.txt"],
            lines_are_sentences=True,
            output=tmp_path / "out",
            vocab=vocab,
            workers=1,
            **settings,
        )
    counts = counts_of(made)
    assert (counts.paired_tokens, counts.truncated_tokens) == (sum(pairs), sum(max(size - 29, 0) for size in pairs))
    lengths = [len(sentence) for document in documents for sentence in document]
    assert counts.text_tokens == sum(lengths)
    assert (counts.long_sentences, counts.cut_off_tokens) == (2, (30 - 29) + (130 - 29))
    assert sum(counts.sentences) == len(lengths)
    assert counts.sentences[-2:] == (0, 0)  # up to 512, and more
    assert counts.sentences[6] == 1  # 129 to 256


def test_nothing_is_said_of_a_text_whose_sentences_fit(tmp_path: Path, vocab: Path, recwarn: pytest.WarningsRecorder) -> None:
    write_documents(tmp_path / "text.txt")
    settings = {"vocab": vocab, "lines_are_sentences": True, "workers": 1}
    made = bertprep.create(inputs=[tmp_path / "text.txt"], output=tmp_path / "out", seq=32, pred=5, **settings)
    assert counts_of(made).cut_off == 0
    assert not [each for each in recwarn if "no record" in str(each.message)]
    assert made.rows()[0][-2:] == ("cut off", "truncated")
    assert made.rows()[1][-2] == "0.0%"


def test_full_sentences_lose_nothing_and_are_not_counted(tmp_path: Path, vocab: Path) -> None:
    write_documents(tmp_path / "text.txt", 130)
    settings = {"vocab": vocab, "lines_are_sentences": True, "workers": 1, "pairs": "none"}
    made = bertprep.create(inputs=[tmp_path / "text.txt"], output=tmp_path / "out", seq=32, pred=5, **settings)
    assert Truncation.of_entries(made.manifest.files.values()) is None
    assert "cut off" not in made.rows()[0]


def test_validate_repeats_the_counts_and_shows_none_without_a_manifest(tmp_path: Path, vocab: Path) -> None:
    write_documents(tmp_path / "text.txt", 130)
    settings = {"vocab": vocab, "lines_are_sentences": True, "workers": 1, "formats": "tfrecord"}
    with pytest.warns(BertprepWarning, match="are in no record"):
        made = bertprep.create(inputs=[tmp_path / "text.txt"], output=tmp_path / "out", seq=32, pred=5, **settings)
    (outcome,) = bertprep.validate([made.folder], workers=1)
    assert "cut-off" in [finding.code for finding in outcome.findings]
    (row,) = outcome.split_rows()
    assert row["cut off"] == f"{counts_of(made).cut_off:.1%}"
    (made.folder / "manifest.json").unlink()
    (outcome,) = bertprep.validate([made.folder], workers=1)
    assert "cut-off" not in [finding.code for finding in outcome.findings]
    assert "cut off" not in outcome.split_rows()[0]


def test_tokens_that_are_kept_say_how_many_sentences_will_not_fit(tmp_path: Path, vocab: Path) -> None:
    write_documents(tmp_path / "text.txt", 125, 126, 509, 510)
    made = bertprep.tokenize(
        inputs=[tmp_path / "text.txt"], lines_are_sentences=True, output=tmp_path / "out", vocab=vocab, workers=1
    )
    (entry,) = [entry for entry in made.manifest.files.values() if "sentences" in entry]
    assert (entry["sentences"], entry["over_125"], entry["over_509"]) == (80, 3, 1)
    assert made.rows()[0][-2:] == ("over 125", "over 509")
    (outcome,) = bertprep.validate([made.folder], workers=1)
    (row,) = outcome.split_rows()
    assert (row["over 125 tokens"], row["over 509 tokens"]) == ("3.8%", "1.2%")
