"""Small records of SQuAD and of labelled texts, made by `bertprep create --task`, that a small model learns in a few steps."""

import json
import random
from pathlib import Path

from bertprep import create_task
from bertprep.config import GlueSettings, SquadSettings
from tests.trainer.small_runs import VOCABULARY

SEQ = 24
_WORDS = ["red", "blue", "green", "cat", "dog", "sun", "moon", "tree", "big", "small"]


def make_moods(workdir: Path, *, name: str = "mood", training: int = 64, dev: int = 21) -> Path:
    """Sentences that say "good" or "bad"; returns the folder of their TFRecords."""
    folder = workdir / f"{name} files"
    folder.mkdir(parents=True)
    rng = random.Random(1)
    for split, count in (("train", training), ("dev", dev)):
        rows = [(rng.choice(("good", "bad")), _words(rng)) for _ in range(count)]
        lines = [f"{word} {rest}\t{'pos' if word == 'good' else 'neg'}\n" for word, rest in rows]
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    settings = GlueSettings(seq=SEQ)
    created = create_task(
        "glue", name=name, inputs=[folder], vocab=VOCABULARY, settings=settings, workdir=workdir, workers=1, formats="tfrecord"
    )
    return created.folders["tfrecord"]


def make_squad(workdir: Path, version: str = "1.1", *, training: int = 24, dev: int = 9) -> Path:
    """Where somebody lives; in 2.0 a question in four has no answer. Returns the folder of the TFRecords."""
    rng = random.Random(2)
    folder = workdir / f"squad {version} files"
    folder.mkdir(parents=True)
    for split, count in (("train", training), ("dev", dev)):
        paragraphs = [_paragraph(rng, f"{split}{number}", version, number % 4 == 0) for number in range(count)]
        content = {"version": version, "data": [{"title": "places", "paragraphs": paragraphs}]}
        (folder / f"{split}-v{version}.json").write_text(json.dumps(content))
    settings = SquadSettings(seq=2 * SEQ, doc_stride=16, max_query=12)
    created = create_task(
        "squad", version=version, inputs=[folder], vocab=VOCABULARY, settings=settings, workdir=workdir, workers=1,
        formats="tfrecord",
    )  # fmt: skip
    return created.folders["tfrecord"]


def _paragraph(rng: random.Random, name: str, version: str, has_impossible: bool) -> dict[str, object]:
    place = f"Paris{rng.randrange(100)}"
    context = f"The {rng.choice(_WORDS)} lives in {place} . {_words(rng)}"
    answer = {"text": place, "answer_start": context.index(place)}
    questions: list[dict[str, object]] = [{"id": name, "question": "Where does it live ?", "answers": [answer]}]
    if version == "2.0":
        questions[0]["is_impossible"] = False
        if has_impossible:
            questions.append({"id": f"{name} not", "question": "Why ?", "answers": [], "is_impossible": True})
    return {"context": context, "qas": questions}


def _words(rng: random.Random) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(8))
