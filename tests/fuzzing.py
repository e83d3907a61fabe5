"""Kinds of untrusted files: small valid ones, ways to damage them, and their readers.

Whatever the bytes are, reading ends in values or in a `BertprepError` of one line. A case is decided by its name alone, so that
a failure can be reproduced. Bytes are corrupt anywhere; JSON also in its values: other types, edge values, keys repeated or
gone, deep nesting. Of an archive half the cases damage what is in it, half what it is.
"""

from __future__ import annotations

import bz2
import contextlib
import copy
import gzip
import io
import json
import os
import random
import resource
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from bertprep.commands.create import create
from bertprep.commands.validate import validate
from bertprep.config import SquadSettings
from bertprep.errors import BertprepError
from bertprep.instances import Tokenizer, Vocabulary, generate_instances, load_vocabulary
from bertprep.instances.document_tokenizer import DocumentTokenizer
from bertprep.sources.documents import READERS, WHOLE, Source
from bertprep.sources.dump import read_dump
from bertprep.sources.kinds import DUMP, TEXT
from bertprep.sources.listing import check_source, load_listing
from bertprep.sources.readers import open_stream
from bertprep.sources.task_files import write_squad
from bertprep.sources.wiki.wikitext import to_prose
from bertprep.tasks.squad import read_squad
from bertprep.tasks.squad_features import make_features
from bertprep.tokens.shard import TokenShard
from bertprep.work.choose import find_records
from bertprep.work.layout import LEDGER, LISTING, MANIFEST
from bertprep.work.ledger import Ledger
from bertprep.work.manifest import read_manifest
from tests.check.damage import SETTINGS, Examiner, Target, damage, damage_case
from tests.corpora import clean_document, documents_of
from tests.golden import GOLDEN
from tests.instances.small_tokenizers import content_of
from tests.tasks.squad_files import answer, question, squad

READ, REFUSED = "read", "refused"
PACK: Mapping[str, Callable[[bytes], bytes]] = {
    ".gz": lambda content: gzip.compress(content, mtime=0),
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
Damage = Callable[[bytes, random.Random], bytes]
Read = Callable[[Path, bytes, random.Random], None]
"""Given a folder of its own and the bytes of a file; raises `BertprepError` for what is refused."""


@dataclass(frozen=True)
class Kind:
    """Files of one kind."""

    sound: tuple[bytes, ...]
    damage: Damage
    read: Read

    def try_case(self, name: str, folder: Path) -> str:
        """What became of a case: READ or REFUSED; any other exception is a failure."""
        rng = random.Random(name)
        content = rng.choice(self.sound)
        if rng.random() > 0.01:
            content = self.damage(content, rng)
        try:
            self.read(folder, content, rng)
        except BertprepError as error:
            if "\n" in str(error) or len(str(error)) > 2000:
                raise AssertionError(f"not one line: {str(error)[:200]!r}") from error
            return REFUSED
        return READ


def try_apart(kind: Kind, names: Sequence[str], folder: Path) -> str:
    """Try cases in a process with a gigabyte of memory more than it has, ten minutes each; returns what failed, or nothing."""
    log = folder / "case"
    process = os.fork()
    if process == 0:
        status = 1
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends the process
            for name in names:
                log.write_text(f"{name}\n")
                signal.alarm(600)
                kind.try_case(name, folder)
            status = 0
        except BaseException:
            with log.open("a") as file:
                traceback.print_exc(file=file)
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return f"{log.read_text()}exit status {status}\n" if status else ""


_HUGE = "@huge@"  # becomes a number of 10,000 digits, which json.dumps does not write
_EDGE_VALUES = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 2**200, 0.5, 1e308, float("nan"), float("inf"), "", "x", "\ud800",
    "\0", "a\nb", "\x1b[2J", "../../up", "/absolute", "x" * 5000, [], {}, [[]], [None], {"": {}}, {"a": 1}, _HUGE,
)  # fmt: skip


def damage_json(content: bytes, rng: random.Random) -> bytes:
    """One to three values changed, taken out or put elsewhere; or the text corrupt, nested deeply, or with keys twice."""
    chance = rng.random()
    if chance < 0.25:
        return damage(content, rng)
    document: Any = json.loads(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(document))
        if not places:
            break
        holder, key = rng.choice(places)
        kind = rng.randrange(5)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[rng.choice(("", "other", str(key) + "s", "\n"))] = holder.pop(key)
        elif kind == 2:
            other_holder, other_key = rng.choice(places)
            with contextlib.suppress(KeyError, IndexError):  # it may be gone
                holder[key] = json.loads(json.dumps(other_holder[other_key]))
        else:
            holder[key] = copy.deepcopy(rng.choice(_EDGE_VALUES))
    if chance < 0.3:
        document = rng.choice(_EDGE_VALUES)
    text = json.dumps(document).replace(f'"{_HUGE}"', "9" * 10_000)
    if chance < 0.35:
        at = rng.choice([at for at, character in enumerate(text) if character in "{["] or [0])
        depth = rng.choice((50, 2_000, 200_000))
        text = f"{text[:at]}{'[' * depth}{text[at:]}" if rng.random() < 0.5 else f"{'[' * depth}{text}{']' * depth}"
    elif chance < 0.45:
        at = text.find('"')
        text = text[:at] + text[at : text.find(",") + 1] + text[at:]
    return text.encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each (object or list, key) in a document."""
    pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    for key, inner in pairs:
        yield value, key
        yield from _places(inner)


def damage_json_lines(content: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return damage(content, rng)
    lines = content.splitlines()
    at = rng.randrange(len(lines))
    lines[at] = damage_json(lines[at], rng)
    return b"\n".join(lines) + b"\n" * rng.randrange(3)


def damage_parquet(content: bytes, rng: random.Random) -> bytes:
    """Bits flipped in the pages, under a footer that is whole; or anything anywhere, which mostly hits the footer."""
    if rng.random() < 0.4:
        return damage(content, rng)
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        changed[rng.randrange(4, footer)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def damage_index(content: bytes, rng: random.Random) -> bytes:
    """Of a .bin after its .idx: numbers of the index replaced, that of the type among them; a token; or anything anywhere."""
    chance = rng.random()
    if chance < 0.3:
        return damage(content, rng)
    changed = bytearray(content)
    if chance < 0.5:
        at = rng.randrange(230, len(content) - 2) & ~1
        changed[at : at + 2] = rng.randrange(3000).to_bytes(2, "little")
        return bytes(changed)
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.choice((9, 17, 18, 26, 34 + 4 * rng.randrange(len(content) // 4 - 10)))
        size = {9: 8, 17: 1, 18: 8, 26: 8}.get(at, rng.choice((4, 8)))
        changed[at : at + size] = rng.choice((*_EDGE_COUNTS, rng.randrange(256))).to_bytes(8, "little")[:size]
    return bytes(changed)


_WITH_MODES_BYTES = 225 + 172
_EDGE_COUNTS = (0, 1, 2, 3, 8, 9, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)


def _token_shards() -> Iterator[bytes]:
    """The .idx and the .bin of small token shards, one after the other."""
    for name in ("uint16", "int32", "multimodal"):
        yield b"".join((GOLDEN / "token_shards" / f"{name}.{end}").read_bytes() for end in ("idx", "bin"))


def _read_tokens(folder: Path, content: bytes, _: random.Random) -> None:
    """Read a token shard, make records of what is read, and validate it."""
    sequences = 11
    at = 214 + sequences * (len(content) == _WITH_MODES_BYTES)  # where the .idx ends
    (folder / "x.idx").write_bytes(content[:at])
    (folder / "x.bin").write_bytes(content[at:])
    vocabulary = _golden_vocabulary()
    try:
        shard = TokenShard(folder / "x.bin").read(vocabulary)
    except BertprepError:
        if content.startswith(b"MMIDIDX\0\0"):
            (outcome,) = validate([folder / "x.bin"], vocab=vocabulary.path, workers=1)
            assert outcome.errors, "refused when read, and nothing found"
        raise
    starts = shard.sentence_starts
    assert (starts[0], starts[-1], shard.document_starts[-1]) == (0, len(shard.tokens), shard.sentences)
    assert (np.diff(starts) > 0).all()
    assert (np.diff(shard.document_starts) > 0).all()
    assert len(generate_instances(shard, vocabulary, SETTINGS, seed=1))


def _read_tokenizer(folder: Path, content: bytes, _: random.Random) -> None:
    """Read a tokenizer.json, and tokenize with it."""
    (path := folder / "tokenizer.json").write_bytes(content)
    tokenizer = DocumentTokenizer(path, "x")
    found = tokenizer.encode(["Some text, [MASK] </s>.", "", "two\nlines \u00e9 \ue000"])
    assert len(found.tokens) == len(found.begins_word) == found.lengths.sum()
    assert (found.tokens < tokenizer.info.width).all()


@cache
def _golden_vocabulary() -> Vocabulary:
    return load_vocabulary(GOLDEN / "vocab.txt")


def _packed(inside: Damage, packing: str) -> Damage:
    """Damage to what is packed or to the packed file; now and then of several members, or one without end."""
    pack = PACK[packing]

    def damage_packed(content: bytes, rng: random.Random) -> bytes:
        chance = rng.random()
        if chance < 0.45:
            return pack(inside(content, rng))
        cut = rng.randrange(len(content))
        whole = pack(content) if rng.random() < 0.5 else pack(content[:cut]) + pack(content[cut:])
        if chance < 0.5:
            return pack(content[:cut] + bytes([content[cut]]) * 2_000_000 + content[cut:])
        if chance < 0.6:
            return whole[: rng.randrange(len(whole) + 1)] + rng.randbytes(rng.randrange(12))
        return damage(whole, rng)

    return damage_packed


def make_kinds(targets: list[Target], folder: Path) -> dict[str, Kind]:
    """All kinds by name; `folder` is for a data set that manifests and markers are of."""
    data_set = _make_data_set(folder / "set")
    kinds = {
        "records": Kind((b"",), lambda content, _: content, _read_records(targets)),
        "vocabulary": Kind((_VOCABULARY[:2000], _VOCABULARY[:60].replace(b"\n", b"\r\n")), damage, _read_vocabulary),
        "parquet": Kind(tuple(_parquet_files()), damage_parquet, _read_source("parquet", "a.parquet")),
        "arrow": Kind(tuple(_arrow_files()), damage, _read_source("arrow", "a.arrow")),
        "squad": Kind((_squad_file(),), damage_parquet, _read_squad),
        "squad json": Kind((_SQUAD_JSON,), damage_json, _read_squad_json),
        "manifest": Kind(((data_set / MANIFEST).read_bytes(),), damage_json, _read_manifest(data_set)),
        "marker": Kind((_marker_of(data_set),), damage_json_lines, _read_marker(data_set)),
        "listing": Kind((_LISTING,), damage_json, _read_listing),
        "tokens": Kind(tuple(_token_shards()), damage_index, _read_tokens),
        "tokenizer": Kind(
            tuple(content_of(kind).encode() for kind in ("byte_bpe", "unigram", "characters")), damage_json, _read_tokenizer
        ),
    }
    for name, content, damaging, reader, packings in (
        ("a.txt", _TEXT, damage, "text", ("", ".gz", ".bz2", ".zst")),
        ("a.jsonl", _JSON_LINES, damage_json_lines, "json lines", ("", ".zst")),
        ("a.csv", _CSV, damage, "csv", ("", ".gz")),
        ("a.xml", _DUMP, damage, DUMP, ("", ".bz2")),
    ):
        for packing in packings:
            damage_it = _packed(damaging, packing) if packing else damaging
            kinds[name + packing] = Kind((content,), damage_it, _read_source(reader, name + packing))
    assert {*kinds} == {*NAMES}
    return kinds


NAMES = (
    "records", "vocabulary", "parquet", "arrow", "squad", "squad json", "manifest", "marker", "listing", "tokens",
    "tokenizer", "a.txt",
    "a.txt.gz", "a.txt.bz2", "a.txt.zst", "a.jsonl", "a.jsonl.zst", "a.csv", "a.csv.gz", "a.xml", "a.xml.bz2",
)  # fmt: skip
_VOCABULARY = (GOLDEN / "vocab.txt").read_bytes()
_TEXT = "".join(f"Satz {n} \u4e00 is a line.\n" + "\n" * (n % 3 == 0) for n in range(30)).encode()
_JSON_LINES = b"".join(
    json.dumps({"id": n, "text": f"A text \u00e9 {n}.\nIts second line." * (n % 3), "more": {"a": [n, None]}}).encode() + b"\n"
    for n in range(8)
)
_CSV = b"id,text\n" + b"".join(
    f'{n},"A text \u00e9 {n}, ""quoted"".\r\nIts second line."\r\n\n{n},Another.\n'.encode() for n in range(8)
)
_PAGE = """<page><title>Seite</title><ns>0</ns><id>1</id><revision><id>1</id><model>wikitext</model><text bytes="9">'''Wort'''
{{lang|grc|\u1f00}} &lt;ref&gt;x&lt;/ref&gt; [[Datei:a.png|mini|b [[c]]]].
{|
| a
|}
* d</text></revision></page>
"""
_DUMP = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de"><siteinfo><namespaces>'
    '<namespace key="0" /><namespace key="6" case="first-letter">Datei</namespace></namespaces></siteinfo>'
    f"{4 * _PAGE}</mediawiki>"
).encode()
_LISTING = json.dumps(
    {
        "format": 1,
        "source": {"hub": "datasets/a/b", "patterns": ["*.parquet"], "revision": "main"},
        "revision": "0" * 40,
        "files": [
            {"name": "a.parquet", "url": "datasets/a/b/resolve/0/a.parquet", "size_bytes": 5, "sha256": "0" * 64},
            {"name": "b.txt", "url": "https://example.org/b.txt", "etag": '"1"'},
        ],
    }
).encode()


_CONTEXT = "One two three."
_QUESTIONS = [
    question("x", answers=[answer(_CONTEXT, "two")], is_impossible=False),
    question("y", answers=[], is_impossible=True),
]
_SQUAD_JSON = json.dumps(squad("v2.0", (_CONTEXT, _QUESTIONS))).encode()


def _parquet_files() -> Iterator[bytes]:
    texts = ["Text \u00e9.", None, "", "Another. " * 50, *(f"Row {n}" for n in range(80))]
    for options in ({}, {"compression": "zstd", "use_dictionary": False}, {"compression": None, "data_page_version": "2.0"}):
        file = io.BytesIO()
        pq.write_table(pa.table({"id": list(range(len(texts))), "text": texts}), file, row_group_size=50, **options)
        yield file.getvalue()


def _arrow_files() -> Iterator[bytes]:
    texts = ["Text \u00e9.", None, "", "Another. " * 50, *(f"Row {n}" for n in range(20))]
    lists = [texts[:n] for n in range(24)]
    numbers = pa.DictionaryArray.from_arrays(pa.array([n % 3 for n in range(24)], pa.int8()), pa.array(["a", "b " * 20, None]))
    views, large = pa.array(texts, pa.string_view()), pa.array(lists, pa.list_(pa.large_string()))
    for column in (pa.array(texts), views, pa.array(lists), large, numbers):
        table = pa.table({"id": list(range(24)), "text": column})
        for make, compression in ((pa.ipc.new_stream, None), (pa.ipc.new_file, None), (pa.ipc.new_stream, "zstd")):
            file = io.BytesIO()
            with make(file, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
                writer.write_table(table, max_chunksize=10)
            yield file.getvalue()


def _squad_file() -> bytes:
    answers = {"text": ["One"], "answer_start": [0]}
    rows = [{"id": str(n), "title": "T", "context": "One two.", "question": "Which?", "answers": answers} for n in range(5)]
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


def _make_data_set(folder: Path) -> Path:
    """Two files of records with their manifest and vocabulary; returns the folder that has all of it."""
    texts = [folder / f"text_{number}" for number in range(2)]
    folder.mkdir()
    for text in texts:
        text.write_bytes(_TEXT)
    settings = {**asdict(SETTINGS), "dupe": 1}
    made = create(**settings, formats="tfrecord", inputs=texts, output=folder / "out", vocab=GOLDEN / "vocab.txt", workers=1)
    return made.folders["tfrecord"]


def _ledger_of(data_set: Path, folder: Path) -> Ledger:
    """The ledger in `folder` of the run that made a data set."""
    made = read_manifest(data_set)
    assert made
    return Ledger(folder=folder, kind=made.kind, made_with=made.made_with, versions=made.versions)


def _marker_of(data_set: Path) -> bytes:
    """The completion marker of its first file."""
    made = read_manifest(data_set)
    assert made
    return _ledger_of(data_set, data_set)._marker(*next(iter(made.files.items())))


def _read_records(targets: list[Target]) -> Read:
    def read(folder: Path, _: bytes, rng: random.Random) -> None:
        examiner = _examiner(folder)
        if said := examiner.examine(damage_case(targets, str(rng.random()))):
            raise AssertionError(said)
        if examiner.was_refused:
            raise BertprepError("refused")

    return read


@cache
def _examiner(folder: Path) -> Examiner:
    return Examiner(folder)


def _read_vocabulary(folder: Path, content: bytes, _: random.Random) -> None:
    path = folder / "vocab.txt"
    path.write_bytes(content)
    Tokenizer(load_vocabulary(path), lower=True)


def _read_source(reader: str, name: str) -> Read:
    """Read a file as `bertprep shard --input` does, by what its name says it is."""

    def read(folder: Path, content: bytes, rng: random.Random) -> None:
        path = folder / name
        path.write_bytes(content)
        if reader == DUMP:
            with open_stream(str(path)) as file:
                site, pages = read_dump(file, str(path))
                texts = [to_prose(page.wikitext, site) for page in pages]
        elif name == "a.txt":
            texts = documents_of([Source(str(path), WHOLE if rng.random() < 0.2 else TEXT, {})])
        else:
            texts = list(READERS[reader](Source(str(path), reader, {})))
        for text in texts:
            clean_document(text).encode(errors="replace")

    return read


def _read_squad(folder: Path, content: bytes, _: random.Random) -> None:
    parquet = folder / "parquet"
    if not parquet.exists():
        parquet.mkdir()
        (parquet / "validation-00000-of-00001.parquet").write_bytes(_squad_file())
    (parquet / "train-00000-of-00001.parquet").write_bytes(content)
    write_squad(parquet, folder, "v1.1")


def _read_squad_json(folder: Path, content: bytes, rng: random.Random) -> None:
    """Read a file, and make the features of what is read."""
    (path := folder / "train.json").write_bytes(content)
    (folder / "vocab.txt").write_bytes(_VOCABULARY)
    training = rng.random() < 0.5
    data = read_squad(path, "v2.0", training=training)
    settings = SquadSettings(seq=8, doc_stride=2, max_query=4)
    assert len(make_features(data, load_vocabulary(folder / "vocab.txt"), settings, training=training)[:]) > 0


def _read_manifest(data_set: Path) -> Read:
    def read(folder: Path, content: bytes, _: random.Random) -> None:
        copied = _copy(data_set, folder)
        (copied / MANIFEST).write_bytes(content)
        validate([copied], workers=1)
        find_records(copied)

    return read


def _read_marker(data_set: Path) -> Read:
    name = json.loads(_marker_of(data_set))["name"]

    def read(folder: Path, content: bytes, _: random.Random) -> None:
        copied = _copy(data_set, folder)
        if (copied / MANIFEST).exists():
            (copied / MANIFEST).unlink()
            _ledger_of(data_set, copied).open([])
        marker = copied / LEDGER / f"{name}.json"
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.write_bytes(content)
        json.dumps(_ledger_of(data_set, copied).open([name]))

    return read


def _copy(data_set: Path, folder: Path) -> Path:
    """A copy of the data set, made once for a folder: its records are not changed."""
    if not (folder / "copy").exists():
        shutil.copytree(data_set, folder / "copy")
    return folder / "copy"


def _read_listing(folder: Path, content: bytes, _: random.Random) -> None:
    (folder / LISTING).write_bytes(content)
    if listing := load_listing(folder):
        listing.missing(folder)
        check_source(listing, json.loads(_LISTING)["source"], folder)
