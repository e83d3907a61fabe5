"""Small clean data sets, made by the generator itself: what no check may call wrong."""

from collections.abc import Iterator
from pathlib import Path

from bertprep.config import InstanceSettings
from bertprep.instances import Tokenizer, Vocabulary, generate_instances
from bertprep.records import RecordEncoder, write_records

SETTINGS = (
    InstanceSettings(),
    InstanceSettings(seq=64, pred=10, masked_lm_prob=0.3, short_seq_prob=0.5, dupe=2),
    InstanceSettings(seq=512, pred=80, dupe=10),
    InstanceSettings(seq=32, pred=5, dupe=3),
    InstanceSettings(whole_word=True, dupe=4),
    InstanceSettings(seq=128, pred=5, dupe=1),
    InstanceSettings(seq=16, pred=2, dupe=10),
    InstanceSettings(dupe=5, short_seq_prob=1.0, whole_word=True),
)


def write_clean_sets(
    texts: list[Path], vocabulary: Vocabulary, folder: Path, count: int
) -> Iterator[tuple[InstanceSettings, Path]]:
    """(settings, TFRecord file) of `count` sets: all settings in turn, each set with a seed of its own."""
    shards = [Tokenizer(vocabulary, lower=True).tokenize_file(text) for text in texts]
    for number in range(count):
        settings = SETTINGS[number % len(SETTINGS)]
        shard = shards[number // len(SETTINGS) % len(shards)]
        path = folder / f"set_{number}.tfrecord"
        encoder = RecordEncoder(vocabulary, seq=settings.seq, pred=settings.pred)
        write_records(generate_instances(shard, vocabulary, settings, seed=number), encoder, {"tfrecord": path})
        yield settings, path
