"""Vocabularies and tokenizers as people bring them: taken as they are, with the ids of their model, or refused in one line."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

import bertprep
from bertprep.cli import main
from bertprep.config import InstanceSettings
from bertprep.errors import BertprepError, BertprepWarning, UsageError
from bertprep.instances import Tokenizer, load_vocabulary
from bertprep.tokens.documents import open_token_documents
from bertprep.work.manifest import UNCOVERED, read_manifest
from tests.golden import GOLDEN
from tests.instances.examples import compiled_examples, reference_examples
from tests.instances.small_tokenizers import TEXT, content_of, wordpiece

GOOD = [line for line in (GOLDEN / "vocab.txt").read_text(encoding="utf-8").split("\n") if line]
ESM = [
    "<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO", ".", "-", "<null_1>", "<mask>",
]  # fmt: skip
"""The lines of the vocab.txt of ESM-2."""


def open_of_transformers(folder: object, kind: str = "AutoTokenizer") -> Any:
    """Open a tokenizer with a class of transformers, which not every environment of the tests has."""
    import transformers

    return getattr(transformers, kind).from_pretrained(folder)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_vocabulary(lines: Sequence[str], path: str = "vocab.txt", end: str = "\n", encoding: str = "utf-8") -> Path:
    Path(path).write_bytes("".join(f"{line}{end}" for line in lines).encode(encoding))
    return Path(path)


def write_sentences(path: str = "text.txt") -> Path:
    sentence = "the quick brown fox jumps over the lazy dog .\nand the dog was asleep .\nin the house , at noon .\n"
    Path(path).write_text("\n".join(4 * [sentence]))
    return Path(path)


def create(vocabulary: Path) -> int:
    options = ["--lines-are-sentences", "--vocab", str(vocabulary), "--output", "out", "--seq", "32", "--pred", "5"]
    return main(["create", "--input", str(write_sentences()), *options])


def write_tokenizer(tokenizer: tokenizers.Tokenizer, folder: str = "mine", **files: Any) -> Path:
    """Write a tokenizer.json, and the JSON files next to it that are named by keywords."""
    (path := Path(folder)).mkdir(exist_ok=True)
    (path / "tokenizer.json").write_text(tokenizer.to_str())
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def tokenize(tokenizer: Any, texts: Sequence[str], output: str = "out") -> list[list[int]]:
    """Return the ids of documents in the token shards that bertprep makes of them."""
    Path("docs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    bertprep.tokenize(tokenizer=tokenizer, inputs=["docs.jsonl"], output=output)
    [shard] = open_token_documents(output).shards
    return [shard.tokens[start:end].tolist() for start, end in zip(shard.starts, shard.starts[1:], strict=False)]


def rows_of(output: str = "out", **settings: Any) -> list[list[int]]:
    """Return the rows of a data set, without padding, as they are before tokens are masked."""
    data = bertprep.TokenDataset(output, seq=32, packed=False, **settings)
    rows = (data[number] for number in range(len(data)))
    return [
        np.where(row["labels"] == -100, row["input_ids"], row["labels"])[row["attention_mask"] == 1].tolist() for row in rows
    ]


# --- vocab.txt


def test_a_folder_stands_for_the_vocabulary_in_it() -> None:
    Path("model").mkdir()
    shutil.copy(GOLDEN / "vocab.txt", "model")
    assert create(Path("model")) == 0
    assert main(["validate", "out", "--vocab", "model"]) == 0
    Path("empty").mkdir()
    with pytest.raises(BertprepError, match=r"^empty/vocab\.txt: cannot be read as a vocabulary: No such file"):
        load_vocabulary(Path("empty"))


@pytest.mark.parametrize(
    "blank", [["\u2028"], ["\u2028", "\u2028"], ["\u0085"], ["\u00a0", "\u3000", " "], [""], ["", ""], ["\x1c"]], ids=ascii
)
def test_a_blank_line_of_a_published_vocabulary_is_a_token_that_keeps_its_id(blank: list[str]) -> None:
    """As line 344 of bert-base-chinese, which is U+2028, and the empty lines of others: no text has such a token."""
    path = write_vocabulary([*GOOD[:100], *blank, *GOOD[100:]])
    vocabulary = load_vocabulary(path)
    assert (len(vocabulary), vocabulary.tokens[100 : 100 + len(blank)]) == (len(GOOD) + len(blank), tuple(blank))
    assert create(path) == 0
    assert Path("out/tfrecord/vocab.txt").read_bytes() == path.read_bytes()
    assert main(["validate", "out"]) == 0
    text = "the dog\u2028was \u0085 asleep\u00a0in\u3000the house\x1c."
    ids = Tokenizer(vocabulary, lower=True).tokenize_lines(f"{text}\n".encode()).tokens.tolist()
    (folder := Path("published")).mkdir()
    shutil.copy(path, folder / "vocab.txt")
    assert ids == open_of_transformers(folder, "BertTokenizer")(text, add_special_tokens=False)["input_ids"]
    assert not set(ids) & {*range(100, 100 + len(blank))}


def test_a_repeated_token_has_the_id_of_its_last_line_and_all_others_stay(capsys: pytest.CaptureFixture[str]) -> None:
    """As in the loaders of Google and transformers, special tokens too."""
    first, separator = GOOD.index("the"), GOOD.index("[SEP]")
    path = write_vocabulary([*GOOD, "the", "[SEP]", "zyx"])
    assert create(path) == 0
    assert f"lines {separator + 1}, {first + 1} are never used, since line {len(GOOD) + 2:,} repeats" in capsys.readouterr().err
    vocabulary = load_vocabulary(path)
    assert (len(vocabulary), vocabulary.sep) == (len(GOOD) + 3, len(GOOD) + 1)
    (folder := Path("published")).mkdir()
    shutil.copy(path, folder / "vocab.txt")
    expected = open_of_transformers(folder, "BertTokenizer")
    assert expected.sep_token_id == vocabulary.sep
    text = "the zyx dog, the house."
    ids = Tokenizer(vocabulary, lower=True).tokenize_lines(f"{text}\n".encode()).tokens.tolist()
    assert ids == expected(text, add_special_tokens=False)["input_ids"]
    assert ids[0] == len(GOOD)


def test_records_by_a_vocabulary_with_repeated_tokens_are_those_of_google(golden_corpus: Path) -> None:
    """Its generator draws random tokens among the words of a dict, so a repeated one is drawn once."""
    vocabulary = load_vocabulary(write_vocabulary([*GOOD, *GOOD[200:260], GOOD[20]]))
    settings = InstanceSettings(seq=64, pred=20, masked_lm_prob=0.5)
    text = golden_corpus.read_bytes()[:20_000]
    text = text[: text.rfind(b"\n\n") + 2]
    Path("text.txt").write_bytes(text)
    expected = reference_examples(Path("text.txt"), vocabulary, settings, seed=7)
    assert compiled_examples(Path("text.txt"), vocabulary, settings, seed=7) == expected
    drawn = {example.input_ids[at] for example in expected for at in example.masked_lm_positions}
    assert not drawn & {*range(200, 260), 20}
    assert drawn & {*range(len(GOOD), len(vocabulary))}


@pytest.mark.parametrize(
    ("end", "encoding"), [("\r\n", "utf-8"), ("\n", "utf-8-sig"), ("  \n", "utf-8")], ids=["Windows", "mark", "spaces"]
)
def test_line_ends_and_a_byte_order_mark_belong_to_no_token(end: str, encoding: str) -> None:
    path = write_vocabulary(GOOD, end=end, encoding=encoding)
    assert load_vocabulary(path).tokens == tuple(GOOD)
    assert create(path) == 0


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("utf16.txt", "\n".join(GOOD).encode("utf-16"), "it is UTF-16: iconv -f UTF-16 -t UTF-8 utf16.txt > NEW"),
        ("columns.txt", "\n".join(f"{each}\t7" for each in GOOD).encode(), "separated by tabs, .* cut -f 1 columns.txt > NEW"),
        (
            "vocab.json",
            json.dumps({each: at for at, each in enumerate(GOOD)}).encode(),
            "is JSON, .* jq -r .* vocab.json > NEW",
        ),
        ("dict.txt", b"the 12345\nof 2345\n", r"lacks \[PAD\], "),
        ("spiece.model", b"\n\x0e\n\x05<unk>\x15\x00\xff\x00\x00\x18\x02", "is not UTF-8; .* tokenize --tokenizer"),
    ],
)
def test_what_is_no_vocabulary_is_refused_with_what_to_do(
    name: str, content: bytes, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_bytes(content)
    assert create(Path(name)) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"bertprep: error: {name}: ")
    assert re.search(words, line)
    assert not Path("out").exists()


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["\u2581the", "\u2581dog", "\u2581", "og", "s", "\u2581in", ".", "\u2581a", "#", "\u4e2d"]


@pytest.mark.parametrize(
    "special", [["<unk>", "<s>", "</s>"], SPECIAL, ["[PAD]", "<unk>", "[CLS]", "[SEP]", "[MASK]"]], ids=str
)
@pytest.mark.parametrize("score", ["", "\t-3.25"])
def test_the_list_of_tokens_that_sentencepiece_wrote_is_named_and_the_command_works(
    special: list[str], score: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_vocabulary([f"{token}{score}" for token in (*special, *PIECES)], path="my sp.vocab")
    status = create(path)
    said = capsys.readouterr().err
    assert (status, "the tokens of SentencePiece" in said) == ((0 if special == SPECIAL and not score else 1), True)
    command = re.search(r"(\(printf|cut -f 1).*?> NEW", said)
    assert command
    subprocess.run(["bash", "-c", command[0]], check=True)
    missing = [token for token in SPECIAL if token not in special]
    pieces = ["the", "dog", "", "##og", "##s", "in", "##.", "a", "###", "##\u4e2d"]
    assert load_vocabulary(Path("NEW")).tokens == (*missing, *special, *pieces)


def test_a_wordpiece_vocabulary_that_has_the_mark_of_sentencepiece_as_a_token_is_taken() -> None:
    assert create(write_vocabulary([*GOOD, "\u2581"])) == 0


@pytest.mark.skipif(not shutil.which("jq"), reason="the advice names jq")
@pytest.mark.parametrize("form", ["a tokenizer.json", "with a token added later", "ids by token"])
def test_a_wordpiece_vocabulary_that_was_saved_as_json_has_a_command_that_works(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tokenizer.save("vocab.txt")` writes JSON; `save_model` writes the vocab.txt."""
    tokenizer = tokenizers.BertWordPieceTokenizer(vocab=dict(zip(GOOD, range(len(GOOD)), strict=True)))
    if form == "with a token added later":
        tokenizer.add_tokens(["zyx"])
    tokenizer.save("vocab.txt")
    if form == "ids by token":
        Path("vocab.txt").write_text(json.dumps(dict(sorted(tokenizer.get_vocab().items()))))
    assert create(Path("vocab.txt")) == 1
    said = capsys.readouterr().err
    subprocess.run(["bash", "-c", said[said.index("jq -r") :]], check=True)
    assert load_vocabulary(Path("NEW")).tokens == (*GOOD, *(["zyx"] if form == "with a token added later" else []))


@pytest.mark.parametrize(
    "content", ['{"a": 1, "b": 5}', '{"model": {"type": "WordPiece", "vocab": {"a": 0, "b": 2}}}', '{"[PAD]": []}']
)
def test_json_whose_ids_no_lines_can_have_gets_no_command(content: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("vocab.txt").write_text(content)
    assert create(Path("vocab.txt")) == 1
    said = capsys.readouterr().err
    assert ("is JSON" in said, "jq" in said) == (True, False)


def test_a_vocabulary_that_was_trained_without_special_tokens_is_told_how_to_have_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert create(write_vocabulary([line for line in GOOD if line != "[MASK]"])) == 1
    assert "lacks [MASK], which" in (said := capsys.readouterr().err)
    assert "train yours again with these as special tokens" in said


@pytest.mark.parametrize("letters", ["acgt", "กขคงจ", "កខគឃង"], ids=["DNA", "Thai", "Khmer"])
def test_text_without_spaces_is_named_as_the_cause_why_no_vocabulary_can_be_trained(
    letters: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = (letters * 510)[:510]
    Path("text.txt").write_text("\n\n".join("\n".join(3 * [line]) for _ in range(4)), encoding="utf-8")
    options = ["--lines-are-sentences", "--output", "out", "--seq", "32", "--pred", "5"]
    assert main(["create", "--input", "text.txt", *options]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert "more than 200 characters" in error
    assert "put spaces between the words" in error
    assert "--vocab" not in error


def test_text_that_the_tokenizer_removes_is_named_as_the_cause(capsys: pytest.CaptureFixture[str]) -> None:
    """As pages of zero-width characters."""
    Path("text.txt").write_text("\n\n".join("\u200b\u200c\n\u200d" for _ in range(4)), encoding="utf-8")
    options = ["--lines-are-sentences", "--output", "out", "--seq", "32", "--pred", "5"]
    assert main(["create", "--input", "text.txt", *options]) == 1
    assert "characters that BERT's tokenizer removes" in capsys.readouterr().err


# --- templates, special tokens, gaps


def word_level(*special: str, words: str = "the dog was asleep in house", **options: Any) -> tokenizers.Tokenizer:
    vocabulary = {word: number for number, word in enumerate([*special, *words.split()])}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, **options))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([*special])
    return tokenizer


@pytest.mark.parametrize(
    ("template", "before", "after"),
    [
        ("$A </s> en_XX", [], ["</s>", "en_XX"]),
        ("en_XX $A </s>", ["en_XX"], ["</s>"]),
        ("<s> en_XX $A </s> </s>", ["<s>", "en_XX"], ["</s>", "</s>"]),
        ("$A <sep> <cls>", [], ["<sep>", "<cls>"]),
        ("<cls> <sep> en_XX $A", ["<cls>", "<sep>", "en_XX"], []),
    ],
    ids=["mBART", "NLLB", "several", "XLNet", "before"],
)
def test_rows_have_all_tokens_of_the_template(template: str, before: list[str], after: list[str]) -> None:
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "en_XX", "<sep>", "<cls>"]
    tokenizer = word_level(*special, unk_token="<unk>")
    pairs = [(token, special.index(token)) for token in special]
    tokenizer.post_processor = processors.TemplateProcessing(template, special_tokens=pairs)
    texts = ["the dog was asleep", "in the house"]
    folder = write_tokenizer(tokenizer)
    assert tokenize(folder, texts) == [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    expected = [tokenizer.encode(text).ids for text in texts]
    assert expected[1] == [special.index(each) for each in before] + [12, 8, 13] + [special.index(each) for each in after]
    assert sorted(rows_of()) == sorted(expected)
    packed = bertprep.TokenDataset("out", seq=32)[0]
    assert int((packed["sequence_ids"] == 0).sum()) in map(len, expected)
    assert open_of_transformers("out/tokens")(texts[0])["input_ids"] == expected[0]
    bertprep.convert("out", "rows", to="mds", seq=32)
    assert main(["validate", "out"]) == 0


def test_a_template_that_adds_one_token_is_completed_as_the_docs_say() -> None:
    tokenizer = word_level("<s>", "</s>", "<mask>", unk_token="dog")
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    tokenize(write_tokenizer(tokenizer), ["the house"])
    assert rows_of() == [[0, 3, 8, 1]]


NAMED = {"pad": "P", "cls": "C", "sep": "S", "mask": "M", "unk": "U"}


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config": {f"{role}_token": token for role, token in NAMED.items()}},
        {"special_tokens_map": {f"{role}_token": {"content": token} for role, token in NAMED.items()}},
        {
            "tokenizer_config": {"pad_token": "P", "mask_token": "M"},
            "special_tokens_map": {"bos_token": "C", "eos_token": "S", "unk_token": "U", "pad_token": "other"},
        },
    ],
    ids=["config", "map", "both"],
)
def test_special_tokens_are_those_that_the_files_of_transformers_name(files: dict[str, Any]) -> None:
    tokenizer = tokenizers.Tokenizer.from_str(content_of("byte_bpe"))
    tokenizer.post_processor = None
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = []
    names = dict(zip(["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"], NAMED.values(), strict=True))
    ids = content["model"]["vocab"] = {
        names.get(token, token): number for token, number in content["model"]["vocab"].items() if token not in NAMED.values()
    }
    folder = write_tokenizer(tokenizer, **files)
    (folder / "tokenizer.json").write_text(json.dumps(content))
    tokenize(folder, ["12 and 13"])
    found = open_token_documents("out").tokenizer
    assert {role: getattr(found, role) for role in NAMED} == {role: ids[token] for role, token in NAMED.items()}
    [row] = rows_of()
    assert (row[0], row[-1]) == (ids["C"], ids["S"])


def test_a_mask_token_that_only_added_tokens_has_is_added_with_its_id() -> None:
    tokenizer = word_level("[PAD]", "[UNK]", "[CLS]", "[SEP]", unk_token="[UNK]")
    width = tokenizer.get_vocab_size()
    folder = write_tokenizer(tokenizer, added_tokens={"[MASK]": width})
    tokenize(folder, ["the dog [MASK]"])
    found = open_token_documents("out").tokenizer
    assert (found.mask, found.width) == (width, width + 1)
    loaded = open_of_transformers("out/tokens")
    assert (loaded.mask_token, loaded.mask_token_id) == ("[MASK]", width)


def test_words_that_only_other_files_add_are_tokens_as_for_transformers() -> None:
    tokenizer = word_level("[PAD]", "[UNK]", "[CLS]", "[SEP]", unk_token="[UNK]")
    width = tokenizer.get_vocab_size()
    word, mask = {"content": "covid", "special": False}, {"content": "<hidden>", "special": True}
    config = {"added_tokens_decoder": {str(width): word, str(width + 1): mask}, "mask_token": "<hidden>", "unk_token": "[UNK]"}
    folder = write_tokenizer(tokenizer, tokenizer_config=config)
    expected = open_of_transformers(folder)("the covid dog", add_special_tokens=False)["input_ids"]
    assert tokenize(folder, ["the covid dog"]) == [expected]
    assert expected[1] == width
    assert open_token_documents("out").tokenizer.mask == width + 1
    assert open_of_transformers("out/tokens")("the covid dog", add_special_tokens=False)["input_ids"] == expected


@pytest.mark.parametrize("name", ["<|mdm_mask|>", "[MDM_MASK]", "<|MASK|>", "<[MASK]>", "|<MASK>|"])
def test_the_mask_token_of_diffusion_models_is_known_though_no_file_names_it(name: str) -> None:
    """As LLaDA's, next to [gMASK] and [sMASK], which are for generation."""
    special = ["<|startoftext|>", "<|endoftext|>", "[CLS]", "[gMASK]", "[sMASK]", name]
    config = {"bos_token": "<|startoftext|>", "cls_token": "[CLS]", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    tokenizer = word_level(*special, unk_token="dog")
    tokenize(write_tokenizer(tokenizer, tokenizer_config=config), ["the house"])
    assert open_token_documents("out").tokenizer.mask == special.index(name)
    assert rows_of() == [[0, 6, 11, 1]]


def test_random_tokens_are_drawn_among_the_ids_that_tokens_have() -> None:
    """As of fairseq's vocabularies and those of byte pairs with reserved ranges, whose ids have gaps."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    ids = {token: number for number, token in enumerate(tokens)}
    ids |= {f"w{number}": 70_000 + 3 * number for number in range(150)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(tokens)
    words = " ".join(f"w{number % 150}" for number in range(4000))
    tokenize(write_tokenizer(tokenizer), 5 * [words])
    data = bertprep.TokenDataset("out", seq=128, mask_as=(0.0, 1.0, 0.0))
    rows = [data[number] for number in range(len(data))]
    drawn = np.concatenate([row["input_ids"][row["labels"] != -100] for row in rows])
    assert len(drawn) > 4000
    assert set(drawn.tolist()) == {number for token, number in ids.items() if token not in tokens}
    assert main(["validate", "out"]) == 0


def test_random_tokens_are_none_of_the_lines_of_a_vocabulary_that_no_text_has() -> None:
    path = write_vocabulary([*GOOD, "", "\u2028", "the", GOOD[300]])
    bertprep.tokenize(vocab=path, inputs=[write_sentences()], output="out", lines_are_sentences=True)
    data = bertprep.TokenDataset("out", seq=32, mask_as=(0.0, 1.0, 0.0), masked_lm_prob=0.9, epochs=400)
    drawn = np.concatenate([data[number]["input_ids"][data[number]["labels"] != -100] for number in range(len(data))])
    assert not set(drawn.tolist()) & {len(GOOD), len(GOOD) + 1, GOOD.index("the"), 300}
    assert len(set(drawn.tolist())) > 1000


# --- text that a tokenizer does not cover


def bpe(letters: str, **options: Any) -> tokenizers.Tokenizer:
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    merge = (letters[0], letters[1])
    return tokenizers.Tokenizer(models.BPE({**vocabulary, "".join(merge): len(vocabulary)}, [merge], **options))


def split_words(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def byte_level(letters: str) -> tokenizers.Tokenizer:
    """Trained without all bytes as its alphabet, which is easily forgotten."""
    tokenizer = bpe(letters)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return tokenizer


LOSSY: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "BPE": lambda: split_words(bpe("acgt")),
    "BPE whose unknown token is in no vocabulary": lambda: split_words(bpe("acgt", unk_token="<unk>")),
    "BPE with a byte fallback but no bytes": lambda: split_words(bpe("acgt", byte_fallback=True)),
    "byte-level BPE without all bytes": lambda: byte_level("acgtĠ"),
    "words": lambda: word_level(words="ac gt"),
    "word pieces": lambda: split_words(
        tokenizers.Tokenizer(models.WordPiece({"ac": 0, "gt": 1, "##ac": 2, "##gt": 3}, unk_token="[UNK]"))
    ),
    "pieces": lambda: split_words(tokenizers.Tokenizer(models.Unigram([(each, -1.0) for each in "acgt"]))),
}


@pytest.mark.parametrize("kind", LOSSY)
def test_characters_that_no_token_covers_are_counted_and_said(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = LOSSY[kind]()
    tokenizer.add_special_tokens(["[MASK]"])
    folder = write_tokenizer(tokenizer)
    Path("docs.jsonl").write_text('{"text": "ac gt AC GT ac"}\n{"text": "é gt Ж北"}\n')
    assert main(["tokenize", "--tokenizer", str(folder), "--input", "docs.jsonl", "--output", "out"]) == 0
    assert "7 characters of the text left out" in capsys.readouterr().err
    manifest = read_manifest(Path("out/tokens"))
    assert manifest is not None
    assert sum(entry.get(UNCOVERED, 0) for entry in manifest.files.values()) == 7
    [shard] = open_token_documents("out").shards
    text = tokenizer.decode(shard.tokens.tolist()).replace(" ", "").replace("#", "").replace("Ġ", "")
    assert text == "acgtacgt"
    with pytest.warns(BertprepWarning, match="7 characters of the text left out"):
        bertprep.TokenDataset("out", seq=32)
    assert main(["validate", "out"]) == 0
    assert "7 characters left out" in capsys.readouterr().out
    again = ["tokenize", "--tokenizer", str(folder), "--input", "docs.jsonl", "--output", "out"]
    assert main(again) == 0
    assert "7 characters of the text left out" in capsys.readouterr().err  # files that exist say it too


@pytest.mark.parametrize("kind", [kind for kind in LOSSY if kind != "byte-level BPE without all bytes"])
def test_a_tokenizer_that_covers_the_users_text_alone_is_usable(kind: str, recwarn: pytest.WarningsRecorder) -> None:
    """Text of the library's own decides nothing, and nothing is said."""
    tokenizer = LOSSY[kind]()
    expected = tokenizer.encode("ac gt ac").ids
    assert tokenize(write_tokenizer(tokenizer), ["ac gt ac"]) == [expected]
    assert not recwarn.list
    manifest = read_manifest(Path("out/tokens"))
    assert manifest is not None
    assert not [entry for entry in manifest.files.values() if UNCOVERED in entry]


def test_words_of_a_bpe_of_dna_are_found_by_its_own_pre_tokenizer() -> None:
    tokenize(write_tokenizer(split_words(bpe("acgt"))), ["acgt gtac"])
    [shard] = open_token_documents("out").shards
    assert open_token_documents("out").tokenizer.words == "word_ids"
    assert shard.words is not None
    assert np.unpackbits(shard.words, count=6, bitorder="little").tolist() == [1, 0, 0, 1, 0, 0]


def test_text_without_any_character_of_the_tokenizer_is_an_error_with_the_cause(capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_tokenizer(split_words(bpe("acgt")))
    Path("docs.jsonl").write_text('{"text": "ACGT GTAC"}\n')
    assert main(["tokenize", "--tokenizer", str(folder), "--input", "docs.jsonl", "--output", "out"]) == 1
    assert "has no token for any of its 8 characters" in capsys.readouterr().err.splitlines()[-1]


# --- files of other tokenizers


def test_esm_is_read_by_its_vocabulary_of_letters_without_a_tokenizer_json() -> None:
    """The documented way with AutoTokenizer writes no tokenizer.json for it either."""
    (model := Path("esm2")).mkdir()
    write_vocabulary(ESM, "esm2/vocab.txt")
    names = {f"{role}_token": f"<{role}>" for role in ("cls", "eos", "pad", "mask", "unk")}
    (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "EsmTokenizer", **names}))
    loaded = open_of_transformers(model)
    loaded.save_pretrained("saved")
    texts = ["MKTAYIAKQR", "MK-TA.JJx Q<null_1>", "  GG\nUBZ"]
    expected = [loaded(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert tokenize(model, texts) == tokenize(Path("saved"), texts, "other") == tokenize(loaded, texts, "object") == expected
    found = open_token_documents("out").tokenizer
    assert (found.name, found.cls, found.sep, found.pad, found.mask, found.unk) == ("esm2", 0, 2, 1, 32, 3)
    assert sorted(rows_of()) == sorted(loaded(text)["input_ids"] for text in texts)
    assert main(["validate", "out"]) == 0
    assert open_of_transformers("out/tokens")(texts[1])["input_ids"] == loaded(texts[1])["input_ids"]


def test_a_vocabulary_of_k_mers_with_the_class_of_esm_is_read_too() -> None:
    """As of models of DNA, which take the longest token at each position, and have no token after a text."""
    (model := Path("dna")).mkdir()
    special = ["<unk>", "<pad>", "<mask>", "<cls>", "<eos>", "<bos>"]
    write_vocabulary([*special, "AAAAAA", "AAAAAT", "ATCGAT", *"ATCGN"], "dna/vocab.txt")
    names: dict[str, Any] = {f"{role}_token": f"<{role}>" for role in ("cls", "pad", "mask", "unk")}
    (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "EsmTokenizer", "eos_token": None, **names}))
    loaded = open_of_transformers(model)
    texts = ["AAAAAATATCGATN", "ATCGATxAAAAAT A"]
    assert tokenize(model, texts) == [loaded(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert sorted(rows_of()) == sorted(loaded(text)["input_ids"] for text in texts)


def write_roberta(folder: Path) -> None:
    folder.mkdir()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *letters, "th", "<mask>"]
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\nt h\n")
    (folder / "config.json").write_text('{"model_type": "roberta"}')


@pytest.mark.parametrize("named", ["roberta", "roberta/vocab.json", "roberta/merges.txt"])
def test_files_of_a_slow_tokenizer_are_refused_with_a_command_that_converts_them(
    named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_roberta(Path("roberta"))
    Path("text.txt").write_text("the dog\n")
    command = ["tokenize", "--input", "text.txt", "--output", "out", "--tokenizer"]
    assert main([*command, named]) in (1, 2)
    [line] = capsys.readouterr().err.splitlines()
    advised = line.partition('python -c "')[2].partition('"')[0]
    exec(advised, {})  # what the line says to do
    assert main([*command, "NEW"]) == 0
    assert rows_of() == [open_of_transformers("NEW")("the dog")["input_ids"]]


def test_a_tokenizer_that_splits_words_in_python_is_not_sent_in_a_circle(capsys: pytest.CaptureFixture[str]) -> None:
    """As Japanese BERT's, whose words are MeCab's: a command that converts files would write no tokenizer.json."""
    (model := Path("japanese")).mkdir()
    write_vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "日本", "語", "##学"], "japanese/vocab.txt")
    (model / "tokenizer_config.json").write_text('{"tokenizer_class": "BertJapaneseTokenizer", "do_lower_case": false}')
    Path("text.txt").write_text("日本 語学 x\n", encoding="utf-8")
    command = ["tokenize", "--input", "text.txt", "--output", "out", "--tokenizer"]
    assert main([*command, "japanese"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "AutoTokenizer" not in line
    assert "WordPiece after WhitespaceSplit" in line
    vocabulary = models.WordPiece.read_file("japanese/vocab.txt")  # what the line says to do
    made = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save("tokenizer.json")
    assert main([*command, "tokenizer.json"]) == 0
    assert rows_of() == [[2, 5, 6, 7, 1, 3]]


def test_a_folder_without_files_of_a_tokenizer_is_not_sent_to_a_converter(capsys: pytest.CaptureFixture[str]) -> None:
    Path("weights").mkdir()
    Path("weights/model.safetensors").write_bytes(b"")
    Path("text.txt").write_text("the dog\n")
    assert main(["tokenize", "--input", "text.txt", "--output", "out", "--tokenizer", "weights"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "no other file of a tokenizer; name a folder that does" in line


def test_a_template_without_a_place_for_the_text_is_refused_with_what_to_add() -> None:
    path = write_tokenizer(wordpiece()) / "tokenizer.json"
    content = json.loads(path.read_text())
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}},
    }
    path.write_text(json.dumps(content))
    with pytest.raises(
        BertprepError, match=r"tokenizer\.json: the template in its post_processor has .* no text; put"
    ) as error:
        tokenize(path, ["the dog"])
    content["post_processor"]["single"].append(json.loads(re.search(r"\{.*\}", str(error.value))[0]))
    path.write_text(json.dumps(content))
    tokenize(path, ["the dog"])
    assert rows_of()[0][0] == 2


def test_the_unknown_token_of_a_unigram_model_is_that_of_its_file() -> None:
    """Whatever its name: unk_id says which it is."""
    pieces = [("<pad>", 0.0), ("\u2047", 0.0), *((letter, -1.0) for letter in "acgt")]
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=1))
    tokenizer.add_special_tokens(["[MASK]"])
    assert tokenize(write_tokenizer(tokenizer), ["acxgt"]) == [tokenizer.encode("acxgt").ids]
    manifest = read_manifest(Path("out/tokens"))
    assert manifest is not None
    assert manifest.tokenizer["unk"] == 1
    assert 1 in manifest.tokenizer["special"]


def test_a_sentencepiece_model_is_named_as_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """The same command converts it, where sentencepiece is installed."""
    Path("spiece.model").write_bytes(
        b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02\n\x0c\n\x03<s>\x15\x00\xff\x00\x00\x18\x03"
    )
    Path("text.txt").write_text("the dog\n")
    assert main(["tokenize", "--input", "text.txt", "--output", "out", "--tokenizer", "spiece.model"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("bertprep: error: spiece.model: is a SentencePiece model")
    assert "pip install transformers sentencepiece" in line
    assert "AutoTokenizer as T; T.from_pretrained('.').save_pretrained('NEW')" in line


# --- objects, words and tags


def lowering_tokenizer() -> Any:
    """What people write to prepare text in a tokenizer of their own."""
    from transformers import PreTrainedTokenizerFast

    class Lowered(PreTrainedTokenizerFast):
        def __call__(self, text: Any, **settings: Any) -> Any:
            return super().__call__(text.lower() if isinstance(text, str) else text, **settings)

    return Lowered(tokenizer_object=byte_bpe())


def tokenizer_without_config() -> Any:
    from transformers import PreTrainedTokenizerFast

    class WithoutConfig(PreTrainedTokenizerFast):
        def save_pretrained(self, folder: Any, **settings: Any) -> Any:  # noqa: ARG002
            self.backend_tokenizer.save(f"{folder}/tokenizer.json")

    return WithoutConfig(tokenizer_object=byte_bpe())


class _Broken:
    def to_str(self) -> str:
        raise Exception("Custom PreTokenizer cannot be serialized")


def byte_bpe() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(content_of("byte_bpe"))


def test_an_object_whose_calls_give_other_ids_than_its_file_is_refused() -> None:
    with pytest.raises(UsageError, match=r"calls of this Lowered give other ids than its tokenizer\.json"):
        tokenize(lowering_tokenizer(), TEXT)


def test_an_object_that_saves_no_config_is_taken() -> None:
    plain = byte_bpe()
    plain.no_truncation()
    plain.no_padding()
    expected = [plain.encode(text, add_special_tokens=False).ids for text in TEXT[:1]]
    assert tokenize(tokenizer_without_config(), TEXT[:1]) == expected


def test_an_object_that_cannot_be_written_is_refused_in_a_line() -> None:
    with pytest.raises(UsageError, match=r"cannot be written as a tokenizer\.json: Custom PreTokenizer cannot be serialized"):
        tokenize(_Broken(), TEXT)


def test_an_object_of_any_name_gives_a_name_that_files_can_have() -> None:
    from transformers import PreTrainedTokenizerFast

    loaded = PreTrainedTokenizerFast(tokenizer_object=byte_bpe(), name_or_path="some/\ud800 model")
    tokenize(loaded, TEXT[:1])
    assert open_token_documents("out").tokenizer.name == "_model"


def test_a_tag_that_no_file_can_hold_is_named() -> None:
    sentence = {"tokens": ["the", "dog"], "ner_tags": ["O", "B-\ud800"]}
    Path("train.jsonl").write_text(json.dumps(sentence) + "\n")
    with pytest.raises(BertprepError) as refused:
        bertprep.create_ner("mine", inputs=["train.jsonl"], vocab=write_vocabulary(GOOD), output="out", seq=32)
    assert "settings.json" not in str(refused.value)


@pytest.mark.parametrize("start", [2**63, -(2**63) - 1, 10**30])
def test_a_start_of_a_word_that_is_beyond_all_text_is_refused_in_a_line(start: int, capsys: pytest.CaptureFixture[str]) -> None:
    Path("docs.jsonl").write_text(json.dumps({"text": "a b", "words": [start]}) + "\n")
    folder = write_tokenizer(byte_bpe())
    command = ["tokenize", "--tokenizer", str(folder), "--input", "docs.jsonl", "--words", "words", "--output", "out"]
    assert main(command) == 1
    assert f"word 0 starts at {start:,}, expected ascending positions" in capsys.readouterr().err.splitlines()[-1]
