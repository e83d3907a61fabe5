"""`bertprep create`: text shards become masked-LM record files; earlier stages run first if their output is missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from bertprep.commands.request import OfRecords, check_target, function_of
from bertprep.errors import UsageError
from bertprep.files.paths import as_path, path_arg
from bertprep.options import HOW, narrowed, option
from bertprep.terminal import print_results

if TYPE_CHECKING:
    from bertprep.commands.forecast import Forecast
    from bertprep.work.made import Made


@dataclass(frozen=True, kw_only=True)
class Create(OfRecords):
    """Which text becomes records, of which form, where, and how."""

    def create(self) -> Made:
        """Make masked-LM record files: exactly the examples of Google's generator, each text shard with a seed of its own.

        With `inputs` and `output`, each text file (one sentence per line, a blank line after each document) or token shard
        becomes one record file per format in output/FORMAT/training; otherwise the text shards of `corpus` in `workdir` do.
        `vocab` is a file or the name of a downloaded model; without it one of 8,000 tokens is trained. Finished files are kept.
        `executor` "ray" uses the cluster at $RAY_ADDRESS; `part`, such as "3/400", makes only that part of the shards
        (docs/cluster.md).

        Raises `UsageError` for a request that cannot be met, `BertprepError` for invalid text or vocabulary, a failing machine,
        or other settings in the output folder.

            bertprep.create(seq=512, pred=80, workdir="data", progress=True)
        """
        from bertprep.commands.record_job import make_records

        workers = self.start_workers(shared=as_path(self.output or self.workdir))
        return make_records(self, workers)

    def forecast(self) -> Forecast:
        """Forecast what `create` with these arguments makes, as if nothing existed.

        bertprep.forecast(seq=512, pred=80, corpus="books")
        """
        from bertprep.commands.forecast import forecast_of

        return forecast_of(self)


@dataclass(frozen=True, kw_only=True)
class CreateOrForecast(Create):
    """And whether to forecast it instead."""

    group: ClassVar[str] = HOW
    dry_run: bool = option(
        False, "write nothing: forecast records, disk, time and memory, from making a sample of the text in a temporary folder"
    )
    json: Path | str | None = option(
        None, "write the forecast of --dry-run to FILE too", metavar="FILE", check=path_arg, rare=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.json and not self.dry_run:
            raise UsageError("--json: is for the forecast of --dry-run; add it")


REQUEST = CreateOrForecast
create = function_of(Create, Create.create)
forecast = function_of(Create, Create.forecast)


def run(request: CreateOrForecast) -> None:
    """Make the records, and print a summary of each format and split, or print a forecast."""
    if request.dry_run:
        from bertprep.commands.forecast import IS_FORECAST, show_forecast

        to_json = None if request.json is None else as_path(request.json)
        check_target("--json", to_json, ".json", IS_FORECAST)
        show_forecast(narrowed(Create, request).forecast(), to_json)
        return
    print_results(*request.create().lines(), *request.finished_lines())
