"""What `create` and `tokenize` do: text shards and a vocabulary, found or made beforehand, as tasks of the work loop."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertprep.commands import Created
from bertprep.commands.shard import check_lines_are_sentences, check_text_files, choose_corpus, ensure_shards, finished_shards
from bertprep.commands.vocab import DEFAULT_VOCABULARY_SIZE, find_vocabulary, trained_vocabulary
from bertprep.config import Dialect, InstanceSettings, RecordFormat
from bertprep.errors import BertprepError, UsageError
from bertprep.files.places import place
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.options import narrowed
from bertprep.progress import Reporter
from bertprep.records.data_sets import DataSet, find_token_shards, load_vocabulary_of, search
from bertprep.records.make import RecordMaker, TextShard, TokenMaker, ledgers_by_format
from bertprep.records.token_shards import TokenFile, TokenShard
from bertprep.sources.corpora import GIVEN, name_corpus
from bertprep.work.layout import (
    MANIFEST,
    SPLITS,
    TEST,
    TRAINING,
    VOCABULARY,
    Workspace,
    record_file_name,
    settings_name,
    split_folder,
    text_shard,
    token_shard_name,
    tokens_name,
)
from bertprep.work.ledger import Ledger, check_begun_by_older
from bertprep.work.manifest import RECORDS, TOKEN_SHARDS, Manifest, read_finished, versions_of
from bertprep.work.parts import Part
from bertprep.work.run import Maker, Task, run

if TYPE_CHECKING:
    from bertprep.commands.create import Create
    from bertprep.commands.request import OfText
    from bertprep.commands.tokenize import Tokenize

GENERATOR = "google-research/bert eedf5716"
_MUCH_MORE = 1.1  # 77 masks of 512 tokens with --pred 76, as in MLPerf's records, need no remark


@dataclass(frozen=True)
class Job:
    """The tasks of a command, what makes them, and the ledgers of the folders that they go to; `remarks` are for people."""

    maker: Maker
    ledgers: Mapping[str, Ledger]
    tasks: Sequence[Task]
    remarks: Sequence[str] = ()

    def run(self, part: Part | None, workers: int, reporter: Reporter) -> Created:
        """Make what is missing."""
        started = time.monotonic()
        for line in self.remarks:
            reporter.say(line)
        made = run(self.maker, self.ledgers, self.tasks, part, workers, reporter)
        folders = {str(key): ledger.folder for key, ledger in self.ledgers.items()}
        manifests = {str(key): manifest for key, manifest in made.manifests.items()}
        return Created(folders, manifests, time.monotonic() - started, made.tasks)


@dataclass(frozen=True)
class Texts:
    """The text shards of a corpus, or what the user gave as such: text files, or token shards, whose files are their .bin."""

    workspace: Workspace
    corpus: str
    shards: list[tuple[str, int, Path]]  # split, number, file
    made_from: dict[str, Any]
    sharded: Manifest | None  # of the text shards of a corpus
    tokens: DataSet | None = None  # where token shards were given


def resolve(request: Create, workers: int, part: Part | None) -> Job:
    """Return the job that a request of `create` describes; missing text shards and a missing vocabulary are made and kept.

    A `part` needs finished text shards, which many machines can have made no other way. `inputs` may name token shards, and
    finished ones of the workspace are taken instead of the text they were made of. Unless `lines_are_sentences`, text that is
    to give pairs must look as if they were.
    """
    settings, dialect, formats = narrowed(InstanceSettings, request), request.dialect, request.record_formats
    given = find_given_tokens(request.inputs, request.reporter)
    texts = _given_tokens(given, request) if given else find_texts(request, workers, part)
    if request.inputs and not given and settings.has_pairs and not request.lines_are_sentences:
        check_lines_are_sentences([path for _, _, path in texts.shards])
    vocabulary = vocabulary_of(texts, request, workers, part)
    kept = _kept_tokens(texts, vocabulary, cased=settings.cased)
    taken = {shard.bin.parent for path, shard in kept.items() if shard.bin != path}
    remark = f"create: takes the tokens in {min(taken)} as long as the text is the same" if taken else ""
    maker = RecordMaker(
        vocabulary=vocabulary, cased=settings.cased, checks_text=texts.sharded is None, remark=remark, settings=settings,
        dialect=dialect,
    )  # fmt: skip
    tasks = [
        Task(
            str(path),
            record_names(formats, texts.corpus, split, number, dialect),
            TextShard(path, number, kept.get(path), _entry_of(texts, split, path)),
        )
        for split, number, path in texts.shards
    ]
    template = Ledger(
        folder=texts.workspace.root,
        kind=RECORDS,
        made_with={
            "generator": GENERATOR,
            **settings.made_with,
            **dialect.made_with,
            "corpus": texts.corpus,
            **texts.made_from,
            "vocabulary": vocabulary.made_with,
        },
        versions={},
        copies={VOCABULARY: vocabulary.path},
        advice=_advice(texts),
    )
    if texts.sharded:
        made_from = texts.made_from
        name = settings_name(settings, shards=made_from["shards"], test_fraction=made_from["test_fraction"], dialect=dialect)
        folders = {each: texts.workspace.records(each, name, texts.corpus) for each in formats}
    else:
        folders = folders_of(request.output, formats)
    ledgers = ledgers_by_format(template, folders, tasks, dict.fromkeys(SPLITS, maker.shape))
    return Job(maker, ledgers, tasks, [*padding_remark(vocabulary), *mask_remark(settings)])


def resolve_tokens(request: Tokenize, workers: int, part: Part | None) -> Job:
    """Return the job that a request of `tokenize` describes; both files of a token shard have one ledger."""
    texts, cased = find_texts(request, workers, part), request.cased
    if request.inputs and not request.lines_are_sentences:
        check_lines_are_sentences([path for _, _, path in texts.shards])
    vocabulary = vocabulary_of(texts, request, workers, part)
    made_with = _tokens_made_with(texts.corpus, texts.made_from, vocabulary, cased=cased)
    tasks = [
        Task(
            str(path),
            {
                end: ("" if texts.sharded is None else f"{split}/") + token_shard_name(split, texts.corpus, number, end)
                for end in TokenFile
            },
            TextShard(path, number, None, _entry_of(texts, split, path)),
        )
        for split, number, path in texts.shards
    ]
    ledger = Ledger(
        folder=_tokens_folder(texts.workspace, made_with, vocabulary) if texts.sharded else place(request.output or "."),
        kind=TOKEN_SHARDS,
        made_with=made_with,
        versions=versions_of("llvmlite", "numpy"),
        copies={VOCABULARY: vocabulary.path},
        advice=_advice(texts),
    )
    maker = TokenMaker(vocabulary=vocabulary, cased=cased, checks_text=texts.sharded is None)
    return Job(maker, dict.fromkeys(TokenFile, ledger), tasks)


def _advice(texts: Texts) -> str:
    return "choose another --workdir or --corpus" if texts.sharded else "choose another --output"


def record_names(formats: Sequence[RecordFormat], corpus: str, split: str, number: int, dialect: Dialect) -> dict[str, str]:
    """Return the name of a record file in the folder of each format."""
    return {each: f"{split_folder(each, split)}/{record_file_name(each, corpus, split, number, dialect)}" for each in formats}


def folders_of(output: Path | str | None, formats: Sequence[RecordFormat]) -> dict[RecordFormat, Path]:
    """Return the folder of each format's records in an --output folder, which must not be one of bertprep 0.2."""
    folder = place(output or ".")
    check_begun_by_older(folder)
    if (folder / MANIFEST).exists():
        raise BertprepError(
            f"{folder / MANIFEST}: is there already, and each format has one of its own now, such as "
            f"{folder / formats[0] / MANIFEST}; choose another --output"
        )
    return {each: folder / each for each in formats}


def find_texts(request: OfText, workers: int, part: Part | None) -> Texts:
    """Return the text shards that a request names, those of a corpus made first where they are missing."""
    workspace = request.workspace
    if request.vocab is not None:
        find_vocabulary(workspace, request.vocab)  # refused before text is sharded
    if request.inputs:
        corpus = name_corpus(GIVEN if request.corpus is None else request.corpus, workspace)
        shards = [(TRAINING, number, path) for number, path in enumerate(check_text_files(request.inputs))]
        return Texts(workspace, corpus, shards, {"shards": len(shards)}, None)
    corpus = choose_corpus(workspace, request.corpus, request.reporter)
    folder = workspace.sharded(corpus)
    sharded = finished_shards(workspace, corpus) if part else ensure_shards(workspace, corpus, workers, request.reporter)
    if sharded is None:
        raise UsageError(
            f"{folder}: has no finished text shards of {corpus}, which parts need; make them first: bertprep shard"
        )
    made_from = {name: sharded.made_with[name] for name in ("shards", "test_shards", "test_fraction")}
    made_from["text_sha256"] = digest_of_shards(sharded)
    shards = [
        (split, number, folder / text_shard(split, corpus, number))
        for split, count in zip(SPLITS, (made_from["shards"], made_from["test_shards"]), strict=True)
        for number in range(count)
    ]
    return Texts(workspace, corpus, shards, made_from, sharded)


def vocabulary_of(texts: Texts, request: Create | Tokenize, workers: int, part: Part | None) -> Vocabulary:
    """Return the vocabulary that is named, or one trained on the training shards, and kept; for token shards their own."""
    named = None if request.vocab is None else find_vocabulary(texts.workspace, request.vocab)
    if texts.tokens:
        return load_vocabulary_of(texts.tokens, named)
    if named is not None:
        return load_vocabulary(named)
    path = trained_vocabulary(
        texts.workspace,
        texts.corpus,
        {path: _entry_of(texts, split, path) for split, _, path in texts.shards if split == TRAINING},
        size=DEFAULT_VOCABULARY_SIZE,
        cased=request.cased,
        part=part,
        workers=workers,
        reporter=request.reporter,
    )
    return load_vocabulary(path)


def padding_remark(vocabulary: Vocabulary) -> Iterator[str]:
    """Yield a line for those whose tools take padding to be 0, where it is not."""
    if vocabulary.pad:
        yield f"create: [PAD] is token {vocabulary.pad} of {vocabulary.path}: padding of input_ids has that id"


def mask_remark(settings: InstanceSettings) -> Iterator[str]:
    """Yield a line where --pred leaves a full sequence with far fewer masks than --masked-lm-prob, as Google's script does."""
    wanted = round(settings.seq * settings.masked_lm_prob)
    if wanted > _MUCH_MORE * settings.pred:
        yield (
            f"create: --pred {settings.pred} limits the masks: --masked-lm-prob {settings.masked_lm_prob:g} of "
            f"{settings.seq} tokens would be {wanted}, --pred {min(wanted, settings.longest)} allows them"
        )


def _entry_of(texts: Texts, split: str, path: Path) -> dict[str, Any] | None:
    """Return the manifest entry of a text shard; None for text that was given."""
    return texts.sharded.files[f"{split}/{path.name}"] if texts.sharded else None


def find_given_tokens(inputs: Sequence[Path | str], reporter: Reporter) -> DataSet | None:
    """Return the token shards that --input names, by a folder or by their files; None where it names no such."""
    paths = [place(path) for path in inputs]
    is_folder = bool(paths) and paths[0].is_dir()  # not of each: it may be a request to a store
    if any(each.suffix in (".bin", ".idx") for each in paths) or (
        is_folder and any(each.kind == TOKEN_SHARDS for each in search(paths[0]))
    ):
        found = find_token_shards(paths)
        for note in found.notes:
            reporter.say(note)
        if TEST in found.splits and found.splits != [TEST]:
            reporter.say(f"{found.folder}: its training split is taken; records of the other are made of {found.folder / TEST}")
        return found
    return None


def _given_tokens(tokens: DataSet, request: Create) -> Texts:
    """Return given token shards as shards: those of the training split, or of the one that was named."""
    corpus = name_corpus(GIVEN if request.corpus is None else request.corpus, request.workspace)
    cased = tokens.manifest.made_with["cased"] if tokens.manifest else request.cased
    if cased != request.cased:
        raise UsageError(f"{tokens.folder}: was tokenized {'with' if cased else 'without'} --cased; make records of it so too")
    shards = [(TRAINING, number, path) for number, path in enumerate(tokens.paths(TRAINING))]
    if not shards:
        raise UsageError(f"{tokens.folder}: has no training split; name the folder of the one to make records of")
    return Texts(request.workspace, corpus, shards, {"shards": len(shards)}, None, tokens)


def _kept_tokens(texts: Texts, vocabulary: Vocabulary, *, cased: bool) -> dict[Path, TokenShard]:
    """Return the token shards of each text shard: those that were given, or finished ones of the workspace."""
    if texts.tokens:
        folder, listed = texts.tokens.folder, texts.tokens.manifest
        return {path: TokenShard.of(folder, path.relative_to(folder).as_posix(), listed) for _, _, path in texts.shards}
    if not texts.sharded:
        return {}
    made_with = _tokens_made_with(texts.corpus, texts.made_from, vocabulary, cased=cased)
    folder = _tokens_folder(texts.workspace, made_with, vocabulary)
    try:
        finished = read_finished(folder, TOKEN_SHARDS, made_with)
    except BertprepError:  # then the text is tokenized
        return {}
    names = [f"{split}/{token_shard_name(split, texts.corpus, n, TokenFile.BIN)}" for split, n, _ in texts.shards]
    return (
        {path: TokenShard.of(folder, name, finished) for (_, _, path), name in zip(texts.shards, names, strict=True)}
        if finished
        else {}
    )


def _tokens_made_with(corpus: str, made_from: dict[str, Any], vocabulary: Vocabulary, *, cased: bool) -> dict[str, Any]:
    return {"tokenizer": GENERATOR, "cased": cased, "corpus": corpus, **made_from, "vocabulary": vocabulary.made_with}


def _tokens_folder(workspace: Workspace, made_with: dict[str, Any], vocabulary: Vocabulary) -> Path:
    name = tokens_name(
        cased=made_with["cased"],
        vocabulary=vocabulary.sha256,
        shards=made_with["shards"],
        test_fraction=made_with["test_fraction"],
    )
    return workspace.tokens(name, made_with["corpus"])


def digest_of_shards(sharded: Manifest) -> str:
    """Return one sha256 for the text of all shards."""
    return hashlib.sha256("".join(entry["sha256"] for _, entry in sorted(sharded.files.items())).encode()).hexdigest()
