"""`bertprep tokenize`: text becomes token shards, from which examples of any length are made without tokenizing again.

They are of sentences of text shards and a vocabulary, or with --tokenizer of whole documents from any source.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bertprep.commands.function import function_of
from bertprep.commands.request import DocumentRequest, InRows, TextRequest
from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import remove_folder
from bertprep.files.paths import as_path, path_arg
from bertprep.options import MADE, WHERE, option
from bertprep.terminal import print_results, warn
from bertprep.work.layout import GIVEN_OBJECTS, MDS_FORMAT, TOKENIZER, TOKENS, tokens_name

if TYPE_CHECKING:
    from bertprep.instances.document_tokenizer import DocumentTokenizer
    from bertprep.text.tokenize_documents import DocumentShards
    from bertprep.work.made import Made

MEGATRON = "megatron"


@dataclass(frozen=True, kw_only=True)
class Tokenize(TextRequest, DocumentRequest, InRows):
    """Which text to make token shards of, where and how."""

    group: ClassVar[str] = MADE
    cased: bool = option(False, "keep upper case and accents, for a cased vocabulary")
    tokenizer: Any = option(
        None, "make shards of whole documents by any tokenizer.json: a file, a folder with one, or a model of the Hub, such as "
        "answerdotai/ModernBERT-base", metavar="FILE|OWNER/NAME",
    )  # fmt: skip
    format: str = option(
        MEGATRON, "with --tokenizer: token shards in Megatron's layout, or with mds also rows of --seq tokens for the readers "
        "of mosaicml-streaming", choices=(MEGATRON, MDS_FORMAT),
    )  # fmt: skip
    words: Any = option(
        None, "with --tokenizer: the column that has the words of each text, as a list of them or of the characters where they "
        "start, for text that no tokenizer splits into words, such as Chinese; in Python also a function that returns the "
        "words of a text (default: the words of the tokenizer)", metavar="COLUMN",
    )  # fmt: skip
    append_eod: bool = option(
        False,
        "with --tokenizer: put the tokenizer's end-of-document token after each document, as Megatron's GPT data sets have it",
    )
    eod_token: str | None = option(
        None, "the token of --append-eod (default: the one that ends a text, such as </s> or <|endoftext|>)", metavar="TOKEN",
    )  # fmt: skip
    inputs: Sequence[Path | str] = option(
        (), "text files to use as shards unchanged: one sentence per line, a blank line after each document; with --tokenizer "
        "files, folders, patterns or URLs of documents, as shard takes them", name="--input", metavar="PATH", check=path_arg,
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
            "--one-document-per-file": self.one_document_per_file,
            "--format mds": self.format == MDS_FORMAT,
            "--one-document-per-block": self.one_document_per_block,
            "--test-input": bool(self.test_inputs),
            "words": self.words is not None,
            "--append-eod": self.append_eod,
        }
        of_text = {
            "--vocab": self.vocab is not None,
            "--cased": self.cased,
            "--any-case": self.any_case,
            "--lines-are-sentences": self.lines_are_sentences,
        }
        if self.tokenizer is None:
            _refuse(of_documents, "goes with --tokenizer; without it, bertprep shard splits documents into sentences first")
        else:
            _refuse(of_text, "is not for --tokenizer, whose file says all; leave it out")
        if isinstance(self.words, str) and not self.is_given:
            raise UsageError(f"--words {self.words}: is a column of --input or --dataset; give one of these")
        if self.eod_token is not None and not self.append_eod:
            raise UsageError(f"--eod-token {self.eod_token}: goes with --append-eod")
        if self.append_eod and self.format == MDS_FORMAT:
            raise UsageError("--append-eod: is for token shards; rows of --format mds end with the tokenizer's own token")
        if self.format == MDS_FORMAT and self.part is not None:
            raise UsageError(
                "--format mds: needs all token shards; make them in parts, then bertprep convert --to mds in parts"
            )

    def check_output(self) -> None:
        if self.tokenizer is None:
            super().check_output()
        elif self.is_given != (self.output is not None):
            raise UsageError("--input or --dataset goes with --output, the folder for their tokens; give both, or neither")

    def tokenize(self) -> Made:
        """Make token shards of text shards, in the layout of Megatron's indexed data sets (docs/reference/formats.md).

        The arguments are those of `create`, whose `inputs` may name these shards. With `tokenizer`, a tokenizer.json or a
        model of the Hub, a document is a sequence, `inputs` or a `dataset` are what `shard` takes, and `workers` are threads.
        The tokenizer may be an object of transformers or tokenizers, and the data set one of `datasets`, which is read on each
        run. `test_inputs` become a test split; the other documents that it has too are left out. `words` is a function such as
        `jieba.lcut`, or a column, by which whole words are masked later. `format="mds"` adds an entry "mds" to "tokens" in
        `folders` and `manifests`. With `output` the shards are in output/tokens, the rows in output/mds.

        Raises `UsageError` for a request that cannot be met, `BertprepError` for invalid text or vocabulary, a failing machine,
        or other settings.

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

        texts, vocabulary = find_text(self, workers, cased=self.cased)
        if texts.is_of_workspace:
            name = tokens_name(
                cased=self.cased, vocabulary=vocabulary.sha256, shards=texts.made_from["shards"],
                test_fraction=texts.test_fraction,
            )  # fmt: skip
            folder = self.workspace.tokens(name, texts.corpus)
        else:
            folder = as_path(self.output or ".") / TOKENS
        made = self.make(token_job(texts, vocabulary, folder, cased=self.cased), workers)
        if not texts.is_of_workspace and made.is_complete:
            report_given(self.reporter, texts, made, is_meant=self.lines_are_sentences)
        return made

    def _tokenize_documents(self, workers: int) -> Made:
        from bertprep.pool import ClusterWorkers
        from bertprep.text.tokenize_documents import document_job

        tokenizer = _open_tokenizer(self)
        if self.output is None:
            documents = self._documents_of_corpus(workers)
            folder = self.workspace.tokens(f"{tokenizer.info.name}_{tokenizer.info.sha256[:8]}", documents.corpus)
        else:
            folder = as_path(self.output) / TOKENS
            documents = self._given_documents(folder, workers)
        is_cluster = isinstance(workers, ClusterWorkers)
        job = document_job(
            tokenizer, documents, folder, threads=1 if is_cluster else self.workers, eod=self._find_eod(tokenizer)
        )
        made = self.make(job, workers if is_cluster or tokenizer.is_compiled else 1)
        if self.output is not None and self.part is None:
            documents.report(made, self.reporter)
        if made.is_complete and self.output is not None:
            remove_folder(self.given_folder)
        return made

    @property
    def given_folder(self) -> Path:
        """Where objects of Python are written, for as long as token shards are made of them."""
        return as_path(self.output or self.workdir) / GIVEN_OBJECTS

    def _find_eod(self, tokenizer: DocumentTokenizer) -> int | None:
        """Return the token to put after each document, if any."""
        if not self.append_eod:
            return None
        eod = tokenizer.info.sep if self.eod_token is None else tokenizer.id_of(self.eod_token)
        if eod is None and self.eod_token is None:
            raise UsageError(
                f"--append-eod: the tokenizer {tokenizer.info.name} has no token that ends a text, such as </s>; name one "
                "of its tokens by --eod-token"
            )
        if eod is None:
            raise UsageError(f"--eod-token {self.eod_token}: the tokenizer {tokenizer.info.name} has no such token")
        return eod

    def _documents_of_corpus(self, workers: int) -> DocumentShards:
        from bertprep.commands.texts import find_corpus
        from bertprep.text.tokenize_documents import shards_of_corpus

        return shards_of_corpus(find_corpus(self, workers))

    def _given_documents(self, folder: Path, workers: int) -> DocumentShards:
        from bertprep.commands.documents import check_documents, find_given
        from bertprep.sources.copied_texts import copy_texts
        from bertprep.sources.corpora import GIVEN, name_corpus, name_data_set
        from bertprep.text.tokenize_documents import shards_of_sources

        corpus = self.corpus or (GIVEN if self.dataset is None else name_data_set(self.dataset, self.split))
        sources = find_given(self, self.words if isinstance(self.words, str) else None)
        if not isinstance(self.dataset, str | Path | None):
            sources = [*copy_texts(sources[0], self.given_folder), *sources[1:]]
        check_documents(self, sources, folder)
        return shards_of_sources(sources, name_corpus(corpus, self.workspace), workers, self.reporter)

    def _make_mds(self, made: Made) -> Made:
        """Also make MDS rows of the token shards; the result lists both."""
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
    """Open the tokenizer of a request; if a tokenizer of the Hub has no mask token, its tokenizer_config.json may name one."""
    from bertprep.instances.document_tokenizer import DocumentTokenizer
    from bertprep.instances.tokenizer_files import TOKENIZER_CONFIG

    if not isinstance(request.tokenizer, str | Path):
        from bertprep.instances.tokenizer_objects import write_tokenizer

        path, name, config = write_tokenizer(request.tokenizer, request.given_folder)
        return DocumentTokenizer(path, name, config, request.words)
    path, name = _find_tokenizer(request)
    tokenizer = DocumentTokenizer(path, name, words=request.words)
    if tokenizer.info.mask is not None or as_path(str(request.tokenizer)).exists():
        return tokenizer
    from bertprep.sources.hub_text import fetch_address

    address = f"hf://{request.tokenizer}/{TOKENIZER_CONFIG}"
    try:
        [(config, _)] = fetch_address(address, request.workspace, reporter=request.reporter)
    except UsageError:  # this model has none
        return tokenizer
    except BertprepError as error:
        warn(f"{address}: was not read, and may name a mask token: {error}")
        return tokenizer
    return DocumentTokenizer(path, name, config, request.words)


def _find_tokenizer(request: Tokenize) -> tuple[Path, str]:
    """Return the path and the name of the tokenizer.json that a request gives as a file, a folder or a model of the Hub."""
    from bertprep.sources.catalogue import is_repository

    given = str(request.tokenizer)
    path = as_path(given)
    if path.is_dir() and not (path := path / TOKENIZER).is_file():
        raise UsageError(f"--tokenizer {given}: this folder has no {TOKENIZER}; name one, or a folder with one")
    # tokenizer.json in the current folder has no telling name
    name = path.parent.name or path.stem if path.name == TOKENIZER else path.stem
    if not path.is_file():
        if path.suffix == ".json" or not is_repository(given):
            raise UsageError(f"--tokenizer {given}: not found; name a {TOKENIZER}, a folder with one, or OWNER/NAME of a model")
        from bertprep.sources.hub_text import fetch_address

        try:
            [(path, _)] = fetch_address(f"hf://{given}/{TOKENIZER}", request.workspace, reporter=request.reporter)
        except UsageError as error:
            raise UsageError(f"--tokenizer {given}: this model has no {TOKENIZER}; name another") from error
        name = given.rpartition("/")[2]
    return path, re.sub(r"[^\w.-]+", "_", name).lstrip(".-") or "tokenizer"
