"""What a training run makes of records: how often it sees each, and so each mask and each text, and how much is padding.

A record is one cutting and one masking of a text, made `dupe` times over; so a run that passes over the records once passes
over the text `dupe` times, and meets a mask again only in its second pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertprep import records
from bertprep.config import RECORD_FORMATS
from bertprep.errors import UsageError
from bertprep.planning.measure import count_tokens
from bertprep.records.data_sets import find_training_records
from bertprep.workspace.layout import TRAINING

PUBLISHED_STEPS = 7_820
PUBLISHED_GLOBAL_BATCHES = (65_536, 32_768)
PHASES = ((128, 20), (512, 80))
_RECORDS_LOOKED_AT = 20_000  # in a whole folder, for the share of padding
_MOST_FILES_LOOKED_AT = 20


@dataclass(frozen=True)
class TrainingRecords:
    """The records that a run trains on; `dupe` is None where no manifest tells it."""

    records: int
    seq: int
    pred: int
    dupe: int | None
    padding_share: float


@dataclass(frozen=True)
class TrainingUse:
    """What so many steps of a global batch, in sequences, make of these records."""

    data: TrainingRecords
    steps: int
    global_batch: int

    def __post_init__(self) -> None:
        for name, value in (("--steps", self.steps), ("--global-batch", self.global_batch)):
            if value < 1:
                raise UsageError(f"{name} {value}: must be at least 1")

    @property
    def sequences(self) -> int:
        return self.steps * self.global_batch

    @property
    def epochs_over_records(self) -> float:
        """How often each record is seen, and so each of its masks."""
        return self.sequences / self.data.records

    @property
    def epochs_over_text(self) -> float | None:
        """How often each text is seen, cut and masked in `dupe` ways."""
        return None if self.data.dupe is None else self.epochs_over_records * self.data.dupe

    @property
    def tokens(self) -> int:
        """All tokens that the model computes, padding too."""
        return self.sequences * self.data.seq

    @property
    def text_tokens(self) -> int:
        """Those that are not padding."""
        return round(self.tokens * (1 - self.data.padding_share))

    def as_json(self) -> dict[str, Any]:
        derived = ("sequences", "epochs_over_records", "epochs_over_text", "tokens", "text_tokens")
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}


def published_phases(steps: int, global_batches: Sequence[int]) -> list[tuple[int, int]]:
    """(steps, global batch) of the two phases: nine tenths of the steps, then a tenth with the second batch.

    As in NVIDIA's LAMB script `steps` counts steps of the first batch; a smaller second batch makes more steps of its tenth.

    >>> published_phases(7820, (65536, 32768))
    [(7038, 65536), (1564, 32768)]
    """
    first, second = global_batches[0], global_batches[-1]
    return [(steps * 9 // 10, first), (steps // 10 * first // second, second)]


def read_training_records(folder: Path) -> TrainingRecords:
    """The training records of a folder: those of its `training` folder where it has one; ours or other tools'.

    Numbers come from the manifest where there is one, and else from the files; padding from records spread over the files.
    """
    if not folder.is_dir():
        raise UsageError(f"--records {folder}: is not a folder; name one with record files, or with training/ in it")
    found = find_training_records(folder, RECORD_FORMATS)  # both formats have the same records
    paths = found.paths(TRAINING)
    if not paths:
        raise UsageError(f"--records {folder}: holds no training records; name the folder that bertprep create has printed")
    manifest = found.manifest
    if manifest and {"seq", "pred", "dupe"} <= manifest.made_with.keys():
        seq, pred, dupe = (manifest.made_with[name] for name in ("seq", "pred", "dupe"))
        count = sum(manifest.files[str(path.relative_to(found.folder))]["examples"] for path in paths)
    else:
        with records.open(paths[0]) as first:
            seq, pred, dupe = first.seq, first.pred, None
        count = sum(map(_count_records, paths))
    chosen = paths[:: -(-len(paths) // _MOST_FILES_LOOKED_AT)]
    looked_at, tokens = map(sum, zip(*(count_tokens(path, _RECORDS_LOOKED_AT // len(chosen)) for path in chosen), strict=True))
    return TrainingRecords(count, seq, pred, dupe, 1 - tokens / (looked_at * seq))


def _count_records(path: Path) -> int:
    with records.open(path) as file:
        return len(file)
