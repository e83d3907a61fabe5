"""`bertprep shard`: make text shards from your own files, downloads or the sample corpus."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertprep.commands.function import function_of
from bertprep.commands.request import DocumentRequest
from bertprep.config import BY_LINES, ShardSettings
from bertprep.errors import UsageError
from bertprep.files.paths import sizes_of
from bertprep.options import narrowed
from bertprep.sources.corpora import GIVEN, language_of, name_corpus, name_data_set, parts_of, printed_name
from bertprep.sources.sample import SAMPLE
from bertprep.terminal import counted, print_results, warn
from bertprep.work.layout import MANIFEST, SPLITS, TEST, TRAINING, Workspace, text_shard
from bertprep.work.ledger import is_started
from bertprep.work.manifest import TEXT_SHARDS
from bertprep.work.resume import WAIT, is_being_made
from bertprep.work.settings import read_settings

if TYPE_CHECKING:
    from bertprep.sources.documents import Source
    from bertprep.work.made import Made

_WHY_SKIPPED = {
    "skipped_redirects": "redirects to other pages",
    "skipped_pages": "not articles but talk pages, templates and the like",
    "skipped_without_text": "without text",
    "skipped_disambiguations": "disambiguation pages",
    "skipped_name_lists": "lists of names",
}
_CHANGED = {
    "joined_words": ("word", "joined at line ends"),
    "kept_hyphens": ("hyphen", "kept at line ends"),
    "page_numbers": ("page number", "removed"),
    "running_heads": ("running head", "removed"),
    "form_feeds": ("form feed", "removed"),
    "divided_sentences": ("sentence", "divided for length"),
    "long_lines": ("line", "longer than a sentence should be"),
}
_WHY_DROPPED = {
    "dropped_duplicates": "duplicates of earlier ones (--keep-duplicates keeps them)",
    "dropped_in_test": "from the training text, since --test-input contains them too",
}


@dataclass(frozen=True, kw_only=True)
class Shard(ShardSettings, DocumentRequest):
    """The request of `shard`: the text, and how it is cleaned, split and assigned to shards."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.test_inputs and self.test_fraction != ShardSettings.test_fraction:
            raise UsageError(
                f"--test-fraction {self.test_fraction:g}: cannot be used with --test-input, which is the whole test split; "
                "give one of them"
            )

    def shard(self) -> Made:
        """Make the text shards of `corpus` from `inputs` or `dataset`, else from downloads, else from the sample corpus.

        `inputs` are files, folders, patterns and URLs, and `field` is the key or column of their text. `test_inputs` are the
        text of the test split, instead of a `test_fraction` of all text; training documents that they contain too are dropped.
        With `one_document_per_file` each text file is a document; otherwise a blank line ends a document. If blocks between
        blank lines look like paragraphs, that is an error, unless `one_document_per_block` declares them documents. `dataset`
        is OWNER/NAME or OWNER/NAME:CONFIG on the Hub, a `save_to_disk` folder, or a data set in memory, and `split` one of its
        splits. Finished files are kept. `part`, such as "3/400", makes only that part (docs/how-to/many-machines.md).

        Raises `UsageError` for contradictory or impossible arguments, and `BertprepError` for invalid or incomplete data.
        """
        from bertprep.commands.documents import check_documents, find_downloaded, find_given
        from bertprep.sources.noted import note_sources
        from bertprep.text.shards import shard_corpus
        from bertprep.text.summary import name_inputs, report_shards, warn_of_lone_documents
        from bertprep.tokens.next_sentences import largest_shares
        from bertprep.work.data_set import shards_of_split

        started = time.monotonic()
        workspace, corpus = self.workspace, self._name_corpus()
        workers = self.start_workers(shared=workspace.root)
        folder = workspace.sharded(corpus)
        exists = (folder / MANIFEST).exists()
        if self.corpus is None and not self.inputs:
            others = "" if self.is_given else ", or your own text with --input"
            self.reporter.message(f"shard: using the corpus {printed_name(corpus)} (choose another with --corpus{others})")
        sources = find_given(self) if self.is_given else find_downloaded(workspace, corpus)
        if not sources and not self.is_given:
            raise missing_shards(workspace, corpus)
        language = _find_language(self.language or language_of(corpus), sources)
        settings = replace(narrowed(ShardSettings, self), language=language)
        if self.is_given:
            check_documents(self, sources, folder, language or "en", by_lines=settings.splitter == BY_LINES)
        made = shard_corpus(folder, sources, settings, part=self.read_part(), workers=workers, reporter=self.reporter)
        if self.is_given:
            note_sources(workspace, corpus, sources)
        if made.is_complete:
            files = made.manifest.files
            training = [folder / name for name in files if name.startswith(TRAINING)]
            counts = {count: sum(entry[count] for entry in files.values()) for count in ("documents", "sentences")}
            is_meant = self.one_document_per_block or exists
            report_shards(self.reporter, name_inputs(sources), counts, training, is_meant=is_meant)
            shards = {split: [folder / name for name in shards_of_split(files, split)] for split in SPLITS}
            warn_of_lone_documents({split: largest_shares(paths) for split, paths in shards.items()})
        return made.since(started)

    def _name_corpus(self) -> str:
        """Return the name of the corpus; raise `UsageError` if the user's own text has a name that stands for other text."""
        asked = self.corpus
        if asked is None and self.is_given:
            asked = GIVEN if self.dataset is None else name_data_set(self.dataset, self.split)
        corpus = name_corpus(asked, self.workspace, self.language)
        if self.is_given and (parts_of(corpus) or corpus == SAMPLE):
            what = "the sample corpus" if corpus == SAMPLE else "a download"
            raise UsageError(
                f"--corpus {asked}: is the name of {what}; give your own text another name, such as --corpus my_{corpus}"
            )
        return corpus


REQUEST = Shard
shard = function_of(Shard, Shard.shard)


def run(request: Shard) -> None:
    """Make the shards, and print a summary of each split and of the dropped documents."""
    made = request.shard()
    print_results(*made.lines())
    counts = made.manifest.counts
    of_dump = " of the dump" if True in _are_of_dumps(made.manifest.made_with) else ""
    for cause, why in _WHY_SKIPPED.items():
        if count := counts.get(cause):
            print_results(f"{counted(count, 'page')}{of_dump} skipped: {why}")
    if removed := _describe_removed(counts):
        print_results(f"removed from articles: {removed}")
    if count := counts.get("dropped_empty"):
        print_results(_describe_empty(count, made.manifest.made_with))
    for cause, why in _WHY_DROPPED.items():
        if count := counts.get(cause):
            print_results(f"{counted(count, 'document')} dropped: {why}")
    changed = [f"{counted(counts[name], thing)} {how}" for name, (thing, how) in _CHANGED.items() if counts.get(name)]
    if changed:
        print_results(f"in the text: {'; '.join(changed)}")
    print_results(*request.finished_lines())


def _describe_removed(counts: Mapping[str, int]) -> str:
    """Return what was removed from the pages of wikis, most first, or ""."""
    from bertprep.sources.wiki.paragraphs import REASONS, name_count

    removed = {words: counts.get(name_count(reason), 0) for reason, words in REASONS.items()}
    ordered = sorted(removed.items(), key=lambda pair: -pair[1])
    return "; ".join(f"{words} {count:,}" for words, count in ordered if count)


def _are_of_dumps(made_with: Mapping[str, Any]) -> set[bool]:
    """Return whether inputs are dumps, and whether inputs are not."""
    from bertprep.sources.kinds import DUMP

    return {each.get("reader") == DUMP for each in (*made_with["inputs"], *made_with.get("test_inputs", ()))}


def _describe_empty(count: int, made_with: Mapping[str, Any]) -> str:
    """Return the line on documents without letters or digits: of a dump these are articles that lost all text in cleaning."""
    are_articles = _are_of_dumps(made_with)
    cleaned = "nothing was left after tables, lists and templates were removed"
    if are_articles == {True}:
        return f"{counted(count, 'article')} dropped: {cleaned}"
    or_cleaned = f"; or, if they are articles of a dump, {cleaned}" if True in are_articles else ""
    return f"{counted(count, 'document')} dropped: without letters or digits{or_cleaned}"


def _find_language(given: str | None, sources: Sequence[Source]) -> str | None:
    """Return the language `given`, else that of the dumps among the sources; None if there is none, or if they differ.

    Warns where dumps differ from each other or from `given`.
    """
    from bertprep.sources.dump import choose_language

    chosen: dict[str | None, str] = {}
    for source in sources:
        if codes := source.languages():
            chosen.setdefault(choose_language(given, codes, source.location), source.location)
    if len(chosen) > 1:
        dumps = ", ".join(f"{location} has {language}" for language, location in chosen.items())
        warn(
            f"--input: has dumps of several languages ({dumps}), and English abbreviations are used; "
            "shard each language by itself"
        )
        return None
    return given or next(iter(chosen), None)


def missing_shards(workspace: Workspace, corpus: str) -> UsageError:
    """Return the error for a corpus that has no text shards, or only some of them."""
    if is_started(folder := workspace.sharded(corpus)):
        return _unfinished_shards(folder)
    given = "" if parts_of(corpus) else "--input FILES "
    name = printed_name(corpus)
    return UsageError(
        f"--corpus {name}: has no text shards in {folder}; make them first: bertprep shard {given}--corpus {name}"
    )


def _unfinished_shards(folder: Path) -> UsageError:
    """Return the error for text shards that a run, or some of its parts, has not finished."""
    missing = "the text is not split yet"  # so the number of shards is not known
    settings = read_settings(folder)
    if settings and settings["kind"] == TEXT_SHARDS:
        counts = {split: settings["made_with"][name] for split, name in ((TRAINING, "shards"), (TEST, "test_shards"))}
        names = [text_shard(split, folder.name, number) for split, count in counts.items() for number in range(count)]
        count = len(names) - len(sizes_of(folder, names))
        missing = f"{count:,} of {len(names):,} files {'is' if count == 1 else 'are'} missing"
    advice = "run the parts of bertprep shard that have not finished, or the command that began them, without --part"
    return UsageError(f"{folder}: is not finished, {missing}; {WAIT if is_being_made(folder) else advice}")
