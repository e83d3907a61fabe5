"""A folder of every kind of broken input: vocabularies, record files, text, JSON, workspaces."""

import gzip
import json
import os
import struct
from pathlib import Path

from bertprep.work.layout import MANIFEST, Workspace
from bertprep.work.manifest import JOURNAL_SUFFIX
from tests.golden import GOLDEN
from tests.records.handmade import FIRST, SECOND, Dialect, Record, field, file_of, frame, message
from tests.trainer.test_data import write_data, write_in_workspace

OFRECORD = Dialect("ofrecord")
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARIES: dict[str, bytes] = {
    "empty": b"",
    "blank": b"\n\n\n",
    "binary": b"\x7fELF\xff\xfe\x00",
    "utf_16": "\n".join([*SPECIALS, "a"]).encode("utf-16"),
    "json": json.dumps({token: number for number, token in enumerate(SPECIALS)}).encode(),
    "no_mask": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n",
    "no_specials": b"a\nb\nc\n",
    "small_letters": b"[pad]\n[unk]\n[cls]\n[sep]\n[mask]\n",
    "twice": "\n".join([*SPECIALS, "a", "b", "a"]).encode(),
    "hole": "\n".join([*SPECIALS, "a", "", "b"]).encode(),
    "counts": b"[PAD]\t1\n[UNK]\t2\n[CLS]\t3\n[SEP]\t4\n[MASK]\t5\n",
}


def _without(name: str) -> Record:
    return {key: values for key, values in FIRST.items() if key != name}


def _with(**changes: list[float]) -> Record:
    return {**FIRST, **changes}


def _changed(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


_TWO, _TWO_OF = file_of(FIRST, SECOND), file_of(FIRST, SECOND, dialect=OFRECORD)
_ONE = len(file_of(FIRST))
RECORDS: dict[str, bytes] = {
    "empty": b"",
    "text": b"[CLS] this is text [SEP]\n",
    "zeros": bytes(200),
    "ones": b"\xff" * 200,
    "short.tfrecord": _TWO[:-1],
    "short.ofrecord": _TWO_OF[:-1],
    "half_length.tfrecord": _TWO[: _ONE + 4],
    "half_length.ofrecord": _TWO_OF[: len(_TWO_OF) // 2 + 4],
    "data_checksum": _changed(_TWO, 60),
    "length_checksum": _changed(_TWO, 9),
    "second_length": _changed(_TWO, _ONE),
    "negative_length": file_of(FIRST, dialect=OFRECORD) + struct.pack("<q", -1) + bytes(50),
    "tail.tfrecord": _TWO + b"tail",
    "tail.ofrecord": _TWO_OF + b"tail",
    "short_gzip": gzip.compress(_TWO)[:-20],
    "gzip_checksum": _changed(gzip.compress(_TWO), len(gzip.compress(_TWO)) - 6),
    "gzip_of_text": gzip.compress(b"this is text\n"),
    "no_features": frame(b""),
    "no_message": frame(b"\xff" * 40),
    "other_features": frame(field(1, field(1, field(1, b"label") + field(2, field(3, field(1, b"\x05")))))),
    "no_mask": file_of(FIRST, _without("input_mask")),
    "no_weights": file_of(_without("masked_lm_weights")),
    "two_kinds": file_of(FIRST, _without("next_sentence_labels")),
    "short_ids": file_of(FIRST, _with(input_ids=[1, 2, 3])),
    "long_ids.ofrecord": file_of(FIRST, _with(input_ids=[*range(9)]), dialect=OFRECORD),
    "two_lengths": file_of(FIRST, {name: [*values, *values] for name, values in SECOND.items()}),
    "bytes_as_ids": frame(field(1, field(1, field(1, b"input_ids") + field(2, field(1, field(1, b"abc")))))),
    "cut_message": frame(message(FIRST, Dialect())[:-9]),
}
JSON: dict[str, bytes] = {
    "empty": b"",
    "binary": b"\x00\xff\xfe",
    "text": b"hidden_size: 128\n",
    "cut": b'{"vocab_size": 10, ',
    "null": b"null",
    "number": b"5",
    "list": b"[1, 2]",
    "object": b"{}",
    "empty_list": b"[]",
}
MODELS: dict[str, dict[str, object]] = {
    "words": {"hidden_size": "128"},
    "fraction": {"hidden_size": 128.5},
    "negative": {"num_hidden_layers": -1},
    "no_heads": {"num_attention_heads": 0},
    "uneven": {"num_attention_heads": 7},
    "relu": {"hidden_act": "relu"},
    "dropout": {"hidden_dropout_prob": 1.5},
    "relative": {"position_embedding_type": "relative_key"},
    "truth": {"vocab_size": True},
}
MODEL = {
    "vocab_size": 10, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512,
    "max_position_embeddings": 512,
}  # fmt: skip


def make(place: Path) -> Path:
    """Write all of it into `place`, which exists, and what is right beside it; returns it."""
    for name, content in VOCABULARIES.items():
        _write(place / "vocabularies" / f"{name}.txt", content)
    for name, content in RECORDS.items():
        _write(place / "broken" / name, content)
    for name, content in JSON.items():
        _write(place / "json" / f"{name}.json", content)
    for name, change in MODELS.items():
        _write(place / "models" / f"{name}.json", json.dumps({**MODEL, **change}).encode())
    _write(place / "vocab.txt", (GOLDEN / "vocab.txt").read_bytes())
    _write(place / "text.txt", b"The first sentence.\nThe second one.\n\nAnother document.\nIt has two sentences.\n")
    _write(place / "empty.txt", b"")
    _write(place / "blank.txt", b"\n \n\n")
    _write(place / "latin1.txt", "Un café.\n".encode("latin-1"))
    _write(place / "binary.txt", b"\x7fELF\xff\xfe\x00\n")
    _write(place / "cut.jsonl", b'{"text": "A sentence."}\n{"text": \n')
    _write(place / "numbers.jsonl", b'{"text": 5}\n')
    _write(place / "other.jsonl", b'{"body": "A sentence."}\n')
    _write(place / "cut.parquet", b"PAR1 and no more")
    _write(place / "cut.arrow", b"\xff\xff\xff\xff\x58\x01")
    _write(place / "cut.csv", b'id,text\n1,"A sentence.\n')
    _write(place / "short.tsv", b"id\ttext\n1\tA sentence.\n2\n")
    _write(place / "no_set" / "state.json", b'{"_data_files": [{"filename": "../cut.arrow"}]}')
    _write(place / "no_splits" / "dataset_dict.json", b"[]")
    _write(place / "cut.txt.gz", gzip.compress(b"A sentence.\n" * 100)[:-10])
    _write(place / "no.txt.zst", b"this is no archive\n")
    _write(place / "no.txt.bz2", b"this is no archive\n")
    _write(place / "good.tfrecord", _TWO)
    _write(place / "good.ofrecord", _TWO_OF)
    _write(place / "mixed/training/part-0", file_of(FIRST))
    _write(place / "mixed/training/part-1", file_of({name: [*values, *values] for name, values in SECOND.items()}))
    (place / "folder").mkdir()
    (place / "dangling").symlink_to("nowhere")
    (place / "loop").symlink_to("loop")
    os.mkfifo(place / "fifo")
    write_data(place / "a")
    write_data(place / "long", seq=16)
    write_data(place / "alone" / "unknown", tokens=None, has_manifest=False)
    _workspaces(place)
    return place


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _workspaces(place: Path) -> None:
    """Workspaces in which half of everything is there; `workspace` is one that is whole."""
    write_in_workspace(place / "workspace", "settings", time=1)
    for name in ("killed", "no_manifest", "other_manifest", "no_files", "no_vocabulary", "other_vocabulary", "text_manifest"):
        write_in_workspace(place / name, "settings", time=1)
    folders = {path.name: Workspace(path).records("tfrecord", "settings", "corpus") for path in place.iterdir()}
    (folders["killed"] / MANIFEST).rename(folders["killed"] / (MANIFEST + JOURNAL_SUFFIX))
    (folders["no_manifest"] / MANIFEST).unlink()
    (folders["other_manifest"] / MANIFEST).write_text('{"hello": 1}')
    (folders["text_manifest"] / MANIFEST).write_text("hello")
    (folders["other_vocabulary"] / "vocab.txt").write_text("\n".join([*SPECIALS, "f", "g", "h", "i", "j"]))
    (folders["no_vocabulary"] / "vocab.txt").unlink()
    for path in folders["no_files"].rglob("*.tfrecord"):
        path.unlink()
    for name, content in {"hello": '{"hello": 1}', "cut": '{"schema": 1, "kind":', "listing": '{"hello": 1}'}.items():
        _write(place / f"sharded_{name}/sharded/mine/{MANIFEST}", content.encode())
    _write(place / "half_download/download/wikicorpus_en/listing.json", b'{"hello": 1}')
    _write(place / "half_books/download/bookscorpus/listing.json", b"")
    (place / "download_is_a_file").mkdir()
    _write(place / "download_is_a_file/download", b"")
    _write(place / "sharded_is_a_file/sharded", b"")
    _write(place / "records_are_a_file/tfrecord", b"")
