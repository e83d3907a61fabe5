"""The use a training run makes of records: how often it sees each record, hence each mask and text, and how much is padding.

Each text is cut and masked `dupe` times. So one pass over the records is `dupe` passes over the text, and a mask repeats only
in the second pass.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertprep import records
from bertprep.config import RECORD_FORMATS
from bertprep.errors import UsageError
from bertprep.planning.measure import count_tokens
from bertprep.records.data_sets import find_training_records
from bertprep.workspace.layout import TRAINING

_RECORDS_LOOKED_AT = 20_000  # records of a folder sampled for the fraction of padding
_MOST_FILES_LOOKED_AT = 20


@dataclass(frozen=True)
class TrainingRecords:
    """The records that a run trains on; `dupe` is None without a manifest."""

    records: int
    seq: int
    pred: int
    dupe: int | None
    padding_share: float


@dataclass(frozen=True)
class TrainingUse:
    """The use of these records in `steps` steps of a global batch, in sequences."""

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
        """How often each record, hence each mask, is seen."""
        return self.sequences / self.data.records

    @property
    def epochs_over_text(self) -> float | None:
        """How often each text is seen, cut and masked in `dupe` ways."""
        return None if self.data.dupe is None else self.epochs_over_records * self.data.dupe

    @property
    def tokens(self) -> int:
        """All tokens that the model processes, padding included."""
        return self.sequences * self.data.seq

    @property
    def text_tokens(self) -> int:
        """The tokens without padding."""
        return round(self.tokens * (1 - self.data.padding_share))

    def as_json(self) -> dict[str, Any]:
        derived = ("sequences", "epochs_over_records", "epochs_over_text", "tokens", "text_tokens")
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}


def read_training_records(folder: Path) -> TrainingRecords:
    """The training records of a folder, or of its `training` folder; bertprep's or another tool's.

    Counts come from the manifest if there is one, else from the files; padding from records spread over the files.
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
