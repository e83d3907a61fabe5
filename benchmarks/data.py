"""Measure how fast text becomes shards, tokens and records, and how fast these are read, converted and checked.

The text is the sample corpus unless --text names another; everything is written to a temporary folder. "Warm" is the function
in a process that has called it before. "Fresh" is the whole command in a new process, with compiled kernels in the cache.
"""

import io
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does

import numpy as np

import bertprep
from benchmarks import batches
from benchmarks.harness import BERTPREP, Bench, Row, remove, run
from bertprep import kernels
from bertprep.config import InstanceSettings
from bertprep.instances import Tokenizer, generate_instances, load_vocabulary
from bertprep.instances.tokenizer_files import tokenizer_files
from bertprep.sources.sample import one_paragraph_a_line, read_speeches
from bertprep.work.choose import find_records

PHASES = {"128/20": InstanceSettings(), "512/80": InstanceSettings(seq=512, pred=80)}
FORMATS = ("tfrecord", "ofrecord", "arrow", "parquet", "tfrecord,ofrecord")
EXCERPT = "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
SPEECHES_MB = 12.2


def texts(bench: Bench, *, shards: int = 1) -> tuple[list[Path], Path]:
    """Make text shards of as much text as the sample corpus has; return them and a vocabulary."""
    text, vocab = bench.options.text, bench.options.vocab
    if text is None:
        bertprep.shard(workdir=bench.folder / "sample")
        text = bench.folder / "sample.txt"
        found = sorted((bench.folder / "sample" / "sharded").rglob("*.txt"))
        text.write_bytes(b"".join(path.read_bytes().rstrip(b"\n") + b"\n\n" for path in found))
    if vocab is None:
        vocab = bench.folder / "vocab.txt"
        if not vocab.exists():
            bertprep.train_vocabulary([text], output=vocab, size=30_522)
    size = bench.scaled(SPEECHES_MB * 1e6)
    once = text.read_bytes()
    documents = (once * (size // len(once) + 1))[:size].strip(b"\n").split(b"\n\n")
    paths = [bench.folder / f"text_{index}.txt" for index in range(shards)]
    for index, path in enumerate(paths):
        path.write_bytes(b"\n\n".join(documents[index::shards]) + b"\n\n")
    return paths, vocab


def creating(
    bench: Bench, paths: Sequence[Path], vocab: Path, settings: InstanceSettings, name: str, formats: str
) -> tuple[Row, Row]:
    """Return rows that make records from texts: the function, and the command with one worker."""
    out = bench.folder / "out"
    clear = partial(remove, out)
    make = partial(bertprep.create, **vars(settings), formats=formats, vocab=vocab, inputs=paths, output=out, workers=1)
    clear()
    records = count_records(next(iter(make().folders.values())))
    where = ["--input", *paths, "--output", out, "--vocab", vocab, "--workers", 1]
    fresh = [*BERTPREP, "create", *where, "--format", formats, "--seq", settings.seq, "--pred", settings.pred]
    return Row(f"{name}, warm", records, make, clear), Row(f"{name}, fresh", records, fresh, clear)


def count_records(folder: Path) -> int:
    """Return the number of records in all splits of a data set."""
    return sum(len(bertprep.records.open(folder / file)) for file in find_records(folder).files)


def create(bench: Bench) -> None:
    """Text to records, and these read."""
    paths, vocab = texts(bench)
    vocabulary = load_vocabulary(vocab)
    for phase, settings in PHASES.items():
        tokenized = Tokenizer(vocabulary, lower=True).tokenize_file(paths[0])
        count = len(generate_instances(tokenized, vocabulary, settings, seed=1))
        drawing = partial(generate_instances, tokenized, vocabulary, settings, seed=1)
        bench.compare("records", [Row(f"{phase}: pairs and masks", count, drawing)])
        for formats in FORMATS:
            warm, fresh = creating(bench, paths, vocab, settings, f"{phase} {formats}", formats)
            bench.compare("records", [warm])
            bench.compare("records", [fresh])
        for path in (path for name in ("*.tfrecord", "part-*") for path in (bench.folder / "out").rglob(name)):
            bench.compare("records", [Row(f"{phase}: {path.name} read, 256 at a time", count, partial(read, path))])


def read(path: Path) -> None:
    with bertprep.records.open(path) as file:
        for _ in file.blocks(256):
            pass


def tokenize(bench: Bench) -> None:
    """Text to token shards, and the `tokenizers` library."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models, normalizers, pre_tokenizers

    os.environ["RAYON_NUM_THREADS"] = "1"
    paths, vocab = texts(bench, shards=3)
    vocabulary = load_vocabulary(vocab)
    ours = Tokenizer(vocabulary, lower=True)
    tokens = {token: index for index, token in enumerate(vocabulary.tokens)}
    library = Library(models.WordPiece(tokens, unk_token="[UNK]", max_input_chars_per_word=200))
    library.normalizer, library.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    lines = paths[0].read_text(encoding="utf-8").split("\n")[:20_000]
    encode = partial(library.encode_batch_fast, lines, add_special_tokens=False)
    megabytes = sum(path.stat().st_size for path in paths) / 1e6
    out = bench.folder / "out"
    make = partial(bertprep.tokenize, vocab=vocab, inputs=paths, output=out, workers=1)
    bench.compare("MB", [
        Row("our tokenizer alone", megabytes, lambda: [ours.tokenize_file(path) for path in paths]),
        Row("tokenizers alone, one thread", sum(len(line.encode()) + 1 for line in lines) / 1e6, encode),
    ])  # fmt: skip
    bench.compare("MB", [Row("tokenize, warm", megabytes, make, partial(remove, out))])


def documents(bench: Bench) -> None:
    """Text to token shards of documents by three kinds of tokenizer, and the `tokenizers` library, with all threads."""
    import tokenizers
    from tokenizers import Tokenizer as Library
    from tokenizers import models, pre_tokenizers, trainers

    [path], vocab = texts(bench)
    found = path.read_text(encoding="utf-8").split("\n\n")
    text = bench.folder / "documents.jsonl"
    text.write_text("".join(json.dumps({"text": document}) + "\n" for document in found), encoding="utf-8")
    megabytes = sum(len(document.encode()) for document in found) / 1e6
    word_piece = bench.folder / "WordPiece.json"
    word_piece.write_bytes(tokenizer_files(load_vocabulary(vocab), cased=False, seq=512)["tokenizer.json"])
    byte_bpe, unigram = Library(models.BPE()), Library(models.Unigram())
    byte_bpe.pre_tokenizer, unigram.pre_tokenizer = pre_tokenizers.ByteLevel(), pre_tokenizers.Metaspace()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    byte_bpe.train_from_iterator(found, trainers.BpeTrainer(vocab_size=50_368, initial_alphabet=alphabet, show_progress=False))
    unigram.train_from_iterator(found, trainers.UnigramTrainer(vocab_size=32_000, unk_token="<unk>", special_tokens=["<unk>"]))
    out = bench.folder / "out"
    for name, library in {"WordPiece": None, "byte BPE": byte_bpe, "Unigram": unigram}.items():
        file = bench.folder / f"{name.replace(' ', '_')}.json"
        if library is not None:
            library.save(str(file))
        opened = tokenizers.Tokenizer.from_file(str(file))

        def encode(library: Any = opened) -> None:
            for start in range(0, len(found), 500):
                for encoding in library.encode_batch(found[start : start + 500], add_special_tokens=False):
                    np.array(encoding.ids, np.int32)

        make = partial(bertprep.tokenize, inputs=[text], tokenizer=file, output=out)
        bench.compare("MB", [
            Row(f"{name}: tokenizers alone", megabytes, encode),
            Row(f"{name}: bertprep tokenize, with reading and writing", megabytes, make, partial(remove, out)),
        ])  # fmt: skip


def record_sets(bench: Bench) -> dict[tuple[str, str], tuple[Path, int]]:
    """Make records of many rounds over the sample corpus; return phase and format -> (folder, number of records)."""
    found = {}
    for phase, settings in PHASES.items():
        many = replace(settings, dupe=bench.scaled(20))
        for name, folder in bertprep.create(
            **vars(many), workdir=bench.folder / "data", formats="tfrecord,ofrecord"
        ).folders.items():
            found[phase, name] = folder, count_records(folder)
    return found


def convert(bench: Bench) -> None:
    """Records of one format to another."""
    out = bench.folder / "out"
    for (phase, name), (folder, count) in record_sets(bench).items():
        fresh = [*BERTPREP, "convert", folder, out, "--workers", 1]
        bench.compare("records", [Row(f"{phase} {name} to the other", count, fresh, partial(remove, out))])


def validate(bench: Bench) -> None:
    """All checks of records, with the checksums of their files."""
    for (phase, name), (folder, count) in record_sets(bench).items():
        bench.compare("records", [Row(f"{phase} {name}", count, partial(bertprep.validate, [folder], workers=1))])


def shard(bench: Bench) -> None:
    """Plain text to text shards."""
    speeches = [one_paragraph_a_line(speech).rstrip("\n") for speech in read_speeches()]
    documents: list[str] = []
    size = 0
    while size < bench.scaled(200e6):  # each with a first line of its own, so that none is a duplicate
        documents.append(f"This is document {len(documents):,}.\n{speeches[len(documents) % len(speeches)]}")
        size += len(documents[-1].encode()) + 2
    text, workdir = bench.folder / "speeches.txt", bench.folder / "data"
    text.write_text("".join(document + "\n\n" for document in documents), encoding="utf-8")
    work = [*BERTPREP, "shard", "--input", text, "--workdir", workdir, "--shards", 32, "--workers"]
    rows = [Row(f"{count} workers", size / 1e6, [*work, count], partial(remove, workdir)) for count in (1, 2)]
    bench.compare("MB", rows)


def wikitext(bench: Bench) -> None:
    """A Wikimedia dump to prose: unpacking, parsing, cleaning."""
    from bertprep.sources.dump import Page, read_dump
    from bertprep.sources.readers import open_stream
    from bertprep.sources.wiki.wikitext import to_prose

    gensim, dump, size = find_spec("gensim"), bench.options.dump, bench.scaled(100e6)
    if dump is None:
        if not gensim or not gensim.submodule_search_locations:
            raise SystemExit("gensim is not installed: pip install -e '.[test]', or name a --dump")
        dump = Path(gensim.submodule_search_locations[0], EXCERPT)

    def unpack() -> bytes:
        with open_stream(str(dump)) as file:
            return file.read(size)

    def parse() -> list[Page]:
        pages: list[Page] = []
        with suppress(bertprep.BertprepError):  # the XML ends in the middle
            pages.extend(read_dump(io.BytesIO(xml), "dump")[1])
        return pages

    xml = unpack()
    pages, (site, _) = parse(), read_dump(io.BytesIO(xml), dump.name)
    in_pages = sum(len(page.wikitext.encode()) for page in pages)
    works: list[tuple[str, int, Callable[[], Any]]] = [
        ("unpack, MB of XML", len(xml), unpack), ("parse, MB of XML", len(xml), parse),
        ("clean, MB of wikitext", in_pages, lambda: [to_prose(page.wikitext, site) for page in pages]),
    ]  # fmt: skip
    for name, count, work in works:
        bench.compare("MB", [Row(f"{name}, {len(pages):,} articles", count / 1e6, work)])


def main() -> None:
    """Run the benchmarks that the user names."""
    kernels.load()
    run((create, tokenize, documents, batches.batches, batches.datasets, batches.live, batches.encoders,
         convert, shard, validate, wikitext), __doc__)  # fmt: skip
