"""Words of the user's own function: where they start, which tokens begin them, and what is no list of words."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers

import bertprep
from bertprep import TokenDataset
from bertprep.errors import BertprepError, UsageError
from bertprep.instances.given_words import find_starts
from tests.instances.small_tokenizers import write_tokenizer

WORDS = ["北京大学", "的", "学生", "喜欢", "喝茶", "。", "他们", "在", "图书馆", "里", "读书"]
TEXT = "北京大学的学生喜欢喝茶。他们在图书馆里读书。"


def segment(text: str) -> list[str]:
    found = []
    while text:
        found.append(next(word for word in WORDS if text.startswith(word)))
        text = text[len(found[-1]) :]
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Chinese text, and a WordPiece of its characters."""
    (tmp_path / "a.jsonl").write_text("\n".join([json.dumps({"text": TEXT * 3})] * 20))
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(TEXT))]
    model = tokenizers.models.WordPiece({name: number for number, name in enumerate(names)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = (
        tokenizers.normalizers.BertNormalizer(),
        tokenizers.pre_tokenizers.BertPreTokenizer(),
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def tokenize(folder: Path, **settings: Any) -> None:
    bertprep.tokenize(inputs=[folder / "a.jsonl"], tokenizer=folder, output=folder / "out", workers=1, **settings)


def test_whole_words_are_those_of_the_function(folder: Path) -> None:
    tokenize(folder, words=segment)
    dataset = TokenDataset(folder / "out", seq=80, whole_word=True, mask_as=(1, 0, 0), masked_lm_prob=0.2)
    assert "by whole words (rule given)" in dataset.masks
    starts = np.isin(np.arange(len(TEXT) * 3), np.cumsum([0, *map(len, segment(TEXT * 3))]))
    whole = part = 0
    for row in map(dataset.__getitem__, range(len(dataset))):
        masked = (row["labels"] != -100)[1:][: len(starts)]
        for word in np.split(masked, np.flatnonzero(starts)[1:]):
            whole += len(word) > 1 and word.all()
            part += 0 < word.sum() < len(word)
    assert whole > 20
    assert part <= len(dataset)  # which fill up the share of a row
    with pytest.raises(
        BertprepError, match=r"was made with tokenizer\.words given, but this run has wordpiece; choose another"
    ):
        tokenize(folder)


@pytest.mark.parametrize("kind", ["byte_bpe", "wordpiece", "unigram"])
def test_a_token_with_the_first_character_of_a_word_begins_it(kind: str, tmp_path: Path) -> None:
    """The words of English are those of spaces, which the tokenizers know too."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "the unforeseeable words of the text were numbers"}))
    path = write_tokenizer(tmp_path, kind)
    starts = []
    for name, words in (("own", None), ("given", str.split)):
        bertprep.tokenize(inputs=[tmp_path / "a.jsonl"], tokenizer=path, output=tmp_path / name, workers=1, words=words)
        shard = TokenDataset(tmp_path / name, seq=64).documents.shards[0]
        assert shard.words is not None
        starts.append(np.unpackbits(shard.words, count=shard.sizes[1], bitorder="little").tolist())
    assert starts[0] == starts[1]
    assert sum(starts[1]) == 8


def wrong(words: Any) -> Any:
    return lambda _: words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (wrong(TEXT), "words: expected a list of the words in a text, found str '北京"),
        (wrong(7), "words: expected a list of the words in a text, found int 7"),
        (wrong(["北京", 5]), "words: expected the words in a text, found 5 among them"),
        (wrong(["北京", ""]), "words: expected the words in a text, found '' among them"),
        (
            wrong(["北京", "学生"]),
            "words: found '学生' where the text has '大学的学生.*'; expected its words in order, unchanged",
        ),
        (wrong([TEXT]), "words: the end of the text is missing from them: '北京"),
    ],
)
def test_what_is_not_the_text_in_words_is_refused(words: Any, message: str, folder: Path) -> None:
    with pytest.raises(BertprepError, match=message):
        tokenize(folder, words=words)
    assert not list((folder / "out").rglob("*.bin"))


def test_words_go_with_a_tokenizer_and_are_a_function(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"words: expected a function that returns the words of a text, or .*, found 5"):
        tokenize(folder, words=5)
    with pytest.raises(UsageError, match="words: needs --tokenizer; without it"):
        bertprep.tokenize(inputs=[folder / "a.jsonl"], output=folder / "out", words=segment)


def test_white_space_between_words_may_be_left_out() -> None:
    assert find_starts(str.split, "  to be\t or ").tolist() == [0, 4, 7]
    assert find_starts(list, "").tolist() == []


TEXTS = ["  the unforeseeable words\u3000of the text", "were numbers,  and more\nwords ", "", "one"]
ROWS = {
    "text": TEXTS,
    "w": [text.split() for text in TEXTS],
    "s": [[at.start() for at in re.finditer(r"\S+", x)] for x in TEXTS],
}


def bits_of(folder: Path) -> list[int]:
    [shard] = TokenDataset(folder, seq=64, objective="clm").documents.shards
    assert shard.words is not None
    return np.unpackbits(shard.words, count=shard.sizes[1], bitorder="little").tolist()


@pytest.mark.parametrize("column", ["w", "s"])
@pytest.mark.parametrize("kind", ["byte_bpe", "wordpiece", "unigram"])
def test_words_of_a_column_are_those_of_a_function(kind: str, column: str, tmp_path: Path) -> None:
    rows = [dict(zip(ROWS, row, strict=True)) for row in zip(*ROWS.values(), strict=True)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.table(ROWS), tmp_path / "a.parquet")
    dataset = datasets.Dataset.from_dict(ROWS)
    dataset.save_to_disk(tmp_path / "saved")
    path = write_tokenizer(tmp_path, kind)
    bertprep.tokenize(inputs=[tmp_path / "a.jsonl"], tokenizer=path, output=tmp_path / "function", words=str.split)
    given: list[dict[str, Any]] = [
        {"inputs": [tmp_path / "a.jsonl"]},
        {"inputs": [tmp_path / "a.parquet"]},
        {"dataset": tmp_path / "saved"},
        {"dataset": dataset},
        {"dataset": datasets.IterableDataset.from_generator(lambda: iter(rows))},
    ]
    for number, each in enumerate(given):
        made = bertprep.tokenize(tokenizer=path, output=tmp_path / str(number), words=column, **each)
        assert bits_of(tmp_path / str(number)) == bits_of(tmp_path / "function")
        assert made.manifest.made_with["tokenizer"]["words"] == "given"
    assert sum(bits_of(tmp_path / "function")) == sum(map(len, ROWS["w"]))
    with pytest.raises(
        BertprepError, match=r"was made with another --input: inputs\[0\]\.words"
    ):  # of the same file, by another column
        bertprep.tokenize(inputs=[tmp_path / "a.jsonl"], tokenizer=path, output=tmp_path / "0", words="sw".replace(column, ""))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "to be"}, r"a\.jsonl: line 1: has no column 'w', found 'text'; use --words to name the one with"),
        ({"text": "to be", "w": None}, "line 1: words: the end of the text is missing from them: 'to be'"),
        ({"text": "to be", "w": []}, "line 1: words: the end of the text is missing from them: 'to be'"),
        ({"text": "to be", "w": "to be"}, "line 1: words: expected a list of the words in a text, found str 'to be'"),
        ({"text": "to be", "w": ["to", "bee"]}, "line 1: words: found 'bee' where the text has ' be'"),
        ({"text": "to be", "w": [0, True]}, "line 1: words: expected the words in a text, found 0 among them"),
        ({"text": "to be", "w": [0, 5]}, "line 1: words: word 1 starts at 5, expected ascending positions in a text of 5"),
        ({"text": "to be", "w": [0, 3, 3]}, "line 1: words: word 2 starts at 3, expected"),
        ({"text": "to be", "w": [-1, 3]}, "line 1: words: word 0 starts at -1, expected"),
    ],
)
def test_a_column_that_has_no_words_is_refused(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    path = write_tokenizer(tmp_path, "byte_bpe")
    with pytest.raises((BertprepError, UsageError), match=message):
        bertprep.tokenize(inputs=[tmp_path / "a.jsonl"], tokenizer=path, output=tmp_path / "out", words="w")


def test_files_without_columns_of_lists_are_refused(tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path, "byte_bpe")
    (tmp_path / "a.txt").write_text("to be")
    with pytest.raises(
        UsageError, match=r"--words w: .*a\.txt cannot have a column of lists; give JSON Lines, Parquet, Arrow or"
    ):
        bertprep.tokenize(inputs=[tmp_path / "a.txt"], tokenizer=path, output=tmp_path / "out", words="w")
    for columns, message in (({"w": [1.5]}, "column 'w' has type double"), ({"v": [["to"]]}, "has no column 'w'")):
        with pytest.raises(UsageError, match=message):
            bertprep.tokenize(dataset=pa.table({"text": ["to"], **columns}), tokenizer=path, output=tmp_path / "out", words="w")
