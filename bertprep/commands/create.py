"""`bertprep create`: make masked-LM record files from text shards; earlier stages run first if their output is missing."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bertprep.commands.function import function_of
from bertprep.commands.request import InFormats, TextRequest, check_target
from bertprep.config import InstanceSettings, RecordFormat
from bertprep.errors import UsageError
from bertprep.files.paths import as_path, path_arg
from bertprep.options import HOW, narrowed, option
from bertprep.terminal import print_results
from bertprep.work.layout import settings_name

if TYPE_CHECKING:
    from bertprep.commands.forecast import Forecast
    from bertprep.tokens.make import Texts
    from bertprep.work.made import Made


@dataclass(frozen=True, kw_only=True)
class Create(InFormats, InstanceSettings, TextRequest):
    """The request of `create`: text, formats, settings, output folder and workers."""

    dry_run: bool = option(
        False, "write no output; forecast records, disk space and time from a sample of the text, made in a temporary folder",
        shell=True, group=HOW,
    )  # fmt: skip
    json: Path | str | None = option(
        None, "also write the forecast of --dry-run to FILE", metavar="FILE", check=path_arg, rare=True, shell=True, group=HOW
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.json and not self.dry_run:
            raise UsageError("--json: is for the forecast of --dry-run; add --dry-run, or omit --json")

    def create(self) -> Made:
        """Make masked-LM record files with exactly the examples of Google's generator; each text shard has its own seed.

        With `inputs` and `output`, each text file (one sentence per line, a blank line after each document) or token shard
        becomes one record file per format in output/FORMAT/training; otherwise the text shards of `corpus` in `workdir` do.
        `vocab` is a file or the name of a downloaded model; by default it is the vocabulary trained on the corpus, and if there
        is none, one of 8,000 tokens is trained. Finished files are kept. `executor="ray"` uses the cluster at $RAY_ADDRESS;
        `part`, such as "3/400", makes only that part of the shards (docs/how-to/many-machines.md).

        Raises `UsageError` for contradictory or impossible arguments, and `BertprepError` for invalid text or vocabulary, a
        failing machine, or an output folder with other settings.

            bertprep.create(seq=512, pred=80, workdir="data", progress=True)
        """
        from bertprep.commands.texts import find_given_tokens, find_text, given_tokens, warn_of_lone_documents_in
        from bertprep.text.summary import report_given, warn_of_truncation
        from bertprep.tokens.make import record_job

        started = time.monotonic()
        workers = self.start_workers(shared=as_path(self.output or self.workdir))
        settings = narrowed(InstanceSettings, self)
        tokens = find_given_tokens(self.inputs, self.reporter)
        if tokens:
            texts, vocabulary = given_tokens(tokens, self, cased=self.cased)
        else:
            texts, vocabulary, cased = find_text(self, workers, cased=self.cased, pairs=settings.has_pairs)
            settings = replace(settings, cased=cased)
        if settings.has_pairs:
            warn_of_lone_documents_in(texts)
        made = self.make(record_job(texts, vocabulary, settings, self.variant, self._folders(texts, settings)), workers)
        if made.is_complete and settings.has_pairs and not texts.is_of_workspace and not tokens:
            report_given(self.reporter, texts, made, lengths=(self.seq,), is_meant=self.lines_are_sentences)
        if made.is_complete:
            warn_of_truncation(made, self.seq, are_users_lines=not texts.is_of_workspace)
        return made.since(started)

    def _folders(self, texts: Texts, settings: InstanceSettings) -> dict[RecordFormat, Path]:
        """Return the folder of each format: in `output`, or in the workspace below a folder named after the settings."""
        if not texts.is_of_workspace:
            return {name: as_path(self.output or ".") / name for name in self.record_formats}
        of_settings = settings_name(
            settings, shards=texts.made_from["shards"], test_fraction=texts.test_fraction, variant=self.variant
        )
        return {name: self.workspace.records(name, of_settings, texts.corpus) for name in self.record_formats}

    def forecast(self) -> Forecast:
        """Forecast the records, disk space and time of `create` with these arguments, as if nothing were made yet.

        bertprep.forecast(seq=512, pred=80, corpus="books")
        """
        from bertprep.commands.forecast import forecast_of

        return forecast_of(self, narrowed(InstanceSettings, self), self.variant, self.record_formats)


REQUEST = Create
create = function_of(Create, Create.create)
forecast = function_of(Create, Create.forecast)


def run(request: Create) -> None:
    """Make the records, and print a summary of each format and split, or print a forecast."""
    if request.dry_run:
        from bertprep.commands.forecast import IS_FORECAST, show_forecast

        to_json = None if request.json is None else as_path(request.json)
        check_target("--json", to_json, ".json", IS_FORECAST)
        show_forecast(request.forecast(), to_json)
        return
    print_results(*request.create().lines(), *request.finished_lines())
