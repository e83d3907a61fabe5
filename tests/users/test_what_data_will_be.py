"""What the data will be: every command tells of poor next sentences and lost letters, before time is spent."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

import bertprep
from bertprep import BertprepWarning, InstanceSettings, LiveExamples
from bertprep.cli import main

WORDS = "house tree river mountain people nation water light stone paper green quick brown animal city road"
SETTINGS = ["--seq", "64", "--pred", "10", "--dupe", "1", "--workers", "1"]


def sentences(number: int, words: int = 12, seed: int = 0) -> str:
    """So many lines with a sentence of so many words each."""
    drawn = random.Random(seed)
    return "".join(" ".join(drawn.choices(WORDS.split(), k=words)).capitalize() + ".\n" for _ in range(number))


ONE_DOCUMENT = sentences(300)
NEARLY_ONE = f"{sentences(300)}\n{sentences(4, seed=1)}\n{sentences(4, seed=2)}"
LONG_SENTENCES = "\n".join(sentences(10, 200, seed) for seed in range(20))
K_MERS = "\n".join(
    "".join(" ".join(random.Random(seed + 20 * line).choices(["ACG", "CGT", "GTA", "TAC"], k=300)) + "\n" for line in range(6))
    for seed in range(20)
)
BOOKS = "\n".join(sentences(30, 12, seed) for seed in range(20))
HINDI = "\n".join("किताब मेज़ पर रखी हुई है।\nयह बहुत अच्छी किताब है।\nवह कल दिल्ली गया था।\n" * 5 for _ in range(6))
THAI = "\n".join("ผู้คน จำนวนมาก อยู่ ที่นี่\nน้ำ ใน แม่น้ำ นี้ สูง ขึ้น\n" * 5 for _ in range(6))
JAPANESE = "\n".join("がくせい は べんきょう を する\nガラス が ぶつかる\n" * 5 for _ in range(6))

VIETNAMESE = "\n".join("Tôi đang học tiếng Việt ở Hà Nội.\nHôm nay trời rất đẹp và nắng.\n" * 5 for _ in range(6))
KOREAN = "\n".join("나는 오늘 학교에 갔다.\n날씨가 매우 좋았다.\n" * 5 for _ in range(6))

Said = Callable[..., str]


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """Run a command in the folder of the test, and return what it prints before the first record is made, and after."""
    monkeypatch.chdir(tmp_path)

    def run(*command: str) -> str:
        capsys.readouterr()
        assert main([*command]) == 0
        both = capsys.readouterr()
        return both.err + both.out

    return run


def write(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def train(said: Said, text: str, *options: str) -> str:
    said("vocab", "--input", text, "--output", "vocab.txt", "--size", "300", *options)
    return "vocab.txt"


@pytest.mark.parametrize(
    ("text", "fault"), [(ONE_DOCUMENT, "a single document"), (NEARLY_ONE, "one document has 97% of the text")]
)
def test_text_without_blank_lines_is_one_document_for_every_command(said: Said, text: str, fault: str) -> None:
    shard = said("shard", "--input", write("text.txt", text), "--corpus", "c", "--test-fraction", "0", "--shards", "1")
    assert f"{fault}, " in shard
    assert "blank lines" in shard
    vocab = ["--vocab", train(said, "text.txt")]
    for command in (
        ["create", "--corpus", "c", *vocab, *SETTINGS],
        ["create", "--dry-run", "--corpus", "c", *vocab, *SETTINGS],
        ["create", "--input", "text.txt", "--output", "out", *vocab, *SETTINGS],
    ):
        printed = said(*command)
        assert f"{fault}, " in printed
        assert "--pairs none" in printed
        assert printed.index(fault) < printed.index("records")
    said("tokenize", "--corpus", "c", *vocab)
    (tokens,) = Path("data/tokens").glob("*/c")
    printed = said("create", "--input", str(tokens), "--output", "of_tokens", *SETTINGS)
    assert f"{fault}, " in printed
    with pytest.warns(BertprepWarning, match=fault):
        LiveExamples(tokens, settings=InstanceSettings(seq=64, pred=10, dupe=1))
    for made in ("data/sharded", "data/tfrecord", "out/tfrecord", "of_tokens/ofrecord"):
        assert "lone-document" in said("validate", made)


def test_what_the_advice_names_mends_one_document(said: Said) -> None:
    vocab = ["--vocab", train(said, write("text.txt", ONE_DOCUMENT))]
    printed = said("create", "--input", "text.txt", "--output", "out", *vocab, *SETTINGS, "--pairs", "none")
    assert "warning" not in printed
    assert "lone-document" not in said("validate", "out")
    printed = said("create", "--input", write("books.txt", BOOKS), "--output", "of_books", *vocab, *SETTINGS)
    assert "document, " not in printed
    assert "lone-document" not in said("validate", "of_books")


@pytest.mark.parametrize("blank", ["", "  \t", "\u00a0", "\u3000"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_whatever_blank_line_separates_two_documents_they_are_two(said: Said, blank: str, end: str) -> None:
    """Equal halves, so that the blank line is in the middle of the file."""
    write("text.txt", ONE_DOCUMENT)
    vocab = ["--vocab", train(said, "text.txt")]
    both = f"{blank}\n".join([sentences(40), sentences(40)]).replace("\n", end)
    Path("two.txt").write_bytes(both.encode())
    printed = said("create", "--input", "two.txt", "--output", "out", *vocab, *SETTINGS)
    assert "1 file became 2 documents" in printed
    assert "document, " not in printed


def test_a_file_for_each_document_makes_shards_of_one_document(said: Said) -> None:
    texts = [write(f"{number}.txt", sentences(60, seed=number)) for number in range(3)]
    vocab = ["--vocab", train(said, "0.txt")]
    printed = said("create", "--input", *texts, "--output", "out", *vocab, *SETTINGS)
    assert "3 of 3 files have a single document" in printed
    assert "put several documents into each file" in printed
    Path("one.txt").write_text("\n".join(Path(text).read_text() for text in texts))
    assert "a single document" not in said("create", "--input", "one.txt", "--output", "one", *vocab, *SETTINGS)


@pytest.mark.parametrize("text", [LONG_SENTENCES, K_MERS], ids=["legal text", "k-mers"])
def test_sentences_longer_than_a_record_are_said_before_records_are_made(said: Said, text: str) -> None:
    write("text.txt", text)
    vocab = ["--vocab", train(said, "text.txt")]
    create = ["create", "--input", "text.txt", "--lines-are-sentences", *vocab, "--dupe", "2", "--workers", "1"]
    printed = said(*create, "--output", "out", "--seq", "64", "--pred", "10")
    assert "100% of the next sentences" in printed
    assert printed.index("100% of the next sentences") < printed.index(" records/s")
    found = said("validate", "out/tfrecord")
    assert "longer than a record" in found
    assert "tool that made" not in found
    assert "next sentences" not in said(*create, "--output", "mlm", "--seq", "64", "--pred", "10", "--pairs", "none")
    if "--seq 512" in printed:
        assert "of the next sentences" not in said(*create, "--output", "long", "--seq", "512", "--pred", "80")


def test_sentences_longer_than_a_record_are_said_of_shards_tokens_and_live_examples(said: Said) -> None:
    write("text.txt", LONG_SENTENCES)
    said("shard", "--input", "text.txt", "--corpus", "c", "--splitter", "lines", "--shards", "1")
    vocab = ["--vocab", train(said, "text.txt")]
    assert "100% of the next sentences" in said("create", "--corpus", "c", *vocab, *SETTINGS)
    said("tokenize", "--corpus", "c", *vocab)
    (tokens,) = Path("data/tokens").glob("*/c")
    assert "100% of the next sentences" in said("create", "--input", str(tokens), "--output", "out", *SETTINGS)
    with pytest.warns(BertprepWarning, match="100% of the next sentences"):
        LiveExamples(tokens, settings=InstanceSettings(seq=64, pred=10))
    with pytest.warns(BertprepWarning, match="100% of the next sentences"):
        bertprep.create(
            inputs=["text.txt"], output="py", vocab="vocab.txt", lines_are_sentences=True, seq=64, pred=10, workers=1
        )


def test_three_lines_to_try_it_out_are_one_document(said: Said) -> None:
    write("text.txt", "Hello.\nTom Sawyer.\nHow are you?\n")
    vocab = ["--vocab", train(said, "text.txt")]
    assert "a single document" in said("create", "--input", "text.txt", "--output", "out", *vocab, *SETTINGS)


def test_a_title_for_each_document_is_said(said: Said) -> None:
    """Product descriptions and posts have a sentence each, so that no second sentence follows."""
    write("text.txt", "\n".join(sentences(1, seed=seed) for seed in range(300)))
    vocab = ["--vocab", train(said, "text.txt")]
    printed = said("create", "--input", "text.txt", "--lines-are-sentences", "--output", "out", *vocab, *SETTINGS)
    assert "100% of the next sentences" in printed
    assert "1.0 sentences on average" in printed


@pytest.mark.parametrize(
    ("text", "change"),
    [
        pytest.param(HINDI, "is removed", id="Hindi"),
        pytest.param(THAI, "is removed", id="Thai"),
        pytest.param(JAPANESE, "が becomes か", id="Japanese"),
        pytest.param(VIETNAMESE, "à becomes a", id="Vietnamese"),
        pytest.param(KOREAN, "다 becomes ᄃ ᅡ", id="Korean"),
    ],
)
def test_letters_that_lower_casing_removes_are_said_wherever_it_happens(said: Said, text: str, change: str) -> None:
    write("text.txt", text)
    lost = "lower-casing as for uncased BERT changes more than the case"
    assert lost in said("vocab", "--input", "text.txt", "--output", "vocab.txt", "--size", "200", "--uncased")
    given = ["--input", "text.txt", "--lines-are-sentences"]
    printed = said("create", *given, "--output", "out", "--vocab", "vocab.txt", *SETTINGS)
    assert lost in printed
    assert change in printed
    assert "--cased" in printed
    assert "letters-lost" in said("validate", "out/tfrecord")
    assert lost in said("tokenize", *given, "--output", "tokens", "--vocab", "vocab.txt")
    assert lost in said("create", "--input", "tokens/tokens", "--output", "of_tokens", *SETTINGS)
    assert "letters-lost" in said("validate", "of_tokens")
    assert "letters-lost" in said("validate", "tokens")
    with pytest.warns(BertprepWarning, match=lost):
        LiveExamples("tokens/tokens", settings=InstanceSettings(seq=64, pred=10))
    with pytest.warns(BertprepWarning, match=lost):
        bertprep.tokenize(inputs=["text.txt"], output="py", vocab="vocab.txt", lines_are_sentences=True, workers=1)
    cased = said("create", *given, "--output", "cased", "--cased", "--workdir", "w", *SETTINGS)
    assert lost not in cased
    assert "letters-lost" not in said("validate", "cased")


def test_good_text_is_not_warned_of(said: Said) -> None:
    write("text.txt", BOOKS)
    vocab = ["--vocab", train(said, "text.txt")]
    assert "warning" not in said("shard", "--input", "text.txt", "--corpus", "c", "--shards", "1")
    assert "warning" not in said("create", "--corpus", "c", *vocab, *SETTINGS)
    assert "no warnings" in said("validate", "data")
