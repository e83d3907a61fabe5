"""Whatever is wrong with a command line, or with what it names, is one line on standard error, and nothing is written.

Each row has an exit status (2: the command line, 1: the data), a shell line and words of the complaint; {a|b} stands for a row
with a and a row with b. The lines are run in the folder that `place` makes. The trainer has a table of its own.
"""

import gzip
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import bertprep
from bertprep import cli
from tests.golden import GOLDEN
from tests.instances.small_tokenizers import write_tokenizer
from tests.records.handmade import FIRST, SECOND, Variant, file_of

BERTPREP = """
2 create --sead 1 => --sead: unknown option, did you mean --seed? bertprep create --help-all lists the options
2 create {--seq=5 --voc=v|--voc v} => --voc: unknown option, did you mean --vocab?
2 create -seq 5 => -seq: unknown option, did you mean --seq?
2 inspect --recrods 5 => --recrods: unknown option, did you mean --records? bertprep inspect --help lists the options
2 {download|shard|vocab|tokenize|create|convert|validate|inspect|push} --xyzzy => --xyzzy: unknown option; bertprep
2 task {squad|glue mrpc} --xyzzy => --xyzzy: unknown option; bertprep task
2 create --corp x => --corp: unknown option, did you mean --corpus?
2 create --sequence-length 9 => --sequence-length: unknown option, did you mean --seq?
2 --xyzzy => --xyzzy: unknown option; bertprep --help lists the commands
2 -x => the following arguments are required: COMMAND; bertprep --help lists the commands
2 {inspect a -x|create -x 5} => -x: unknown option; bertprep
2 {creat|Create} => : unknown command, did you mean create? bertprep --help lists the commands
2 xyzzy => xyzzy: unknown command; choose one of download, shard, vocab, tokenize, create, task, convert, validate,
2 '' => unknown command; choose one of
2 task qa => qa: unknown command; choose one of squad, glue, ner; bertprep task --help lists the commands
2 task => the following arguments are required: COMMAND
2 {download|inspect|convert a} => the following arguments are required:
2 inspect a b => b: not expected here; bertprep inspect takes one FILE
2 convert a b c => c: not expected here; bertprep convert takes SRC and DST
2 shard --input text.txt --corpus sample => --corpus sample: is the name of the sample corpus; give your own text another name
2 shard --input cut.jsonl --field title body => body: not expected here, did you mean --field title,body?
2 create --format tfrecord ofrecord => ofrecord: not expected here, did you mean --format tfrecord,ofrecord?
2 create {five|--seq 1 five} => five: not expected here, did you mean --input five?
2 create {--dupe|--seq} => : expected one argument; bertprep create --help-all lists the options
2 create --input => --input: expected at least one argument
2 {squad|plan|report|help} => : unknown command
2 vocab train --size 5 => train: not expected here, did you mean --input train?
2 create --do_lower_case=False => --do_lower_case: is the default here; give --cased for false
2 task glue --task_name=MRPC => --task_name: is an argument of bertprep task glue, as in bertprep task glue mrpc
2 validate {--output-dir|--max-seq-len|--input} x => : unknown option
2 create --input_file=a --vocab_file=v --do_lower_case=True --xyzzy => --input_file: is --input here
2 create --max_seq_length 7 => --seq 7: must be at least 8 and at most 65,535
2 create {--whole-word=True|--whole-word=yes|--cased False} => : is a flag, which takes no value; give it alone, or leave it out
2 task glue => task glue: expected the name of a task, as in bertprep task glue mrpc
2 task glue {nope|mrcp} => : is not a GLUE task; choose one of cola,
2 task squad --version 3.0 => --version 3.0: unknown; choose one of 1.1, 2.0
2 task squad => the default vocabulary, of google-bert/bert-base-uncased, is not downloaded
2 task squad --vocab vocab.txt --input x.json => --input x.json: does not exist

2 create --{seq|pred|dupe|seed|workers} {abc|1.5|''|0x10|1,5} => : must be a whole number
2 create --seq {-1|0|99999999999999999999} => : must be at least 8 and at most 65,535
2 create --seq 128 --pred 126 => --pred 126: must be at least 1 and at most 125, the 128 tokens of a sequence minus
2 create --masked-lm-prob {abc|''} => : must be a number
2 create --masked-lm-prob {-0.1|1.1|nan|1e400} => : must be above 0 and at most 1
2 create --format {hdf5|''|tfrecord,hdf5} => : unknown; choose one of tfrecord, ofrecord, arrow, parquet
2 create --compress zstd => --compress zstd: unknown; choose one of none, gzip
2 create --compress gzip --feature-names tf2 => : is for TFRecord only, and OFRecord has no such variant; give --format tf
2 create --corpus {''|../x|/x} => must be wikipedia, bookcorpus
2 create --corpus books+more => run the command once each for books and more, with the same --vocab, then give the trainer both
2 create --executor slurm => --executor slurm: unknown; choose one of local, ray
2 create --input text.txt --output out --part {3|x/2} => : is not a part; expected I/N, such as 0/400
2 create --vocab vocab.txt --input text.txt --output out --part 2/2 => --part 2/2: there is no part 2 of 2; parts are
2 create --vocab vocab.txt --input text.txt --output out --part slurm => but SLURM_ARRAY_TASK_ID is not set; give --part I/N
2 create --dry-run --part {1/4|finish} --input text.txt --output out --vocab vocab.txt => : a forecast is for all parts
2 create --dry-run --executor ray --input text.txt --output out --vocab vocab.txt => : a forecast is made on this machine; leave
2 create --dry-run --input megatron --output out => --input megatron/tokens: has token shards, and a forecast needs text
2 {shard|tokenize --tokenizer wordpiece} --input cut.jsonl --field body --field text => --field: is given twice; give all at
2 create --format tfrecord --format ofrecord => --format: is given twice; give all at once: --format tfrecord,ofrecord
2 shard --input text.txt --input cut.jsonl => --input: is given twice; give all at once: --input text.txt cut.jsonl
2 create --recipe bert --recipe=mlperf => --recipe: is given twice, bert and mlperf; give one
2 create --json f.json => --json: is for the forecast of --dry-run
2 vocab --vocab_size 4 => --size 4: must be at least 5
2 vocab --workers 5000 => --workers 5000: must be at least 1 and at most 4,096
2 vocab --corpus c --input text.txt --output v => --corpus: has no effect together with --input and --output

2 {create|tokenize} {--input text.txt|--output out} => --input and --output go together
2 create --output out --vocab vocab.txt --input {missing|loop|text.txt/x|text.txt missing} => : does not exist
2 create --output out --vocab vocab.txt --input folder => --input folder: is a folder, expected text shards; bertprep shard
1 create --output out --vocab vocab.txt --input binary.txt => binary.txt: byte 4 (0xff) is not UTF-8
1 create --output out --vocab vocab.txt --input empty.txt => empty.txt: is empty; expected one sentence per line
1 create --output out --vocab vocab.txt --input blank.txt => blank.txt: contains no document
2 {create --output out|tokenize --output out|vocab} --input cut.{parquet|jsonl|txt.gz} => expected plain text with one sentence
2 {create --output out|vocab} --input d.{json|xml|xml-p1p2} => : expected plain text with one sentence per line; make text
2 {create --output out|vocab|shard|tokenize --tokenizer wordpiece --output out} --input a.html => a.html: is HTML
2 {create --output out|vocab|shard|tokenize --tokenizer wordpiece --output out} --input in/manifest.json => : is a manifest,
2 {create --output out|vocab|shard|tokenize --tokenizer wordpiece --output out} --input text.txt folder/../text.txt => is given
2 {create --output out|tokenize --output out|vocab} --input text.txt ./text.txt => text.txt: is given twice; give each text once
2 {shard|tokenize --tokenizer wordpiece --output out} --input cut.jsonl ./cut.jsonl => cut.jsonl: is given twice; give each text
2 {shard|tokenize --tokenizer wordpiece --output out} --input text.txt --dataset folder => --dataset and --input: give only one
1 create --input text.txt --output text.txt --vocab vocab.txt => text.txt/tfrecord/.ledger/settings.json: cannot
2 create --input text.txt --output out --vocab missing.txt => --vocab missing.txt: does not exist
1 create --input text.txt --output out --vocab folder => folder/vocab.txt: cannot be read as a vocabulary: No such file
2 create --input text.txt --output out --vocab loop => --vocab loop: is neither a file nor a vocabulary in data; if it is
1 {create|tokenize} --input text.txt --output out --vocab text.txt => text.txt: lacks [PAD], [UNK], [CLS], [SEP], [MASK]
2 {create|tokenize} --cased --input text.txt --output out --vocab vocab.txt => vocab.txt: none of its tokens is a capital
2 {create|create --dry-run|tokenize} --cased --workdir w --vocab vocab.txt => ; leave --cased out, or name a cased
2 task {glue own|ner own|squad} --cased --input train.tsv --vocab vocab.txt => ; leave --cased out, or name a cased
2 {create|create --dry-run|tokenize} --input text.txt --output out --vocab cased.txt => : 3 of its 8 tokens have capital
2 task {glue own|ner own|squad} --input train.tsv --vocab cased.txt => ; add --cased, or name an uncased vocabulary; --any-case
2 tokenize --tokenizer x --any-case => --any-case: does not work with --tokenizer, whose file has all
1 {inspect|validate} good.tfrecord --vocab binary.txt => binary.txt: byte 4 is not UTF-8; expected a text file
2 create --corpus wikipedia --workdir w => --corpus wikipedia: is not in w/download/wikicorpus_en
2 create --dry-run --corpus bookcorpus --workdir w => --corpus bookcorpus: has no text shards in w/sharded
2 {create|create --dry-run|tokenize|vocab|shard} --corpus mine --workdir w => : has no text shards in w/sharded/mine; make them
2 {create|shard|tokenize} --workdir text.txt => --workdir text.txt: is a file, not a folder; choose another --workdir
2 create --dry-run --input text.txt --output out --vocab vocab.txt --json folder => --json folder: is a folder; name the file
2 create --dry-run --input text.txt --output out --vocab vocab.txt --json text.txt/f.json => does not exist; make it first

2 shard --input text.txt --workdir w --shards 3 => --shards 3: the text has 2 documents, one of them for testing
2 shard --input text.txt --workdir w --test-fraction {1|-1|nan} => : must be at least 0 and below 1
2 shard --input text.txt --workdir w --language English => must be a code in lower case, such as en, de or zh
2 shard --splitter words => --splitter words: unknown; choose one of bertprep-1, lines
2 shard text.txt => text.txt: not expected here, did you mean --input text.txt?
2 shard --workdir w --input {missing|file:///missing} => : does not exist
2 shard --workdir w --input fifo => --input fifo: is not a file
2 shard --workdir w --input folder => --input folder: the folder has no file that ends in .arrow, .csv
2 shard --workdir w --input nowhere/*.txt => --input nowhere/*.txt: matches no file; there is no folder nowhere
2 shard --workdir w --input nowhere://x => --input nowhere://x: cannot be opened (Protocol not known: nowhere)
1 shard --workdir w --input empty.txt => corpus: no document in 1 input; expected text with a blank line between documents
1 shard --workdir w --input binary.txt => binary.txt: byte 4: expected UTF-8, found 0xff
1 shard --workdir w --input {cut.jsonl|cut.parquet|cut.txt.gz} => cut.
2 shard --dataset folder --corpus x --workdir w => --dataset folder: has no state.json or dataset_dict.json
1 vocab --input binary.txt --output v.txt => binary.txt: byte 4: expected UTF-8, found 0xff
1 vocab --input empty.txt --output v.txt => empty.txt: no words found to train a vocabulary on
1 vocab --input text.txt --output text.txt/x => cannot be written:
2 {vocab|create|tokenize} --cased --uncased => --cased and --uncased: give only one of the two
2 vocab --input text.txt --special ent => --special ent: text may have this as a word; put it in brackets, as in [ent]
2 vocab --input text.txt --coverage 0 => --coverage 0: must be above 0 and at most 1
2 vocab --input text.txt --output folder => --output folder: is a folder; name the file to write, such as folder/vocab.txt

1 inspect good.tfrecord --record -1 => vocab.txt: is not the vocabulary of good.tfrecord: record 0 has ids
2 convert {missing|dangling|loop|text.txt/x} out => : does not exist; name a file or folder of records or token shards
2 {inspect|validate} good.tfrecord --vocab none.txt => --vocab none.txt: does not exist
2 {inspect|validate} texts => texts: has no records, but text such as book.txt; make records from it
2 inspect folder => folder: has no record files; name a record file, or a folder
2 inspect {missing|dangling} => ; name a record file
2 inspect fifo => fifo: is neither a folder nor a file; name a file or folder
2 inspect text.txt => text.txt: is plain text, expected records or a token shard; to show the text, run head -n 20 text.txt
2 inspect cut.jsonl => cut.jsonl: is JSON Lines or a JSON array, expected records or a token shard
1 {inspect short.tfrecord|convert short.tfrecord out} =>
1 validate short.tfrecord => errors found; each line above says what to do
2 validate {missing|above missing} => missing: does not exist
2 {validate folder|convert folder out} => folder: has no record files
2 validate => data: does not exist
2 validate above --json cut.jsonl => --json cut.jsonl: exists, and this option did not write it;
2 validate above --json in/mine.json => --json in/mine.json: exists, and this option did not write it;
2 validate above --html {good.tfrecord|a.html} => : exists, and this option did not write it; name another
2 create --dry-run --input text.txt --output out --vocab vocab.txt --json {d.json|in/manifest.json} => : exists, and this
2 vocab --input text.txt --size 40 --output {text.txt|vocab.txt|cased.txt|good.tfrecord} => : exists, and this option did
2 convert good.tfrecord {text.txt --to tfrecord|b.part --to ofrecord} => : exists with other content than this conversion's;
2 validate above --json new.json --html ./new.json => --html new.json: is also the file of --json; name two
2 validate above --json - => --json -: is not a file name
2 validate above --{sample|workers} {0|x} => : must be

2 convert m*.x out => m*.x: does not exist; name a file or folder of records or token shards, patterns are not expanded
2 convert {good.tfrecord good.tfrecord|above/a ./above/a/} => : is the source itself
2 convert {above/a above/a/below|above/a .} => : must neither contain the source above/a nor be in it
2 convert good.tfrecord out --to csv => --to csv: unknown; choose one of tfrecord, ofrecord, arrow, parquet
2 convert good.tfrecord out --{shards|pick} 0 => : must be at least 1
2 convert good.tfrecord out --shards 3 => --shards 3: the source has 2 records, and each file needs at least one
2 convert good.tfrecord out --pick 3 => --pick 3: the source has 2 records
2 convert above/a out --pick 3 => --pick 3: the training split has 2 records
2 convert above/a out --pick 1 --shards 2 => --shards 2: --pick selects 1 record, and each file needs at least one
2 convert good.tfrecord folder => folder: is a folder; name the file to write, or give --shards
2 convert above/a good.tfrecord => good.tfrecord: is a file; name a folder for the records
1 convert {text.txt out|vocab.txt out} => : is neither TFRecord, OFRecord, Arrow nor Parquet
2 convert above out => above: has 2 data sets; name one, such as above/a
2 convert two_formats out => two_formats: has files of several formats; choose the format
1 convert mixed out => mixed/b: has records of 16 tokens and 2 predictions, expected 8 and 2 like mixed/a
1 convert above/a taken => taken/training/part-0: exists and is in no manifest
2 convert {good.tfrecord|above/a} b.arrow --to ofrecord => --to ofrecord: the name b.arrow is that of arrow files
2 convert good.tfrecord made --compress gzip => --compress gzip: is for TFRecord only, and OFRecord has no such variant; give --
2 convert good.tfrecord made --part 0/2 => good.tfrecord: is a single file, which --part
2 convert good.tfrecord made --executor ray => --executor ray: has no effect on good.tfrecord, a single file; leave it out, or
2 convert megatron made --to mds --seq 64 {--pred 3|--pick 2|--shards 2} => has no meaning for --to mds; leave it out
2 tokenize --eod-token x => --eod-token: unknown option
1 convert good.tfrecord missing/../text.txt/x => cannot be written: missing/../text.txt is a file, expected a folder

2 push {missing|folder|loop|text.txt} me/a =>
2 push folder {me|me/|/me|me/a/b|me/a--b|me/a..b|'me/a b'|../a|''|me/a.git} => : is not the name of a data set on the Hub
2 push folder me/a --license {''|'A b'|MIT} => : must be one of the Hub's names, such as cc-by-4.0, mit or other
2 download {wiki|Wikipedia} => : cannot be downloaded, did you mean wikipedia? choose from wikipedia, bookcorpus
2 download {nothing|squad nothing|me/a dataset} => : cannot be downloaded; choose from
2 download dataset => dataset: needs a name; give the OWNER/NAME of a data set that bertprep push uploaded
2 download squad {--language de|--date 20240101|--from-dump x} => goes with wikipedia, which is not requested
2 download wikipedia --from-files x => --from-files goes with bookcorpus, which is not requested
2 download squad --model x => --model goes with weights or vocab, which is not requested
2 download wikipedia --language {../x|DE|''} => : must be the code of a Wikipedia
2 download wikipedia --date {yesterday|2023} => : must be a day such as 20231101
2 download wikipedia --date 20240101 --from-dump x => --date and --from-dump cannot be combined
2 download wikipedia --from-dump {missing|folder} => : is not a file; give a pages-articles dump
2 download wikipedia --from-dump https://x/ => https://x/: does not end with a file's name
2 download bookcorpus --from-files {missing|folder} => : has no file of text; give a folder with a text file for each book
2 download {vocab --model ../../x|weights --model ''|weights --model a/b/c} => : must be a model on the Hub
1 download wikipedia --workdir half_download => listing.json: has no format number, so no released version
2 validate s3://bucket/../x => s3://bucket/../x: has "..", which the URL of an object cannot have
2 {create --workdir|shard --dataset} {http|ftp}://host/data => : unknown kind of URL; expected s3://, gs://
2 convert s3:///x y => s3:///x: has no valid bucket name; expected s3://BUCKET/NAME
2 shard --workdir s3://bucket/a?b => s3://bucket/a?b: has a query or a fragment
2 push a you/data --workdir s3://bucket/data => --workdir s3://bucket/data: must be a path
2 download vocab --workdir s3://bucket/data => s3://bucket/data: downloads cannot go to an object store
2 download wikipedia --from-dump s3://bucket/dump.xml => : must be a path on this machine, not a URL
"""


def rows_of(table: str) -> list[tuple[str, int, str]]:
    """(command line, exit status, words) of each row."""
    found = []
    for row in filter(None, table.split("\n")):
        line, words = row.split(" =>", 1)
        parts = re.split(r"\{(.*?)\}", line[2:])  # every second one stood in braces
        choices = [[part] if index % 2 == 0 else part.split("|") for index, part in enumerate(parts)]
        found += [("".join(chosen), int(line[0]), words.removeprefix(" ")) for chosen in itertools.product(*choices)]
    return found


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that all command lines are run in, one after the other: some input of each kind, valid and not."""
    place = tmp_path_factory.mktemp("place")
    two = file_of(FIRST, SECOND)
    other_shape = {name: [*values, *values] for name, values in SECOND.items()}
    other_shape.update(next_sentence_labels=[0], masked_lm_positions=[1, 2], masked_lm_ids=[1, 2], masked_lm_weights=[1, 1])
    for name, content in {
        "vocab.txt": (GOLDEN / "vocab.txt").read_bytes(),
        "cased.txt": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nthe\nof\nA\n##A\nThe\n",
        "text.txt": b"The first sentence.\nThe second one.\n\nAnother document.\nIt has two sentences.\n",
        "empty.txt": b"",
        "blank.txt": b"\n \n\n",
        "binary.txt": b"\x7fELF\xff\xfe\x00\n",
        "cut.jsonl": b'{"text": "A sentence."}\n{"text": \n',
        "cut.parquet": b"PAR1 and no more",
        "d.json": b'[\n  {"text": "A sentence."}\n]\n',
        "d.xml": b"<page>\n</page>\n",
        "d.xml-p1p2": b"<page>\n</page>\n",
        "a.html": b"<p>A sentence.</p>\n",
        "in/manifest.json": b"{\n}\n",
        "in/mine.json": b'{"data_sets": []}',
        "b.part": file_of(FIRST, variant=Variant("ofrecord")),
        "cut.txt.gz": gzip.compress(b"A sentence.\n" * 100)[:-10],
        "good.tfrecord": two,
        "short.tfrecord": two[:-1],
        "above/a/training/part-0": two,
        "above/b/part-0": two,
        "two_formats/a": two,
        "two_formats/b": file_of(FIRST, variant=Variant("ofrecord")),
        "mixed/a": two,
        "mixed/b": file_of(other_shape),
        "taken/training/part-0": two,
        "texts/book.txt": b"A sentence.\n",
        "half_download/download/wikicorpus_en/listing.json": b'{"hello": 1}',
    }.items():
        write(place / name, content)
    write_tokenizer(place, "wordpiece")
    bertprep.tokenize(inputs=[place / "text.txt"], output=place / "megatron", vocab=place / "vocab.txt", workers=1)
    (place / "folder").mkdir()
    (place / "dangling").symlink_to("nowhere")
    (place / "loop").symlink_to("loop")
    os.mkfifo(place / "fifo")
    return place


def state_of(folder: str) -> dict[str, tuple[int, int]]:
    """Every file and folder below `folder`, with what changes where one is written; quick, as it is asked after every line."""
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found[entry.path] = (0, 0)
                found.update(state_of(entry.path))
            else:
                status = entry.stat(follow_symlinks=False)
                found[entry.path] = (status.st_size, status.st_mtime_ns)
    return found


@pytest.fixture(scope="module")
def before(place: Path) -> dict[str, tuple[int, int]]:
    return state_of(str(place))


PROGRESS = re.compile(r"[\w ]+: [\d,]+(/[\d,]+)? (files|shards|runs|tokens), ")


@pytest.fixture
def refuse(
    place: Path, before: dict[str, tuple[int, int]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, int, str], None]:
    """Run a command line that must be refused in one line, and write nothing but hidden files and a vocabulary."""
    monkeypatch.chdir(place)

    def refuse(line: str, status: int, words: str) -> None:
        try:
            found: object = cli.main(shlex.split(line))
        except SystemExit as end:
            found = end.code
        said = capsys.readouterr().err
        [complaint] = [each for each in said.splitlines() if not PROGRESS.match(each)]
        assert complaint.startswith("bertprep: error: ")
        assert (found, words in complaint) == (status, True), complaint
        after = state_of(str(place))
        new = [path for path in after if path not in before]
        written = [path for path in new if Path(path).is_file()]
        for path in new:  # so that the next line finds the place as it was
            shutil.rmtree(path, ignore_errors=True)
            Path(path).unlink(missing_ok=True)
        assert {path: after.get(path) for path in before} == before
        assert not [path for path in written if Path(path).name != "vocab.txt" and "/." not in path]

    return refuse


@pytest.mark.parametrize(("line", "status", "words"), rows_of(BERTPREP))
def test_bertprep_refuses_in_one_line(line: str, status: int, words: str, refuse: Callable[[str, int, str], None]) -> None:
    refuse(line, status, words)


def test_a_misspelled_keyword_names_the_function_and_the_nearest_one() -> None:
    with pytest.raises(TypeError, match=r"^create\(\) got an unexpected keyword argument 'seqq', did you mean seq\?$"):
        bertprep.create(seqq=3)  # type: ignore[call-arg]


def test_a_process_refuses_as_main_does(place: Path) -> None:
    command = [sys.executable, "-m", "bertprep", "inspect", "short.tfrecord"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("bertprep: error: short.tfrecord: record 1: its length says ")
