"""Files that people fine-tune on: SQuAD's layouts, words in columns, tables of labelled texts; and the figures of scorers."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertprep
from bertprep.cli import main
from bertprep.records import Records
from bertprep.tasks.glue import find_task, own_task
from bertprep.tasks.glue_metrics import compute_metrics
from bertprep.tasks.squad_metric import EvaluationV2, evaluate_v1
from bertprep.weights.hugging_face import save_weights
from tests.golden import GOLDEN
from tests.trainer.numpy_engine import run_command
from tests.trainer.small_runs import MODEL
from trainer.tasks.classification import Classification
from trainer.tasks.token_classification import EntityScorer, score_entities
from trainer.weights import initial_values

VOCABULARY = ["--vocab", str(GOLDEN / "vocab.txt")]
SCORES = json.loads((GOLDEN / "scores.json").read_text())


class Made:
    """What a command printed, and the records that it made."""

    def __init__(self, status: int, printed: str, folder: Path) -> None:
        self.status, self.printed, self.folder = status, " ".join(printed.split()), folder

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads((self.folder / "manifest.json").read_text())

    @property
    def counts(self) -> dict[str, int]:
        return self.manifest["counts"]

    @property
    def labels(self) -> list[str]:
        return self.manifest["made_with"]["labels"]

    def rows(self, split: str = "training") -> Any:
        with Records([self.folder / split]) as records:
            block = records.kind.empty(len(records), seq=records.seq, pred=records.pred)
            records.gather_into(block, np.arange(len(records)))
        return block

    def words(self, split: str = "training") -> list[str]:
        """Return the text of each row as its tokens, without the special ones."""
        tokens = (GOLDEN / "vocab.txt").read_text().split("\n")
        texts = [" ".join(tokens[token] for token in row) for row in self.rows(split).input_ids.tolist()]
        return [text.replace(" ##", "").partition(" [SEP] [PAD]")[0].removeprefix("[CLS] ") for text in texts]


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that writes files and runs `bertprep task` on them."""

    def make(task: str, files: dict[str, str | bytes], *options: str) -> Made:
        paths = []
        for name, content in files.items():
            (path := tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
            paths.append(str(path))
        out = tmp_path / f"out_{len([*tmp_path.glob('out_*')])}"
        capsys.readouterr()
        line = ["task", *task.split(), "--input", *paths, *VOCABULARY, "--output", str(out), "--format", "tfrecord"]
        status = main([*line, "--workers", "1", *options])
        printed = capsys.readouterr()
        return Made(status, printed.out + printed.err, out / "tfrecord")

    return make


def validated(folder: Path) -> list[str]:
    [outcome] = bertprep.validate([folder], workers=1)
    return [finding.code for finding in outcome.findings]


# SQuAD

CONTEXT = "The King of the island saw a great house by the river."
QUESTION = {"question": "What did he see?", "id": "q"}


def squad(context: str, answer: str, start: int, **more: Any) -> dict[str, Any]:
    answers = [{"text": answer, "answer_start": start}]
    return {
        "version": "1.1",
        "data": [{"paragraphs": [{"context": context, "qas": [{**QUESTION, "answers": answers, **more}]}]}],
    }


def many(*asked: tuple[str, str, int], good: int = 1) -> str:
    """Return a file with these questions, and questions that have nothing wrong."""
    rows = [*asked, *[(CONTEXT, "a great house", CONTEXT.index("a great house"))] * good]
    paragraphs = [
        {"context": context, "qas": [{"question": "What?", "id": str(at), "answers": [{"text": text, "answer_start": start}]}]}
        for at, (context, text, start) in enumerate(rows)
    ]
    return json.dumps({"version": "1.1", "data": [{"title": "x", "paragraphs": paragraphs}]})


OFFSETS = {
    "UTF-8 bytes": ("Das Öl im Bär für das house", "house", 25, "answer_start counts UTF-8 bytes"),
    "UTF-16 units, as JavaScript's": ("\U0001f600 \U0001f600 the great house", "great", 10, "answer_start counts UTF-16 units"),
    "words": ("The King saw a great house", "great house", 4, "answer_start counts words"),
    "leading blanks stripped": ("     The King saw a great house", "great", 15, "does not count the blanks at the beginning"),
    "CRLF counted as one": ("The King\r\nsaw\r\na great house", "great", 15, r"counts \r\n as one character"),
    "LF counted as two": ("The King\nsaw\na great house", "great", 17, r"counts \n as two characters"),
    "repeated blanks counted as one": ("The  King   saw a great house", "great", 15, "counts repeated blanks as one"),
    "another normal form": ("Cafe\u0301 of the great house", "great", 12, "another Unicode normal form"),
    "another case": ("The King saw a great house", "the king", 0, "other upper and lower case"),
    "one too large": ("The King saw a great house", "great", 16, "answer_start is 1 too large"),
    "always 0": ("The King saw a great house", "great house", 0, "answer_start is 0"),
    "negative": ("The King saw a great house", "great house", -1, "answer_start is negative"),
    "of a longer text": ("The King saw a great house", "great house", 4321, "characters away"),
    "not an extract": ("The King saw a great house", "a small hut", 3, "the context does not contain the answer"),
}


@pytest.mark.parametrize("case", OFFSETS)
def test_answers_that_do_not_stand_at_their_offset_are_counted_with_the_likely_cause(case: str, made: Any) -> None:
    context, answer, start, cause = OFFSETS[case]
    done = made("squad", {"train.json": many((context, answer, start), good=3)})
    assert done.status == 0
    assert "1 of 4 answers are not at their answer_start" in done.printed
    assert cause in done.printed
    assert done.counts["training_dropped"] + done.counts["training_misplaced"] == 1
    assert "answers-misplaced" in validated(done.folder)


def test_what_googles_script_keeps_is_kept_and_what_is_said_of_the_dropped_is_true(made: Any) -> None:
    done = made("squad", {"train.json": many((CONTEXT, "great house", 31), (CONTEXT, "great house", 1))})
    assert (done.counts["training_misplaced"], done.counts["training_dropped"]) == (1, 1)
    assert "since the answer is not at its answer_start" in done.printed
    assert "does not contain" not in done.printed
    assert len(done.rows()) == 2


def test_right_offsets_say_nothing(made: Any) -> None:
    done = made("squad", {"train.json": many(good=2)})
    assert "answer_start" not in done.printed
    assert "answers-misplaced" not in validated(done.folder)


def test_a_file_whose_offsets_are_all_wrong_names_the_cause(made: Any) -> None:
    done = made("squad", {"train.json": many(("Ä" * 9 + " house", "house", 19), good=0)})
    assert done.status == 1
    assert (
        "none of its 1 questions has features: their answers are not at answer_start (in 1 of 1, answer_start counts"
        in done.printed
    )


FLAT = {**QUESTION, "context": CONTEXT, "answers": {"text": ["a great house"], "answer_start": [CONTEXT.index("a great")]}}
NESTED = squad(CONTEXT, "a great house", CONTEXT.index("a great"))
PARAGRAPH = NESTED["data"][0]["paragraphs"][0]


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), stream := io.BytesIO())
    return stream.getvalue()


LAYOUTS: dict[str, bytes] = {
    "SQuAD's own": json.dumps(NESTED).encode(),
    "rows of datasets as JSON Lines": (json.dumps(FLAT) + "\n").encode() * 2,
    "one row of datasets": json.dumps(FLAT).encode(),
    "rows of datasets in an array": json.dumps([FLAT, FLAT]).encode(),
    "rows of datasets under data": json.dumps({"version": "0.1.0", "data": [FLAT]}).encode(),
    "Parquet": as_parquet([FLAT]),
    "paragraphs without articles": json.dumps([PARAGRAPH]).encode(),
    "articles without data": json.dumps(NESTED["data"]).encode(),
    "one article a line": "\n".join(json.dumps(NESTED["data"][0]) for _ in range(2)).encode(),
    "ids that are numbers": json.dumps(squad(CONTEXT, "a great house", 27, id=38246)).encode(),
    "no ids": json.dumps(NESTED).replace('"id": "q", ', "").encode(),
    "a version of its own": json.dumps({**NESTED, "version": "KorQuAD_v1.0_dev"}).encode(),
    "a version that is a number": json.dumps({**NESTED, "version": 1.0}).encode(),
    "more keys": json.dumps(squad(CONTEXT, "a great house", 27, question_type="Multiple sentence", answer_id=3)).encode(),
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps(NESTED).encode(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_squad_in_other_layouts(layout: str, version: str, made: Any) -> None:
    content = LAYOUTS[layout].replace(b'"version": "1.1"', f'"version": "v{version}"'.encode())
    done = made("squad", {"train.json": content, "dev.json": json.dumps(FLAT)}, "--version", version)
    assert (done.status, done.counts["dev_questions"]) == (0, 1), done.printed
    rows = done.rows()
    tokens = (GOLDEN / "vocab.txt").read_text().split("\n")
    for ids, start, end in zip(rows.input_ids, rows.start_positions, rows.end_positions, strict=True):
        assert [tokens[token] for token in ids[start : end + 1]] == ["a", "great", "house"]
    assert not rows.is_impossible.any()
    assert not [finding for finding in validated(done.folder) if finding != "split-sizes"]


def test_questions_without_an_answer_in_rows_of_datasets(made: Any) -> None:
    none = {**FLAT, "id": "none", "answers": {"text": [], "answer_start": []}}
    done = made("squad", {"train.jsonl": f"{json.dumps(FLAT)}\n{json.dumps(none)}\n"}, "--version", "2.0")
    assert sorted(done.rows().is_impossible.tolist()) == [0, 1]
    assert made("squad", {"train.jsonl": json.dumps(none)}).status == 1
    assert "--version 2.0" in made("squad", {"train.jsonl": json.dumps(none)}).printed


def test_an_unanswerable_question_may_have_an_empty_answer(made: Any) -> None:
    content = squad(CONTEXT, "", 0, is_impossible=True)
    done = made("squad", {"train.json": json.dumps({**content, "version": "v2.0"})}, "--version", "2.0")
    assert done.rows().is_impossible.tolist() == [1]


WRONG_SQUAD = {
    "answers without positions, as CMRC's own": (
        json.dumps([{"context_id": "T0", "context_text": "x", "qas": [{"query_text": "y", "answers": ["x"]}]}]),
        "has an object with context_id, context_text, qas, expected an object with data, paragraphs, or context",
    ),
    "texts and starts that do not match": (
        json.dumps({**FLAT, "answers": {"text": ["a"], "answer_start": []}}), "has 1 texts and 0 starts of answers",
    ),
    "half a surrogate pair": (json.dumps({**FLAT, "context": "\ud800"}), "surrogates not allowed"),
    "UTF-16": (json.dumps(NESTED).encode("utf-16"), "it looks like UTF-16; convert the file: iconv -f UTF-16 -t UTF-8"),
    "a table": ("id,question\n1,2\n", "is not a JSON file"),
    "nested without end": ('{"data": ' + "[" * 900 + "]" * 900 + "}", ""),
    "a number of 5,000 digits": (json.dumps(NESTED).replace(": 27", ": " + "9" * 5000), "is not a JSON file"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_SQUAD)
def test_a_squad_file_that_cannot_be_read_is_one_line(case: str, made: Any) -> None:
    content, message = WRONG_SQUAD[case]
    done = made("squad", {"train.json": content})
    assert done.status == 1
    assert message in done.printed
    assert len(done.printed) < 600


# Words in columns

PLAIN = [(["Anna", "saw", "the", "King"], ["B-PER", "O", "O", "B-PER"]), (["the", "river"], ["O", "O"])]


def columns(row: str) -> str:
    """Return the sentences of `PLAIN`, each word in a row with its number from 0 and 1, the word and its tag."""
    sentences = []
    for words, tags in PLAIN:
        lines = [row.format(n=at + 1, i=at, w=word, t=tag) for at, (word, tag) in enumerate(zip(words, tags, strict=True))]
        sentences.append("\n".join(lines))
    return "\n\n".join(sentences) + "\n"


COLUMNS = {
    "word and tag": columns("{w} {t}"),
    "word and tag with a tab": columns("{w}\t{t}"),
    "CoNLL 2003": "-DOCSTART- -X- -X- O\n\n" + columns("{w} NNP B-NP {t}"),
    "CoNLL 2003 without its columns": "-DOCSTART- -X- O O\n\n" + columns("{w} -X- _ {t}"),
    "the number first": columns("{n}\t{w}\t{t}"),
    "the number first, with blanks": columns("{n} {w} NNP I-NP {t}"),
    "the number first, from 0": columns("{i}\t{w}\t{t}"),
    "GermEval": "# http://example.org [2009-10-17]\n" + columns("{n}\t{w}\t{t}\tO"),
    "layers of tags": columns("{w} {t} O O"),
    "comments": "# id 5239d808 domain=en\n" + columns("{w} _ _ {t}"),
    "comments in every sentence": columns("{n}\t{w}\t{t}").replace("1\t", "# sent_id = 1\n# text = Anna O\n1\t"),
    "more columns after some tags": columns("{n}\t{w}\t{t}").replace("PER", "PER\t-\tx"),
    "words of several parts, as in CoNLL-U": columns("{n}\t{w}\t{t}").replace("2\tsaw", "2-3\tsaw'em\tO\n2\tsaw"),
    "an index over the whole file": "0\tAnna\tB-PER\n1\tsaw\tO\n2\tthe\tO\n3\tKing\tB-PER\n\n4\tthe\tO\n5\triver\tO\n",
    "a table of pandas": "tokens\tner_tags\n" + columns("{w}\t{t}"),
    "a table of pandas with an index": "\ttokens\tner_tags\n" + columns("{i}\t{w}\t{t}"),
    "CoNLL 2012": "#begin document (bc/x/00); part 000\n"
    + "".join(f"bc/x/00 0 {at} {word} NNP (TOP* - - - spk {entity} -\n" for at, (word, entity) in enumerate(
        [("Anna", "(PERSON)"), ("saw", "*"), ("the", "*"), ("King", "(PERSON)")])).replace("PERSON", "PER")
    + "\n" + "bc/x/00 0 0 the DT * - - - spk * -\nbc/x/00 0 1 river NN * - - - spk * -\n\n#end document\n",
}  # fmt: skip


@pytest.mark.parametrize("case", COLUMNS)
def test_the_columns_of_words_and_tags_are_found(case: str, made: Any) -> None:
    done = made("ner x", {"train.conll": COLUMNS[case]}, "--seq", "16")
    assert (done.status, done.labels) == (0, ["O", "B-PER"]), done.printed
    assert "check that" not in done.printed
    assert done.counts["training_words"] == 6
    assert [text.split()[-3:] for text in done.words()] == [["saw", "the", "king"], ["the", "river"]]
    weights = done.rows().label_weights > 0
    assert done.rows().label_ids[weights].tolist() == [1, 0, 0, 1, 0, 0]


def test_entities_of_brackets_go_over_several_words(made: Any) -> None:
    rows = [("The", "(GPE*"), ("great", "*"), ("river", "*)"), ("of", "*"), ("Anna", "(PERSON)")]
    text = "".join(f"bc/x 0 {at} {word} NN * - - - spk {entity} -\n" for at, (word, entity) in enumerate(rows))
    done = made("ner x", {"train.txt": f"#begin document (bc/x); part 000\n{text}\n#end document\n"})
    assert done.labels == ["O", "B-GPE", "I-GPE", "B-PERSON"]
    assert done.rows().label_ids[done.rows().label_weights > 0].tolist() == [1, 2, 2, 0, 3]


def test_the_tag_is_in_the_last_column_even_if_those_before_look_like_tags(made: Any) -> None:
    """As in CoNLL 2003: the phrases of the third column are no entities, also where a small file has no entity."""
    for tag in ("B-PER", "PER", "O"):
        labels = ["O", "X", *({tag} - {"O"})]
        done = made("ner x", {"train.conll": f"Anna NNP B-NP {tag}\nsaw VBZ B-VP O\n"}, "--labels", ",".join(labels))
        assert done.rows().label_ids.max() == labels.index(tag)


def test_a_file_may_begin_with_a_word_that_is_a_bracket(made: Any) -> None:
    assert made("ner x", {"train.txt": "[ O\nKing B-PER\n] O\n"}).counts["training_words"] == 3
    assert made("ner x", {"train.txt": "{ O\nKing B-PER\n} O\n"}).counts["training_words"] == 3


def test_an_empty_word_of_a_file_with_tabs_keeps_its_tag(made: Any) -> None:
    done = made("ner x", {"train.tsv": "1\tKing\tB-PER\tO\n2\t\tO\tO\n3\triver\tB-LOC\tO\n"})
    assert done.rows().label_ids[done.rows().label_weights > 0].tolist() == [2, 0, 1]


def test_a_word_that_begins_with_a_number_sign_is_no_comment(made: Any) -> None:
    done = made("ner x", {"train.conll": "#king B-PER\nsaw O\n# O\n\n# the\nriver O\n"})
    assert done.counts["training_words"] == 4


def test_words_that_are_numbers_are_said_by_validate_too(made: Any) -> None:
    done = made("ner x", {"train.conll": "".join(f"{number} {'B-PER' if number % 2 else 'O'}\n" for number in range(1, 9))})
    assert "8 of 8 words are numbers; check that the first column has the words" in done.printed
    assert "words-are-numbers" in validated(done.folder)


WRONG_COLUMNS = {
    "CSV": ("word,tag\nAnna,B-PER\n", "has one column, expected a word and its tag", "this is CSV"),
    "words alone": ("Anna\nsaw\n", "has one column, expected a word and its tag", "add the tag (O where it is unknown)"),
    "CoNLL-U": (
        "# text = Anna saw\n1\tAnna\tAnna\tPROPN\tNNP\t_\t2\tnsubj\t_\t_\n2\tsaw\tsee\tVERB\tVBD\t_\t0\troot\t_\t_\n",
        "has the 10 columns of CoNLL-U", "grep -v '^[0-9]*[-.]' FILE | cut -f2,4 > NEW",
    ),
    "UTF-16": ("Anna B-PER\n".encode("utf-16"), "it looks like UTF-16", "iconv -f UTF-16"),
    "a tag of 5,000 digits": (f"Anna {'9' * 5000}\nsaw O\n", "has a tag of 5,000 characters", "is this the right column"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_COLUMNS)
def test_columns_that_cannot_be_read_are_one_line(case: str, made: Any) -> None:
    content, *expected = WRONG_COLUMNS[case]
    done = made("ner x", {"train.conll": content})
    assert done.status == 1
    assert all(text in done.printed for text in expected), done.printed


def test_the_advice_on_conll_u_works(made: Any, tmp_path: Path) -> None:
    import subprocess

    (tmp_path / "FILE").write_text(str(WRONG_COLUMNS["CoNLL-U"][0]).replace("2\tsaw", "2-3\tsaw'em" + "\t_" * 8 + "\n2\tsaw"))
    subprocess.run("grep -v '^[0-9]*[-.]' FILE | cut -f2,4 > NEW", shell=True, cwd=tmp_path, check=True)
    done = made("ner x", {"train.conll": (tmp_path / "NEW").read_bytes()})
    assert (done.status, done.labels, done.counts["training_words"]) == (0, ["PROPN", "VERB"], 2)


@pytest.mark.parametrize("word", ["\u00ad", "\u200b", "\x01", "\ufeff", "", " ", "\u0301"])
def test_a_word_without_a_token_has_a_tag(word: str, made: Any) -> None:
    """So the tags of predictions.txt belong to the words of the file, one by one."""
    row = {"tokens": ["anna", word, "king"], "ner_tags": ["B-PER", "O", "B-LOC"]}
    done = made("ner x", {"train.jsonl": json.dumps(row)})
    assert done.status == 0
    rows = done.rows()
    assert [done.labels[label] for label in rows.label_ids[rows.label_weights > 0]] == ["B-PER", "O", "B-LOC"]
    assert done.counts["training_lost_words"] == 0


def test_predictions_have_a_tag_for_each_word(made: Any, tmp_path: Path) -> None:
    lines = "Anna\tB-PER\n\u00ad\tO\nKing\tB-PER\n\n\u200b\tO\nriver\tO\n"
    done = made("ner x", {"train.conll": lines, "dev.conll": lines})
    with Records([done.folder / "dev"]) as records:
        scorer = EntityScorer(done.labels, records, "dev")
        logits = np.zeros((2, records.seq, len(done.labels)), np.float32)
        logits[..., 1] = 1
        scorer.score({"label": logits}, tmp_path)
    assert [line.split() for line in (tmp_path / "dev" / "predictions.txt").read_text().splitlines()] == [
        ["B-PER"] * 3,
        ["B-PER"] * 2,
    ]


@pytest.mark.parametrize("tags", [None, [None, None], [-1, 0], [-100, -100]])
def test_sentences_without_tags_are_left_out_and_counted(tags: Any, made: Any) -> None:
    rows = [{"tokens": ["Anna", "saw"], "ner_tags": [1, 0]}, {"tokens": ["the", "river"], "ner_tags": tags}]
    for name, content in (("train.jsonl", "\n".join(map(json.dumps, rows))), ("train.parquet", as_parquet(rows))):
        done = made("ner x", {name: content}, "--labels", "O,B-PER")
        assert "left out 1 sentence without tags" in done.printed
        assert (done.counts["training_examples"], done.counts["training_unlabelled"]) == (1, 1)


# Tags and scores


def test_tags_without_a_prefix_are_scored_by_their_type_and_seqevals_reading_is_said(made: Any) -> None:
    done = made("ner x", {"train.conll": "Anna PER\nsaw O\nthe O\nriver LOC\n"})
    assert "is scored as I-" in done.printed
    assert "so reads ORG as O" in done.printed
    expected, swapped = [["PER", "LOC", "ORG", "O"]], [["LOC", "PER", "ORG", "O"]]
    assert score_entities(expected, swapped)["f1"] == pytest.approx(1 / 3)
    assert score_entities(expected, expected)["f1"] == 1


def test_a_file_without_the_tag_o_is_said(made: Any) -> None:
    assert "no label is O" in made("ner x", {"train.conll": "Anna B-PER\nsaw I-PER\n"}).printed


@pytest.mark.parametrize("scheme", SCORES["tags"])
def test_scores_of_entities_are_seqevals(scheme: str) -> None:
    for case in SCORES["tags"][scheme]:
        found = score_entities(case["expected"], case["found"])
        assert found == {name: pytest.approx(case[name]) for name in ("precision", "recall", "f1")}, case


@pytest.mark.parametrize("case", SCORES["classes"])
def test_scores_of_classes_are_scikit_learns(case: str) -> None:
    row = SCORES["classes"][case]
    labels = np.array(row["labels"], np.int32)
    for name in ("accuracy", "matthews", "f1"):
        if name in row:
            task = {"accuracy": own_task("own", ["a", "b", "c"]), "matthews": find_task("ax"), "f1": find_task("mrpc")}[name]
            logits = np.eye(len(task.labels), dtype=np.float32)[row["predicted"]]
            assert compute_metrics(task, logits, labels)[name] == pytest.approx(row[name]), name


@pytest.mark.parametrize("case", SCORES["scores"])
def test_correlations_are_scipys(case: str) -> None:
    row = SCORES["scores"][case]
    found = compute_metrics(
        find_task("stsb"), np.array(row["predicted"], np.float32)[:, None], np.array(row["labels"], np.float32)
    )
    assert found == {name: pytest.approx(row[name], nan_ok=True) for name in ("pearson", "spearman")}


def test_a_correlation_of_one_example_is_nan() -> None:
    found = compute_metrics(find_task("stsb"), np.ones((1, 1), np.float32), np.ones(1, np.float32))
    assert np.isnan([*found.values()]).all()


def test_scores_of_answers_are_those_of_the_published_programs() -> None:
    rows = SCORES["answers"]["rows"]
    for row in rows:
        prediction, golds = row["prediction"], row["golds"]
        if golds:
            assert evaluate_v1([("q", golds)], {"q": prediction}) == pytest.approx(row["v1.1"]), row
        found = EvaluationV2([("q", golds)], {"q": prediction})
        assert (found.exact["q"], found.f1["q"]) == pytest.approx((row["v2.0"]["exact"], row["v2.0"]["f1"])), row
    questions = [(str(at), row["golds"]) for at, row in enumerate(rows)]
    predictions = {str(at): row["prediction"] for at, row in enumerate(rows)}
    assert evaluate_v1([each for each in questions if each[1]], predictions) == pytest.approx(SCORES["answers"]["v1.1"])
    averages = EvaluationV2(questions, predictions).averages(1.0)
    assert {name: averages[name] for name in ("exact", "f1", "total")} == pytest.approx(SCORES["answers"]["v2.0"])


# Tables of labelled texts

TEXTS = ['the "King" said "no"', "a, b and c", "the great house"]


def pandas_tsv(rows: list[list[str]], *, separator: str = "\t", quote_all: bool = False) -> str:
    """Return a table as pandas writes it, with the standard library's writer, which pandas calls."""
    import csv
    import io

    out = io.StringIO()
    quoting = csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL
    csv.writer(out, delimiter=separator, quoting=quoting, lineterminator="\n").writerows(rows)
    return out.getvalue()


ROWS = [["text", "label"], *([text, str(at % 2)] for at, text in enumerate(TEXTS))]
NUMBERED = [["", "text", "label"], *([str(at), text, f"{at % 2}.0"] for at, text in enumerate(TEXTS))]
OBJECTS = [{"text": text, "label": at % 2} for at, text in enumerate(TEXTS)]
TABLES: dict[str, tuple[str, str | bytes]] = {
    "TSV without quotes": ("train.tsv", "".join("\t".join(row) + "\n" for row in ROWS)),
    "TSV of pandas": ("train.tsv", pandas_tsv(ROWS)),
    "TSV with quotes around all": ("train.tsv", pandas_tsv(ROWS, quote_all=True)),
    "CSV of pandas": ("train.csv", pandas_tsv(ROWS, separator=",")),
    "CSV named .tsv": ("train.tsv", pandas_tsv(ROWS, separator=",")),
    "CSV with semicolons": ("train.csv", pandas_tsv(ROWS, separator=";")),
    "CSV with an index, and labels as 0.0 and 1.0": ("train.csv", pandas_tsv(NUMBERED, separator=",")),
    "TSV with an index": ("train.tsv", pandas_tsv(NUMBERED)),
    "TSV of R, whose header has no name for the index": ("train.tsv", pandas_tsv(NUMBERED)[1:]),
    "CSV of Excel, with a byte order mark and CRLF": (
        "train.csv", b"\xef\xbb\xbf" + pandas_tsv(ROWS, separator=",").replace("\n", "\r\n").encode()),
    "JSON Lines": ("train.jsonl", "\n".join(map(json.dumps, OBJECTS))),
    "JSON Lines with blank lines": ("train.jsonl", "\n\n".join(map(json.dumps, OBJECTS)) + "\n\n"),
    "a JSON array": ("train.json", json.dumps(OBJECTS, indent=1)),
    "labels as floats": ("train.jsonl", "\n".join(json.dumps({**row, "label": float(row["label"])}) for row in OBJECTS)),
    "Parquet": ("train.parquet", as_parquet(OBJECTS)),
    "labels in a column of the name labels": ("train.csv", pandas_tsv([["text", "labels"], *ROWS[1:]], separator=",")),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLES)
def test_tables_are_read_as_what_they_are(case: str, made: Any) -> None:
    name, content = TABLES[case]
    done = made("glue own", {name: content})
    assert (done.status, done.labels) == (0, ["0", "1"]), done.printed
    assert done.words() == ['the " king " said " no "', "a , b and c", "the great house"]
    assert done.rows().label_ids.tolist() == [0, 1, 0]


def test_texts_with_quotes_in_tsv_without_quoting_stay_as_they_are(made: Any) -> None:
    """As GLUE's own files; a text may begin with a quote, or be in quotes as a whole."""
    lines = 'text\tlabel\n"No", said the King\t1\nthe "great" house\t0\n"Yes"\t1\nthe 5" house\t0\n'
    assert made("glue own", {"train.tsv": lines}).words()[:3] == ['" no " , said the king', 'the " great " house', '" yes "']


def test_two_texts_with_a_quote_each_are_no_text_of_two_lines(made: Any) -> None:
    done = made("glue own", {"train.tsv": 'text\tlabel\n"the King\t1\nthe house"\t0\n'})
    assert done.words() == ['" the king', 'the house "']


def test_a_text_in_quotes_may_have_line_breaks_and_tabs(made: Any) -> None:
    content = pandas_tsv([["text", "label"], ["the King\nsaid\tno", "1"], ["the house", "0"]])
    done = made("glue own", {"train.tsv": content})
    assert done.words() == ["the king said no", "the house"]


def test_labels_may_be_true_and_false(made: Any) -> None:
    rows = [{"text": text, "label": at == 1} for at, text in enumerate(TEXTS)]
    done = made("glue own", {"train.jsonl": "\n".join(map(json.dumps, rows)), "dev.tsv": "text\tlabel\nthe King\tTrue\n"})
    assert done.labels == ["false", "true"]
    assert done.rows("dev").label_ids.tolist() == [1]


def test_numbered_labels_of_datasets_have_their_names(made: Any) -> None:
    import io

    import datasets

    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    stream = io.BytesIO()
    datasets.Dataset.from_dict({"text": TEXTS, "label": [1, -1, 0]}, features=features).to_parquet(stream)
    done = made("glue own", {"train.parquet": stream.getvalue()})
    assert (done.labels, done.counts["training_unlabelled"]) == (["neg", "pos"], 1)
    assert done.rows().label_ids.tolist() == [1, 0]


SIMILAR = "sentence1\tsentence2\tlabel\nthe King\tthe house\t0.25\nthe King\ta King\t1.0\nthe river\tthe house\t0.5\n"
BY_LABEL = "id,text,toxic,neutral\n1,the King,1,0\n2,the house,0,1\n"


@pytest.mark.parametrize("name", ["label", "score"])
def test_labels_with_fractions_are_scores_to_predict(name: str, made: Any, tmp_path: Path) -> None:
    train = SIMILAR.replace("label", name)
    files = {"train.tsv": train, "dev.csv": train.replace("\t", ",").replace("0.25", "0.26")}
    done = made("glue own", files)
    assert (done.status, done.labels) == (0, []), done.printed
    assert "train.tsv: the labels are numbers with fractions, so they are taken as scores" in done.printed
    assert done.rows().label_ids.tolist() == [0.25, 1, 0.5]
    assert done.rows("dev").label_ids.tolist() == pytest.approx([0.26, 1, 0.5])
    model = replace(MODEL, vocab_size=len((GOLDEN / "vocab.txt").read_text().split("\n")) - 1, max_position_embeddings=128)
    (hub := tmp_path / "hub").mkdir()
    save_weights(hub / "model.safetensors", initial_values(model, seed=1, task=Classification(own_task("own", []))))
    (hub / "config.json").write_text(model.to_json())
    answer = {"outputs": lambda ids, _: {"label": np.arange(len(ids), dtype=np.float32)[:, None] / 4}}
    assert run_command("evaluate", hub, "--data", done.folder, "--out", tmp_path / "scored", **answer) == 0
    assert (tmp_path / "scored" / "dev" / "predictions.tsv").read_text() == "index\tprediction\n0\t0.000\n1\t0.250\n2\t0.500\n"


def test_labels_with_fractions_are_classes_if_they_are_named(made: Any) -> None:
    done = made("glue own", {"train.tsv": SIMILAR}, "--labels", "0.25,0.5,1")
    assert (done.status, done.labels, done.rows().label_ids.tolist()) == (0, ["0.25", "0.5", "1"], [0, 2, 1])


@pytest.mark.parametrize(("first", "scores"), [("-0.5", [-0.5, -1, 1]), ("0.5", [0.5, 1])])
def test_minus_one_is_a_score_among_negative_ones(first: str, scores: list[float], made: Any) -> None:
    done = made("glue own", {"train.tsv": f"text\tscore\nthe King\t{first}\nthe house\t-1\nthe river\t1\n"})
    assert done.rows().label_ids.tolist() == scores
    assert ("left out 1 of 3 rows" in done.printed) == (len(scores) == 2)


def test_a_score_that_is_no_number_is_named(made: Any) -> None:
    done = made("glue own", {"train.tsv": SIMILAR, "dev.tsv": SIMILAR.replace("0.5", "high")})
    assert (done.status, "dev.tsv: line 4: the score is 'high', expected a number" in done.printed) == (1, True)


def test_the_advice_on_a_column_for_each_label_works(made: Any) -> None:
    done = made("glue own", {"train.csv": BY_LABEL})
    assert "has no column label or labels or gold_label or score; its columns are id, text, toxic, neutral" in done.printed
    assert "make a task for each of them, with its column as label" in done.printed
    for name in ("toxic", "neutral"):
        done = made(f"glue {name}", {"train.csv": BY_LABEL.replace(name, "label")})
        assert (done.status, done.labels) == (0, ["0", "1"]), done.printed


MARKS = ["-1", "", "-", "nan", "NaN", "None", "null", "NULL", "<NA>", "N/A", "unknown", "-1.0", "-100"]


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("labels", [("0", "1", "2"), ("bad", "good", "fair")])
def test_rows_without_a_gold_label_are_left_out_and_counted(mark: str, labels: tuple[str, ...], made: Any) -> None:
    lines = "".join(f"the {at}\t{label}\n" for at, label in enumerate([*labels, mark, *labels]))
    done = made("glue own", {"train.tsv": f"text\tlabel\n{lines}", "dev.tsv": f"text\tlabel\n{lines}"})
    assert (done.status, done.labels) == (0, sorted(labels)), done.printed
    assert "left out 1 of 7 rows, since they have no label or no text" in done.printed
    for split in ("training", "dev"):
        assert (done.counts[f"{split}_examples"], done.counts[f"{split}_unlabelled"]) == (6, 1)
        assert len(done.rows(split)) == 6
    assert not [finding for finding in validated(done.folder) if finding not in ("split-sizes", "test-in-training")]


@pytest.mark.parametrize("value", [None, float("nan"), -1, -1.0])
def test_a_label_of_json_may_be_missing_too(value: Any, made: Any) -> None:
    rows = [{"text": text, "label": label} for text, label in zip([*TEXTS, "the river"], [0, 1, 2, value], strict=True)]
    done = made("glue own", {"train.jsonl": "\n".join(map(json.dumps, rows))})
    assert (done.labels, done.counts["training_unlabelled"]) == (["0", "1", "2"], 1)


def test_minus_one_is_a_class_of_sentiments_unless_labels_are_named(made: Any) -> None:
    lines = "text\tlabel\nthe King\t-1\nthe house\t0\nthe river\t1\n"
    done = made("glue own", {"train.tsv": lines})
    assert done.labels == ["-1", "0", "1"]
    assert "if these rows have no label, give --labels 0,1 to leave them out" in done.printed
    done = made("glue own", {"train.tsv": lines}, "--labels", "0,1")
    assert "left out 1 of 3 rows" in done.printed
    assert made("glue x", {"train.tsv": lines.replace("0", "-2")}).status == 0


def test_a_mark_is_a_class_if_labels_name_it(made: Any) -> None:
    lines = "text\tlabel\nthe King\tunknown\nthe house\tgood\n"
    done = made("glue own", {"train.tsv": lines}, "--labels", "good,unknown")
    assert done.rows().label_ids.tolist() == [1, 0]


def test_published_tasks_leave_out_rows_without_a_label_too(made: Any) -> None:
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    done = made(
        "glue mrpc", {"train.tsv": header + "".join(f"{label}\t1\t2\tthe King\ta house\n" for label in ("1", "-1", "0"))}
    )
    assert (done.status, done.counts["training_unlabelled"]) == (0, 1)


def test_a_test_file_keeps_all_rows_since_each_needs_a_prediction(made: Any) -> None:
    rows = [{"text": "the King", "label": -1}, {"text": None, "label": -1}]
    files = {"train.csv": pandas_tsv(ROWS, separator=","), "test.jsonl": "\n".join(map(json.dumps, rows))}
    assert made("glue own", files).counts["submission_examples"] == 2


def test_rows_without_a_text_are_left_out_and_counted(made: Any) -> None:
    rows = [*OBJECTS, {"text": None, "label": 1}, {"text": " ", "label": 1}]
    done = made("glue own", {"train.jsonl": "\n".join(map(json.dumps, rows))})
    assert (done.counts["training_examples"], done.counts["training_unlabelled"]) == (3, 2)


WRONG_TABLES = {
    "no names of columns": ("train.csv", "the King,1\nthe house,0\n", "name them in the first line"),
    "pandas' columns as JSON": (
        "train.json", json.dumps({"text": {"0": "a", "1": "b"}, "label": {"0": 1, "1": 0}}), 'orient="records", lines=True'),
    "a text with a comma and no quotes": ("train.csv", "text,label\nthe King, and I,1\n", "line 2: has 3 columns, expected 2"),
    "a quote that is not closed": ("train.csv", 'text,label\n"the King,1\n', "line 2: has a quote that is not closed"),
    "several labels": ("train.jsonl", '{"text": "a", "label": [1, 0]}', "'label' is a list, expected one label for each text"),
    "a number for a text": ("train.jsonl", '{"text": 12.5, "label": 1}', "'text' is 12.5, expected a string"),
    "half a surrogate pair in a text": ("train.jsonl", '{"text": "\\ud800", "label": 1}', "half of a surrogate pair"),
    "half a surrogate pair in a label": ("train.jsonl", '{"text": "a", "label": "\\ud800"}', "half of a surrogate pair"),
    "a label of 5,000 digits": ("train.tsv", f"text\tlabel\na\t{'9' * 5000}\nb\t1\n", "line 2: its label has 5,000 characters"),
    "a number of 5,000 digits": ("train.jsonl", f'{{"text": "a", "label": {"9" * 5000}}}', "line 1: is not JSON"),
    "UTF-16, as Excel's Unicode text": ("train.tsv", "text\tlabel\na\t1\n".encode("utf-16"), "iconv -f UTF-16 -t UTF-8"),
    "a workbook of Excel": ("train.xlsx", b"PK\x03\x04\x14\x00", "is a workbook of Excel, or a ZIP archive; save"),
    "compressed by gzip": ("train.tsv.gz", b"\x1f\x8b\x08\x00", "is compressed; unpack it: gunzip < "),
    "compressed by xz": ("train.tsv", lzma.compress(b"text\tlabel\n"), "is compressed; unpack it: unxz < "),
    "no label at all": ("train.tsv", "text\tlabel\na\t-1\nb\t-1\n", "expected 2 to 1,000"),
    "no label in the dev file": ("dev.tsv", "text\tlabel\na\t-1\nb\t-1\n", "none of its 2 rows has a text and a label"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_TABLES)
def test_a_table_that_cannot_be_read_is_one_line(case: str, made: Any) -> None:
    name, content, message = WRONG_TABLES[case]
    files = {"train.csv": pandas_tsv(ROWS, separator=","), name: content}
    done = made("glue own", files if name == "dev.tsv" else {name: content})
    assert done.status == 1
    assert message in done.printed, done.printed
    assert len(done.printed) < 600


# Published models


@pytest.mark.parametrize(
    ("of", "labels", "names", "is_said"),
    [
        ("reviews", ["bad", "good"], {"0": "LABEL_0", "1": "LABEL_1"}, True),
        ("reviews", ["bad", "good"], None, True),
        ("reviews", ["bad", "good"], {"0": "bad", "1": "good"}, False),
        ("reviews", ["0", "1"], {"0": "LABEL_0", "1": "LABEL_1"}, False),
        ("reviews", ["1", "0"], {"0": "LABEL_0", "1": "LABEL_1"}, True),
    ],
)
def test_a_published_head_whose_labels_have_no_names_is_said(
    of: str,
    labels: list[str],
    names: dict[str, str] | None,
    is_said: bool,
    made: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only its order gives such a label a meaning; the meaning of a label that is a number is the number."""
    files = dict.fromkeys(("train.tsv", "dev.tsv"), f"text\tlabel\nthe King\t{labels[0]}\nthe house\t{labels[1]}\n")
    done = made(f"glue {of}", files, "--labels", ",".join(labels))
    model = replace(MODEL, vocab_size=len((GOLDEN / "vocab.txt").read_text().split("\n")) - 1, max_position_embeddings=128)
    (hub := tmp_path / "hub").mkdir()
    save_weights(hub / "model.safetensors", initial_values(model, seed=1, task=Classification(own_task(of, labels))))
    (hub / "config.json").write_text(json.dumps({**json.loads(model.to_json()), **({"id2label": names} if names else {})}))
    answer = {"outputs": lambda ids, _: {"label": np.eye(2, dtype=np.float32)[[0] * len(ids)]}}
    assert run_command("evaluate", hub, "--data", done.folder, "--out", tmp_path / "scored", **answer) == 0
    assert ("its labels have no names, so they are taken for" in capsys.readouterr().err) is is_said


# Damaged and huge files


@pytest.mark.parametrize("task", ["squad", "glue own", "ner x"])
def test_a_damaged_parquet_file_is_one_line(task: str, made: Any) -> None:
    row = {"squad": FLAT, "glue own": OBJECTS[0], "ner x": {"tokens": ["a"], "ner_tags": ["O"]}}[task]
    content = as_parquet([row] * 30)
    statuses = []
    for at in range(4, len(content), 1 + len(content) // 14):
        damaged = bytearray(content)
        damaged[at] ^= 0x55
        done = made(task, {"train.parquet": bytes(damaged)})
        assert "Traceback" not in done.printed
        assert len(done.printed) < 1500
        statuses.append(done.status)
    assert 1 in statuses
    assert {*statuses} <= {0, 1}
    assert made(task, {"train.parquet": content[: len(content) // 2]}).status == 1


@pytest.mark.parametrize("task", ["squad", "glue own", "ner x"])
@pytest.mark.parametrize("name", ["train.json", "train.tsv", "train.parquet"])
def test_a_file_larger_than_the_limit_is_one_line(
    task: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (path := tmp_path / name).open("wb") as file:
        file.truncate(40 << 30)  # sparse
    assert main(["task", *task.split(), "--input", str(path), *VOCABULARY, "--output", str(tmp_path / "out")]) == 1
    assert "has 42,949,672,960 bytes, expected at most 1,073,741,824" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["\\ud800", "a\\udfff"])
def test_half_a_surrogate_pair_in_a_word_is_one_line(word: str, made: Any) -> None:
    done = made("ner x", {"train.jsonl": f'{{"tokens": ["a", "{word}"], "ner_tags": ["O", "B-X"]}}'})
    assert (done.status, "half of a surrogate pair" in done.printed) == (1, True)
    done = made("ner x", {"train.jsonl": f'{{"tokens": ["a", "b"], "ner_tags": ["O", "{word}"]}}'})
    assert (done.status, "half of a surrogate pair" in done.printed) == (1, True)
