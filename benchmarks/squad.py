"""How fast SQuAD becomes features, next to Hugging Face's usual recipe with the `tokenizers` library."""

import json
import os
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Bench, Row
from bertprep.config import SquadSettings
from bertprep.instances import load_vocabulary
from bertprep.sources.sample import one_paragraph_a_line, read_speeches
from bertprep.tasks.squad import read_squad
from bertprep.tasks.squad_answers import predict_answers
from bertprep.tasks.squad_features import BLOCK_ROWS, make_features
from bertprep.text.train_vocabulary import train_vocabulary

SETTINGS = SquadSettings(seq=384, doc_stride=128, max_query=64)
QUESTIONS, BATCH, QUESTIONS_A_PARAGRAPH = 10_000, 1000, 5


def squad(bench: Bench) -> None:
    """SQuAD to features, and logits to answers.

    The recipe is that of Hugging Face's tutorial and run_qa.py: truncation="only_second", overflowing tokens and offsets, and a
    loop that finds the answer's tokens. Its stride is the overlap of windows, where Google's is the distance of their starts.
    """
    from tokenizers import BertWordPieceTokenizer

    text, vocab, path = bench.folder / "sample.txt", bench.folder / "vocab.txt", bench.folder / "train.json"
    text.write_text("".join(map(one_paragraph_a_line, read_speeches())), encoding="utf-8")
    train_vocabulary([text], vocab, size=30_522)
    questions = bench.scaled(QUESTIONS)
    write_questions(path, questions)
    vocabulary = load_vocabulary(vocab)
    tokenizer = BertWordPieceTokenizer(str(vocab), lowercase=True)
    tokenizer.enable_truncation(SETTINGS.seq, stride=SETTINGS.doc_stride, strategy="only_second")
    tokenizer.enable_padding(length=SETTINGS.seq)

    def ours() -> int:
        data = read_squad(path, "v1.1", training=True)
        features = make_features(data, vocabulary, SETTINGS, training=True)
        return sum(len(features[row : row + BLOCK_ROWS]) for row in range(0, len(features), BLOCK_ROWS))

    def usual(parallel: str) -> int:
        os.environ["TOKENIZERS_PARALLELISM"] = parallel
        return usual_features(path, tokenizer)

    bench.compare("features", [
        Row("file to features", ours(), ours),
        Row("tokenizers, one thread", usual("false"), partial(usual, "false")),
        Row("tokenizers, many threads", usual("true"), partial(usual, "true")),
    ])  # fmt: skip
    data = read_squad(path, "v1.1", training=False)
    asked = make_features(data, vocabulary, SETTINGS, training=False)
    logits = np.random.default_rng(1).normal(size=(2, len(asked), SETTINGS.seq)).astype(np.float32)
    bench.compare("questions", [Row("read and check the JSON", questions, partial(read_squad, path, "v1.1", training=True))])
    bench.compare("questions", [Row("logits to answers", questions, partial(predict_answers, asked, *logits))])


def write_questions(path: Path, count: int) -> None:
    """A SQuAD file of ten words each from the sample corpus, five to a paragraph of it, the same on every run."""
    rng = random.Random(1)
    lines = [line for speech in read_speeches() for line in one_paragraph_a_line(speech).split("\n")]
    contexts = [line for line in lines if 80 <= len(line.split()) <= 400]
    paragraphs: dict[str, list[dict[str, Any]]] = {}
    for index in range(count):
        context = contexts[index // QUESTIONS_A_PARAGRAPH % len(contexts)]
        words = context.split()
        asked, first = rng.randrange(len(words) - 10), rng.randrange(len(words) - 5)
        answer = {
            "text": " ".join(words[first : first + rng.randint(1, 5)]),
            "answer_start": sum(len(word) + 1 for word in words[:first]),
        }
        question = " ".join(words[asked : asked + 10]) + "?"
        paragraphs.setdefault(context, []).append({"id": str(index), "question": question, "answers": [answer]})
    listed = [{"context": context, "qas": questions} for context, questions in paragraphs.items()]
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "Sample", "paragraphs": listed}]}))


def usual_features(path: Path, tokenizer: Any) -> int:
    """The recipe, from the file to lists of features; returns how many there are."""
    rows = [
        (question["question"].lstrip(), paragraph["context"], question["answers"][0])
        for article in json.loads(path.read_text())["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    count = 0
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        ids, masks, segments, firsts, lasts = [], [], [], [], []
        for encoding, (_, _, answer) in zip(tokenizer.encode_batch([row[:2] for row in batch]), batch, strict=True):
            start_character, end_character = answer["answer_start"], answer["answer_start"] + len(answer["text"])
            for window in (encoding, *encoding.overflowing):
                ids.append(window.ids)
                masks.append(window.attention_mask)
                segments.append(window.type_ids)
                offsets, sequences = window.offsets, window.sequence_ids
                token_start, token_end = 0, len(sequences) - 1
                while sequences[token_start] != 1:
                    token_start += 1
                while sequences[token_end] != 1:
                    token_end -= 1
                if not (offsets[token_start][0] <= start_character and offsets[token_end][1] >= end_character):
                    firsts.append(0)
                    lasts.append(0)
                    continue
                while token_start < len(offsets) and offsets[token_start][0] <= start_character:
                    token_start += 1
                firsts.append(token_start - 1)
                while offsets[token_end][1] >= end_character:
                    token_end -= 1
                lasts.append(token_end + 1)
        count += len(ids)
    return count
