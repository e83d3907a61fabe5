"""`bertprep tokenize`: tokenize text once into token shards, from which examples of any length can be made.

By default a vocabulary tokenizes the sentences of text shards. With --tokenizer, a tokenizer.json tokenizes whole documents
from any source.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bertprep.commands.function import function_of
from bertprep.commands.request import DocumentRequest, InRows, TextRequest
from bertprep.config import ShardSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import remove_folder, without_empty_folders
from bertprep.files.paths import as_path, path_arg
from bertprep.options import MADE, WHERE, option
from bertprep.terminal import print_results, warn
from bertprep.work.layout import GIVEN_OBJECTS, HASHED, MDS_FORMAT, TOKENIZER, TOKENS, tokens_name

if TYPE_CHECKING:
    from bertprep.instances.document_tokenizer import DocumentTokenizer
    from bertprep.text.held_out import HeldOut
    from bertprep.text.tokenize_documents import DocumentShards
    from bertprep.work.made import Made

MEGATRON = "megatron"


@dataclass(frozen=True, kw_only=True)
class Tokenize(TextRequest, DocumentRequest, InRows):
    """The request of `tokenize`: text, vocabulary or tokenizer, output folder and workers."""

    group: ClassVar[str] = MADE
    cased: bool = option(False, "keep upper case and accents, for a cased vocabulary")
    tokenizer: Any = option(
        None, "tokenize whole documents with any tokenizer.json: a file, a folder that contains one, or a model on the Hub, "
        "such as answerdotai/ModernBERT-base", metavar="FILE|OWNER/NAME",
    )  # fmt: skip
    format: str = option(
        MEGATRON, "with --tokenizer: megatron writes token shards in Megatron's format; mds also writes rows of --seq tokens "
        "for mosaicml-streaming", choices=(MEGATRON, MDS_FORMAT),
    )  # fmt: skip
    words: Any = option(
        None, "with --tokenizer: the column with the words of each text, as a list of words or of the positions of their first "
        "characters, for text that no tokenizer splits into words, such as Chinese; in Python also a function that returns "
        "the words of a text (default: the words of the tokenizer)", metavar="COLUMN",
    )  # fmt: skip
    test_fraction: float = option(
        0.0, "with --tokenizer and --input: fraction of the text, by size, that is held out for testing, by the hash of each "
        "document as in shard (a corpus has the test split of its text shards)", metavar="FRACTION", least=0, below=1,
    )  # fmt: skip
    append_eod: bool = option(
        False, "with --tokenizer: put the tokenizer's end-of-document token after each document, as in Megatron's GPT data sets"
    )
    inputs: Sequence[Path | str] = option(
        (), "text files to use as shards unchanged: one sentence per line, a blank line after each document; with --tokenizer "
        "documents as for shard: files, folders, patterns or URLs", name="--input", metavar="PATH", check=path_arg,
        group=WHERE,
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.words is not None and not callable(self.words) and not isinstance(self.words, str):
            raise UsageError(
                "words: expected a function that returns the words of a text, or the name of a column, found "
                f"{self.words!r:.80}"
            )
        super().__post_init__()
        self.check_rows("--format mds", is_mds=self.format == MDS_FORMAT)
        of_documents = {
            "--dataset": self.dataset is not None,
            "--field": self.field != "text",
            "--join": self.join is not None,
            "--one-document-per-file": self.one_document_per_file,
            "--format mds": self.format == MDS_FORMAT,
            "--one-document-per-block": self.one_document_per_block,
            "--test-input": bool(self.test_inputs),
            "--test-fraction": bool(self.test_fraction),
            "words": self.words is not None,
            "--append-eod": self.append_eod,
        }
        of_text = {
            "--vocab": self.vocab is not None,
            "--cased": self.cased,
            "--uncased": self.uncased,
            "--any-case": self.any_case,
            "--lines-are-sentences": self.lines_are_sentences,
        }
        if self.tokenizer is None:
            _refuse(
                of_documents, "needs --tokenizer; without it, use bertprep shard first, which splits documents into sentences"
            )
        else:
            _refuse(of_text, "does not work with --tokenizer, whose file has all settings; leave it out")
        if isinstance(self.words, str) and not self.is_given:
            raise UsageError(f"--words {self.words}: names a column of --input or --dataset; give one of these")
        if self.test_fraction and not self.is_given:
            raise UsageError(
                f"--test-fraction {self.test_fraction:g}: is for --input or --dataset; a corpus has the test split that "
                "bertprep shard --test-fraction held out, so leave it out"
            )
        if self.test_fraction and self.test_inputs:
            raise UsageError(
                f"--test-fraction {self.test_fraction:g}: cannot be used with --test-input, which is the whole test split; "
                "give one of them"
            )
        if self.append_eod and self.format == MDS_FORMAT:
            raise UsageError(
                "--append-eod: is only for token shards; rows of --format mds end with the tokenizer's own; omit one of them"
            )
        if self.format == MDS_FORMAT and self.part is not None:
            raise UsageError(
                "--format mds: needs all token shards; make these in parts without it, then run bertprep convert --to mds"
            )

    def check_output(self) -> None:
        if self.tokenizer is None:
            super().check_output()
        elif self.is_given != (self.output is not None):
            raise UsageError("--input or --dataset needs --output, the folder for the tokens; give both or neither")

    def tokenize(self) -> Made:
        """Make token shards from text, in the format of Megatron's indexed data sets (docs/reference/formats.md).

        By default, a vocabulary tokenizes text shards as in `create`, whose `inputs` may name the result. With `tokenizer`,
        which tokenizes whole documents, `inputs` or `dataset` are those of `shard`, and `workers` are threads. The tokenizer is
        a tokenizer.json, a model on the Hub, or an object of transformers or tokenizers. `dataset` may be an object of
        `datasets`, which each run reads again. `test_fraction` of the text is held out as a test split, by the hashes of
        documents like `shard`'s; or `test_inputs` become the test split, and other documents that it contains too are left out.
        Without `inputs` and `dataset`, the files are read again from which the text shards of `corpus` were made, since the
        shards have lost line breaks; these are tokenized, with a warning, only if the files are gone. `words` is a function
        such as `jieba.lcut`, or a column: it defines the whole words that are masked later. With `output`, the shards are in
        output/tokens. `format="mds"` also writes rows to output/mds, and adds an entry "mds" next to "tokens" in `folders` and
        `manifests`.

        Raises `UsageError` for contradictory or impossible arguments, and `BertprepError` for invalid text or vocabulary, a
        failing machine, or an output folder with other settings.

            bertprep.tokenize(vocab="vocab.txt", workdir="data", progress=True)
        """
        started = time.monotonic()
        workers = self.start_workers(shared=as_path(self.output or self.workdir))
        made = self._tokenize_sentences(workers) if self.tokenizer is None else self._tokenize_documents(workers)
        if self.format == MDS_FORMAT:
            made = self._make_mds(made)
        return made.since(started)

    def _tokenize_sentences(self, workers: int) -> Made:
        from bertprep.commands.texts import find_text
        from bertprep.text.summary import report_given
        from bertprep.tokens.make import token_job

        texts, vocabulary, cased = find_text(self, workers, cased=self.cased)
        if texts.is_of_workspace:
            name = tokens_name(
                cased=cased, vocabulary=vocabulary.sha256, shards=texts.made_from["shards"],
                test_fraction=texts.test_fraction,
            )  # fmt: skip
            folder = self.workspace.tokens(name, texts.corpus)
        else:
            folder = as_path(self.output or ".") / TOKENS
        made = self.make(token_job(texts, vocabulary, folder, cased=cased), workers)
        if not texts.is_of_workspace and made.is_complete:
            report_given(self.reporter, texts, made, is_meant=self.lines_are_sentences)
        return made

    def _tokenize_documents(self, workers: int) -> Made:
        if self.output is None or self.part is not None:
            return self._make_of_documents(workers)
        with without_empty_folders(as_path(self.output)):
            try:
                return self._make_of_documents(workers)
            finally:  # a later run writes the objects again
                remove_folder(self.given_folder)

    def _make_of_documents(self, workers: int) -> Made:
        from bertprep.pool import ClusterWorkers
        from bertprep.text.tokenize_documents import document_job, uncovered_warnings

        tokenizer = _open_tokenizer(self)
        eod = self._find_eod(tokenizer)
        if self.output is None:
            documents, folder = self._documents_of_corpus(tokenizer, eod, workers)
        else:
            folder = as_path(self.output) / TOKENS
            documents = self._given_documents(tokenizer, eod, folder, workers)
        is_cluster = isinstance(workers, ClusterWorkers)
        job = document_job(tokenizer, documents, folder, threads=1 if is_cluster else self.workers, eod=eod)
        made = self.make(job, workers if is_cluster or tokenizer.is_compiled else 1)
        for line in uncovered_warnings(made):
            warn(line)
        if made.is_complete:
            remove_folder(folder / HASHED)
        if self.output is not None and self.part is None:
            documents.report(made, self.reporter)
        if made.is_complete and self.output is not None:  # the last part
            remove_folder(self.given_folder)
        return made

    @property
    def given_folder(self) -> Path:
        """The folder in which Python objects are files while token shards are made from them."""
        return as_path(self.output or self.workdir) / GIVEN_OBJECTS

    def _find_eod(self, tokenizer: DocumentTokenizer) -> int | None:
        """Return the id of the token to put after each document, or None."""
        if not self.append_eod:
            return None
        if tokenizer.info.sep is None:
            raise UsageError(
                f"--append-eod: the tokenizer {tokenizer.info.name} has no token that ends a text, such as </s>; leave it out"
            )
        return tokenizer.info.sep

    def _documents_of_corpus(self, tokenizer: DocumentTokenizer, eod: int | None, workers: int) -> tuple[DocumentShards, Path]:
        """Return the documents of a corpus, and the folder for their tokens.

        The documents are read from the files of which the text shards were made, or else from the shards, which have no lines.
        """
        from bertprep.commands.documents import find_sources_of
        from bertprep.commands.texts import find_corpus
        from bertprep.sources.noted import SourcesGoneError
        from bertprep.text.held_out import HeldOut
        from bertprep.text.tokenize_documents import DocumentShards, shards_of_corpus, shards_of_sources
        from bertprep.work.manifest import read_manifest

        texts = find_corpus(self)
        corpus, name = texts.corpus, f"{tokenizer.info.name}_{tokenizer.info.sha256[:8]}"
        folder = self.workspace.tokens(name, corpus)
        if (manifest := read_manifest(self.workspace.sharded(corpus))) is None:
            raise BertprepError(f"{self.workspace.sharded(corpus)}: was removed during the run; run the command again")
        try:
            held_out = HeldOut.of_corpus(manifest)
            inputs: dict[str, Any] = {
                each: manifest.made_with[each] for each in ("inputs", "test_inputs") if each in manifest.made_with
            }
            made_from = {**inputs, **held_out.made_with}
            documents = DocumentShards(corpus, [], made_from, is_of_workspace=True, advice=texts.advice)
            if finished := self._find_finished(tokenizer, eod, documents, folder):
                return finished, folder
            sources, files = find_sources_of(self, corpus, manifest.made_with, workers)
        except SourcesGoneError as error:
            warn(f"{corpus}: its text shards are tokenized, in which documents have no line breaks: {error}")
            return shards_of_corpus(texts), self.workspace.tokens(f"{name}_without_lines", corpus)
        documents = replace(documents, shards=shards_of_sources(sources, files, corpus).shards)
        return self._split(documents, held_out, folder, workers), folder

    def _given_documents(self, tokenizer: DocumentTokenizer, eod: int | None, folder: Path, workers: int) -> DocumentShards:
        from bertprep.commands.documents import check_documents, find_given
        from bertprep.sources.copied_texts import copy_texts
        from bertprep.sources.corpora import GIVEN, name_corpus, name_data_set
        from bertprep.text.held_out import HeldOut
        from bertprep.text.tokenize_documents import hash_sources, shards_of_sources

        corpus = self.corpus or (GIVEN if self.dataset is None else name_data_set(self.dataset, self.split))
        sources = find_given(self, self.words if isinstance(self.words, str) else None)
        check_documents(self, sources, folder, makes_pairs=False)
        if not isinstance(self.dataset, str | Path | None):
            sources = [*copy_texts(sources[0], self.given_folder), *sources[1:]]
        corpus = name_corpus(corpus, self.workspace)
        documents = shards_of_sources(sources, hash_sources(sources, corpus, workers, self.reporter), corpus)
        if not self.test_fraction:
            return documents
        held_out = HeldOut(ShardSettings(test_fraction=self.test_fraction))
        documents = replace(documents, made_from={**documents.made_from, **held_out.made_with})
        finished = self._find_finished(tokenizer, eod, documents, folder)
        return finished or self._split(documents, held_out, folder, workers)

    def _find_finished(
        self, tokenizer: DocumentTokenizer, eod: int | None, documents: DocumentShards, folder: Path
    ) -> DocumentShards | None:
        """Return the documents with their finished shards, if there are such: then no document has to be hashed."""
        from bertprep.text.held_out import find_split, with_finished_shards
        from bertprep.text.tokenize_documents import settings_of

        made_with = settings_of(tokenizer, documents.corpus, documents.made_from, eod)
        finished = find_split(folder, made_with, documents.advice)
        return with_finished_shards(documents, finished) if finished else None

    def _split(self, documents: DocumentShards, held_out: HeldOut, folder: Path, workers: int) -> DocumentShards:
        return held_out.split(documents, folder, part=self.read_part(), workers=workers, reporter=self.reporter)

    def _make_mds(self, made: Made) -> Made:
        """Make MDS rows from the token shards, and return a result that lists both."""
        from bertprep.tokens.documents import open_all_splits
        from bertprep.tokens.mds import INPUT_IDS, mds_job
        from bertprep.work.made import Made

        if self.output is None:
            name = f"{made.folder.parent.name}_seq_len_{self.seq}" + ("" if self.dtype is None else f"_{self.dtype}")
            target = self.workspace.records(MDS_FORMAT, name, made.folder.name)
        else:
            target = as_path(self.output) / MDS_FORMAT
        column = self.column or INPUT_IDS
        job = mds_job(open_all_splits(made.folder), target, self.seq or 0, column, self.dtype, command="tokenize")
        mds = self.make(job, 1)
        return Made(
            folders={**made.folders, **mds.folders},
            manifests={**made.manifests, **mds.manifests},
            made=made.made + mds.made,
            kept=made.kept + mds.kept,
            seconds=made.seconds + mds.seconds,
            is_complete=made.is_complete and mds.is_complete,
        )


REQUEST = Tokenize
tokenize = function_of(Tokenize, Tokenize.tokenize)


def run(request: Tokenize) -> None:
    """Make the token shards, and print a summary of each split."""
    print_results(*request.tokenize().lines(), *request.finished_lines())


def _refuse(given: Mapping[str, bool], why: str) -> None:
    for name, is_given in given.items():
        if is_given:
            raise UsageError(f"{name}: {why}")


def _open_tokenizer(request: Tokenize) -> DocumentTokenizer:
    """Open the requested tokenizer. If one from the Hub lacks a special token, fetch the files that may name it."""
    from bertprep.instances.document_tokenizer import DocumentTokenizer
    from bertprep.instances.special_tokens import SPECIAL_TOKENS_MAP
    from bertprep.instances.tokenizer_files import TOKENIZER_CONFIG

    if not isinstance(request.tokenizer, str | Path):
        from bertprep.instances.tokenizer_objects import write_tokenizer

        path, name = write_tokenizer(request.tokenizer, request.given_folder)
        return DocumentTokenizer(path, name, words=request.words)
    path, name = _find_tokenizer(request)
    tokenizer = DocumentTokenizer(path, name, words=request.words)
    if tokenizer.special_tokens.keys() >= {"mask", "pad", "cls", "sep"} or as_path(str(request.tokenizer)).exists():
        return tokenizer
    configs = [each for name in (SPECIAL_TOKENS_MAP, TOKENIZER_CONFIG) if (each := _fetch(request, name))]
    return DocumentTokenizer(path, name, configs, request.words)


def _fetch(request: Tokenize, name: str) -> Path | None:
    """Return a file of the requested model on the Hub; None if the model has no such file, with a warning if it is unknown."""
    from bertprep.sources.hub_text import fetch_address

    address = f"hf://{request.tokenizer}/{name}"
    try:
        [(path, _)] = fetch_address(address, request.workspace, reporter=request.reporter)
    except UsageError:
        return None
    except BertprepError as error:
        warn(f"{address}: could not be read, so special tokens that it names are unknown to this tokenizer: {error}")
        return None
    return path


def _convert_characters(request: Tokenize, vocab: Path, config: Path) -> Path:
    """Write the tokenizer.json of a vocab.txt of characters; return its path, next to a copy of its config."""
    from bertprep.instances.tokenizer_files import TOKENIZER_CONFIG, character_tokenizer
    from bertprep.instances.tokenizer_objects import write_files

    files = {TOKENIZER: character_tokenizer(vocab, config), TOKENIZER_CONFIG: config.read_bytes()}
    return write_files(files, request.given_folder)


def _find_tokenizer(request: Tokenize) -> tuple[Path, str]:
    """Return the path and the name of the requested tokenizer.json, which may be a file, in a folder, or on the Hub."""
    from bertprep.instances.tokenizer_files import TOKENIZER_CONFIG, VOCAB, has_tokenizer, how_to_convert, is_of_characters
    from bertprep.instances.tokenizer_objects import file_name_of
    from bertprep.sources.catalogue import is_repository

    given = str(request.tokenizer)
    path = as_path(given)
    if path.is_dir() and not (path / TOKENIZER).is_file():
        if is_of_characters(path / TOKENIZER_CONFIG):
            return _convert_characters(request, path / VOCAB, path / TOKENIZER_CONFIG), file_name_of(path.name)
        if not has_tokenizer(path):
            raise UsageError(
                f"--tokenizer {given}: this folder has no {TOKENIZER} and no other file of a tokenizer; name a folder that "
                "does, or a model as OWNER/NAME"
            )
        raise UsageError(
            f"--tokenizer {given}: this folder has no {TOKENIZER}; {how_to_convert(given, path / TOKENIZER_CONFIG)}"
        )
    path = path / TOKENIZER if path.is_dir() else path
    # a tokenizer.json is named after its folder, unless that is the current folder
    name = path.parent.name or path.stem if path.name == TOKENIZER else path.stem
    if not path.is_file():
        if path.suffix == ".json" or not is_repository(given):
            raise UsageError(
                f"--tokenizer {given}: does not exist; name a {TOKENIZER}, a folder that contains one, or a model as OWNER/NAME"
            )
        from bertprep.sources.hub_text import fetch_address

        name = given.rpartition("/")[2]
        try:
            [(path, _)] = fetch_address(f"hf://{given}/{TOKENIZER}", request.workspace, reporter=request.reporter)
        except UsageError as error:
            vocab, config = _fetch(request, VOCAB), _fetch(request, TOKENIZER_CONFIG)
            if not vocab or not config or not is_of_characters(config):
                advice = how_to_convert(given, config)
                raise UsageError(f"--tokenizer {given}: this model has no {TOKENIZER}; {advice}") from error
            path = _convert_characters(request, vocab, config)
    return path, file_name_of(name)
