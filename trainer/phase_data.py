"""The data of a phase while it is trained on: global batches of the training split, and the test split to evaluate on."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from types import TracebackType

import numpy as np

from bertprep.errors import BertprepError
from bertprep.progress import say
from bertprep.records import Examples
from bertprep.records.record_set import BadRecordError, RecordSet
from bertprep.workspace.layout import TEST, TRAINING
from trainer.batches import EvaluationBatches, GlobalBatch, TrainingBatches
from trainer.engines import Engine
from trainer.metrics import Sums, training_flops
from trainer.settings import Phase, RunSettings
from trainer.unigram import unigram_loss

_SPREAD = 256  # records by which a data set is known again


def open_records(settings: RunSettings, phase: Phase, split: str = TRAINING) -> RecordSet:
    """The records of a phase, held against the sizes of the model."""
    sizes = settings.model
    return RecordSet(phase.data, split, vocab_size=sizes.vocab_size, type_vocab_size=sizes.type_vocab_size)


def fingerprint(records: RecordSet) -> str | None:
    """The sha256 of some records' values, spread over all: the same in either format, wherever they lie.

    None where one of them is bad: then it cannot be known whether the data are those of before.
    """
    count = min(_SPREAD, len(records))
    examples = Examples.empty(count, seq=records.seq, pred=records.pred)
    if records.gather_good(examples, np.arange(count, dtype=np.int64) * len(records) // count):
        return None
    return sha256(b"".join(array.tobytes() for array in examples.arrays)).hexdigest()


@dataclass(frozen=True)
class Evaluation:
    """Losses and hits on the test split, in all ranks the same, and what this rank met that it could not take."""

    sums: Sums
    is_whole: bool  # no rank left anything out
    bad: tuple[BadRecordError, ...]
    fault: BertprepError | None  # at which reading ended


class PhaseData:
    """Open while the block lasts; `batch` is the global batch and this rank's share of it."""

    def __init__(self, settings: RunSettings, phase: Phase, engine: Engine) -> None:
        self.phase, self._settings = phase, settings
        self._opened = ExitStack()
        self.records = self._opened.enter_context(open_records(settings, phase))
        self.test = self._opened.enter_context(open_records(settings, phase, TEST)) if phase.has_test else None
        size = phase.batch_size * engine.devices * phase.accumulation
        self.batch = GlobalBatch(size, engine.data_world_size, engine.data_rank, phase.accumulation)
        skip_bad = settings.skip_bad_records
        self.batches = TrainingBatches(self.records, self.batch, seed=settings.seed, skip_bad=skip_bad)
        self.flops = size * training_flops(settings.model, seq=self.records.seq, pred=self.records.pred)  # of a step

    def __enter__(self) -> PhaseData:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._opened.__exit__(kind, error, traceback)

    def explain(self, split: str, number: int) -> tuple[str, int, str]:
        """(file, record in it, what is wrong) of a bad record, which another rank may have met, in words."""
        records = self.test if split == TEST and self.test is not None else self.records
        path, record = records.place_of(number)
        room = Examples.empty(1, seq=records.seq, pred=records.pred)
        try:
            records.gather_into(room, np.array([number]))
        except BertprepError as error:
            return str(path), record, str(error).removeprefix(f"{path}: record {record}: ")
        return str(path), record, "another process found it bad, here it is good"

    def evaluate(self, engine: Engine) -> Evaluation:
        """Losses and hits on the test split, or the first so many sequences of it, without bad records."""
        if self.test is None:
            raise ValueError("there is no test split")
        batch = GlobalBatch(self.phase.batch_size * engine.devices, engine.data_world_size, engine.data_rank)
        sums = Sums()
        batches = EvaluationBatches(self.test, batch, most=self._settings.eval_sequences)
        for examples, row_weights in batches:
            sums = sums.plus(engine.evaluate(examples, row_weights))
        return Evaluation(sums, round(sums.sequences) == batches.sequences, tuple(batches.bad), batches.fault)

    @cached_property
    def unigram_loss(self) -> float | None:
        """The masked-LM loss on the same sequences of who knows the frequencies of the training labels and nothing else.

        Bad records are left out. None without a test split, and where the records cannot be read: no run ends for want of it.
        """
        if self.test is None:
            return None
        vocab_size = self._settings.model.vocab_size
        try:
            return unigram_loss(self.records, self.test, vocab_size=vocab_size, test_sequences=self._settings.eval_sequences)
        except BertprepError as error:
            say(f"without the loss by unigram frequencies: {error}")
            return None
