"""What a user likely did not mean is found, and the line says what to do: short documents, [UNK], the wrong case."""

import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep import records
from bertprep.check.finding import Finding
from bertprep.check.fit import judge_words
from bertprep.check.outcome import CheckedFile, Outcome, verdict
from bertprep.check.sizes import judge_split_sizes
from bertprep.cli import main
from bertprep.config import InstanceSettings
from bertprep.errors import BertprepWarning
from bertprep.instances import load_vocabulary
from bertprep.instances.vocabulary import SPECIAL_TOKENS, case_conflict
from bertprep.records import PretrainingExamples
from bertprep.records.write import write_examples
from bertprep.work.layout import MANIFEST
from tests.check.faulty import Spoiled
from tests.check.google import write_google_records
from tests.golden import GOLDEN

VOCAB = GOLDEN / "vocab.txt"
CUT_OFF = "cut-off"
"""The golden corpus has long sentences, which its small vocabulary divides into many tokens: 3 % of them do not fit 128."""


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Those of the sample corpus."""
    workdir = tmp_path_factory.mktemp("sample")
    bertprep.shard(shards=4, workdir=workdir, workers=1)
    text = next(workdir.rglob("sample_training_00000.txt")).read_text(encoding="utf-8")
    return [line for line in text.split("\n") if line]


@pytest.fixture(scope="module")
def books(sentences: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace of 50 books, of which each paragraph became a document: 1,000 of 2.7 sentences."""
    rng, workdir = random.Random(1), tmp_path_factory.mktemp("books")
    ends = np.cumsum(rng.choices((2, 3, 4), (45, 40, 15), k=1000)).tolist()
    paragraphs = ["\n".join(sentences[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    (workdir / "books.txt").write_text("\n\n".join(paragraphs) + "\n\n", encoding="utf-8")
    bertprep.shard([workdir / "books.txt"], corpus="books", splitter="lines", shards=2, workdir=workdir, workers=1)
    bertprep.create(corpus="books", workdir=workdir, seq=512, pred=80, vocab=VOCAB, formats="tfrecord", workers=1)
    return workdir


def warnings_of(*paths: Path, **options: object) -> dict[str, Finding]:
    """The findings by code, all of them warnings."""
    outcomes = bertprep.validate(paths, workers=1, **options)  # type: ignore[arg-type]
    assert all(outcome.ok for outcome in outcomes)
    return {finding.code: finding for outcome in outcomes for finding in outcome.findings}


def test_paragraphs_as_documents_are_found(books: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In records and in text shards, from Python and in a shell, where the last line counts what was found."""
    found = warnings_of(books)
    assert found.keys() == {"padding-share", "short-documents"}
    assert re.search("--one-document-per-file; else make records with --seq (128|256);", str(found["padding-share"]))
    assert re.search(r"; python -m trainer --pack .* computes about \d\d% of the rows", str(found["padding-share"]))
    assert "2.7 on average; if each file is one document, run bertprep shard again with --one-document-per-file" in str(
        found["short-documents"]
    )
    assert main(["validate", str(books), "--workers", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all("--one-document-per-file" in line for line in lines if "/training: " in line or "short-documents" in line)
    assert lines[-1].startswith("no errors, 3 warnings: ")
    assert lines[-1].endswith(" records and 1,000 documents in 6 files")


def test_padding_is_found_without_a_manifest_and_in_a_sample(books: Path, tmp_path: Path) -> None:
    made = next(books.glob("tfrecord/*/books"))
    assert "padding-share" in warnings_of(made, sample=200)
    examples = [_read(path) for path in sorted(made.glob("training/*"))]
    write_examples(examples, {"tfrecord": tmp_path / "part-0"})
    found = warnings_of(tmp_path, vocab=VOCAB)
    assert found.keys() == {"padding-share"}
    assert "documents are too short" in found["padding-share"].advice


def _read(path: Path) -> PretrainingExamples:
    with records.open(path) as file:
        return file[:]


@pytest.fixture(scope="module")
def made(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lower-cased records of 128 tokens, with a manifest, and those of 64 tokens next to them."""
    folder = tmp_path_factory.mktemp("made")
    for seq, pred in ((128, 20), (64, 10)):
        settings = {"seq": seq, "pred": pred, "vocab": VOCAB, "formats": "ofrecord", "workers": 1}
        bertprep.create(inputs=[golden_corpus], lines_are_sentences=True, output=folder / str(seq), **settings)
    return folder


@pytest.mark.parametrize("signed", [True, False], ids=["with a manifest", "without"])
def test_no_full_record_is_found(made: Path, tmp_path: Path, signed: bool) -> None:
    """Records of 64 tokens, padded to 128."""
    data = Spoiled.copy(made / "128/ofrecord", tmp_path / "short", "ofrecord")
    short = _read(made / "64/ofrecord/training/part-0")
    padded = PretrainingExamples.empty(len(short), seq=128, pred=20)
    for wide, narrow in zip(padded.arrays, short.arrays, strict=True):
        wide[...] = 0
        wide[tuple(slice(size) for size in narrow.shape)] = narrow
    write_examples([padded], {"ofrecord": data.folder / data.first})
    data.sign()
    if not signed:
        (data.folder / MANIFEST).unlink()
    found = warnings_of(data.folder)
    assert "the longest record has 64 tokens" in found["padding-share"].found


def test_unknown_tokens_are_found(tmp_path: Path) -> None:
    """Chinese under an English vocabulary, in records and token shards; the table shows the fraction."""
    rng = random.Random(1)
    letters = [chr(0x4E00 + number) for number in range(300)]
    documents = ["\n".join("".join(rng.choices(letters, k=20)) + " of" for _ in range(30)) for _ in range(100)]
    (tmp_path / "zh.txt").write_text("\n\n".join(documents), encoding="utf-8")
    bertprep.shard([tmp_path / "zh.txt"], splitter="lines", corpus="zh", workdir=tmp_path, test_fraction=0, workers=1)
    made = {"corpus": "zh", "workdir": tmp_path, "vocab": VOCAB, "workers": 1}
    bertprep.create(**made, formats="tfrecord")
    bertprep.tokenize(**made)
    for kind, words in (("tfrecord", r"95\.\d% of the tokens and 95\.\d% of the labels"), ("tokens", r"94\.\d% of the tokens")):
        (outcome,) = bertprep.validate([tmp_path / kind], workers=1)
        (finding,) = (finding for finding in outcome.findings if finding.code == "unknown-tokens")
        assert re.fullmatch(words, finding.found)
        assert str(finding).endswith("or train one, or a larger one, on this text with bertprep vocab")
        assert outcome.split_rows()[0]["[UNK]"].startswith(finding.found[:3])


def test_a_vocabulary_that_splits_nearly_all_words_is_found(golden_corpus: Path, tmp_path: Path) -> None:
    """It has all letters, so nothing is [UNK]."""
    characters = sorted({each for each in golden_corpus.read_text(encoding="utf-8").lower() if not each.isspace()})
    tokens = [*SPECIAL_TOKENS, *characters, *(f"##{each}" for each in characters if each.isalnum())]
    (vocab := tmp_path / "letters.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    made = {"inputs": [golden_corpus], "output": tmp_path / "made", "lines_are_sentences": True, "workers": 1}
    with pytest.warns(
        BertprepWarning, match=r"7\d% of the first tokens of .* continue a word, as in th ##i ##s: .*letters\.txt"
    ):
        bertprep.create(**made, vocab=vocab, formats="tfrecord")
    found = warnings_of(tmp_path / "made/tfrecord")
    assert re.fullmatch(r"7\d%", found["split-words"].found)
    assert str(found["split-words"]).endswith("or train one, or a larger one, on this text with bertprep vocab")


def test_cased_text_under_an_uncased_vocabulary(golden_corpus: Path, made: Path, tmp_path: Path) -> None:
    """Records of any tool have [UNK] for each word with a capital; of bertprep's the manifest says that they are cased."""
    settings = InstanceSettings(cased=True, dupe=1)
    folder = write_google_records(golden_corpus, load_vocabulary(VOCAB), settings, tmp_path / "google")
    found = warnings_of(folder, vocab=VOCAB)
    assert found["unknown-tokens"].found.startswith("5.")
    data = Spoiled.copy(made / "128/ofrecord", tmp_path / "cased", "ofrecord")
    data.change_manifest(lambda content: content["made_with"].update(cased=True))
    found = warnings_of(data.folder)
    assert found.keys() == {"vocabulary-case", CUT_OFF}
    assert "make the records again without --cased, or with a cased vocabulary" in str(found["vocabulary-case"])


def test_lower_cased_text_under_a_cased_vocabulary(golden_corpus: Path, tmp_path: Path) -> None:
    tokens = VOCAB.read_text(encoding="utf-8").split()
    capitals = [token.title() for token in tokens if token.isalpha() and token.isascii()]
    path = tmp_path / "cased.txt"
    path.write_text("\n".join(dict.fromkeys([*tokens, *capitals])) + "\n", encoding="utf-8")
    for cased, codes in ((False, {"vocabulary-case"}), (True, set())):
        settings = InstanceSettings(cased=cased, dupe=1)
        folder = write_google_records(golden_corpus, load_vocabulary(path), settings, tmp_path / str(cased))
        assert warnings_of(folder, vocab=path).keys() == codes


@pytest.mark.parametrize(
    ("tokens", "cased", "codes"),
    [
        (("ა", "ბ", "##ა", "და"), True, []),  # Georgian has capitals in Unicode, though not in words
        (("的", "一", "##是", "。", "usb"), True, []),
        ((*map(chr, range(0x3041, 0x3080)), "NHK", "[NEWS]"), False, []),
        (("a", "the", "<DOCUMENT>"), True, ["vocabulary-case"]),
        (("a", "the", "A", "The"), False, ["vocabulary-case"]),
    ],
)
def test_the_case_of_a_vocabulary_is_judged_as_by_create(
    tokens: tuple[str, ...], cased: bool, codes: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *tokens]), encoding="utf-8")
    vocabulary = load_vocabulary(path)
    findings = judge_words(Outcome(tmp_path, "tfrecord", None, path), vocabulary, cased)
    assert [finding.code for finding in findings] == codes
    assert bool(case_conflict(vocabulary, cased=cased)) == bool(codes)


def test_a_limit_of_predictions_that_leaves_few_is_found(golden_corpus: Path, tmp_path: Path) -> None:
    settings = {"seq": 128, "pred": 20, "masked_lm_prob": 0.3, "dupe": 1, "vocab": VOCAB, "formats": "tfrecord", "workers": 1}
    with pytest.warns(UserWarning, match="--pred 20 limits the masks"):
        bertprep.create(inputs=[golden_corpus], lines_are_sentences=True, output=tmp_path, **settings)
    found = warnings_of(tmp_path)
    assert found.keys() == {"few-predictions", CUT_OFF}
    assert "found at most 20; make the records again with --pred 38, or a --masked-lm-prob of 0.16" in str(
        found["few-predictions"]
    )


def test_one_source_after_another_is_found(sentences: list[str], golden_corpus: Path, tmp_path: Path) -> None:
    """In one file; files of one source each, as `create` makes of inputs, are not."""
    (tmp_path / "speeches.txt").write_text("\n\n".join("\n".join(sentences[at : at + 50]) for at in range(0, 3000, 50)))
    settings = {"vocab": VOCAB, "formats": "tfrecord", "workers": 1}
    texts = [golden_corpus, tmp_path / "speeches.txt"]
    made = bertprep.create(inputs=texts, lines_are_sentences=True, output=tmp_path / "made", **settings).folders["tfrecord"]
    assert warnings_of(made).keys() == {CUT_OFF}
    write_examples([_read(path) for path in sorted(made.glob("training/*"))], {"tfrecord": tmp_path / "part-0"})
    assert warnings_of(tmp_path / "part-0", vocab=VOCAB).keys() == {"record-order"}


def test_a_large_test_split_is_found() -> None:
    """Of many documents, by the fraction of the manifest; of few ones, by chance, from a third on."""
    files = [CheckedFile("a", "training", records=4000), CheckedFile("b", "test", records=1000)]
    for fraction, documents, is_found in ((0.1, 1000, True), (0.1, 999, False), (0.2, 1000, False), (None, None, False)):
        assert bool(judge_split_sizes(files, {"test_fraction": fraction}, documents)) == is_found
    own = {"test_fraction": 0.0, "test_shards": 1}  # a test split that the user gave
    assert judge_split_sizes([files[0], CheckedFile("b", "test", records=3999)], own, 2000) == []
    (finding,) = judge_split_sizes([files[0], CheckedFile("b", "test", records=4001)], own, 2000)
    assert finding.expected.endswith("since the test split is the smaller one")


def test_the_given_vocabulary_replaces_the_folders_own(made: Path, tmp_path: Path) -> None:
    """The folder has the right one; another of as many tokens is not theirs."""
    tokens = VOCAB.read_text(encoding="utf-8").split()
    other = tmp_path / "other.txt"
    other.write_text("\n".join([*tokens[:-1], "##another"]) + "\n", encoding="utf-8")
    for vocab, found in ((None, []), (VOCAB, []), (other, ["manifest"])):
        (outcome,) = bertprep.validate([made / "128"], vocab=vocab, workers=1)
        assert [finding.code for finding in outcome.findings] == [*found, CUT_OFF]
        assert outcome.vocabulary == (None if found else vocab or made / "128/ofrecord/vocab.txt")


def test_the_verdict(made: Path) -> None:
    (outcome,) = bertprep.validate([made / "128"], workers=1)
    count = f"{outcome.files[0].records:,} records in 1 file"
    assert verdict([outcome]) == f"no errors, 1 warning: {count}"
    found = [Finding("weights", "part-0", "1", "2"), *[Finding("file-sizes", "part-0", "1", "2", level="warning")] * 2]
    wrong = replace(outcome, findings=found)
    assert verdict([wrong]) == f"1 error, 2 warnings: {count}"
    assert (outcome.ok, wrong.ok, wrong.errors, wrong.warnings) == (True, False, 1, 2)
    assert verdict([Outcome(Path("x"), "text shards", None, None)]) == "no errors, no warnings: nothing in 0 files"
    number = 2 * outcome.files[0].records
    assert verdict([wrong, outcome]) == f"1 error, 3 warnings: {number:,} records in 2 files"
