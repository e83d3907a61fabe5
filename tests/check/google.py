"""Records as Google's script writes them, by the readable generator: each into the next of some files, no manifest."""

from __future__ import annotations

from pathlib import Path

from bertprep.config import InstanceSettings
from bertprep.instances import Vocabulary
from bertprep.records import PretrainingExamples
from bertprep.records.write import write_examples
from tests.instances.examples import PlainExample, reference_examples


def write_google_records(text: Path, vocabulary: Vocabulary, settings: InstanceSettings, folder: Path, files: int = 3) -> Path:
    """Return the folder of the records of a text file; seeds are the settings'."""
    made = reference_examples(text, vocabulary, settings, seed=settings.seed)
    folder.mkdir(parents=True)
    for number in range(files):
        path = folder / f"tf_examples.tfrecord-{number:05d}-of-{files:05d}"
        write_examples([_as_arrays(made[number::files], settings)], {"tfrecord": path})
    return folder


def _as_arrays(made: list[PlainExample], settings: InstanceSettings) -> PretrainingExamples:
    examples = PretrainingExamples.empty(len(made), seq=settings.seq, pred=settings.pred)
    for array in examples.arrays:
        array[...] = 0
    for row, example in enumerate(made):
        length, masks = len(example.input_ids), len(example.masked_lm_positions)
        examples.input_ids[row, :length] = example.input_ids
        examples.input_mask[row, :length] = 1
        examples.segment_ids[row, :length] = example.segment_ids
        examples.masked_lm_positions[row, :masks] = example.masked_lm_positions
        examples.masked_lm_ids[row, :masks] = example.masked_lm_ids
        examples.masked_lm_weights[row, :masks] = 1
        examples.next_sentence_labels[row] = example.next_sentence_label
    return examples
