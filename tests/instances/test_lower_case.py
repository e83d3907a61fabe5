"""What lower-casing takes from a text, in many scripts; every command that lower-cases such text says so."""

import json
import unicodedata
import warnings
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep import cli
from bertprep.errors import BertprepWarning, UsageError
from bertprep.instances import load_vocabulary, lower_case
from bertprep.instances.lower_case import measure_files, measure_texts

GERMAN = "Der Hund bellt, während die Kätzchen schlafen. Später hört er auf."
TEXTS = {  # text -> letters, those that change, and how
    "English": ("The naïve dog barks.", 16, 1, ("ï becomes i",)),
    "German": ("Ärger über die Bären", 17, 3, ("ä becomes a", "ü becomes u")),
    "German, accents apart": (unicodedata.normalize("NFD", "Ärger über"), 11, 2, ("◌\u0308 is removed",)),
    "Russian": ("Йод и ёлка, край", 12, 3, ("й becomes и", "ё becomes е")),
    "Greek": ("Ο ΣΟΦΟΣ σοφός", 11, 1, ("ό becomes ο",)),
    "Turkish": ("İstanbul ışık", 12, 2, ("i\u0307 becomes i", "ş becomes s")),
    "Vietnamese": ("tiếng Việt", 9, 2, ("ế becomes e", "ệ becomes e")),
    "Hebrew": ("שָׁלוֹם", 7, 3, ("◌\u05b8 is removed", "◌\u05b9 is removed", "◌\u05c1 is removed")),
    "Hindi": ("हिन्दी कुकु", 10, 3, ("◌\u0941 is removed", "◌\u094d is removed")),
    "Thai": ("ที่นี่", 6, 4, ("◌\u0e35 is removed", "◌\u0e48 is removed")),
    "Japanese": ("が ガ で か", 4, 3, ("が becomes か", "で becomes て", "ガ becomes カ")),
    "Korean": ("한국", 2, 2, ("국 becomes ᄀ ᅮ ᆨ", "한 becomes ᄒ ᅡ ᆫ")),
    "Chinese": ("北京，2024。", 2, 0, ()),
    "none": ("1, 2!", 0, 0, ()),
}


@pytest.mark.parametrize("name", TEXTS)
def test_letters_that_change_by_more_than_case_are_counted(name: str) -> None:
    text, letters, changed, commonest = TEXTS[name]
    found = measure_texts([text])
    assert (found.letters, found.changed) == (letters, changed)
    assert found.commonest == commonest


def test_the_three_commonest_changes_are_named() -> None:
    found = measure_texts(["é" * 3, "ü" * 5, "ö", "ä" * 4, "x" * 87])
    assert found.warning == (
        "lower-casing as for uncased BERT changes more than the case of 13.0% of the letters of this text (ü becomes u, ä "
        "becomes a, é becomes e)"
    )


@pytest.mark.parametrize(("accents", "many"), [(5, False), (6, True)])
def test_half_a_percent_is_the_limit(accents: int, many: bool) -> None:
    assert measure_texts(["é" * accents + "e" * (1000 - accents)]).are_many == many


def test_a_sample_is_of_all_parts_and_the_same_on_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a large file are taken at regular intervals, and of many files some."""
    (tmp_path / "a.txt").write_text("a" * 5000 + "é" * 2500 + "a" * 5000)
    whole = measure_files([tmp_path / "a.txt"])
    assert (whole.letters, whole.changed) == (12_500, 2_500)
    monkeypatch.setattr(lower_case, "_PIECE_BYTES", 100)
    monkeypatch.setattr(lower_case, "SAMPLE_BYTES", 3000)
    sampled = measure_files([tmp_path / "a.txt"])
    assert sampled == measure_files([tmp_path / "a.txt"])
    assert sampled.letters < 3_000
    assert 0.15 < sampled.changed / sampled.letters < 0.25
    paths = [tmp_path / f"{number}.txt" for number in range(100)]
    for path in paths:
        path.write_text("é" * 40)
    assert measure_files(paths).letters == 34 * 40
    assert measure_files([tmp_path / "missing.txt"]).letters == 0


def german(folder: Path) -> Path:
    lines = GERMAN.replace(". S", ".\nS")
    (folder / "text.txt").write_text("\n".join(f"{lines}\nEr bellt {number} mal.\n" for number in range(30)), encoding="utf-8")
    return folder / "text.txt"


def uncased_vocabulary(folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BertprepWarning)
        return bertprep.train_vocabulary([folder / "text.txt"], output=folder / "uncased.txt", size=90, uncased=True)


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("vocab --uncased --size 90 --output out.txt --input text.txt", "leave out --uncased to keep the letters"),
        ("create --uncased --input text.txt --output out --workdir data", "leave out --uncased to keep the letters"),
        ("create --vocab uncased.txt --input text.txt --output out", "give --cased and a cased vocabulary to keep the letters"),
        ("create --vocab uncased.txt --input text.txt --output out --dry-run", "give --cased and a cased vocabulary to keep"),
        (
            "tokenize --vocab uncased.txt --input text.txt --output out",
            "give --cased and a cased vocabulary to keep the letters",
        ),
        ("task glue own --vocab uncased.txt --input train.tsv --output out", "give --cased and a cased vocabulary to keep"),
        ("task ner own --vocab uncased.txt --input train.txt --output out", "give --cased and a cased vocabulary to keep"),
        ("task squad --vocab uncased.txt --input train.json --output out", "give --cased and a cased vocabulary to keep"),
    ],
)
def test_each_command_that_lower_cases_says_so(
    command: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    uncased_vocabulary(german(tmp_path).parent)
    words = GERMAN.rstrip(".").split()
    (tmp_path / "train.tsv").write_text(f"label\ttext\n0\t{GERMAN}\n1\t{GERMAN}\n")
    (tmp_path / "train.txt").write_text("".join(f"{word} {'B-X' if word[0].isupper() else 'O'}\n" for word in words))
    question = {"id": "1", "question": "Wer?", "answers": [{"text": "Hund", "answer_start": 4}]}
    (tmp_path / "train.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": GERMAN, "qas": [question]}]}]}))
    assert cli.main([*command.split(), "--workers", "1"]) == 0
    lines = capsys.readouterr().err.splitlines()
    [line] = [line for line in lines if "lower-casing" in line]
    assert line.startswith("warning: lower-casing as for uncased BERT changes more than the case of ")
    assert f"(ä becomes a, ö becomes o); {advice}" in line


def test_python_is_warned_and_validate_repeats_it(tmp_path: Path) -> None:
    vocab = uncased_vocabulary(german(tmp_path).parent)
    given: dict[str, Any] = {"inputs": [tmp_path / "text.txt"], "vocab": vocab, "workers": 1}
    with pytest.warns(BertprepWarning, match="^lower-casing as for uncased BERT .* give --cased"):
        tokens = bertprep.tokenize(**given, output=tmp_path / "out")
    with pytest.warns(BertprepWarning, match="^lower-casing as for uncased BERT .* give --cased"):
        bertprep.create(**given, output=tmp_path / "out", formats="tfrecord")
    again = bertprep.create(inputs=[tokens.folder], output=tmp_path / "again", formats="tfrecord", workers=1)
    assert again.manifest.counts == tokens.manifest.counts == {"sampled_letters": 1890, "changed_letters": 120}
    bertprep.convert(tmp_path / "again/tfrecord", tmp_path / "converted", to="arrow")
    for folder in ("out/tokens", "out/tfrecord", "again/tfrecord", "converted"):
        (outcome,) = bertprep.validate([tmp_path / folder], workers=1)
        (finding,) = (finding for finding in outcome.findings if finding.code == "letters-lost")
        assert finding.found == "6.3%, 120 of 1,890 letters of a sample"


@pytest.mark.parametrize("command", ["create", "vocab"])
def test_a_vocabulary_of_such_text_is_cased_and_one_line_says_so(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    german(tmp_path)
    bertprep.shard([tmp_path / "text.txt"], corpus="de", splitter="lines", one_document_per_block=True, workdir="data")
    assert cli.main([command, "--corpus", "de"]) == 0
    [line] = [line for line in capsys.readouterr().err.splitlines() if "lower-casing" in line]
    assert line.startswith(
        "keeping upper case and accents, since lower-casing as for uncased BERT changes more than the case of "
    )
    assert line.endswith("; --uncased overrides that")
    [vocab] = Path("data/vocab").glob("de_8000_cased_*.txt")
    assert {"H", "ä"}.issubset(load_vocabulary(vocab).tokens)
    assert cli.main(["create", "--corpus", "de", "--dupe", "2"]) == 0
    assert "training a vocabulary" not in capsys.readouterr().err
    assert all("lower_case_0" in path.name for path in Path("data/tfrecord").iterdir())
    [outcome] = bertprep.validate(["data/tfrecord"], workers=1)[:1]
    assert "letters-lost" not in [finding.code for finding in outcome.findings]


def test_text_that_loses_nothing_is_lower_cased_in_silence(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("A café opens.\n" + "The dog barks.\nIt is late.\n\nThe cat sleeps all day.\n" * 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error", BertprepWarning)
        vocab = bertprep.train_vocabulary([tmp_path / "text.txt"], output=tmp_path / "vocab.txt", size=62)
    assert not any(token.lower() != token for token in load_vocabulary(vocab).tokens[5:])


def test_counts_that_cannot_be_are_no_finding() -> None:
    assert not lower_case.LetterChanges.from_counts({"changed_letters": 5}).are_many


def test_only_one_case_can_be_given(tmp_path: Path) -> None:
    for function in (bertprep.train_vocabulary, bertprep.create, bertprep.tokenize):
        with pytest.raises(UsageError, match=r"^--cased and --uncased: give only one of the two"):
            function(cased=True, uncased=True, workdir=tmp_path)
