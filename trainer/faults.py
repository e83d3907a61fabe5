"""What stops training on any rank, known to all ranks before the step that it would stop: so none is left waiting.

    bad record    damaged, or with a value that the model cannot take; up to --skip-bad-records are skipped, counted once each
    fault         data that cannot be read at all, or more bad records than may be skipped: the end
    signal        to stop: the end

A rank that has something to report raises a flag in the step that it begins; when that step is finished all ranks confer. Where
nothing happens that costs nothing. A bad record counts from the step whose batch has it, or whose evaluation: so a run that was
stopped names the same records at the same steps, and its checkpoints say which were counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bertprep.errors import BertprepError
from bertprep.records.record_set import BadRecordError
from bertprep.workspace.layout import TEST, TRAINING
from trainer.batches import PhaseData
from trainer.checkpoint import BadRecordKey
from trainer.engines import Engine
from trainer.settings import RunSettings
from trainer.signals import StopSignal

_SPLITS = (TRAINING, TEST)
_SIGNAL, _FAULT, _MET = 1, 2, 4  # what a rank reports, as one number: the last is how many records


@dataclass
class Faults:
    """Those of a run; `counted` are the bad records of its steps so far."""

    settings: RunSettings
    engine: Engine
    phases: Sequence[PhaseData]
    signal: StopSignal
    counted: set[BadRecordKey]
    _unreported: list[tuple[int, BadRecordKey]] = field(default_factory=list)  # steps and records that this rank met
    _coming: list[tuple[int, BadRecordKey]] = field(default_factory=list)  # that all ranks know, of steps not finished
    _fault: BertprepError | None = None  # of this rank
    _is_fault_elsewhere: bool = False

    @property
    def is_to_report(self) -> bool:
        """Whether this rank's next step is to make all confer."""
        return self.signal.has_come or bool(self._unreported) or self._fault is not None

    def meet(self, step: int, phase: int, split: str, bad: BadRecordError) -> None:
        """Note a bad record of the batch of a step, or of its evaluation."""
        key = phase, split, bad.number
        if self.settings.skip_bad_records == 0:
            self.end(bad)
        elif key not in self.counted and key not in (known for _, known in (*self._coming, *self._unreported)):
            self._unreported.append((step, key))

    def end(self, fault: BertprepError | None) -> None:
        """Note what ends the run on this rank; the first counts."""
        self._fault = self._fault or fault

    def confer(self) -> bool:
        """Exchange what ranks have to report; returns whether the run is to end. All call it at the same moment."""
        own, self._unreported = self._unreported, []
        report = _SIGNAL * self.signal.has_come + _FAULT * (self._fault is not None) + _MET * len(own)
        of_all = self._gather(report)
        for number in range(max(of_all) // _MET):
            step, (phase, split, record) = own[number] if number < len(own) else (0, (0, TRAINING, 0))
            rows = zip(*map(self._gather, (step, phase, _SPLITS.index(split), record)), strict=True)
            for (of_step, of_phase, of_split, of_record), of_rank in zip(rows, of_all, strict=True):
                if number < of_rank // _MET:
                    self._coming.append((of_step, (of_phase, _SPLITS[of_split], of_record)))
        self._coming = sorted(set(self._coming))
        bad = list(dict.fromkeys(key for _, key in self._coming if key not in self.counted))
        allowed = self.settings.skip_bad_records
        if bad and len(self.counted) + len(bad) > allowed:
            phase, split, record = bad[max(0, allowed - len(self.counted))]
            path, number, what = self.phases[phase].explain(split, record)
            self.end(
                BertprepError(f"{path}: record {number}: {what}; it is one bad record more than --skip-bad-records {allowed}")
            )
        self._is_fault_elsewhere = any(each & _FAULT for each in of_all)
        return self._fault is not None or any(each & (_SIGNAL | _FAULT) for each in of_all)

    def _gather(self, number: int) -> list[int]:
        return self.engine.gather(number) if self.engine.processes > 1 else [number]

    def take_met(self, step: int) -> list[dict[str, Any]]:
        """Count the bad records of the steps up to this one, which is finished; returns a log entry for each new one."""
        met = [(of_step, key) for of_step, key in self._coming if of_step <= step]
        self._coming = self._coming[len(met) :]
        entries = []
        for of_step, (phase, split, number) in met:
            if (phase, split, number) not in self.counted:
                self.counted.add((phase, split, number))
                file, record, what = self.phases[phase].explain(split, number)
                entries.append(
                    {"step": of_step, "phase": phase + 1, "split": split, "file": file, "record": record, "what": what}
                )
        return entries

    @property
    def has_fault(self) -> bool:
        """Whether the run ends for a fault of any rank."""
        return self._fault is not None or self._is_fault_elsewhere

    def raise_any(self, step: int) -> None:
        """Raise `BertprepError` where the run had to end for a fault, after `step`, which is saved."""
        saved = f"step {step:,} is saved, and the same command resumes after it" if step else "no step was finished before"
        if self._fault is not None:
            is_skippable = isinstance(self._fault, BadRecordError) and self.settings.skip_bad_records == 0
            advice = "; --skip-bad-records N skips up to N of them" if is_skippable else ""
            raise BertprepError(f"{self._fault}{advice}; {saved}") from self._fault
        if self._is_fault_elsewhere:
            raise BertprepError(
                f"data rank {self.engine.data_rank} of {self.engine.data_world_size}: another process met data that it "
                f"cannot read, and says which; {saved}"
            )
