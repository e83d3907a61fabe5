"""Instances become rows of a block whatever it held before, and a kernel that looks ahead reads nothing after the last row."""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import InstanceSettings
from bertprep.instances import Instances, Tokenizer, generate_instances, load_vocabulary
from bertprep.records import Examples, PretrainingExamples
from bertprep.records.examples import Shape
from bertprep.records.rows import RowMaker, tabulate
from tests.golden import GOLDEN

VOCABULARY = load_vocabulary(GOLDEN / "vocab.txt")
SEQ, PRED = 64, 10
ROWS = 40
NOWHERE = 1 << 40
"""The index of a shard that no address space has."""


@pytest.fixture(scope="module")
def instances(golden_corpus: Path) -> Instances:
    shard = Tokenizer(VOCABULARY, lower=True).tokenize_file(golden_corpus)
    return generate_instances(shard, VOCABULARY, InstanceSettings(seq=SEQ, pred=PRED, short_seq_prob=0.5), seed=1)


def lay_out(instances: Instances, block: Examples, indices: NDArray[np.int64], records: NDArray[np.int64]) -> None:
    rows = RowMaker(VOCABULARY, Shape(PretrainingExamples, SEQ, PRED))
    fixed = *rows._special, rows._ones, rows._weights
    kernels.load().lay_out(*fixed, block, tabulate([instances]), indices, records, len(records))


def test_nothing_of_what_a_block_held_is_left(instances: Instances) -> None:
    found = []
    for before in (0, 7):
        block = PretrainingExamples.empty(ROWS, seq=SEQ, pred=PRED)
        for array in block.arrays:
            array[...] = before
        lay_out(instances, block, np.zeros(ROWS, np.int64), np.arange(ROWS))
        found.append(block)
    assert (found[0].input_mask[:, -1] == 0).any()
    for one, other in zip(found[0].arrays, found[1].arrays, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("rows", [1, 4, 5, 9, 13, ROWS])
def test_rows_after_the_last_are_not_looked_at(instances: Instances, rows: int) -> None:
    """In a process of its own, which an address from there would end."""
    indices, records = np.full(2 * ROWS, NOWHERE), np.full(2 * ROWS, NOWHERE)
    indices[:rows], records[:rows] = 0, np.arange(rows)
    block = PretrainingExamples.empty(rows, seq=SEQ, pred=PRED)
    kernels.load()
    process = os.fork()
    if process == 0:
        try:
            lay_out(instances, block, indices[:rows], records[:rows])
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
