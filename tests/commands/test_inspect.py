"""Examples are shown in readable form, on a vocabulary that can be checked by eye."""

import sys
from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep.check.show import example_words, write_words
from bertprep.cli import main
from bertprep.commands.inspect import Inspect, run
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.records import PretrainingExamples
from bertprep.records.write import write_examples
from tests.instances.small_tokenizers import write_tokenizer

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "bark", "##s", "##ed", "cat"]
TOKENS += ["states", "state", "##ment", ",", "語"]
NUMBER = {token: number for number, token in enumerate(TOKENS)}
SEQ, PRED = 12, 3
OTHERS = ["[PAD]", "cat", "[CLS]", "[UNK]", "[SEP]", "[MASK]", *map(str, range(20))]
Masks = dict[int, str]  # place -> the token that stood there

EXAMPLES: list[tuple[str, str, Masks]] = [
    ("the dog [MASK] ##s ,", "the cat", {3: "bark", 7: "the", 8: "dog"}),
    ("[MASK] ##ment", "state ##s state", {1: "state"}),
    ("the bark [MASK]", "cat ##ed states", {3: "##ed", 5: "##s"}),
]
SHOWN = [
    "[CLS] the dog [MASK→bark]s , [SEP] =the= cat→dog [SEP]",
    "[CLS] [MASK→state]ment [SEP] states state [SEP]",
    "[CLS] the bark[MASK→ed] [SEP] [cat→##s]ed states [SEP]",
]


@pytest.fixture
def vocabulary(tmp_path: Path) -> Vocabulary:
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in TOKENS), encoding="utf-8")
    return load_vocabulary(path)


@pytest.fixture
def examples() -> PretrainingExamples:
    made = PretrainingExamples.empty(len(EXAMPLES), seq=SEQ, pred=PRED)
    for array in made.arrays:
        array[...] = 0
    for row, (a, b, masks) in enumerate(EXAMPLES):
        tokens = ["[CLS]", *a.split(), "[SEP]", *b.split(), "[SEP]"]
        made.input_ids[row, : len(tokens)] = [NUMBER[token] for token in tokens]
        made.input_mask[row, : len(tokens)] = 1
        made.segment_ids[row, len(a.split()) + 2 : len(tokens)] = 1
        made.masked_lm_positions[row, : len(masks)] = list(masks)
        made.masked_lm_ids[row, : len(masks)] = [NUMBER[token] for token in masks.values()]
        made.masked_lm_weights[row, : len(masks)] = 1
    made.next_sentence_labels[1] = 1
    return made


@pytest.fixture
def path(examples: PretrainingExamples, vocabulary: Vocabulary) -> Path:
    """The three examples as a record file beside their vocabulary."""
    file = vocabulary.path.parent / "training" / "part-0"
    write_examples([examples], {"ofrecord": file})
    return file


def text(examples: PretrainingExamples, row: int, vocabulary: Vocabulary) -> str:
    return write_words(example_words(examples, row, vocabulary), width=None, colour=False)


def test_words_are_joined_and_masks_show_the_original(examples: PretrainingExamples, vocabulary: Vocabulary) -> None:
    assert [text(examples, row, vocabulary) for row in range(3)] == SHOWN


def test_lines_end_before_the_width_of_the_terminal(examples: PretrainingExamples, vocabulary: Vocabulary) -> None:
    lines = write_words(example_words(examples, 0, vocabulary), width=20, colour=False).split("\n")
    assert lines == ["[CLS] the dog", "[MASK→bark]s , [SEP]", "=the= cat→dog [SEP]"]
    examples.input_ids[0, 1:3] = NUMBER["語"]  # two columns wide
    assert write_words(example_words(examples, 0, vocabulary), width=11, colour=False).split("\n")[0] == "[CLS] 語 語"
    assert write_words(example_words(examples, 0, vocabulary), width=10, colour=False).split("\n")[0] == "[CLS] 語"


def test_pieces_of_a_word_stay_together(examples: PretrainingExamples, vocabulary: Vocabulary) -> None:
    """Whatever is shown in their place; another word stands apart, as does a replaced word of one token."""
    tokens = ["[CLS]", "[MASK]", "cat", "##s", "[MASK]", "the", "[MASK]", "[SEP]"]
    examples.input_ids[0, : len(tokens)] = [NUMBER[token] for token in tokens]
    examples.input_mask[0] = [1] * len(tokens) + [0] * (SEQ - len(tokens))
    examples.masked_lm_positions[0] = [1, 2, 4]
    examples.masked_lm_ids[0] = [NUMBER[token] for token in ("bark", "##ed", "dog")]
    assert text(examples, 0, vocabulary) == "[CLS] [MASK→bark][cat→ed]s [MASK→dog] the [MASK] [SEP]"
    examples.masked_lm_positions[0] = [2, 3, 5]
    examples.masked_lm_ids[0] = [NUMBER[token] for token in ("dog", "##s", "state")]
    assert text(examples, 0, vocabulary) == "[CLS] [MASK] [cat→dog]=s= [MASK] the→state [MASK] [SEP]"


def test_each_segment_has_a_colour(examples: PretrainingExamples, vocabulary: Vocabulary) -> None:
    shown = write_words(example_words(examples, 1, vocabulary), width=None, colour=True)
    assert shown.split(" ") == [
        "\x1b[2m[CLS]\x1b[0m",
        "\x1b[36;1m[MASK→state]\x1b[0m\x1b[36mment\x1b[0m",
        "\x1b[2m[SEP]\x1b[0m",
        "\x1b[33mstate\x1b[0m\x1b[33ms\x1b[0m",
        "\x1b[33mstate\x1b[0m",
        "\x1b[2m[SEP]\x1b[0m",
    ]


def test_impossible_positions_and_ids_are_harmless(examples: PretrainingExamples, vocabulary: Vocabulary) -> None:
    examples.masked_lm_positions[0, 0] = 2**31 - 1
    examples.input_ids[0, 3] = 2**31 - 1
    assert text(examples, 0, vocabulary).startswith("[CLS] the dog <2147483647: not in the vocabulary>s ,")


def test_a_file_is_shown(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(Inspect(path, record=1, records=5))
    assert capsys.readouterr().out.splitlines() == [
        f"{path}: ofrecord, 3 records, 12 tokens, 3 predictions",
        "[MASK→x]: x was masked; a→b or [a→b]: the random token a replaces b; =c=: c was kept; x, b and c are predicted",
        "",
        "record 1: 8 of 12 tokens, B has 4 and is a random text, 1 prediction",
        SHOWN[1],
        "",
        "record 2: 9 of 12 tokens, B has 4 and is the next sentence, 2 predictions",
        SHOWN[2],
    ]


def test_of_a_folder_the_first_file_is_shown(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(Inspect(path))
    shown = capsys.readouterr().out
    (path.parent / "part-1").write_bytes(path.read_bytes())
    for folder in (path.parent.parent, path.parent):
        run(Inspect(folder))
        assert capsys.readouterr().out == f"{folder}: showing the first of 2 files\n{shown}"


def test_of_a_split_of_text_shards_a_file_of_that_split_is_named(
    tmp_path: Path, golden_corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = bertprep.shard(golden_corpus, corpus="books", workdir="data", shards=2, workers=1).folder
    for split in ("test", "training"):
        assert main(["inspect", str(folder / split)]) == 2
        file = f"data/sharded/books/{split}/books_{split}_00000.txt"
        assert capsys.readouterr().err.startswith(f"bertprep: error: {file}: is plain text, ")


def test_of_an_unfinished_folder_it_is_said_what_finishes_it(
    path: Path, vocabulary: Vocabulary, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = path.parent.parent
    shown = vocabulary.path.rename(folder.parent / f"{folder.name}.txt")
    (folder / ".ledger").mkdir()
    for named in (folder, path):
        assert main(["inspect", str(named)]) == 2
        assert capsys.readouterr().err == (
            f"bertprep: error: {folder}: has no vocab.txt yet, because it is not finished (--vocab FILE names the vocabulary); "
            "run the command that makes it again, which resumes it\n"
        )
        assert main(["inspect", str(named), "--vocab", str(shown)]) == 0
        assert SHOWN[0] in capsys.readouterr().out


def test_the_words_of_ner_have_their_tags(vocabulary: Vocabulary, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentences = tmp_path / "train.conll"
    sentences.write_text("the O\ndogs B-PET\n, O\n")
    how = {"vocab": vocabulary.path, "seq": 8, "workers": 1, "workdir": tmp_path / "data", "formats": "ofrecord"}
    folder = bertprep.create_ner("pets", inputs=[sentences], **how).folders["ofrecord"]  # type: ignore[arg-type]
    run(Inspect(folder / "training/part-0"))
    _, legend, _, _, shown = capsys.readouterr().out.splitlines()
    assert (legend, shown) == ("word/TAG: a word and its tag", "[CLS] the/O dogs/B-PET ,/O [SEP]")
    (folder / "manifest.json").unlink()
    run(Inspect(folder))
    assert capsys.readouterr().out.endswith("[CLS] the/0 dogs/1 ,/0 [SEP]\n")


def test_a_record_that_is_not_there_is_named(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(path), "--record", "3"]) == 2
    assert f"--record 3: {path} has records 0 to 2" in capsys.readouterr().err


def test_text_is_shown_by_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my text.txt"
    path.write_text("One sentence.\n")
    assert main(["inspect", str(path)]) == 2
    said = capsys.readouterr().err
    expected = f"{path}: is plain text, expected records or a token shard; to show the text, run head -n 20 '{path}'"
    assert said == f"bertprep: error: {expected}\n"


def test_of_a_long_document_the_beginning_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], vocabulary: Vocabulary
) -> None:
    """A document of a token shard may be a book."""
    text = tmp_path / "text.txt"
    text.write_text("the dog barks the dog\n" * 200 + "\nthe dog\n")
    how = {"inputs": [text], "lines_are_sentences": True, "any_case": True}
    folder = bertprep.tokenize(output=tmp_path / "a", vocab=vocabulary.path, workers=1, **how).folder  # type: ignore[arg-type]
    run(Inspect(folder / "corpus_training_00000.bin", records=1))
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "document 0: 200 sentences, 1,200 tokens, the first 512"
    assert len(lines) == 3 + -(-512 // 6)
    assert lines[-1] == "the dog"
    run(Inspect(folder / "corpus_training_00000.bin", record=1))
    assert capsys.readouterr().out.splitlines()[2:] == ["document 1: 1 sentence, 2 tokens", "the dog"]
    text.write_text("words " * 2000)
    tokenizer = write_tokenizer(tmp_path, "byte_bpe")
    made = bertprep.tokenize(inputs=[text], tokenizer=tokenizer, output=tmp_path / "b", one_document_per_file=True)
    run(Inspect(made.folder / "corpus_training_00000.idx"))
    _, _, description, shown = capsys.readouterr().out.splitlines()
    assert description.endswith(", the first 512")
    assert len(shown.split()) < 600
    assert main(["inspect", str(made.folder / "corpus_training_00000.bin"), "--vocab", str(vocabulary.path)]) == 2
    assert "--vocab " in (said := capsys.readouterr().err)
    assert "is not for whole documents, which have their tokenizer.json next to them; leave it out" in said
    assert main(["validate", str(made.folder), "--vocab", str(vocabulary.path)]) == 2
    assert "is not for whole documents" in capsys.readouterr().err


def test_documents_without_their_tokenizer_are_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("the dog barks")
    tokenizer = write_tokenizer(tmp_path, "byte_bpe")
    made = bertprep.tokenize(inputs=[tmp_path / "text.txt"], tokenizer=tokenizer, output=tmp_path / "out")
    (made.folder / "tokenizer.json").unlink()
    path = made.folder / "corpus_training_00000.bin"
    run(Inspect(path))
    *_, shown = capsys.readouterr().out.splitlines()
    assert shown.split() == [f"#{number}" for number in np.fromfile(path, np.uint16)]


@pytest.mark.parametrize(("no_colour", "coloured"), [("", True), ("1", False)])
def test_a_terminal(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, no_colour: str, coloured: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setenv("TERM", "xterm")
    run(Inspect(path, records=1))
    out = capsys.readouterr().out
    assert ("\x1b[" in out) == coloured
    assert len(out.splitlines()) == 6


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (TOKENS[:10], "of PATH: record 0 has ids that it lacks"),
        (OTHERS, None),
        (
            ["[PAD]", "[CLS]", "cat", "[UNK]", "[SEP]", "[MASK]", *map(str, range(20))],
            "or does not begin with its [CLS]",
        ),
    ],
    ids=["too small", "could be", "CLS elsewhere"],
)
def test_a_vocabulary_of_other_records(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], tokens: list[str], message: str | None
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("\n".join(tokens), encoding="utf-8")
    assert main(["inspect", str(path), "--vocab", str(other)]) == (1 if message else 0)
    out, err = capsys.readouterr()
    assert (message or "").replace("PATH", str(path)) in err
    assert bool(out) == (message is None)
