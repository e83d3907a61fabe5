"""Agrees across ranks on faults and signals before the step that they would affect, so that no rank is left waiting.

    bad record    damaged, or with a value that the model cannot take; up to --skip-bad-records are skipped, counted once each
    fault         data that cannot be read at all, or more bad records than may be skipped: ends the run
    signal        ends the run

A rank with something to report raises a flag in its next step; after that step all ranks exchange reports, which costs nothing
otherwise. A bad record counts from the step whose batch or evaluation contains it, so a resumed run reports the same records at
the same steps, and its checkpoints list those counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bertprep.errors import BertprepError, GivenUpError
from bertprep.records.record_set import BadRecordError
from bertprep.workspace.layout import TEST, TRAINING
from trainer.batches import PhaseData
from trainer.checkpoint import BadRecordKey
from trainer.engines import Engine
from trainer.settings import RunSettings
from trainer.signals import StopSignal

_SPLITS = (TRAINING, TEST)
_SIGNAL, _FAULT, _MET = 1, 2, 4  # a rank's report as one number; the last is the number of records


@dataclass
class Faults:
    """The faults of a run; `counted` are the bad records of its steps so far."""

    settings: RunSettings
    engine: Engine
    phases: Sequence[PhaseData]
    signal: StopSignal
    counted: set[BadRecordKey]
    _unreported: list[tuple[int, BadRecordKey]] = field(default_factory=list)  # steps and records seen by this rank
    _coming: list[tuple[int, BadRecordKey]] = field(default_factory=list)  # known to all ranks, of unfinished steps
    _fault: BertprepError | None = None  # of this rank
    _is_fault_elsewhere: bool = False

    @property
    def is_to_report(self) -> bool:
        """Whether this rank must request an exchange in its next step."""
        return self.signal.has_come or bool(self._unreported) or self._fault is not None

    def meet(self, step: int, phase: int, split: str, bad: BadRecordError) -> None:
        """Record a bad record of the batch of a step, or of its evaluation."""
        key = phase, split, bad.number
        if self.settings.skip_bad_records == 0:
            self.end(bad)
        elif key not in self.counted and key not in (known for _, known in (*self._coming, *self._unreported)):
            self._unreported.append((step, key))

    def end(self, fault: BertprepError | None) -> None:
        """Record the fault that ends the run on this rank; the first one counts.

        What is given up because a signal has come is none: the signal ends the run.
        """
        if not isinstance(fault, GivenUpError):
            self._fault = self._fault or fault

    def confer(self) -> bool:
        """Exchange the reports of all ranks, a collective call; returns whether the run must end."""
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
        """Count the bad records up to this finished step; returns a log entry for each new one."""
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
        """Whether a fault of any rank ends the run."""
        return self._fault is not None or self._is_fault_elsewhere

    def raise_any(self, step: int) -> None:
        """Raise `BertprepError` if the run ended because of a fault, after `step`, which is saved."""
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
