"""Groups of fields that requests share: where things are, and how the work is done.

A request is a frozen dataclass of all options of a command, from a shell or from Python. `add_options` makes options of it,
`function.function_of` a function, and settings classes among its bases the manifest's settings.
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
    """What a user asks of a command; with `progress` it reports what it does on standard error."""

    progress: bool = option(
        False, "report what is done on standard error, as the command does (default: off)", python=True, group=HOW
    )

    @property
    def reporter(self) -> Reporter:
        return Reporter(enabled=self.progress)


@dataclass(frozen=True, kw_only=True)
class Where(Request):
    """The workspace."""

    group: ClassVar[str] = WHERE
    workdir: Path | str = option(Path("data"), "workspace", metavar="DIR", check=path_arg)

    @property
    def workspace(self) -> Workspace:
        if not is_object(root := as_path(self.workdir)) and root.is_file():
            raise UsageError(f"--workdir {root}: is a file, not a folder; choose another --workdir")
        return Workspace(root)


@dataclass(frozen=True, kw_only=True)
class OfCorpus(Where):
    """A corpus of the workspace."""

    corpus: str | None = option(
        None, "wikipedia, bookcorpus, wikipedia+bookcorpus, or a name of your own (default: what was downloaded, or else "
        "sample; corpus for files of your own)",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OfDocuments(Request):
    """The files or the data set to read, and where their text is."""

    group: ClassVar[str] = WHERE
    inputs: Sequence[Path | str] = field(
        default=(),
        kw_only=False,
        metadata=described(
            "files, folders, patterns, URLs or hf:// paths: text (a blank line ends a document), .jsonl, .csv, .tsv, .parquet, "
            ".arrow, a Wikimedia dump .xml; also .gz, .bz2, .zst (default: what was downloaded, or else the sample)",
            name="--input",
            metavar="PATH",
        ),
    )
    dataset: Any = option(
        None, "instead of --input, a data set of the Hub, such as wikimedia/wikipedia:20231101.de, or a folder or URL that "
        "save_to_disk of datasets wrote", metavar="NAME[:CONFIG]|DIR",
    )  # fmt: skip
    split: str | None = option(None, "the split of --dataset (default: train)")
    test_inputs: Sequence[Path | str] = option(
        (), "text of the test split, of any kind that --input takes; all of --input or --dataset is then training text",
        name="--test-input", metavar="PATH", check=path_arg,
    )  # fmt: skip
    field: str = option(
        "text", "key or column of the text where there are several; title,body joins two, each a paragraph",
        metavar="NAME[,NAME]", once=True,
    )  # fmt: skip
    one_document_per_file: bool = option(False, "each text file is one document, even with blank lines")
    one_document_per_block: bool = option(
        False, "each block of a text file, between blank lines, is one document, even if it has few sentences"
    )

    @property
    def is_given(self) -> bool:
        """Whether --input or --dataset names the text, so that it is not that of a corpus."""
        return bool(self.inputs) or self.dataset is not None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inputs and self.dataset is not None:
            raise UsageError("--dataset and --input: give only one of the two")
        if self.test_inputs and not self.is_given:
            raise UsageError(
                f"--test-input {self.test_inputs[0]}: is the test split of --input or --dataset, which name the training text; "
                "give one of them"
            )
        if not all(map(str.strip, self.field.split(","))):
            raise UsageError(
                f"--field {self.field!r}: has an empty name; name the key or column, or several with commas between"
            )
        if self.one_document_per_file and self.one_document_per_block:
            raise UsageError("--one-document-per-file and --one-document-per-block: give only one of the two")
        if self.split is None:
            return
        if self.dataset is None:
            raise UsageError(f"--split {self.split}: goes with --dataset, which is not given")
        from bertprep.sources.hub_text import check_split

        check_split(self.split)


@dataclass(frozen=True, kw_only=True)
class WithVocabulary(Request):
    """The vocabulary of records or token shards that exist."""

    vocab: Path | str | None = option(
        None, "vocabulary (default: the vocab.txt next to the records)", metavar="FILE", check=path_arg
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vocab is not None and not as_path(self.vocab).exists():
            raise UsageError(f"--vocab {self.vocab}: does not exist; name the file, a vocab.txt with one token per line")


@dataclass(frozen=True, kw_only=True)
class How(Request):
    """The processes that do the work."""

    group: ClassVar[str] = HOW
    workers: int | None = option(
        None, "worker processes (default: one per CPU)", metavar="PROCESSES", least=1, most=MAX_AT_ONCE
    )


@dataclass(frozen=True, kw_only=True)
class OnExecutor(How):
    """Processes of this machine or of a cluster."""

    executor: str = option(
        LOCAL, "where workers are: on this machine, or on the Ray cluster at $RAY_ADDRESS", choices=EXECUTORS, rare=True
    )

    def start_workers(self, *, shared: Path | None = None, read: Sequence[Path] = ()) -> int:
        """Return the workers; nodes of a cluster must share the folder and see the inputs."""
        from bertprep.pool import default_workers

        if self.executor == LOCAL:
            return self.workers or default_workers()
        from bertprep.ray_pool import choose_workers

        return choose_workers(self.workers, shared=shared, read=read)


@dataclass(frozen=True, kw_only=True)
class InParts(OnExecutor):
    """A part of the work, for one of many machines."""

    part: str | None = option(
        None, "make only every N-th file from number I on, I from 0 to N-1; slurm takes I and N from the job array, "
        "kubernetes/N takes I from the Job; finish makes nothing, and checks that all parts are there",
        metavar="I/N", rare=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        self.read_part()  # a wrong part is refused before anything is made

    def read_part(self) -> Part | Finish | None:
        return read_part(self.part)

    def make(self, job: Job, workers: int) -> Made:
        """Make this part of a job."""
        return job.run(self.read_part(), workers, self.reporter)

    def finished_lines(self) -> list[str]:
        """Return the line for --part finish, which has found nothing missing."""
        return ["all parts are finished, and the manifest is written"] if self.part == "finish" else []


@dataclass(frozen=True, kw_only=True)
class OfVocabulary(Request):
    """The option to skip the check that a vocabulary fits `cased`, a field of the subclass."""

    group: ClassVar[str] = MADE
    any_case: bool = option(
        False, "accept a vocabulary with capital letters without --cased, or one without them with --cased", rare=True
    )

    def check_case(self, vocabulary: Vocabulary, *, cased: bool) -> None:
        """Raise `UsageError` for a vocabulary that does not fit text of this case, unless --any-case was given."""
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
    """Documents from any source: the input of `shard`, and of `tokenize` with a tokenizer."""


@dataclass(frozen=True, kw_only=True)
class TextRequest(OfCorpus, OfVocabulary, InParts):
    """Text shards, of a corpus or given as files, and a vocabulary: the input of `create` and `tokenize`."""

    vocab: Path | str | None = option(
        None, "vocabulary: a file, one of the workspace such as books_8000, or that of a downloaded model such as "
        "bert-base-uncased (default: the one trained on the corpus; if there is none, one of 8,000 tokens)",
        metavar="FILE|NAME", check=str,
        also=("--vocab-file",),
    )  # fmt: skip
    inputs: Sequence[Path | str] = option(
        (), "text files to use as shards unchanged: one sentence per line, a blank line after each document; create "
        "takes a folder of token shards too", name="--input", metavar="SHARD", check=path_arg,
    )  # fmt: skip
    lines_are_sentences: bool = option(
        False, "treat each line of --input as a sentence, even if most have several or documents have one line"
    )
    output: Path | str | None = option(None, "output folder for --input", metavar="DIR", check=path_arg)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_output()

    def check_output(self) -> None:
        """Raise `UsageError` if only one of --input and --output is given."""
        if bool(self.inputs) != (self.output is not None):
            example = self.inputs[0] if self.inputs else "FILES"
            raise UsageError(
                "--input and --output go together: text with one sentence per line and a blank line after each document, and a "
                f"folder for what is made of it; bertprep shard --input {example} splits any other text into such shards"
            )


@dataclass(frozen=True, kw_only=True)
class InRows(Request):
    """The form of MDS rows of token ids."""

    group: ClassVar[str] = MADE
    seq: int | None = option(
        None, "for MDS: the longest row in tokens, [CLS] and [SEP] included", metavar="TOKENS", least=4, most=1 << 20
    )
    column: str | None = option(
        None, "for MDS: the name of the ids' column, input_ids for ModernBERT's trainer (the default) or tokens for EuroBERT's",
        choices=("input_ids", "tokens"),
    )  # fmt: skip
    dtype: str | None = option(
        None, "for MDS: the type of ids: int32 for EuroBERT's trainer, int64 for ModernBERT's with streaming: true (default: "
        "uint16 where the tokenizer's ids fit, else int32)", choices=("uint16", "int32", "int64"),
    )  # fmt: skip

    def check_rows(self, how: str, *, is_mds: bool) -> None:
        """Raise `UsageError` if MDS rows have no length, or their options come without `how`, the option for MDS."""
        if is_mds and self.seq is None:
            raise UsageError(f"{how}: needs --seq, the longest row in tokens, such as --seq 1024")
        for name, value in (("--seq", self.seq), ("--column", self.column), ("--dtype", self.dtype)):
            if not is_mds and value is not None:
                raise UsageError(f"{name} {value}: goes with {how}")


@dataclass(frozen=True, kw_only=True)
class InFormats(Variant):
    """The formats of the record files."""

    formats: Sequence[str] | str = option(
        DEFAULT_FORMATS, "record formats, of tfrecord, ofrecord, arrow and parquet", name="--format", metavar="NAMES",
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


def check_is_no_folder(option: str, path: Path, name: str) -> None:
    """Raise `UsageError` if the path of a file to write is a folder; `name` is an example of a file in it."""
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a folder; name the file to write, such as {path / name}")


def check_target(option: str, path: Path | None, suffix: str, is_own: Callable[[Path], bool]) -> None:
    """Raise `UsageError` if `path` cannot be written, or holds something that the command did not write (`files.outputs`)."""
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
