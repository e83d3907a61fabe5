"""The data of a phase while it is trained on: global batches of the training split, and the test split to evaluate on."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from hashlib import sha256
from types import TracebackType

import numpy as np

from bertprep.layout import TEST
from bertprep.records import Examples
from trainer.batches import EvaluationBatches, GlobalBatch, TrainingBatches
from trainer.engines import Engine
from trainer.metrics import Sums, training_flops
from trainer.record_set import RecordSet
from trainer.settings import Phase, RunSettings
from trainer.unigram import unigram_loss

_SPREAD = 256  # records by which a data set is known again


class PhaseData:
    """Open while the block lasts; `batch` is the global batch and this rank's share of it."""

    def __init__(self, settings: RunSettings, phase: Phase, engine: Engine) -> None:
        self.phase, self._settings = phase, settings
        self._opened = ExitStack()
        self.records = self._opened.enter_context(RecordSet(phase.data))
        self.test = self._opened.enter_context(RecordSet(phase.data, TEST)) if phase.has_test else None
        size = phase.batch_size * engine.devices * phase.accumulation
        self.batch = GlobalBatch(size, engine.world_size, engine.rank, phase.accumulation)
        self.batches = TrainingBatches(self.records, self.batch, seed=settings.seed)
        self.flops = size * training_flops(settings.model, seq=self.records.seq, pred=self.records.pred)  # of a step

    def __enter__(self) -> PhaseData:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._opened.__exit__(kind, error, traceback)

    def fingerprint(self) -> str:
        """The sha256 of some training records' values, spread over all: the same in either format, wherever they lie."""
        count = min(_SPREAD, len(self.records))
        examples = Examples.empty(count, seq=self.records.seq, pred=self.records.pred)
        self.records.gather_into(examples, np.arange(count, dtype=np.int64) * len(self.records) // count)
        return sha256(b"".join(array.tobytes() for array in examples.arrays)).hexdigest()

    def evaluate(self, engine: Engine) -> Sums:
        """Losses and hits on the test split, or the first so many sequences of it."""
        if self.test is None:
            raise ValueError("there is no test split")
        batch = GlobalBatch(self.phase.batch_size * engine.devices, engine.world_size, engine.rank)
        sums = Sums()
        for examples, row_weights in EvaluationBatches(self.test, batch, most=self._settings.eval_sequences):
            sums = sums.plus(engine.evaluate(examples, row_weights))
        return sums

    @cached_property
    def unigram_loss(self) -> float | None:
        """The masked-LM loss on the same sequences of who knows the frequencies of the training labels and nothing else."""
        if self.test is None:
            return None
        vocab_size = self._settings.model.vocab_size
        return unigram_loss(self.records, self.test, vocab_size=vocab_size, test_sequences=self._settings.eval_sequences)
