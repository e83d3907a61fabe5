"""What people bring as text: the files that other programs write, under the names that they give them."""

import gzip
import json
import lzma
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from secrets import token_hex
from textwrap import wrap

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import zstandard

import bertprep
from bertprep.sources.inputs import find_sources
from bertprep.sources.kinds import HEAD_BYTES, JSON_LINES
from tests.corpora import documents_of
from tests.object_store import Store, store

__all__ = ["store"]  # a fixture

TEXTS = [f"The town of {name} lies at a river. It has a bridge." for name in ("Ada", "Bern", "Cham", "Dole")]
LINES = "".join(json.dumps({"id": at, "text": text}) + "\n" for at, text in enumerate(TEXTS))
DOCS = "".join(
    f'<doc id="{at}" url="https://x.org/?curid={at}" title="Town &amp; {at}">\nTown &amp; {at}\n\n{text} 1 &lt; 2.\n\n</doc>\n'
    for at, text in enumerate(TEXTS)
)
PROSE = "\n\n".join("\n".join(text.replace(". ", ".\n").split("\n")) for text in TEXTS) + "\n"


def run(command: str, *arguments: str | Path, cwd: Path) -> tuple[int, str]:
    """Run a command as its user does; return the exit status and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "bertprep", command, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def read(*locations: Path | str) -> list[str]:
    return [text.strip() for text in documents_of(find_sources(locations, field="text", one_document=False))]


def shard(cwd: Path, *arguments: str | Path) -> tuple[int, str, str]:
    """Shard some files; return the exit status, the output and the text of the shards."""
    options = ("--corpus", "c", "--shards", "1", "--test-fraction", "0", "--one-document-per-block")
    status, said = run("shard", "--input", *arguments, *options, cwd=cwd)
    return status, said, "".join(path.read_text() for path in sorted((cwd / "data/sharded").rglob("c_*.txt")))


def test_a_folder_that_wikiextractor_wrote(tmp_path: Path) -> None:
    for name in ("AA/wiki_00", "AB/wiki_00"):
        (tmp_path / "extracted" / name).parent.mkdir(parents=True)
        (tmp_path / "extracted" / name).write_text(DOCS.replace("Ada", name[:2]))
    status, _, text = shard(tmp_path, "extracted")
    assert status == 0
    assert text.count("lies at a river.") == 5  # three towns are in both
    assert "1 < 2." in text
    assert not any(mark in text for mark in ("<doc", "</doc>", "&lt;", "Town &"))


def test_wikiextractor_compressed_its_output(tmp_path: Path) -> None:
    (tmp_path / "wiki_00.bz2").write_bytes(__import__("bz2").compress(DOCS.encode()))
    assert read(tmp_path / "wiki_00.bz2") == [f"{text} 1 < 2." for text in TEXTS]


@pytest.mark.parametrize("name", ["wiki_00", "part-00000", "corpus.txt", "part-00000-c000.snappy"])
def test_json_lines_are_known_under_any_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(LINES)
    assert read(tmp_path / name) == TEXTS


def test_a_folder_that_spark_wrote(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in ("_SUCCESS", "._SUCCESS.crc", ".part-00000.crc"):
        (tmp_path / "out" / name).write_bytes(b"crc\0")
    (tmp_path / "out/part-00000").write_text(LINES)
    status, said, text = shard(tmp_path, "out")
    assert (status, text.count("river")) == (0, 4)
    assert "passed over: 3 hidden" in said


def test_create_takes_no_json_lines_for_sentences(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text(LINES)
    status, said = run("create", "--input", "corpus.txt", "--output", "out", cwd=tmp_path)
    assert status == 2
    assert "shard --input corpus.txt" in said
    assert not (tmp_path / "out").exists()


def test_wikiextractor_writes_pages_without_text(tmp_path: Path) -> None:
    empty = '<doc id="9" url="https://x.org/?curid=9" title="Category:Towns">\nCategory:Towns\n\n\n</doc>\n'
    (tmp_path / "wiki_00").write_text(empty + DOCS + empty)
    status, said, text = shard(tmp_path, "wiki_00")
    assert (status, text.count("river"), "Category" in text) == (0, 4, False)
    assert "2 documents dropped" in said


def test_an_array_of_texts_is_read(tmp_path: Path) -> None:
    (tmp_path / "anime.json").write_text(json.dumps(TEXTS, indent=1))
    assert read(tmp_path / "anime.json") == TEXTS
    (tmp_path / "turns.json").write_text(json.dumps([[{"text": text}] for text in TEXTS]))
    status, said, _ = shard(tmp_path, "turns.json")
    assert (status, "item 1: expected a JSON object or a text" in said) == (1, True)


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["a.json", "a.txt", "a.json.gz"])
def test_an_array_of_objects_is_read(name: str, indent: int | None, tmp_path: Path) -> None:
    content = json.dumps([{"text": text} for text in TEXTS], indent=indent).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read(tmp_path / name) == TEXTS


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("gbk", "今天天气很好，我们去公园散步。大家都很高兴。\n" * 20),
        ("big5", "今天天氣很好，我們去公園散步。大家都很高興。\n" * 20),
        ("shift_jis", "きょうはてんきがいいので、こうえんへ行きました。\n" * 20),
        ("euc_jp", "きょうはてんきがいいので、こうえんへ行きました。\n" * 20),
        ("euc_kr", "오늘은 날씨가 좋아서 공원에 갔습니다.\n" * 20),
        ("cp1252", "Ein schöner Tag für Österreich.\n" * 20),
        ("cp1251", "Сегодня хорошая погода, и мы пошли в парк.\n" * 20),
        ("cp1253", "Σήμερα ο καιρός είναι καλός και πήγαμε στο πάρκο.\n" * 20),
        ("koi8-r", "Сегодня хорошая погода, и мы пошли в парк.\n" * 20),
        ("utf-16", "A fine day.\n" * 20),
        ("utf-16-le", "A fine day.\n" * 20),
        ("utf-16-le", "Сегодня хорошая погода.\n" * 20),  # whose bytes are UTF-8 as well
        ("utf-16-be", "今天天气很好，我们去公园散步。\n" * 20),
        ("utf-32-le", "今天天气很好，我们去公园散步。\n" * 20),
        ("cp1253", "ΤΟ ΤΑΞΙΔΙ. Ο Γιάννης είπε «ναι» και έφυγε — για 5 €.\n" * 20),
        ("latin-1", "One line of many.\n" * 20 + "A smile :-Þ and no more.\n"),
    ],
)
def test_the_command_for_another_encoding_works(encoding: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    status, said, _ = shard(tmp_path, "a.txt")
    assert status == 1
    command = said[said.index("iconv") :].strip().partition(" leaves")[0]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "a.txt.utf8").read_text("utf-8") == text


def test_a_folder_with_a_notebook_and_a_description(tmp_path: Path) -> None:
    folder = tmp_path / "books"
    for name in (".ipynb_checkpoints/a-checkpoint.txt", "__MACOSX/._a.txt", "a.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(TEXTS[0])
    for name, content in {
        "dataset_infos.json": '{"default": {"description": ""}}', "metadata.csv": "file,author\na.txt,Ann\n",
        "README.md": "# Books", "LICENSE": "MIT", "cover.png": "\x89PNG", "README.txt": "Read me.",
    }.items():  # fmt: skip
        (folder / name).write_text(content)
    assert read(folder) == TEXTS[:1]
    status, said, _ = shard(tmp_path, "books")
    assert status == 0
    assert all(count in said for count in ("2 hidden", "5 that describe data", "1 of other kinds"))


def test_a_folder_that_a_desktop_and_an_editor_used(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    for name in (".DS_Store", "Thumbs.db", "a.txt~", "#a.txt#", ".a.txt.swp", "a.txt"):
        (tmp_path / "books" / name).write_text(TEXTS[0])
    assert read(tmp_path / "books") == TEXTS[:1]


def test_a_folder_with_a_description_in_json(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(LINES)
    (tmp_path / "meta.json").write_text('{"name": "towns", "rows": 4}')
    assert read(tmp_path) == TEXTS
    (tmp_path / "a.jsonl").unlink()
    (tmp_path / "meta.json").write_text(LINES)  # then it is the text
    assert read(tmp_path) == TEXTS


def test_an_index_beside_a_dump_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "enwiki-multistream-index.txt").write_text("600:10:Anarchism\n600:12:Autism\n")
    (tmp_path / "a.txt").write_text(TEXTS[0])
    assert read(tmp_path) == TEXTS[:1]
    (tmp_path / "index.txt").write_text("600:10:Anarchism\n600:12:Autism\n")
    status, said, _ = shard(tmp_path, "index.txt")
    assert (status, "the index of a Wikimedia dump" in said) == (2, True)


@pytest.mark.parametrize(
    "names",
    [
        ("data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet", "data/validation-00000-of-00001.parquet"),
        ("train_1.txt", "test.txt", "dev.txt"),
        ("training/a.txt", "test/a.txt", "valid.txt"),
        ("wiki.train.tokens", "wiki.test.tokens", "wiki.valid.tokens"),
    ],
)
def test_a_folder_with_splits_gives_training_alone(names: tuple[str, ...], tmp_path: Path) -> None:
    for name, text in zip(names, TEXTS, strict=False):
        path = tmp_path / "repo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"text": [text]}), path) if path.suffix == ".parquet" else path.write_text(text)
    status, said, text = shard(tmp_path, "repo")
    assert (status, "2 of other splits than training" in said) == (0, True)
    assert ("Ada" in text, "Bern" in text, "Cham" in text) == (True, False, False)


@pytest.mark.parametrize(
    "names",
    [
        ("the_test.txt", "valid.txt"),
        ("training_day.txt", "test.txt"),
        ("photo of a train.txt", "photo of test tubes.txt", "train.txt", "valid_points.txt"),
        ("de/train.txt", "fr/test.txt"),
    ],
)
def test_books_whose_titles_name_a_split_are_read(names: tuple[str, ...], tmp_path: Path) -> None:
    for name, text in zip(names, TEXTS, strict=False):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert len(read(tmp_path)) == len(names)


@pytest.mark.parametrize(
    "names",
    [
        ("books-train.txt", "books-test.txt"),
        ("train.en.txt", "test.en.txt"),
        ("training_set/a.txt", "test_set/a.txt"),
        ("train-00000-of-00001-0a1b2c3d4e5f6a7b.txt", "test-00000-of-00001-00ff00ff00ff00ff.txt"),
        ("train.txt.gz", "test.txt"),
    ],
)
def test_a_split_with_its_counterpart_for_training_is_passed_over(names: tuple[str, str], tmp_path: Path) -> None:
    for name, text in zip(names, TEXTS, strict=False):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert read(tmp_path) == TEXTS[:1]


@pytest.mark.parametrize(
    "text", ["Tom &amp; Jerry<br>ran. They ran far.", "A &lt;tag&gt; here. It is so.", "<p>So it is. It ends.</p>"]
)
def test_a_column_with_html_is_said_with_its_share(text: str, tmp_path: Path) -> None:
    rows = [text if at % 2 else TEXTS[at % 4] + str(at) for at in range(40)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    status, said, _ = shard(tmp_path, "a.jsonl")
    assert (status, "50% of the first 40 documents have HTML" in said) == (0, True)


def test_a_clean_text_is_not_called_html(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(PROSE + "\n\nR&D is fun; x < y and y > z. AT&T; it is big.\n")
    assert "HTML" not in shard(tmp_path, "a.txt")[1]


def test_wikimedia_xml_and_columns_have_their_own_kind_under_another_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "table.txt")
    pyarrow.feather.write_feather(pa.table({"text": TEXTS}), str(tmp_path / "a.feather"))
    with pa.ipc.new_stream(tmp_path / "stream", pa.schema([("text", pa.string())])) as writer:
        writer.write_table(pa.table({"text": TEXTS}))
    assert read(tmp_path / "table.txt") == read(tmp_path / "a.feather") == read(tmp_path / "stream") == TEXTS


@pytest.mark.parametrize("name", ["a.txt.xz", "a.txt.zst", "a", "a.bin"])
def test_compressed_files_are_known_by_their_first_bytes(name: str, tmp_path: Path) -> None:
    content = "\n\n".join(TEXTS).encode()
    if name.endswith(".xz"):
        packed = lzma.compress(content)
    elif name.endswith(".zst"):
        options = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)
        packer = zstandard.ZstdCompressor(compression_params=options).compressobj()  # the size is unknown, so is the window
        packed = packer.compress(content) + packer.flush()
    else:
        packed = gzip.compress(content)
    (tmp_path / name).write_bytes(packed)
    assert read(tmp_path / name) == TEXTS


REFUSED = {
    "page.txt": ("<!-- saved -->\n<!DOCTYPE html>\n<p>So.</p>", "HTML"),
    "crawl.txt": ("WARC/1.0\r\nWARC-Type: conversion\r\n\r\nText.\r\n", "a web archive"),
    "letter.txt": (r"{\rtf1\ansi A letter.\par}", "RTF"),
    "film.txt": ("1\n00:00:01,000 --> 00:00:02,500\nHello.\n\n2\n00:00:03,000 --> 00:00:04,000\nBye.\n", "subtitles"),
    "film.web": ("WEBVTT\n\n00:01.000 --> 00:02.500\nHello.\n", "subtitles"),
    "post.txt": ("From a@b.c Mon Jan  5 10:00:00 2015\nFrom: a@b.c\nSubject: Hi\n\nHello.\n", "a mailbox"),
    "news.txt": ("From: a@b.c (Ann)\nSubject: Hi\nLines: 2\n\nHello there.\n", "a mailbox"),
    "ner.txt": ("EU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\nPeter NNP B-NP B-PER\n", "columns of words and tags"),
    "proteins.txt": (">sp|P1 A protein\nMKVLAAGIVGLLLAQWERTYMKVL\nAAGI\n>sp|P2\nMKV\n", "FASTA"),
    "reads.txt": ("@read1\nACGTTGCAACGTTGCAACGTTGCA\n+\nIIIIIIIIIIIIIIIIIIIIIIII\n", "FASTQ"),
    "pairs.txt": ("Hello.\tBonjour.\nGood.\tBon.\n", "a table whose columns are separated by tabs"),
    "lfs.txt": ("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "a pointer of Git LFS"),
    "pandas.json": ('{"text":{"0":"One.","1":"Two."}}', "a table of JSON"),
    "pretty.json": ('{\n  "data": [\n    {"text": "One."}\n  ]\n}\n', "JSON over several lines"),
    "book.txt": ("%PDF-1.7\n", "PDF"),
    "model.txt": ("\x80\x04", "a pickle"),
    "tags.txt": ("Anna PER\nlives O\nin O\nParis LOC\n\nBob PER\n", "columns of words and tags"),
    "pos.txt": ("The DT\ncat NN\nsat VBD\n. .\n", "columns of words and tags"),
    "captions.txt": ("\u00ef\u00bb\u00bfWEBVTT - Film\nKind: captions\n\n00:01.000 --> 00:02.500\nHello.\n", "subtitles"),
    "zipped.txt": ("PK\3\4\x14\0\0\0a.txt", "a ZIP archive"),
    "letter.docx": ("PK\3\4\x14\0\6\0[Content_Types].xml", "a document of Word"),
    "novel.txt": ("PK\3\4\n\0\0\0mimetypeapplication/epub+zipPK", "an EPUB"),
    "split.json": ('{"columns":["text"],"index":[0,1],"data":[["One."],["Two."]]}', "a table of JSON"),
    "a.7z.txt": ("7z\xbc\xaf\x27\x1c", "a 7z archive"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_text_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    content, kind = REFUSED[name]
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    for command in ("shard --corpus c --workdir w", "create --output out", "vocab --output v.txt"):
        status, said = run(*command.split(), "--input", name, cwd=tmp_path)
        assert (status, len(said.splitlines())) == (2, 1)
        assert f"{name}: is {kind}" in said
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_command_for_subtitles_works(tmp_path: Path) -> None:
    (tmp_path / "film.srt").write_bytes(REFUSED["film.txt"][0].replace("\n", "\r\n").encode("utf-8-sig"))
    _, said, _ = shard(tmp_path, "film.srt")
    subprocess.run(said[said.index("sed") :], shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "film.srt.txt").read_text().split() == ["Hello.", "Bye."]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["genes.fa", "genes.fasta.gz"])
def test_the_command_for_sequences_of_proteins_or_genes_works(name: str, end: str, tmp_path: Path) -> None:
    """Each sequence is a document: lines of one are joined, and names are no text."""
    sequences = ["ACGTTGCAAC" * 17, "ttgacaNNNN" * 9, "MKVL*"]
    lines = [f">gene{at} of a mouse{end}{end.join(wrap(each, 60))}{end}" for at, each in enumerate(sequences)]
    content = "".join(lines).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    _, said, _ = shard(tmp_path, name)
    subprocess.run(said[said.index("gzip -cdf") :], shell=True, cwd=tmp_path, check=True)
    assert read(tmp_path / f"{name}.jsonl") == sequences


def test_the_command_for_reads_of_a_sequencer_works(tmp_path: Path) -> None:
    (tmp_path / "a.fastq").write_text("".join(f"@r{at}\n{'ACGTN' * (5 + at)}\n+\n{'@II+I' * (5 + at)}\n" for at in range(3)))
    _, said, _ = shard(tmp_path, "a.fastq")
    subprocess.run(said[said.index("gzip -cdf") :], shell=True, cwd=tmp_path, check=True)
    assert read(tmp_path / "a.fastq.jsonl") == ["ACGTN" * (5 + at) for at in range(3)]


@pytest.mark.parametrize(
    "text", ["> So he wrote.\nAnd she answered.\n", "> Quoted\nIndeed\nit was.\n", "@home\nall is well\n+\n"]
)
def test_quoted_prose_is_no_sequence(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    assert shard(tmp_path, "a.txt")[0] == 0


@pytest.mark.parametrize(("name", "separator"), [("docs.tsv", "\t"), ("docs.csv", ","), ("docs.tsv.gz", "\t"), ("eu.csv", ";")])
def test_a_table_without_names_of_columns_is_said_and_the_command_works(name: str, separator: str, tmp_path: Path) -> None:
    """As in collections for retrieval: a number or an address, and the text."""
    content = "".join(separator.join([f"D{at}", f"https://x.org/{at}", text]) + "\n" for at, text in enumerate(TEXTS)).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    status, said, _ = shard(tmp_path, name)
    assert (status, "if its first line is a row" in said) == (2, True)
    subprocess.run(["bash", "-c", said[said.index("(printf") :]], cwd=tmp_path, check=True)
    [named] = tmp_path.glob("NEW.*")
    assert documents_of(find_sources([named], field="c3", one_document=False)) == TEXTS


def test_names_of_columns_are_not_taken_for_a_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,Review Text,2nd\n1,One.,x\n")
    _, said, _ = shard(tmp_path, "a.csv")
    assert "found 'id', 'Review Text', '2nd'; use --field" in said
    assert "first line" not in said


def test_the_command_for_a_mailbox_works(tmp_path: Path) -> None:
    (tmp_path / "post.mbox").write_text(REFUSED["post.txt"][0])
    _, said, _ = shard(tmp_path, "post.mbox")
    command = said[said.index("python -c") :].replace("python", shlex.quote(sys.executable), 1)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert read(tmp_path / "post.mbox.jsonl") == ["Hello."]


@pytest.mark.skipif(not shutil.which("jq"), reason="the advice names jq")
@pytest.mark.parametrize(
    "content",
    [
        '{"text":{"0":"One.","1":"Two.","10":"Three."}}',
        '{"text": ["One.", "Two.", "Three."]}',
        '{"columns":["id","text"],"index":[0,1,2],"data":[[1,"One."],[2,"Two."],[3,"Three."]]}',
        '{"data": [{"text": "One."}, {"text": "Two."}, {"text": "Three."}]}',
        '{"version": 1,\n "data": [\n  {"text": "One."},\n  {"text": "Two."}, {"text": "Three."}]}',
    ],
)
def test_columns_of_json_are_said_and_the_command_works(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    _, said, _ = shard(tmp_path, "a.json")
    command = next("jq -c" + line.rpartition("jq -c")[2] for line in said.splitlines() if "jq -c" in line)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert read(tmp_path / "a.json.jsonl") == ["One.", "Two.", "Three."]


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_the_command_for_an_archive_works(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXTS[0])
    name = f"a.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.write(tmp_path / "a.txt", "a.txt")
    else:
        with tarfile.open(tmp_path / name, "w") as archive:
            archive.add(tmp_path / "a.txt", "a.txt")
    _, said, _ = shard(tmp_path, name)
    command = said.partition("give the files in it: ")[2].replace("python", shlex.quote(sys.executable))
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert read(tmp_path / f"{name}.d") == TEXTS[:1]


@pytest.mark.parametrize("start", ["\ufeffid;text\r\n", "id;text\n"])
def test_a_csv_that_excel_wrote_in_europe(start: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(start + "".join(f"{at};{text}\n" for at, text in enumerate(TEXTS)), encoding="utf-8")
    assert read(tmp_path / "a.csv") == TEXTS


def test_a_book_of_gutenberg_is_said_and_the_command_works(tmp_path: Path) -> None:
    (tmp_path / "emma.txt").write_text(
        "The Project Gutenberg eBook of Emma\n\n*** START OF THE PROJECT GUTENBERG EBOOK EMMA ***\n\n"
        f"{PROSE}\n*** END OF THE PROJECT GUTENBERG EBOOK EMMA ***\nLicence.\n"
    )
    status, said, _ = shard(tmp_path, "emma.txt")
    command = said[said.index("sed -n") :].partition(" prints")[0]
    book = subprocess.run(command, shell=True, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert (status, book.strip()) == (0, PROSE.strip())


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("*** START OF THIS PROJECT GUTENBERG EBOOK EMMA ***", "*** END OF THIS PROJECT GUTENBERG EBOOK EMMA ***"),
        ("*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*", "End of The Project Gutenberg Etext of Emma"),
    ],
)
def test_old_books_of_gutenberg_are_known_too(start: str, end: str, tmp_path: Path) -> None:
    (tmp_path / "emma.txt").write_text(f"The Project Gutenberg Etext of Emma\n\n{start}\n\n{PROSE}\n{end}\n")
    _, said, _ = shard(tmp_path, "emma.txt")
    command = said[said.index("sed -n") :].partition(" prints")[0]
    book = subprocess.run(command, shell=True, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert book.strip() == PROSE.strip()


@pytest.mark.parametrize(
    "command",
    [
        "shard --corpus c --one-document-per-file --splitter lines --input emma.txt",
        "vocab --size 120 --output v.txt --input emma.txt",
        "create --output out --format tfrecord --vocab-size 120 --input emma.txt --lines-are-sentences",
        "download bookcorpus --from-files .",
    ],
)
def test_every_command_says_once_what_a_book_has_beside_its_text(command: str, tmp_path: Path) -> None:
    licence = "*** START OF THE PROJECT GUTENBERG EBOOK EMMA ***"
    (tmp_path / "emma.txt").write_text(f"{licence}\n\n" + PROSE.replace("a bridge", "a &quot;bridge&quot;") * 3)
    _, said = run(*command.replace("--vocab-size 120 ", "").split(), cwd=tmp_path)
    assert (said.count("licence of Project Gutenberg"), said.count("documents have HTML")) == (1, 1)


def test_html_in_a_data_set_in_memory_is_said_once(tmp_path: Path) -> None:
    table = pa.table({"text": [f"Town {at} &amp; river.<br>It has a bridge." for at in range(40)]})
    with pytest.warns(bertprep.BertprepWarning) as said:
        bertprep.shard(dataset=table, corpus="c", workdir=tmp_path, shards=1, test_fraction=0)
    assert sum("100% of the first 40 documents have HTML" in str(each.message) for each in said) == 1


def test_books_of_any_kind_take_the_place_of_bookcorpus(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    (tmp_path / "books/emma").write_text(PROSE)
    (tmp_path / "books/persuasion.txt.gz").write_bytes(gzip.compress(PROSE.replace("river", "lake").encode()))
    (tmp_path / "books/cover.png").write_bytes(b"\x89PNG")
    status, said = run("download", "bookcorpus", "--from-files", "books", cwd=tmp_path)
    assert (status, "2 " in said.splitlines()[1]) == (0, True)
    status, _ = run("shard", "--corpus", "bookcorpus", "--shards", "1", "--test-fraction", "0", cwd=tmp_path)
    text = "".join(path.read_text() for path in sorted((tmp_path / "data/sharded").rglob("*_*.txt")))
    assert (status, text.count("river"), text.count("lake")) == (0, 4, 4)


def test_parquet_in_another_compression_is_said(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "a.parquet")
    subprocess.run(["gzip", "a.parquet"], cwd=tmp_path, check=True)
    status, said, _ = shard(tmp_path, "a.parquet.gz")
    assert (status, "gunzip" in said) == (2, True)


def test_an_object_of_a_store_is_recognized_by_its_beginning(store: Store) -> None:
    """The whole object is downloaded as often as without recognition: once to hash it, once to read it."""
    packed = gzip.compress(LINES.encode() + b"".join(b'{"text": "%s"}\n' % token_hex(500).encode() for _ in range(400)))
    assert len(packed) > 2 * HEAD_BYTES
    assert store.request("PUT", "part-00000.gz", packed) == 200
    store.asked.clear()
    [source] = find_sources([f"{store.url}/part-00000.gz"], field="text", one_document=False)
    assert source.reader == JSON_LINES
    assert store.count("GET") == 2  # of which one is the beginning
    assert next(iter(source.documents())) == TEXTS[0]


def test_a_table_with_one_curly_apostrophe_of_windows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(
        b"id,text\n" + "".join(f"{at},It’s {text}\n" for at, text in enumerate(TEXTS)).encode("cp1252")
    )
    status, said, _ = shard(tmp_path, "a.csv")
    assert (status, "iconv -f WINDOWS-1252" in said) == (1, True)


def test_a_window_of_two_gigabytes_as_in_dumps_of_forums(tmp_path: Path) -> None:
    options = zstandard.ZstdCompressionParameters(window_log=31, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=options).compressobj()
    (tmp_path / "RC_2019.zst").write_bytes(packer.compress(LINES.encode()) + packer.flush())
    assert read(tmp_path / "RC_2019.zst") == TEXTS


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [("wiki_00", LINES, "JSON Lines"), ("page", "<html><p>So.</p>", "HTML"), ("notes.md", "So it is.\n", "plain text")],
)
def test_who_inspects_text_is_told_what_it_is(name: str, content: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    status, said = run("inspect", name, cwd=tmp_path)
    assert (status, f"{name}: is {kind}" in said) == (2, True)


def sentences(text: str, cwd: Path, *options: str) -> list[str]:
    """Shard one document; return its sentences."""
    (cwd / "a.txt").write_text(text)
    where = ("--corpus", "c", "--shards", "1", "--test-fraction", "0", "--one-document-per-file")
    assert run("shard", "--input", "a.txt", *where, *options, cwd=cwd)[0] == 0
    [written] = (cwd / "data/sharded").rglob("c_*.txt")
    return written.read_text().split("\n")[:-2]


def test_quotations_of_chinese_novels_open_the_next_sentence(tmp_path: Path) -> None:
    text = "“这是对的。”他说。然后他走了。“好的。”她说。“走吧！”“不。”他们走了。"
    expected = ["“这是对的。”", "他说。", "然后他走了。", "“好的。”", "她说。", "“走吧！”", "“不。”", "他们走了。"]
    assert sentences(text, tmp_path, "--language", "zh") == expected


@pytest.mark.parametrize("page_end", ["\n\f", "\n\f\n", "\n\f\n\n", " \n\f \n"])
def test_a_sentence_goes_on_behind_a_page_break(page_end: str, tmp_path: Path) -> None:
    text = f"The assembly of the mill requires torque values that are consistent with{page_end}the plan for all fasteners."
    assert sentences(text, tmp_path) == [" ".join(text.split())]


def test_a_hyphen_that_belongs_to_a_word_at_the_end_of_a_line_stays(tmp_path: Path) -> None:
    text = (
        "We found undecanal and n-\ntridecanal in the price-\ndetermining samples of the govern-\nment. The n-tridecanal was "
        "in the price-determining samples that a government took.\n"
    )
    said = " ".join(sentences(text, tmp_path))
    assert all(said.count(word) == 2 for word in ("n-tridecanal", "price-determining", "government"))


def test_variants_without_a_rule_in_a_dump_of_zhwiki(tmp_path: Path) -> None:
    state = "-{zh-hans:南卡罗来纳;zh-hk:南卡羅來納;zh-tw:南卡羅來納;}-州是美国的一个州。"
    text = f"電子遊戲（英文：-{{Electronic games}}-）是交互遊戲。{state}"
    page = f"<page><title>游戏</title><ns>0</ns><id>1</id><revision><id>2</id><text>{text}</text></revision></page>"
    (tmp_path / "zhwiki").write_text(f"<mediawiki xml:lang='zh'><siteinfo><dbname>zhwiki</dbname></siteinfo>{page}</mediawiki>")
    status, _, text = shard(tmp_path, "zhwiki")
    assert (status, text.split()) == (0, ["電子遊戲（英文：Electronic", "games）是交互遊戲。", "南卡罗来纳州是美国的一个州。"])


def test_abbreviations_that_splitters_stumble_on(tmp_path: Path) -> None:
    text = (
        "He went, e.g. by train, i.e. The Flyer. If David et al. get it, we go. Lester B. Pearson spoke. The Ph.D. student "
        "left."
    )
    expected = [
        "He went, e.g. by train, i.e. The Flyer.", "If David et al. get it, we go.", "Lester B. Pearson spoke.",
        "The Ph.D. student left.",
    ]  # fmt: skip
    assert sentences(text, tmp_path) == expected


def test_chinese_without_a_mark_or_a_line_break_takes_linear_time(tmp_path: Path) -> None:
    assert len(sentences("今天天气很好" * 80_000, tmp_path, "--language", "zh")) > 1_000  # quadratic time would be minutes


def test_rows_that_are_sentences_are_joined_by_their_document(tmp_path: Path) -> None:
    rows = [{"doc_id": at // 3, "text": f"Sentence {at} stands here."} for at in range(9)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, said, text = shard(tmp_path, "a.jsonl", "--join", "doc_id")
    assert (status, text.count("\n\n"), "9.0" in said, "3.0 sentences" in said) == (0, 3, False, True)


def test_spanish_words_that_an_accent_distinguishes(tmp_path: Path) -> None:
    text = "".join(f"Él hacía el camino hacia la montaña {at}. ¿Él está aquí mañana?\n\n" for at in range(60))
    (tmp_path / "a.txt").write_text(text)
    assert shard(tmp_path, "a.txt")[0] == 0
    status, said = run("vocab", "--corpus", "c", "--size", "120", "--uncased", cwd=tmp_path)
    assert (status, "ñ becomes n" in said) == (0, True)


@pytest.mark.parametrize("name", ["Cafe\u0301 Ada", "Café\u00a0Ada", "Café Ada\u200b"])
def test_copies_that_differ_in_code_points_alone_are_duplicates(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"Café Ada is open. It is.\n\n{name} is open. It is.\n\nAnother one. So it is.\n")
    status, said, text = shard(tmp_path, "a.txt")
    assert (status, text.count("Ada"), "1 document dropped: duplicates" in said) == (0, 1, True)


def test_wrapped_japanese_gets_no_space(tmp_path: Path) -> None:
    text = "日本語の文章をここで折り返すと、長い行が続いて読みにくくなることがあるので、注意して書くことが大切です。" * 6
    wrapped = "\n".join(text[at : at + 40] for at in range(0, len(text), 40))
    assert "".join(sentences(wrapped, tmp_path, "--language", "ja")) == text
