"""Make records or token shards from text shards: tokenize, generate, encode, and write one file per format.

A command passes texts, a vocabulary and settings, and gets a job with one task per text shard (`work.run`). The bytes of a file
depend only on the shard, the vocabulary and the settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import DEFAULT_VARIANT, InstanceSettings, RecordFormat, Variant, masks_cut_off
from bertprep.errors import BertprepError
from bertprep.files.atomic import temporary_folder
from bertprep.files.free_space import free_space
from bertprep.files.paths import HEAD_BYTES, open_head
from bertprep.instances import Tokenizer, Vocabulary, generate_instances
from bertprep.instances.generator import GENERATOR
from bertprep.instances.lower_case import NO_CHANGES, LetterChanges, measure_files
from bertprep.instances.tokenizer import TokenizedShard, share_of_long_words
from bertprep.instances.vocabulary import MANY_HANZI, MANY_UNKNOWN, fit_warnings, padding_warnings, repeat_warnings
from bertprep.kernels.numbers import LONGEST_WORD
from bertprep.records.dataset_info import ledgers_by_format
from bertprep.records.examples import Shape, kind_made_with
from bertprep.records.rows import RowMaker
from bertprep.records.write import entry_of, write_examples
from bertprep.tokens.next_sentences import describe_random, sample_lines, sample_tokens
from bertprep.tokens.shard import BIN, TokenShard, write_token_shard
from bertprep.work.layout import SPLITS, TRAINING, VOCABULARY, TokenFile, record_names, token_files, token_shard_name
from bertprep.work.ledger import Entry, Ledger
from bertprep.work.manifest import RECORDS, TOKEN_SHARDS, versions_of
from bertprep.work.run import Job, Maker, Task
from bertprep.work.text_identity import check_text, check_unchanged, identify_text, text_entry
from bertprep.work.truncation import LARGEST_DOCUMENT, TRUNCATION, Truncation, count_over

_SAMPLED_SHARDS = 8  # of which the beginnings are made into records where the disk may be too small
_MOST_BYTES_OF_RECORDS = 20  # for each byte of text, round and format
_FIRST_TOKENS = 1 << 14  # [UNK] is counted in these tokens of a token shard: about as many as HEAD_BYTES of text give


@dataclass(frozen=True)
class TextShard:
    """A text shard and its number in its split; `expected` is its entry in the manifest of the text shards, if there is one.

    If the user gave token shards instead of text, `tokens` is one of them and `path` its .bin file. The text may be gone.
    """

    path: Path
    split: str
    number: int
    expected: Entry | None = None
    tokens: TokenShard | None = None


@dataclass(frozen=True)
class Texts:
    """The text shards of a corpus, or the files that the user gave instead; `made_from` describes them in manifests.

    The text shards of a workspace have a manifest, and their text is compared with it when it is read. Files that the user gave
    have none, so finished files are checked against the text as it is now.
    """

    corpus: str
    shards: Sequence[TextShard]
    made_from: dict[str, Any]
    is_of_workspace: bool = False
    letters_of_tokens: LetterChanges = NO_CHANGES
    """What lower-casing changed when the user's token shards were made."""

    def paths(self, split: str) -> list[Path]:
        """Return the text shards of a split."""
        return [shard.path for shard in self.shards if shard.split == split]

    @cached_property
    def letters(self) -> LetterChanges:
        """How many letters of the training text lower-casing would change by more than case."""
        return self.letters_of_tokens if self.shards[0].tokens else measure_files(self.paths(TRAINING))

    @property
    def test_fraction(self) -> float | None:
        """The fraction of the text that is held out for testing, or None if the user gave the test split."""
        fraction: float = self.made_from["test_fraction"]
        return None if not fraction and self.made_from["test_shards"] else fraction

    @property
    def advice(self) -> str:
        """What to do if the output folder contains other data."""
        return "choose another --workdir or --corpus" if self.is_of_workspace else "choose another --output"


def record_job(
    texts: Texts, vocabulary: Vocabulary, settings: InstanceSettings, variant: Variant, folders: Mapping[RecordFormat, Path]
) -> Job:
    """Return the job that makes records from texts, in one folder per format."""
    maker = RecordMaker(
        vocabulary=vocabulary,
        cased=settings.cased,
        checks_text=not texts.is_of_workspace,
        settings=settings,
        variant=variant,
    )
    tasks = [
        Task(str(shard.path), record_names([*folders], texts.corpus, shard.split, shard.number, variant), shard)
        for shard in texts.shards
    ]
    made_with = {"generator": GENERATOR, **settings.made_with, **variant.made_with}
    template = _ledger(RECORDS, next(iter(folders.values())), made_with, texts, vocabulary, cased=settings.cased)
    ledgers = ledgers_by_format(template, folders, tasks, dict.fromkeys(SPLITS, maker.shape))
    return Job(maker, ledgers, tasks, [*padding_warnings(vocabulary), *repeat_warnings(vocabulary), *mask_warnings(settings)])


def token_job(texts: Texts, vocabulary: Vocabulary, folder: Path, *, cased: bool) -> Job:
    """Return the job that makes token shards from texts; in a workspace each split has its own folder."""
    maker = TokenMaker(vocabulary=vocabulary, cased=cased, checks_text=not texts.is_of_workspace)
    tasks = []
    for shard in texts.shards:
        prefix = f"{shard.split}/" if texts.is_of_workspace else ""
        names = {str(end): prefix + token_shard_name(shard.split, texts.corpus, shard.number, end) for end in TokenFile}
        tasks.append(Task(str(shard.path), names, shard))
    ledger = _ledger(TOKEN_SHARDS, folder, {"tokenizer": GENERATOR, "cased": cased}, texts, vocabulary, cased=cased)
    return Job(maker, dict.fromkeys(TokenFile, ledger), tasks, repeat_warnings(vocabulary))


def _ledger(kind: str, folder: Path, made_with: dict[str, Any], texts: Texts, vocabulary: Vocabulary, *, cased: bool) -> Ledger:
    return Ledger(
        folder=folder,
        kind=kind,
        made_with={**made_with, "corpus": texts.corpus, **texts.made_from, "vocabulary": vocabulary.made_with},
        versions=versions_of("llvmlite", "numpy"),
        counts={} if cased else texts.letters.counts,
        copies={VOCABULARY: vocabulary.path},
        advice=texts.advice,
    )


def without_last_document(text: bytes) -> bytes:
    """Return the text up to its last blank line; if it is a single document, up to the end of its last complete line."""
    blank = text.rfind(b"\n\n")
    end = blank + 2 if blank >= 0 else text.rfind(b"\n") + 1
    return text[:end]


def mask_warnings(settings: InstanceSettings) -> list[str]:
    """Return a warning if --pred allows far fewer masks than --masked-lm-prob implies, else an empty list."""
    wanted = masks_cut_off(settings.seq, settings.pred, settings.masked_lm_prob)
    if not wanted:
        return []
    return [
        f"--pred {settings.pred} limits the masks: --masked-lm-prob {settings.masked_lm_prob:g} of {settings.seq} tokens is "
        f"{wanted} masks; use --pred {min(wanted, settings.longest)} to allow them"
    ]


@dataclass(frozen=True, kw_only=True)
class ShardMaker(Maker):
    """Makes the files of one text shard after another, with one tokenizer.

    With `checks_text`, finished files must have been made from the text as it is now.
    """

    vocabulary: Vocabulary
    cased: bool
    checks_text: bool = False

    @property
    def masks_words(self) -> bool:
        """Whether whole words are masked, so that it matters what a word is."""
        return False

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.vocabulary, lower=not self.cased)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: each process builds its own tables from them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def prepare(self) -> None:
        kernels.load()
        _ = self.tokenizer

    def warnings(self, todo: Sequence[Task]) -> Iterator[str]:
        shard: TextShard = todo[0].argument
        try:
            tokens, too_long = self._read_beginning(shard)
        except (BertprepError, OSError, ValueError):  # the worker that reads the whole file reports the error
            return
        advice = (
            "remove the output, and name another vocabulary with --vocab, or train one, or a larger one, on this text with "
            "bertprep vocab"
        )
        if shard.tokens:
            advice = "remove the output and the token shards, and run bertprep tokenize with another --vocab"
        if too_long > MANY_UNKNOWN:
            yield (
                f"{too_long:.0%} of the beginning of {shard.path} is in words of more than {LONGEST_WORD} characters, which "
                "become [UNK] with any vocabulary; put spaces between the words of the text"
            )
        else:
            yield from fit_warnings(tokens, self.vocabulary, shard.path, advice)
        hanzi = float(self.vocabulary.is_hanzi.take(tokens, mode="clip").mean()) if len(tokens) else 0.0
        if self.masks_words and hanzi > MANY_HANZI:
            yield (
                f"--whole-word: {hanzi:.0%} of the first tokens of {shard.path} are Hanzi, each of which is a word for BERT's "
                "tokenizer, so they are masked one by one; bertprep tokenize --tokenizer takes words of a segmenter (--words)"
            )

    def _read_beginning(self, shard: TextShard) -> tuple[NDArray[Any], float]:
        """Return the first tokens of a text, and the fraction of its characters in words that are too long."""
        if shard.tokens:
            return replace(shard.tokens).mapped[:_FIRST_TOKENS], 0.0  # a shard keeps its mapping, so a copy maps the file here
        with open_head(shard.path) as file:
            text = file.read(HEAD_BYTES)
        tokens = self.tokenizer.tokenize_lines(text[: text.rfind(b"\n") + 1]).tokens
        return tokens, share_of_long_words(text.decode(errors="ignore"))

    def check(self, task: Task, folder: Path, entry: Entry) -> None:
        if not self.checks_text:
            return
        check_unchanged(folder, entry["text"], str(task.argument.path), *identify(task.argument))


@dataclass(frozen=True, kw_only=True)
class RecordMaker(ShardMaker):
    """Makes the record files of one text shard after another."""

    settings: InstanceSettings
    variant: Variant = field(default=DEFAULT_VARIANT)
    label = "create"

    @property
    def masks_words(self) -> bool:
        return self.settings.whole_word

    @property
    def shape(self) -> Shape:
        return Shape(kind_made_with(self.settings), self.settings.seq, self.settings.pred)

    @cached_property
    def rows(self) -> RowMaker:
        return RowMaker(self.vocabulary, self.shape)

    def prepare(self) -> None:
        super().prepare()
        _ = self.rows

    def warnings(self, todo: Sequence[Task]) -> Iterator[str]:
        yield from super().warnings(todo)
        shard: TextShard = todo[0].argument
        try:
            if line := describe_random(self._sample(shard), self.vocabulary, self.settings, f"the beginning of {shard.path}"):
                yield line
        except (BertprepError, OSError, ValueError):  # the worker that reads the whole file reports the error
            return

    def _sample(self, shard: TextShard) -> TokenizedShard:
        """Return the tokens of the first documents of a text."""
        if shard.tokens:
            return sample_tokens(shard.tokens)
        with open_head(shard.path) as file:
            text = file.read(HEAD_BYTES)
        if len(text) == HEAD_BYTES:
            text = without_last_document(text)
        return sample_lines(self.tokenizer.tokenize_lines(text if text.endswith(b"\n") else text + b"\n"))

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        return {"records": entries[0]["examples"], "MB_of_text": entries[0]["text"]["bytes"] / 1e6}

    def needed_bytes(self, todo: Sequence[Task], folders: Mapping[str, Path]) -> dict[Path, int]:
        """Scale the records of a sample by bytes of text, unless the disks have space for far more than text usually gives."""
        if any(task.argument.tokens for task in todo):
            return {}
        try:
            text = dict.fromkeys(folders, 0)
            for task in todo:
                for name in task.files:
                    text[name] += task.argument.path.stat().st_size
            rounds = self.settings.dupe
            most = {folders[name]: _MOST_BYTES_OF_RECORDS * rounds * size_bytes for name, size_bytes in text.items()}
            disks = free_space(most)
            if all(disk.enough for disk in disks):
                return {}
            with temporary_folder(disks[0].folder / "sample") as folder:
                sampled = self._make_sample([task.argument for task in todo], [*folders], folder)
        except (BertprepError, OSError, ValueError):  # the worker that reads or writes the files reports the error
            return {}
        return {folders[name]: round(rounds * text[name] * share) for name, share in sampled.items()}

    def _make_sample(self, shards: Sequence[TextShard], names: Sequence[str], folder: Path) -> dict[str, float]:
        """Return how many bytes of records a byte of text gives in one round, from the beginnings of some shards."""
        maker = replace(self, settings=replace(self.settings, dupe=1))
        text_bytes, record_bytes = 0, dict.fromkeys(names, 0)
        for shard in shards[:: -(-len(shards) // _SAMPLED_SHARDS)]:
            with open_head(shard.path) as file:
                text = without_last_document(file.read(HEAD_BYTES))
            path = folder / f"{shard.split}_{shard.number}.txt"
            path.write_bytes(text)
            made = maker.make(replace(shard, path=path, expected=None), {name: path.with_suffix(f".{name}") for name in names})
            text_bytes += len(text)
            for name, entry in made.items():
                record_bytes[name] += entry["bytes"]
        return {name: size_bytes / text_bytes for name, size_bytes in record_bytes.items()}

    def make(self, argument: TextShard, paths: Mapping[str, Path]) -> dict[str, Entry]:
        shard, text = self._read(argument)
        seed = self.settings.shard_seed(argument.number)
        instances = generate_instances(shard, self.vocabulary, self.settings, seed=seed)
        if not len(instances):
            raise BertprepError(f"{argument.path}: yields no example; expected at least one from each document")
        files = {RecordFormat(name): path for name, path in paths.items()}
        written = write_examples(self.rows.blocks(instances), files, self.variant, tidies=False)
        counts = {"documents": shard.documents}
        lost: dict[str, Any] = {}
        if self.settings.has_pairs:
            truncation = Truncation.of_sentences(
                np.diff(shard.sentence_starts),
                self.settings.longest,
                paired=instances.paired_tokens,
                truncated=instances.truncated_tokens,
            )
            largest = int(np.diff(shard.sentence_starts[shard.document_starts]).max())
            lost = {TRUNCATION: truncation.as_json(), LARGEST_DOCUMENT: largest}
        return {name: {**counts, **entry_of(file), "seed": seed, "text": text, **lost} for name, file in written.items()}

    def _read(self, shard: TextShard) -> tuple[TokenizedShard, dict[str, Any]]:
        """Return the tokens of a shard, and the entry of its text for the manifest."""
        if shard.tokens:
            tokenized = shard.tokens.read(self.vocabulary, pairs=self.settings.has_pairs)
            return tokenized, shard.tokens.text or text_entry(shard.path.name, *identify(shard))
        tokenized = self.tokenizer.tokenize_file(shard.path)
        return tokenized, _text_of(shard, tokenized)


@dataclass(frozen=True, kw_only=True)
class TokenMaker(ShardMaker):
    """Makes the token shard of one text shard after another."""

    label = "tokenize"

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        sentences = sum(entry.get("sentences", 0) for entry in entries)
        return {"sentences": sentences, "MB_of_text": entries[0]["text"]["bytes"] / 1e6}

    def make(self, argument: TextShard, paths: Mapping[str, Path]) -> dict[str, Entry]:
        tokenized = self.tokenizer.tokenize_file(argument.path)
        text = _text_of(argument, tokenized)
        with write_token_shard(paths, width=len(self.vocabulary)) as writer:
            lengths, sentences = np.diff(tokenized.sentence_starts), np.diff(tokenized.document_starts)
            writer.add(tokenized.tokens, lengths, sequences=sentences)
        counts = {"documents": writer.documents, "sentences": writer.sequences, "tokens": writer.tokens, **count_over(lengths)}
        return {end: {**(counts if end == BIN else {}), **entry, "text": text} for end, entry in writer.entries.items()}


def _text_of(shard: TextShard, tokenized: TokenizedShard) -> dict[str, Any]:
    """Return the manifest entry of a shard's text; raise `BertprepError` if the text shards' manifest lists other text."""
    text = text_entry(shard.path.name, tokenized.text_bytes, f"{tokenized.text_crc32c:08x}")
    check_text(shard.path, shard.expected, text)
    return text


def identify(shard: TextShard) -> tuple[int, str]:
    """Return the size and CRC-32C of a shard's text, or those of both files of a token shard whose text is not known."""
    if shard.tokens and shard.tokens.text:
        return shard.tokens.text["bytes"], shard.tokens.text["crc32c"]
    return identify_text(*(token_files(shard.path).values() if shard.tokens else [shard.path]))
