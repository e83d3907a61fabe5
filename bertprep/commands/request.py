"""Groups of options that several commands share: which files to read and write, and which processes do the work.

A request is a frozen dataclass with all options of a command, whether they come from a shell or from Python. `add_options`
turns its fields into options and `function.function_of` into the keywords of a function; the settings classes among its bases
decide which of them a manifest records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bertprep.config import DEFAULT_FORMATS, RECORD_FORMATS, RecordFormat, Variant
from bertprep.errors import UsageError
from bertprep.files.paths import as_path, is_object, path_arg
from bertprep.options import HOW, MADE, MAX_AT_ONCE, WHERE, Settings, described, narrowed, option
from bertprep.progress import Reporter
from bertprep.work.layout import Workspace
from bertprep.work.parts import Finish, Part, read_part

if TYPE_CHECKING:
    from bertprep.instances.vocabulary import Vocabulary
    from bertprep.work.made import Made
    from bertprep.work.run import Job

LOCAL = "local"
EXECUTORS = (LOCAL, "ray")


@dataclass(frozen=True, kw_only=True)
class Request(Settings):
    """The base of all requests: what a user asks of a command."""

    progress: bool = option(
        False, "report progress on standard error, as the command does (default: off)", python=True, group=HOW
    )

    @property
    def reporter(self) -> Reporter:
        return Reporter(enabled=self.progress)


@dataclass(frozen=True, kw_only=True)
class Where(Request):
    """A request that uses the workspace."""

    group: ClassVar[str] = WHERE
    workdir: Path | str = option(Path("data"), "workspace", metavar="DIR", check=path_arg)

    @property
    def workspace(self) -> Workspace:
        if not is_object(root := as_path(self.workdir)) and root.is_file():
            raise UsageError(f"--workdir {root}: is a file, not a folder; choose another --workdir")
        return Workspace(root)


@dataclass(frozen=True, kw_only=True)
class OfCorpus(Where):
    """A request that names a corpus of the workspace."""

    corpus: str | None = option(
        None, "wikipedia, bookcorpus, wikipedia+bookcorpus, or a name of your own (default: what was downloaded, else sample; "
        "for files of your own, corpus)",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OfDocuments(Request):
    """A request that reads files or a data set of documents."""

    group: ClassVar[str] = WHERE
    inputs: Sequence[Path | str] = field(
        default=(),
        kw_only=False,
        metadata=described(
            "files, folders, patterns, URLs or hf:// paths: text (a blank line ends a document), .jsonl, .csv, .tsv, .parquet, "
            ".arrow, a Wikimedia dump .xml; also .gz, .bz2, .zst (default: what was downloaded, else the sample)",
            name="--input",
            metavar="PATH",
        ),
    )
    dataset: Any = option(
        None, "instead of --input, a data set on the Hub, such as wikimedia/wikipedia:20231101.de, or a folder or URL that "
        "save_to_disk of datasets wrote", metavar="NAME[:CONFIG]|DIR",
    )  # fmt: skip
    split: str | None = option(None, "the split of --dataset (default: train)")
    test_inputs: Sequence[Path | str] = option(
        (), "text for the test split, of any kind that --input accepts; all of --input or --dataset is then training text",
        name="--test-input", metavar="PATH", check=path_arg,
    )  # fmt: skip
    field: str = option(
        "text", "key or column of the text if there are several; title,body joins two as paragraphs",
        metavar="NAME[,NAME]", once=True,
    )  # fmt: skip
    join: str | None = option(
        None, "key or column that is the same in all rows of a document, whose rows follow each other; each row is a line",
        metavar="NAME",
    )  # fmt: skip
    one_document_per_file: bool = option(False, "each text file is one document, even with blank lines")
    one_document_per_block: bool = option(
        False, "each block of a text file between blank lines is one document, even if it has few sentences"
    )

    @property
    def is_given(self) -> bool:
        """Whether --input or --dataset names the text, in place of --corpus."""
        return bool(self.inputs) or self.dataset is not None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inputs and self.dataset is not None:
            raise UsageError("--dataset and --input: give only one of the two")
        if self.test_inputs and not self.is_given:
            raise UsageError(
                f"--test-input {self.test_inputs[0]}: needs training text as well; name it with --input or --dataset"
            )
        if not all(map(str.strip, self.field.split(","))):
            raise UsageError(
                f"--field {self.field!r}: has an empty name; name the key or column, or several separated by commas"
            )
        for option_name, is_used in {
            f"--field {self.field}": self.field != OfDocuments.field,
            f"--join {self.join}": self.join is not None,
            "--one-document-per-file": self.one_document_per_file,
            "--one-document-per-block": self.one_document_per_block,
        }.items():
            if is_used and not self.is_given:
                raise UsageError(f"{option_name}: needs --input or --dataset, whose documents it finds; give one, or omit it")
        if self.one_document_per_file and self.one_document_per_block:
            raise UsageError("--one-document-per-file and --one-document-per-block: give only one of the two")
        if self.split is None:
            return
        if self.dataset is None:
            raise UsageError(f"--split {self.split}: needs --dataset; name the data set, or omit --split")
        from bertprep.sources.hub_text import check_split

        check_split(self.split)


@dataclass(frozen=True, kw_only=True)
class WithVocabulary(Request):
    """A request that reads the vocabulary of existing records or token shards."""

    vocab: Path | str | None = option(
        None, "vocabulary (default: the vocab.txt next to the records)", metavar="FILE", check=path_arg
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vocab is not None and not as_path(self.vocab).exists():
            raise UsageError(f"--vocab {self.vocab}: does not exist; name a vocab.txt, which has one token per line")


@dataclass(frozen=True, kw_only=True)
class How(Request):
    """A request whose work several processes share."""

    group: ClassVar[str] = HOW
    workers: int | None = option(
        None, "worker processes (default: one per CPU)", metavar="PROCESSES", least=1, most=MAX_AT_ONCE
    )


@dataclass(frozen=True, kw_only=True)
class OnExecutor(How):
    """A request whose workers run on this machine or on a cluster."""

    executor: str = option(
        LOCAL, "where workers run: on this machine, or on the Ray cluster at $RAY_ADDRESS", choices=EXECUTORS, rare=True
    )

    def start_workers(self, *, shared: Path | None = None, read: Sequence[Path] = ()) -> int:
        """Return the number of workers; the nodes of a cluster must share the folder and be able to read the inputs."""
        from bertprep.pool import default_workers

        if self.executor == LOCAL:
            return self.workers or default_workers()
        from bertprep.ray_pool import choose_workers

        return choose_workers(self.workers, shared=shared, read=read)


@dataclass(frozen=True, kw_only=True)
class InParts(OnExecutor):
    """A request that can be divided into parts, one for each of many machines."""

    part: str | None = option(
        None, "make only every N-th file, starting with file I, from 0 to N-1; slurm reads I and N from the job array, "
        "kubernetes/N reads I from the Job; finish makes nothing, but checks that all parts are there",
        metavar="I/N", rare=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        self.read_part()  # refuse a wrong part before anything is made

    def read_part(self) -> Part | Finish | None:
        return read_part(self.part)

    def make(self, job: Job, workers: int) -> Made:
        """Make the requested part of a job."""
        return job.run(self.read_part(), workers, self.reporter)

    def finished_lines(self) -> list[str]:
        """Return the line to print after a successful --part finish."""
        return ["all parts are finished, and the manifest is written"] if self.part == "finish" else []


@dataclass(frozen=True, kw_only=True)
class OfVocabulary(Request):
    """A request that checks whether its vocabulary fits `cased`, a field of the subclass."""

    group: ClassVar[str] = MADE
    any_case: bool = option(
        False, "accept a vocabulary that has capital letters without --cased, or has none with --cased", rare=True
    )

    def check_case(self, vocabulary: Vocabulary, *, cased: bool) -> None:
        """Raise `UsageError` for a cased vocabulary and uncased text or vice versa, unless --any-case was given."""
        from bertprep.instances.vocabulary import case_conflict

        if self.any_case or not (conflict := case_conflict(vocabulary, cased=cased)):
            return
        mended = "leave --cased out" if cased else "add --cased"
        other = "a cased" if cased else "an uncased"
        raise UsageError(
            f"--vocab {vocabulary.path}: {conflict}; {mended}, or name {other} vocabulary; --any-case accepts it anyway"
        )


@dataclass(frozen=True, kw_only=True)
class DocumentRequest(OfCorpus, OfDocuments, InParts):
    """A request that reads documents from any source: `shard`, and `tokenize` with a tokenizer."""


@dataclass(frozen=True, kw_only=True)
class TextRequest(OfCorpus, OfVocabulary, InParts):
    """A request that reads text shards, of a corpus or given as files, and a vocabulary: `create` and `tokenize`."""

    vocab: Path | str | None = option(
        None, "vocabulary: a file, one in the workspace such as books_8000, or that of a downloaded model such as "
        "bert-base-uncased (default: the one trained on the corpus; if there is none, train one of 8,000 tokens)",
        metavar="FILE|NAME", check=str,
        also=("--vocab-file",),
    )  # fmt: skip
    uncased: bool = option(
        False, "without --vocab: lower-case the text, even if that changes much more than the case, as in German or Japanese"
    )
    inputs: Sequence[Path | str] = option(
        (), "text files to use as shards unchanged: one sentence per line, a blank line after each document; create "
        "accepts a folder of token shards too", name="--input", metavar="SHARD", check=path_arg,
    )  # fmt: skip
    lines_are_sentences: bool = option(
        False, "treat each line of --input as a sentence, even if most lines have several or documents have one line"
    )
    output: Path | str | None = option(None, "output folder for --input", metavar="DIR", check=path_arg)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_case(self)
        if self.lines_are_sentences and not self.inputs:
            raise UsageError("--lines-are-sentences: needs --input, whose lines it is about; give --input, or omit it")
        self.check_output()

    def check_output(self) -> None:
        """Raise `UsageError` if only one of --input and --output is given."""
        if bool(self.inputs) != (self.output is not None):
            example = self.inputs[0] if self.inputs else "FILES"
            raise UsageError(
                "--input and --output go together: --input names text with one sentence per line and a blank line after each "
                f"document, --output the output folder; bertprep shard --input {example} splits any other text into such shards"
            )


@dataclass(frozen=True, kw_only=True)
class InRows(Request):
    """A request that can write MDS rows of token ids."""

    group: ClassVar[str] = MADE
    seq: int | None = option(
        None, "for MDS: the maximum length of a row in tokens, with [CLS] and [SEP]", metavar="TOKENS", least=4, most=1 << 20
    )
    column: str | None = option(
        None, "for MDS: the name of the column of ids, input_ids for ModernBERT's trainer (default) or tokens for EuroBERT's",
        choices=("input_ids", "tokens"),
    )  # fmt: skip
    dtype: str | None = option(
        None, "for MDS: the type of the ids: int32 for EuroBERT's trainer, int64 for ModernBERT's with streaming: true "
        "(default: uint16 if the tokenizer's ids fit, else int32)", choices=("uint16", "int32", "int64"),
    )  # fmt: skip

    def check_rows(self, how: str, *, is_mds: bool) -> None:
        """Raise `UsageError` if MDS is requested without --seq, or its options are given without `how`, the option for MDS."""
        if is_mds and self.seq is None:
            raise UsageError(f"{how}: needs --seq, the maximum length of a row in tokens, such as --seq 1024")
        for name, value in (("--seq", self.seq), ("--column", self.column), ("--dtype", self.dtype)):
            if not is_mds and value is not None:
                raise UsageError(f"{name} {value}: is only for {how}; add that, or omit {name}")


@dataclass(frozen=True, kw_only=True)
class InFormats(Variant):
    """A request that writes record files in one or more formats."""

    formats: Sequence[str] | str = option(
        DEFAULT_FORMATS, "record formats: tfrecord, ofrecord, arrow, parquet", name="--format", metavar="NAMES",
        separator=",", choices=RECORD_FORMATS,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.formats:
            raise UsageError(f"--format: name one or more of {', '.join(RECORD_FORMATS)}")
        self.variant.check_fits(self.record_formats, "--format")

    @property
    def record_formats(self) -> tuple[RecordFormat, ...]:
        return tuple(each for each in RECORD_FORMATS if each in self.formats)

    @property
    def variant(self) -> Variant:
        return narrowed(Variant, self)


def check_one_case(request: Any) -> None:
    """Raise `UsageError` if a request is both `cased` and `uncased`."""
    if request.cased and request.uncased:
        raise UsageError("--cased and --uncased: give only one of the two")


def check_is_no_folder(option: str, path: Path, name: str) -> None:
    """Raise `UsageError` if the path of a file to write is a folder; the error suggests the file `name` in it."""
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a folder; name the file to write, such as {path / name}")


def check_target(option: str, path: Path | None, suffix: str, is_own: Callable[[Path], bool]) -> None:
    """Raise `UsageError` if `path` cannot be written, or is a file that `is_own` does not recognize (`files.outputs`)."""
    if path is None:
        return
    from bertprep.files.outputs import check_output

    check_is_no_folder(option, path, f"report{suffix}")
    check_output(path, is_own, option)
    if path.exists() and not path.is_file():
        raise UsageError(f"{option} {path}: is a device or a pipe; name a file")
    if not path.name.strip("-"):
        raise UsageError(f"{option} {path}: is not a file name")
    if not is_object(path) and not path.absolute().parent.is_dir():
        raise UsageError(f"{option} {path}: the folder {path.absolute().parent} does not exist; make it first")
