"""The job of `create` and `tokenize`: text shards and a vocabulary, found or made beforehand, as tasks of the work loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bertprep.commands.shard import (
    check_lines_are_sentences,
    check_text_files,
    choose_corpus,
    ensure_shards,
    finished_shards,
    listed_shards,
)
from bertprep.commands.text_summary import is_started, report_shards
from bertprep.commands.vocab import Vocab, find_vocabulary
from bertprep.config import RECORD_FORMATS, InstanceSettings, RecordFormat, Variant, masks_cut_off
from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import as_path
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.instances.vocabulary import load_vocabulary_of
from bertprep.options import narrowed
from bertprep.progress import Reporter
from bertprep.records.dataset_info import ledgers_by_format
from bertprep.sources.corpora import GIVEN, name_corpus
from bertprep.terminal import counted, warn
from bertprep.text.padding import LENGTHS
from bertprep.tokens.make import RecordMaker, TextShard, TokenMaker
from bertprep.tokens.shard import TokenShard
from bertprep.work.choose import find_token_shards
from bertprep.work.data_set import DataSet
from bertprep.work.find import search
from bertprep.work.layout import (
    SPLITS,
    TEST,
    TRAINING,
    VOCABULARY,
    TokenFile,
    record_file_name,
    settings_name,
    split_folder,
    text_shard,
    token_shard_name,
    tokens_name,
)
from bertprep.work.ledger import Entry, Ledger
from bertprep.work.made import Made
from bertprep.work.manifest import RECORDS, TOKEN_SHARDS, Manifest, read_finished, sha256_of_text, versions_of
from bertprep.work.run import Job, Task

if TYPE_CHECKING:
    from bertprep.commands.request import InParts, OfRecords, OfTokens

GENERATOR = "google-research/bert eedf5716"


@dataclass(frozen=True)
class GivenText:
    """Text files that were given as shards, and the lengths of records for which padding is forecast.

    `is_meant` if the user said that their lines are sentences.
    """

    paths: Sequence[Path]
    lengths: Sequence[int]
    is_meant: bool

    def report(self, manifest: Manifest, reporter: Reporter) -> None:
        counts = {what: sum(entry.get(what, 0) for entry in manifest.files.values()) for what in ("documents", "sentences")}
        inputs = counted(len(self.paths), "file")
        report_shards(reporter, inputs, counts, self.paths, lengths=self.lengths, is_meant=self.is_meant)


def make_records(request: OfRecords, workers: int) -> Made:
    """Make the records of a request of `create`."""
    job, text = resolve(request, workers)
    return _run(job, text, request, workers)


def make_tokens(request: OfTokens, workers: int) -> Made:
    """Make the token shards of a request of `tokenize` without a tokenizer."""
    job, text = resolve_tokens(request, workers)
    return _run(job, text, request, workers)


def _run(job: Job, text: GivenText | None, request: InParts, workers: int) -> Made:
    made = job.run(request.read_part(), workers, request.reporter)
    if text and made.is_complete:
        text.report(made.manifest, request.reporter)
    return made


class Shard(NamedTuple):
    """A text shard, or the .bin of a token shard; `entry` is its manifest entry, if any."""

    split: str
    number: int
    path: Path
    entry: Entry | None = None


@dataclass(frozen=True)
class Texts:
    """Text shards: a corpus's, or given text files or token shards."""

    corpus: str
    shards: Sequence[Shard]
    made_from: dict[str, Any]
    is_of_workspace: bool = False
    tokens: DataSet | None = None  # where token shards were given
    ensure: Callable[[], object] | None = None  # makes the shards of the workspace where they are missing


def resolve(request: OfRecords, workers: int) -> tuple[Job, GivenText | None]:
    """Return the job of a request of `create`, and the text to report on.

    Missing text shards and a missing vocabulary are made and kept.

    `inputs` may name token shards, and finished ones of the workspace replace their text. Unless `lines_are_sentences`, text
    for pairs must have a sentence a line.
    """
    settings, variant, formats = narrowed(InstanceSettings, request), request.variant, request.record_formats
    given = find_given_tokens(request.inputs, request.reporter)
    texts = _given_tokens(given, request) if given else find_texts(request, workers, pairs=settings.has_pairs)
    vocabulary = _find_or_train_vocabulary(texts, request, workers)
    kept = _kept_tokens(texts, vocabulary, request)
    taken = {tokens.path.parent for path, tokens in kept.items() if tokens.path != path}
    maker = RecordMaker(
        vocabulary=vocabulary,
        cased=settings.cased,
        checks_text=not texts.is_of_workspace,
        ensure=texts.ensure,
        note=f"create: takes the token shards in {min(taken).parent} where their text is unchanged" if taken else "",
        settings=settings,
        variant=variant,
    )
    tasks = [
        Task(
            str(each.path),
            record_names(formats, texts.corpus, each.split, each.number, variant),
            TextShard(each.path, each.number, kept.get(each.path), each.entry),
        )
        for each in texts.shards
    ]
    if texts.is_of_workspace:
        shards, test_fraction = texts.made_from["shards"], texts.made_from["test_fraction"]
        name = settings_name(settings, shards=shards, test_fraction=test_fraction, variant=variant)
        folders = {each: request.workspace.records(each, name, texts.corpus) for each in formats}
    else:
        folders = {each: as_path(request.output or ".") / each for each in formats}
    made_with = {"generator": GENERATOR, **settings.made_with, **variant.made_with}
    template = _ledger(RECORDS, request.workspace.root, made_with, texts, vocabulary)
    ledgers = ledgers_by_format(template, folders, tasks, dict.fromkeys(SPLITS, maker.shape))
    remarks = [*padding_remark(vocabulary), *mask_remark(settings)]
    text = _given_text(texts, request, (settings.seq,)) if settings.has_pairs else None
    return Job(maker, ledgers, tasks, remarks), text


def resolve_tokens(request: OfTokens, workers: int) -> tuple[Job, GivenText | None]:
    """Return the job of a request of `tokenize`; both files of a token shard have one ledger."""
    texts = find_texts(request, workers, pairs=True)
    vocabulary = _find_or_train_vocabulary(texts, request, workers)
    maker = TokenMaker(vocabulary=vocabulary, cased=request.cased, checks_text=not texts.is_of_workspace, ensure=texts.ensure)
    tasks = [
        Task(
            str(each.path),
            {end: _token_name(texts, each, end) for end in TokenFile},
            TextShard(each.path, each.number, None, each.entry),
        )
        for each in texts.shards
    ]
    ledger = _token_ledger(texts, vocabulary, request)
    return Job(maker, dict.fromkeys(TokenFile, ledger), tasks), _given_text(texts, request, LENGTHS)


def _given_text(texts: Texts, request: OfRecords | OfTokens, lengths: Sequence[int]) -> GivenText | None:
    if texts.is_of_workspace or texts.tokens:
        return None
    return GivenText([each.path for each in texts.shards], lengths, request.lines_are_sentences)


def _ledger(kind: str, folder: Path, made_with: dict[str, Any], texts: Texts, vocabulary: Vocabulary) -> Ledger:
    return Ledger(
        folder=folder,
        kind=kind,
        made_with={**made_with, "corpus": texts.corpus, **texts.made_from, "vocabulary": vocabulary.made_with},
        versions=versions_of("llvmlite", "numpy"),
        copies={VOCABULARY: vocabulary.path},
        advice="choose another --workdir or --corpus" if texts.is_of_workspace else "choose another --output",
    )


def _token_ledger(texts: Texts, vocabulary: Vocabulary, request: OfRecords | OfTokens) -> Ledger:
    folder, made_from = as_path(request.output or "."), texts.made_from
    if texts.is_of_workspace:
        name = tokens_name(
            cased=request.cased,
            vocabulary=vocabulary.sha256,
            shards=made_from["shards"],
            test_fraction=made_from["test_fraction"],
        )
        folder = request.workspace.tokens(name, texts.corpus)
    return _ledger(TOKEN_SHARDS, folder, {"tokenizer": GENERATOR, "cased": request.cased}, texts, vocabulary)


def _token_name(texts: Texts, shard: Shard, end: str) -> str:
    name = token_shard_name(shard.split, texts.corpus, shard.number, end)
    return f"{shard.split}/{name}" if texts.is_of_workspace else name


def record_names(formats: Sequence[RecordFormat], corpus: str, split: str, number: int, variant: Variant) -> dict[str, str]:
    """Return the name of a record file in the folder of each format."""
    return {each: f"{split_folder(each, split)}/{record_file_name(each, corpus, split, number, variant)}" for each in formats}


def find_texts(request: OfRecords | OfTokens, workers: int, *, pairs: bool) -> Texts:
    """Return the text shards that a request names, those of a corpus made first where they are missing.

    With `pairs`, given ones must be of a sentence a line, unless the user says so.
    """
    workspace = request.workspace
    _load_named_vocabulary(request)  # refused before text is sharded
    if request.inputs:
        corpus = name_corpus(GIVEN if request.corpus is None else request.corpus, workspace)
        paths = check_text_files(request.inputs)
        output = as_path(request.output or ".")
        is_known = request.lines_are_sentences or is_started(output, *(output / each for each in RECORD_FORMATS))
        if pairs and not is_known:
            check_lines_are_sentences(paths)
        return Texts(corpus, _given_shards(paths), {"shards": len(paths)})
    corpus = choose_corpus(workspace, request.corpus, request.reporter)
    folder, ensure = workspace.sharded(corpus), partial(_ensure_shards, request, corpus, workers)
    # without a vocabulary, which is trained on the text, the shards may be gone once all is made of them
    sharded = listed_shards(workspace, corpus) if request.vocab is not None else None
    sharded = sharded or ensure()
    made_from = {name: sharded.made_with[name] for name in ("shards", "test_shards", "test_fraction")}
    made_from["text_sha256"] = sha256_of_text(sharded)
    shards = [
        Shard(split, number, folder / (name := text_shard(split, corpus, number)), sharded.files[name])
        for split, count in zip(SPLITS, (made_from["shards"], made_from["test_shards"]), strict=True)
        for number in range(count)
    ]
    return Texts(corpus, shards, made_from, is_of_workspace=True, ensure=ensure)


def _ensure_shards(request: OfRecords | OfTokens, corpus: str, workers: int) -> Manifest:
    if not request.part:
        return ensure_shards(request.workspace, corpus, workers, request.reporter)
    if finished := finished_shards(request.workspace, corpus):
        return finished
    raise UsageError(
        f"{request.workspace.sharded(corpus)}: has no finished text shards of {corpus}, which parts need; make them first: "
        "bertprep shard"
    )


def _given_shards(paths: Sequence[Path]) -> list[Shard]:
    return [Shard(TRAINING, number, path) for number, path in enumerate(paths)]


def _find_or_train_vocabulary(texts: Texts, request: OfRecords | OfTokens, workers: int) -> Vocabulary:
    if texts.tokens:
        named = None if request.vocab is None else find_vocabulary(request.workspace, request.vocab)
        of_tokens = load_vocabulary_of(texts.tokens, named)
        if texts.tokens.manifest is None:  # which would tell whether they are cased
            request.check_case(of_tokens, cased=request.cased)
        return of_tokens
    if (vocabulary := _load_named_vocabulary(request)) is not None:
        return vocabulary
    training = {each.path: each.entry for each in texts.shards if each.split == TRAINING}
    ask = Vocab(workdir=request.workdir, cased=request.cased, progress=request.progress)
    return load_vocabulary(ask.find_or_train(texts.corpus, training, workers, is_default=True))


def _load_named_vocabulary(request: OfRecords | OfTokens) -> Vocabulary | None:
    if request.vocab is None:
        return None
    vocabulary = load_vocabulary(find_vocabulary(request.workspace, request.vocab))
    request.check_case(vocabulary, cased=request.cased)
    return vocabulary


def padding_remark(vocabulary: Vocabulary) -> Iterator[str]:
    """Yield a line for those whose tools take padding to be 0, where it is not."""
    if vocabulary.pad:
        yield f"[PAD] is token {vocabulary.pad} of {vocabulary.path}, so input_ids are padded with it, not 0"


def mask_remark(settings: InstanceSettings) -> Iterator[str]:
    """Yield a line if --pred leaves far fewer masks than --masked-lm-prob implies."""
    if wanted := masks_cut_off(settings.seq, settings.pred, settings.masked_lm_prob):
        yield (
            f"--pred {settings.pred} limits the masks: --masked-lm-prob {settings.masked_lm_prob:g} of "
            f"{settings.seq} tokens would be {wanted}, --pred {min(wanted, settings.longest)} allows them"
        )


def find_given_tokens(inputs: Sequence[Path | str], reporter: Reporter) -> DataSet | None:
    """Return the token shards that --input names; None if it names none."""
    paths = [as_path(path) for path in inputs]
    is_folder = bool(paths) and paths[0].is_dir()  # not of each: it may be a request to a store
    if any(each.suffix in (".bin", ".idx") for each in paths) or (
        is_folder and any(each.content == TOKEN_SHARDS for each in search(paths[0]))
    ):
        found = find_token_shards(paths)
        for note in found.notes:
            warn(note)
        if TEST in found.splits and found.splits != [TEST]:
            reporter.message(
                f"{found.folder}: using its training split; for records of its test split name {found.folder / TEST}"
            )
        return found
    return None


def _given_tokens(tokens: DataSet, request: OfRecords) -> Texts:
    corpus = name_corpus(GIVEN if request.corpus is None else request.corpus, request.workspace)
    cased = tokens.manifest.made_with["cased"] if tokens.manifest else request.cased
    if cased != request.cased:
        raise UsageError(f"{tokens.folder}: was tokenized {'with' if cased else 'without'} --cased; make records of it so too")
    if not (shards := _given_shards(tokens.paths(TRAINING))):
        raise UsageError(f"{tokens.folder}: has no training split; name the folder of the split to use")
    return Texts(corpus, shards, {"shards": len(shards)}, tokens=tokens)


def _kept_tokens(texts: Texts, vocabulary: Vocabulary, request: OfRecords) -> dict[Path, TokenShard]:
    if texts.tokens:
        folder, listed = texts.tokens.folder, texts.tokens.manifest
        return {each.path: TokenShard.of(folder, each.path.relative_to(folder).as_posix(), listed) for each in texts.shards}
    ledger, finished = _token_ledger(texts, vocabulary, request), None
    if texts.is_of_workspace:
        with contextlib.suppress(BertprepError):  # then the text is tokenized
            finished = read_finished(ledger.folder, TOKEN_SHARDS, ledger.made_with)
    if finished is None:
        return {}
    return {each.path: TokenShard.of(ledger.folder, _token_name(texts, each, TokenFile.BIN), finished) for each in texts.shards}
