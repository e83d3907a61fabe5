"""Whatever is wrong with a command line, or with what it names, is one line on standard error, and nothing is written.

The tables are shell lines: {a|b} stands for a line with a and a line with b, {NAME} for one with each of `THINGS[NAME]`. They
run in the folder that `tests.broken_inputs` makes.
"""

import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bertprep
import trainer.bench
import trainer.cli
import trainer.evaluate
import trainer.start
from bertprep import cli
from tests import broken_inputs

THINGS = {
    "CREATE": ("create --input text.txt --output out --vocab vocab.txt",),
    "PRETRAIN": ("pretrain --data a",),
    "NO_NUMBER": ("abc", "1e3", "1.5", "''", "0x10", "1,5", "5x"),
    "TOO_MANY": ("99999999999999999999",),
    "VOCABULARY": tuple(f"vocabularies/{name}.txt" for name in broken_inputs.VOCABULARIES),
    "RECORDS": tuple(f"broken/{name}" for name in broken_inputs.RECORDS),
    "JSON": tuple(f"json/{name}.json" for name in broken_inputs.JSON),
    "MODEL": tuple(f"models/{name}.json" for name in broken_inputs.MODELS),
}

BERTPREP = r"""
{''|task|task glue|task qa|download|inspect|create create|--seq 128|-x|--nothing|create -seq 128|inspect a b|convert a}
{creat|Create|help|vocab tran|vocab train|plan|plan --seq 512|report good.tfrecord}
{download|shard|vocab|task squad|task glue mrpc|tokenize|create|convert|validate|inspect|push} --no-such-option
{create --sead 1|create --voc v|create --seq|create --seq 1 2|create --whole-word=yes|create out|create --json f.json}
{vocab --siz 5|task squad --name x|task glue mrpc --version 2.0}
{shard --splitter|shard --splitter words|shard --split|download squad --models x}

{CREATE} --{seq|pred|dupe|seed|workers} {NO_NUMBER}
{CREATE} --{seq|pred|dupe|workers} {-1|0|TOO_MANY}
{CREATE} --seed -1
{CREATE} --{masked-lm-prob|short-seq-prob} {abc|''|-0.1|1.1|nan|inf|-inf|1e400}
{CREATE} --format {hdf5|''|tfrecord,hdf5|,}
{CREATE} --corpus {''|../x|/x}
create {--input text.txt|--output out|--input|--corpus nothing --workdir w|--corpus wikipedia --workdir w}
{CREATE} --{engine ray|finish|task squad|vocab-size 400|executor|executor slurm|part 3|part 2/2|part x/2|part slurm}
{CREATE} --{input_file a|output_file a|do_lower_case|do_lower_case=False|nodo_lower_case|do_whole_word_mask=True|action create}
{CREATE} --{use_v2_feature_names=True|gzip_compress|max_seq_len 128|whole-word=True|cased False}
task squad --{train_file a|predict_file a|version_2_with_negative=True|output_dir a|do_lower_case=False}
task glue --{task_name MRPC|data_dir a}
{squad|glue|train|pretrain|validate --input a|task glue mrpc --name x}
{CREATE} --{max_seq_length 7|max_predictions_per_seq 0|dupe_factor x|random_seed -1|masked_lm_prob 2|short-seq-prob}
create --input text.txt --output {text.txt|text.txt/x} --vocab vocab.txt
create --output out --vocab vocab.txt --input {missing|folder|empty.txt|blank.txt|latin1.txt|binary.txt}
create --output out --vocab vocab.txt --input {dangling|loop|fifo|text.txt/x|''}
create --input text.txt missing --output out --vocab vocab.txt
create --input text.txt --output out --vocab {VOCABULARY}
create --input text.txt --output out --vocab {missing.txt|folder|loop|text.txt/x|''|a/b/c|bert-base-uncased}
create --workdir {sharded_hello|sharded_cut|sharded_listing|sharded_is_a_file} --corpus mine --vocab vocab.txt

tokenize {--input text.txt|--output out|--input|--corpus nothing --workdir w|--seq 5|--workers 0|--part 0/2 --workdir w}
tokenize --output out --vocab vocab.txt --input {missing|folder|empty.txt|blank.txt|latin1.txt|binary.txt|dangling|loop|fifo|''}
tokenize --input text.txt --output {text.txt|text.txt/x} --vocab vocab.txt
tokenize --input text.txt --output out --vocab {missing.txt|folder|text.txt/x|''}

shard --input text.txt --workdir w --shards {0|-1|x|3|TOO_MANY}
shard --input text.txt --workdir w --test-fraction {1|-1|nan|x|''}
shard --input text.txt --workdir w {--language English|--language ''|--workers 0|--corpus ''|--corpus a/b|--field}
shard --workdir w --input {missing|folder|empty.txt|blank.txt|latin1.txt|dangling|loop|fifo|text.txt/x|''}
shard --workdir w --input {nowhere://x|file:///missing}
shard --input {cut.jsonl|numbers.jsonl|other.jsonl|cut.parquet|cut.txt.gz|no.txt.zst|no.txt.bz2|text.txt missing} --workdir w
shard --input {cut.arrow|cut.csv|short.tsv|no_set|no_splits} --workdir w
shard --dataset {no_set|no_splits|folder|no_set --split test} --corpus x --workdir w
shard --input text.txt --workdir {text.txt|download_is_a_file/download}
shard --input text.txt --workdir sharded_is_a_file --corpus x
shard {--corpus nothing --workdir w|--corpus bookcorpus --workdir w}
shard {--corpus wikipedia --workdir half_download|--corpus bookcorpus --workdir half_books}

vocab --input text.txt --output v/vocab.txt --size {NO_NUMBER}
vocab --input text.txt --output v/vocab.txt --size {-1|0|4}
vocab --input {missing|folder|empty.txt|blank.txt|latin1.txt|fifo|loop} --output v/vocab.txt
vocab {--input text.txt --output folder|--input text.txt --output text.txt/x|--corpus nothing --workdir w}

create --dry-run --input text.txt --output out --vocab vocab.txt --json {folder|text.txt|text.txt/plan.json}
create --dry-run {--corpus nothing --workdir w|--input missing|--input folder}

inspect good.tfrecord {--record -1|--record 2|--record x|--record TOO_MANY|--records 0|--records x|--search ''|--search wor%d}
{inspect|validate} good.tfrecord --vocab {VOCABULARY}
inspect good.tfrecord --vocab {missing|folder|binary.txt}
convert good.tfrecord made.ofrecord {--to|--to hdf5|--to ''|--shards 0|--shards -1|--shards x|--workers 0}
convert {missing out|folder out|a a|a text.txt|good.tfrecord good.tfrecord|good.tfrecord folder --to tfrecord|mixed out}
convert good.tfrecord missing/../text.txt/x
validate good.tfrecord {--sample 0|--sample x|--workers 0|--vocab missing|--vocab folder}
validate good.tfrecord --masked-lm-prob {x|nan|2|-1}
validate good.tfrecord --json {folder|text.txt|text.txt/x.json}
{validate|validate missing|validate folder|validate a missing|inspect missing|inspect folder|inspect a|inspect ''}
validate good.tfrecord --html {folder|text.txt|text.txt/x.html}
{inspect|validate} {RECORDS}
convert {RECORDS} made
{inspect|validate} {dangling|loop|fifo|text.txt|text.txt/x}
convert {dangling|loop|fifo|text.txt|text.txt/x|vocab.txt} made
validate {killed|other_manifest|text_manifest|no_files|other_vocabulary}
convert {killed|other_manifest|text_manifest|no_files|other_vocabulary}/tfrecord/settings/corpus made

download {dataset|dataset squad|dataset me/a..b|me/a dataset|me/a|dataset me/a/b} --workdir w
push {missing|folder|text.txt|sharded_hello|loop} me/a
push folder {me|me/|/me|me/a/b|me/a--b|'me/a b'|../a|''|me/a.git}
push folder me/a --license {''|'A b'|-x|MIT}
{validate s3://bucket/../x|create --workdir http://host/data|convert s3:///x y|shard --workdir s3://bucket/a?b}
{shard --dataset ftp://host/data|push a you/data --workdir s3://bucket/data|download vocab --workdir s3://bucket/data}
{download bookcorpus --from-files s3://bucket/data|download wikipedia --from-dump s3://bucket/dump.xml}
download {nothing|squad nothing|Wikipedia|squad --language de|squad --from-files folder|squad --model x} --workdir w
download wikipedia --language {DE|''|../de} --workdir w
download {wikipedia --date today|wikipedia --date 2023|squad --date 20240101} --workdir w
download wikipedia --from-dump {missing|folder|ftp://x|http://|text.txt --date 20240101} --workdir w
download bookcorpus --from-files {missing|folder|text.txt} --workdir w
download {weights --model a/b/c|weights --model ''|vocab --model ../x} --workdir w
download squad --connections {0|-1|x|TOO_MANY} --workdir w
download wikipedia --workdir half_download
"""

TRAINER = r"""
{train|pretrian|exprot|help|--nothing|-x|--step 5|--steps|pretrain x|pretrain --sead 5|export|export a|export a b c|bench x}
{squad --seq 96|glue --max_seq_length 96|bench --nothing|bench --step 5|export --too google a b}

{PRETRAIN} --{steps|batch-size|accumulate|warmup-steps|save-every|keep|seed} {abc|1e3|1.5|-1}
{PRETRAIN} --{steps|batch-size|accumulate} {0|TOO_MANY}
{PRETRAIN} --{save-every|log-every|keep|seq} 0
{PRETRAIN} --lr {abc|-1|-1e-3|nan|inf|''|1,|1e400|0}
{PRETRAIN} --batch-size {1,2|1,|,|''|1;2}
{PRETRAIN} {--devices 0|--devices x|--devices -1|--stages 0|--stages x|--stages 2|--eager|--checkpoint-activations}
{PRETRAIN} {--strategy none|--engine none|--engine jax|--amp fp8|--optimizer sgd|--schedule cosine}
{PRETRAIN} {--format hdf5|--format ofrecord}
{PRETRAIN} --{weight-decay|beta1|beta2|epsilon|clip-norm} {abc|-1|nan|inf|''}
{PRETRAIN} --{init text.txt|init vocab.txt|init folder|init broken|out /proc/none|out /dev/null/x|keep-best yes|lengthen 5}
{PRETRAIN} {--hosts x|--hosts a:1|--host-rank 0}
{PRETRAIN} {--hosts a:1 --host-rank 1|--hosts a:1 --host-rank -1|--hosts a:x --host-rank 0}
{PRETRAIN} {--seq 128|--seq x|--phases 8:1.0|--steps 5 --warmup-steps 6|--init missing|--init dangling}
{PRETRAIN} --out {text.txt|text.txt/x|folder/../text.txt|dangling|loop}
{PRETRAIN} --vocab {missing|folder|vocab.txt}
{PRETRAIN} --vocab {VOCABULARY}
{PRETRAIN} --model {missing|folder|''}
{PRETRAIN} --model {JSON}
{PRETRAIN} --model {MODEL}
--data {missing|folder|text.txt|a long|alone/unknown|dangling|loop|fifo|mixed|broken|''|a a/x}
--seq 8 --workdir {missing|folder|text.txt|killed|no_manifest|other_manifest|text_manifest|no_files|other_vocabulary}
--seq 8 --workdir records_are_a_file
--workdir workspace --phases {8|8:|:|8:x|x:1.0|8:0.5|8:0.5,8:0.6|8:0.5,8:5|8:0|8:-5|''|8:nan,8:0.5|0:5|-8:5|8:5,|8:1e400}

bench {--seq 0|--seq x|--seq 513|--pred 0|--pred 200|--batch-size 0|--batch-size x|--batch-size larger|--accumulate 0|--steps 0}
bench {--skip -1|--repeats 0|--devices 0|--amp x|--engine x|--optimizer x|--data missing|--data folder|--out text.txt}
bench --model {none|json/empty.json|json/null.json|json/list.json|json/cut.json}
export {missing|folder|text.txt|a|good.tfrecord|dangling|loop|fifo} model
export {a a|a text.txt|a text.txt/x|--to onnx a model}
"""


def lines_of(table: str) -> list[str]:
    """The command lines of a table."""
    found = []
    for line in table.split("\n"):
        parts = re.split(r"\{(.*?)\}", line)  # every second one stood in braces
        choices = [[part] if place % 2 == 0 else choices_of(part) for place, part in enumerate(parts)]
        found += ["".join(chosen) for chosen in itertools.product(*choices)] if line else []
    return found


def choices_of(braced: str) -> list[str]:
    if braced in THINGS:
        return list(THINGS[braced])
    return [choice.replace("TOO_MANY", THINGS["TOO_MANY"][0]) for choice in braced.split("|")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that all command lines are run in, one after the other."""
    return broken_inputs.make(tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="module")
def before(place: Path) -> dict[str, tuple[int, int]]:
    return state_of(str(place))


def state_of(folder: str) -> dict[str, tuple[int, int]]:
    """Every file and folder below `folder`, with what changes where one is written; quick, for it is asked after every line."""
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


@pytest.fixture
def refuse(
    place: Path, before: dict[str, tuple[int, int]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[str, str, Callable[[list[str]], int]], str]]:
    """Run a command line that must be refused; returns the one line of complaint."""

    def give_up(*_: object) -> None:
        raise AssertionError("the command waits, as for the other end of a pipe")

    def run(program: str, line: str, main: Callable[[list[str]], int]) -> str:
        try:
            status: object = main(shlex.split(line))
        except SystemExit as end:
            status = end.code
        said = capsys.readouterr().err
        assert status in (1, 2), said
        [complaint] = [each for each in said.splitlines() if not PROGRESS.match(each)]
        assert complaint.startswith(f"{program}: error: ")
        after = state_of(str(place))
        new = [path for path in after if path not in before]
        written = [path for path in new if Path(path).is_file()]
        for path in new:  # so that the next line finds the place as it was
            shutil.rmtree(path, ignore_errors=True)
            Path(path).unlink(missing_ok=True)
        assert {path: after.get(path) for path in before} == before
        assert not [path for path in written if Path(path).name not in UNFINISHED and "/." not in path]
        return complaint

    monkeypatch.chdir(place)
    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(600)
    yield run
    signal.alarm(0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


PROGRESS = re.compile(r"[\w ]+: [\d,]+(/[\d,]+)? (files|shards|runs), ")
UNFINISHED = {"vocab.txt"}
"""What a refused run may leave beside hidden files: nothing that anybody could take for what was asked for."""


ONE_FORM = "is for TFRecord only, no reader of OFRecord takes it"


@pytest.mark.parametrize("line", lines_of(BERTPREP))
def test_bertprep_refuses_in_one_line(line: str, refuse: Callable[..., str]) -> None:
    refuse("bertprep", line, cli.main)


@pytest.mark.parametrize("line", lines_of(TRAINER))
def test_the_trainer_refuses_in_one_line_before_it_opens_an_engine(
    line: str, refuse: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (trainer.start, trainer.evaluate, trainer.bench):
        monkeypatch.setattr(module, "open_engine", None)
    refuse("trainer", line, trainer.cli.main)


def test_the_number_of_broken_inputs_is_large() -> None:
    assert len(set(lines_of(BERTPREP))) > 400
    assert len(set(lines_of(TRAINER))) > 200


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("create --sead 1", "--sead: unknown option, did you mean --seed? bertprep create --help-all lists the options"),
        ("create --seq=5 --voc=v", "--voc: unknown option, did you mean --vocab? bertprep create --help-all lists the options"),
        ("create -seq 5", "-seq: unknown option, did you mean --seq? bertprep create --help-all lists the options"),
        ("inspect --recrods 5", "--recrods: unknown option, did you mean --records? bertprep inspect --help lists the options"),
        ("create --xyzzy", "--xyzzy: unknown option; bertprep create --help-all lists the options"),
        ("vocab --vocab_size 4", "--size 4: must be at least 5"),
        ("vocab --siz 5", "--siz: unknown option, did you mean --size? bertprep vocab --help-all lists the options"),
        ("creat", "creat: unknown command, did you mean create? bertprep --help lists the commands"),
        ("vocab train --size 5", "vocab train: is now bertprep vocab"),
        ("plan --seq 512", "plan: is now bertprep create --dry-run"),
        ("create --engine ray", "--engine: is now --executor"),
        ("convert a b --finish", "--finish: is now --part finish"),
        ("shard --assign hash", "--assign: is gone: documents always go to shards by the hash of their text"),
        ("create --verify", "--verify: is now bertprep validate --remove-damaged, and then this command again"),
        ("create --task squad", "--task: is now a command, bertprep task squad or bertprep task glue"),
        ("tokenize --vocab-size 8000", "--vocab-size: is now bertprep vocab --size, before this command"),
        ("create --do_lower_case=False", "--do_lower_case=False: is --cased here"),
        ("create --do_lower_case=True", "--do_lower_case=True: is the default; leave it out"),
        ("create --sequence-length 9", "--sequence-length: unknown option, did you mean --seq?"),
        ("create --input_file=a", "--input_file: is --input here, followed by one or more files"),
        ("create --whole-word=True", "--whole-word=True: is a flag, which takes no value; give it alone, or leave it out"),
        ("create --cased False --seq 5", "--cased: is a flag, which takes no value; give it alone, or leave it out"),
        ("squad", "squad: is bertprep task squad, and to train on it python -m trainer squad"),
        ("task glue --task_name=MRPC", "--task_name: is an argument here, as in bertprep task glue mrpc"),
        ("task glue nope", "nope: GLUE has no such task; choose one of cola, "),
        ("task squad --version_2_with_negative", "--version_2_with_negative: is --version 2.0 here; the default is 1.1"),
        ("task squad", "the vocabulary of google-bert/bert-base-uncased, the default, is not downloaded; "),
        ("create --input cut.parquet --output out", "--input cut.parquet: expected text with one sentence per line; "),
        ("shard text.txt", "text.txt: not expected here, did you mean --input text.txt? bertprep shard --help-all lists"),
        ("create --max_seq_length 7", "--seq 7: must be at least 8 and at most 65,535"),
        ("task glue", "which task of GLUE? name it, as in bertprep task glue mrpc"),
        ("task qa", "qa: unknown command; choose one of squad, glue; bertprep task --help lists the commands"),
        (
            "xyzzy",
            "xyzzy: unknown command; choose one of download, shard, vocab, tokenize, create, task, convert, validate, inspect, "
            "push; bertprep --help lists the commands",
        ),
        ("", "the following arguments are required: COMMAND; bertprep --help lists the commands"),
        ("create --seq abc", "--seq abc: must be a whole number"),
        ("create --seq -1e3", "--seq -1e3: must be a whole number"),
        ("create --dupe", "--dupe: expected one argument; bertprep create --help-all lists the options"),
        ("create five", "five: not expected here, did you mean --input five? bertprep create --help-all lists the options"),
        ("vocab --workers 5000", "--workers 5000: must be at least 1 and at most 4,096"),
        ("shard --splitter words", "--splitter words: unknown; choose one of sentencex, lines"),
        ("create --corpus wikipedia --workdir w", "--corpus wikicorpus_en: is not in w/download/wikicorpus_en; "),
        ("create --input text.txt --output out --vocab ''", ".: is not a plain file; name a vocab.txt with --vocab"),
        ("vocab --corpus c --input text.txt --output v", "--corpus: has no effect with both --input and --output"),
        ("convert loop made", "loop: does not exist; name a record file or a folder of them"),
        ("create --input text.txt", "--input and --output go together"),
        ("create --input text.txt --output out --vocab missing.txt", "--vocab missing.txt: does not exist"),
        ("create --input text.txt --output out --vocab folder", "folder: is not a plain file"),
        ("create --input folder --output out", "--input folder: is a folder; name the files in it"),
        ("create --input binary.txt --output out --vocab vocab.txt", "binary.txt: byte 4 (0xff) is not UTF-8"),
        ("create --input text.txt --output text.txt --vocab vocab.txt", "text.txt/tfrecord/.ledger/settings.json: cannot"),
        ("create --corpus ''", "--corpus : must be wikipedia, bookcorpus"),
        ("vocab --input latin1.txt --output v.txt", "latin1.txt: "),
        ("vocab --input folder", "--input folder: is a folder; name the files in it"),
        ("validate good.tfrecord --vocab none.txt", "--vocab none.txt: does not exist; "),
        ("inspect good.tfrecord --vocab none.txt", "--vocab none.txt: does not exist; "),
        ("inspect folder", "folder: is a folder; name a record file in it"),
        ("inspect missing", "missing: does not exist; name a record file"),
        ("inspect text.txt", "text.txt: "),
        ("validate missing", "missing: does not exist; "),
        ("validate folder", "folder: holds no record files"),
        ("create --seq 128 --pred 126", "--pred 126: must be at least 1 and at most 125"),
        ("create --masked-lm-prob nan", "--masked-lm-prob nan: must be above 0 and at most 1"),
        ("create --format hdf5", "--format hdf5: unknown; choose one of tfrecord, ofrecord"),
        ("create --compress zstd", "--compress zstd: unknown; choose one of none, gzip"),
        ("create --json f.json", "--json: is for the forecast of --dry-run"),
        ("create --corpus ../x", "--corpus ../x: must be wikipedia, bookcorpus"),
        ("create --corpus mine --workdir w", "--corpus mine: has no text shards in w/sharded/mine; make them first: bertprep "),
        ("create --dry-run --corpus mine --workdir w", "--corpus mine: has no text shards in w/sharded/mine; make "),
        ("create --dry-run --corpus bookcorpus --workdir w", "--corpus bookscorpus: is not in w/download/bookscorpus; "),
        ("create --dry-run --input missing --output out", "--input missing: does not exist"),
        ("create --input empty.txt --output out --vocab vocab.txt", "empty.txt: is empty; expected one sentence a line"),
        ("create --input blank.txt --output out --vocab vocab.txt", "blank.txt: holds no document"),
        ("create --compress gzip --feature-names tf2", f"--feature-names tf2 --compress gzip: {ONE_FORM}; give --format tf"),
        ("convert good.tfrecord made --compress gzip", f"--compress gzip: {ONE_FORM}; give --to tfrecord"),
        ("convert a made --compress gzip --to ofrecord", f"--compress gzip: {ONE_FORM}; give --to tfrecord"),
        ("convert good.tfrecord made --part 0/2", "good.tfrecord: is one file, which has no parts"),
        ("validate a --json a/manifest.json", "--json a/manifest.json: exists and is not a .json file of this command"),
        ("validate a --html good.tfrecord", "--html good.tfrecord: exists and is not a .html file of this command"),
        ("validate a --json -", "--json -: is not a file name"),
        ("download wiki", "wiki: cannot be downloaded, did you mean wikipedia? choose from wikipedia, bookcorpus"),
        ("create --workdir text.txt", "--workdir text.txt: is a file, not a folder; choose another --workdir"),
        ("shard --input nowhere/*.txt", "--input nowhere/*.txt: matches no file; there is no folder nowhere"),
        ("download squad --language de", "--language goes with wikipedia, which is not requested"),
        ("download squad --date 20240101", "--date goes with wikipedia, which is not requested"),
        ("download squad --from-dump x", "--from-dump goes with wikipedia, which is not requested"),
        ("download wikipedia --from-files x", "--from-files goes with bookcorpus, which is not requested"),
        ("download squad --model x", "--model goes with weights or vocab, which is not requested"),
        ("download wikipedia --language ../x", "--language ../x: must be the code of a Wikipedia"),
        ("download wikipedia --date yesterday", "--date yesterday: must be a day such as 20231101"),
        ("download wikipedia --date 20240101 --from-dump x", "--date and --from-dump do not go together"),
        ("download vocab --model ../../x", "--model ../../x: must be a model of the Hub"),
        ("download wikipedia --from-dump https://x/", "https://x/: does not end with a file's name"),
        ("push a me/a..b", "me/a..b: is not the name of a data set on the Hub"),
    ],
)  # fmt: skip
def test_messages_of_bertprep(line: str, says: str, refuse: Callable[..., str]) -> None:
    assert refuse("bertprep", line, cli.main).startswith(f"bertprep: error: {says}")


def test_a_misspelled_keyword_names_the_function_and_the_nearest_one() -> None:
    with pytest.raises(TypeError, match=r"^create\(\) got an unexpected keyword argument 'seqq', did you mean seq\?$"):
        bertprep.create(seqq=3)  # type: ignore[call-arg]


def test_all_options_of_another_tool_are_reported_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["create", "--input_file=a", "--vocab_file=v", "--do_lower_case=True", "--xyzzy"]) == 2
    assert [line.split(": ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "--input_file", "--do_lower_case=True", "--xyzzy",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "line", "says"),
    [
        ("bertprep", "creat", "creat: unknown command, did you mean create?"),
        ("bertprep", "--sead 1", "--sead: unknown option"),
        ("bertprep", "inspect broken/short.tfrecord", "broken/short.tfrecord: record 1: by its length "),
        ("trainer", "--data missing", "missing: does not exist"),
        ("trainer", "export text.txt model", "text.txt: "),
    ],
)
def test_processes_refuse_as_main_does_and_load_no_framework(program: str, line: str, says: str, place: Path) -> None:
    code = (
        f"import runpy, sys; sys.modules.update(tensorflow=None, oneflow=None, jax=None); sys.argv[1:] = {shlex.split(line)!r}"
        f"; runpy.run_module({program!r}, run_name='__main__')"  # an import of what is None fails
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert done.stderr.startswith(f"{program}: error: {says}")
    assert done.stderr.count("\n") == 1
