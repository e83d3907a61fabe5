"""`bertprep convert`: write records in another format, variant or number of files, or token shards as MDS."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bertprep.commands.function import function_of
from bertprep.commands.request import LOCAL, InParts, InRows
from bertprep.config import DEFAULT_FORMATS, RECORD_FORMATS, RecordFormat, Variant
from bertprep.errors import UsageError
from bertprep.files.paths import as_path, path_arg, real_path
from bertprep.options import described, narrowed, option
from bertprep.terminal import print_results, warn
from bertprep.work.layout import MDS_FORMAT

if TYPE_CHECKING:
    from bertprep.records.convert import Conversion
    from bertprep.work.data_set import DataSet
    from bertprep.work.made import Made

_PART = re.compile(r"part-\d+")


@dataclass(frozen=True, kw_only=True)
class Convert(Variant, InRows, InParts):
    """The request of `convert`: records or token shards, and the path and format of the result."""

    source: Path | str = field(
        kw_only=False,
        metadata=described(
            "a record file or a folder of record files, written by any tool; for MDS a folder of token shards",
            metavar="SRC",
            check=path_arg,
            positional=True,
        ),
    )
    target: Path | str = field(
        kw_only=False, metadata=described("file or folder to write", metavar="DST", check=path_arg, positional=True)
    )
    to: str | None = option(
        None, "tfrecord, ofrecord, arrow, parquet, or for token shards mds (default: by the suffix of DST, such as "
        "out.arrow; without one, ofrecord for tfrecord, and tfrecord for any other format)", metavar="FORMAT",
        choices=(*RECORD_FORMATS, MDS_FORMAT),
    )  # fmt: skip
    shards: int | None = option(
        None, "number of files in each split, written to a folder (default: as many as the source has)", least=1
    )
    pick: int | None = option(
        None, "pick N evenly spaced records of each split, and write them in order to one file, or to --shards files; not for "
        "SQuAD (default: all)", metavar="N", least=1,
    )  # fmt: skip

    pred: int | None = option(
        None, "maximum number of predictions in a record, for Arrow and Parquet files that do not state it (default: the "
        "largest number found)", metavar="N", least=1, rare=True,
    )  # fmt: skip

    def convert(self) -> Made:
        """Write records in another format or number of files, all or some of them; no value changes.

        Without `to`, the name of `target` decides the format. A file becomes the file `target`. A folder becomes a folder with
        the same splits and as many files, or `shards` files per split. With `pick`, only the records int(i * (n / pick)) of the
        n records of each split are written. The vocabulary is copied next to the records. Finished files are kept. With `part`,
        such as "3/400", only that part is made (docs/how-to/many-machines.md).

        Raises `UsageError` for contradictory or impossible arguments, and `BertprepError` for corrupt records, files that
        differ from their manifest, and a `target` with other contents.

            bertprep.convert("data/tfrecord/.../sample", "records/ofrecord", shards=8)
        """
        started = time.monotonic()
        source, target = as_path(self.source), as_path(self.target)
        self.check_rows("--to mds", is_mds=self.to == MDS_FORMAT)
        self._check_paths(source, target)
        if self.to == MDS_FORMAT:
            made = self._make_rows()
        elif self._is_file:
            made = self._convert_file()
        else:
            made = self._convert_folder()
        return made.since(started)

    @property
    def _is_file(self) -> bool:
        """Whether a single file becomes a single file, in this process."""
        return self.to != MDS_FORMAT and self.shards is None and as_path(self.source).is_file()

    def _make_rows(self) -> Made:
        from bertprep.tokens.documents import open_all_splits
        from bertprep.tokens.mds import INPUT_IDS, mds_job

        documents = open_all_splits(as_path(self.source))
        job = mds_job(documents, as_path(self.target), self.seq or 0, self.column or INPUT_IDS, self.dtype)
        return self.make(job, self.start_workers(shared=as_path(self.target)))

    def _find_source(self) -> DataSet:
        from bertprep.work.choose import find_records

        data_set = find_records(as_path(self.source))
        for note in data_set.notes:
            warn(note)
        return data_set

    def _convert_folder(self) -> Made:
        from bertprep.records.convert import conversion_job
        from bertprep.records.identify import identify_all

        data_set = self._find_source()
        data_set = data_set if data_set.is_whole else data_set.by_itself()
        workers = self.start_workers(shared=as_path(self.target))
        files = identify_all(data_set, workers, self.reporter, pred=self.pred)
        self._check_pred(files[0].shape.pred)
        conversion = self._conversion({file.format for file in files})
        return self.make(conversion_job(data_set, files, as_path(self.target), conversion), workers)

    def _convert_file(self) -> Made:
        """Convert a single file, without a ledger or a manifest on disk."""
        from bertprep.records.convert import convert_file, sizes_of_records
        from bertprep.records.identify import identify
        from bertprep.work.made import Made
        from bertprep.work.manifest import RECORDS, Manifest

        data_set = self._find_source()
        target, source = as_path(self.target), identify(as_path(self.source), pred=self.pred)
        self._check_pred(source.shape.pred)
        conversion = self._conversion({source.format})
        entry = convert_file(data_set, source, target, conversion)
        manifest = Manifest(RECORDS, {**sizes_of_records(source.shape), **conversion.made_with}, {target.name: entry})
        return Made({conversion.to: target}, {conversion.to: manifest}, made=1, kept=0, seconds=0)

    def _check_pred(self, found: int) -> None:
        """Raise `UsageError` if --pred contradicts the files."""
        if self.pred not in (None, found):
            raise UsageError(
                f"--pred {self.pred}: {self.source} states that its records have up to {found} predictions; leave --pred out"
            )

    def _conversion(self, found: set[RecordFormat]) -> Conversion:
        """Return the requested conversion of files in the formats `found`."""
        from bertprep.records.convert import Conversion

        to = _format_of_target(as_path(self.target), self.to)
        if to is None and len(found) > 1:
            raise UsageError(f"{self.source}: has files of several formats; choose the format of the result with --to")
        to = to or next(name for name in DEFAULT_FORMATS if name not in found)
        self.variant.check_fits((to,), "--to")
        return Conversion(to, self.variant, self.shards, self.pick)

    @property
    def variant(self) -> Variant:
        return narrowed(Variant, self)

    def _check_paths(self, source: Path, target: Path) -> None:
        if self.to == MDS_FORMAT:
            variant = {f"--{name.replace('_', '-')}": value for name, value in self.variant.made_with.items()}
            given = {"--shards": self.shards, "--pick": self.pick, "--pred": self.pred, **variant}
            for name, value in given.items():
                if value is not None:
                    raise UsageError(f"{name} {value}: has no meaning for --to mds; leave it out")
        elif (to := _format_of_target(target, self.to)) is not None:
            self.variant.check_fits((to,), "--to")
        real_source, real_target = map(real_path, (source, target))
        if real_source == real_target:
            raise UsageError(f"{target}: is the source itself; name another file or folder for the result")
        if self._is_file:
            if target.is_dir():
                raise UsageError(f"{target}: is a folder; name the file to write, or give --shards")
            if self.part is not None:
                raise UsageError(f"{source}: is a single file, which --part cannot divide; leave out --part, or give --shards")
            if self.executor != LOCAL:
                raise UsageError(
                    f"--executor {self.executor}: has no effect on {source}, a single file; leave it out, or give --shards"
                )
            return
        if target.is_file():
            raise UsageError(f"{target}: is a file; name a folder for the records")
        if real_target in real_source.parents or real_source in real_target.parents:
            raise UsageError(f"{target}: must neither contain the source {source} nor be in it; name a folder outside")


REQUEST = Convert
convert = function_of(Convert, Convert.convert)


def run(request: Convert) -> None:
    """Convert the data, and print a summary of each split."""
    made = request.convert()
    print_results(*made.lines())
    ((to, target),) = made.folders.items()
    if to != MDS_FORMAT and _format_of_target(target, request.to) is None:
        print_results(f"wrote {to} by default, since the name {target.name} implies no format; choose another with --to")
    if to == RecordFormat.ARROW and target.is_dir():
        print_results(f'to open them: datasets.load_from_disk("{target}")')
    print_results(*request.finished_lines())


def _format_of_target(target: Path, to: str | None) -> RecordFormat | None:
    suffix = Path(target.name.removesuffix(".gz")).suffix[1:].lower()
    named = "ofrecord" if _PART.fullmatch(target.name) else suffix if suffix in RECORD_FORMATS else None
    if named is None or to == named:
        return None if to is None else RecordFormat(to)
    if to is None:
        return RecordFormat(named)
    raise UsageError(f"--to {to}: the name {target} is that of {named} files; choose another name, or leave --to out")
