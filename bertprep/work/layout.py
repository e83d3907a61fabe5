"""Every path and file name in a workspace; they are defined nowhere else.

    WORKDIR/download/CORPUS/listing.json                      what a download consists of, with every file's sha256
    WORKDIR/download/CORPUS/...                               its files, as they are at their source
    WORKDIR/download/datasets/OWNER/NAME/CONFIG-SPLIT/...     the same of a split of a data set on the Hub
    WORKDIR/download/web/1f2e3d4c5b6a7988/...                 the same of an address given as input
    WORKDIR/download/squad/{v1.1,v2.0}/train-v1.1.json        task data as trainers read it; parquet/ holds what it is made of
    WORKDIR/download/{CoLA,MRPC,MNLI,...}/train.tsv
    WORKDIR/download/weights/google-bert/bert-base-uncased/   bert_config.json, vocab.txt, model.safetensors, ...
    WORKDIR/download/vocab/google-bert/bert-base-uncased/vocab.txt
    WORKDIR/download/datasets/OWNER/NAME/{manifest.json,train/,test/,...}   records that were pushed to the Hub
    WORKDIR/download/google_pretrained_weights/uncased_L-12_H-768_A-12/bert_model.ckpt.index, ...   the same in Google's files
    WORKDIR/download/nvidia_pretrained/bert_tf_squad11_base_128/{bert_config.json,vocab.txt}
    WORKDIR/download/sample/sample.txt                        the sample corpus, a blank line after each speech
    WORKDIR/sharded/CORPUS/manifest.json
    WORKDIR/sharded/CORPUS/{training,test}/CORPUS_training_00000.txt
    WORKDIR/sharded/CORPUS/.map/...                           sorted text (`text.runs`), while shard works
    WORKDIR/vocab/CORPUS_8000_1f2e3d4c.txt                    a vocabulary trained on that text (or CORPUS_8000_cased_...)
    WORKDIR/tokens/SETTINGS/CORPUS/manifest.json
    WORKDIR/tokens/SETTINGS/CORPUS/vocab.txt                  the vocabulary that they are tokens of
    WORKDIR/tokens/SETTINGS/CORPUS/{training,test}/CORPUS_training_00000.{bin,idx}   the tokens of a text shard
    WORKDIR/tfrecord/SETTINGS/CORPUS/manifest.json
    WORKDIR/tfrecord/SETTINGS/CORPUS/vocab.txt                the vocabulary that the records were made with
    WORKDIR/tfrecord/SETTINGS/CORPUS/{training,test}/CORPUS_training_00000.tfrecord
    WORKDIR/ofrecord/SETTINGS/CORPUS/{training,test}/part-0
    WORKDIR/arrow/SETTINGS/CORPUS/{train,test}/CORPUS_training_00000.arrow
    WORKDIR/arrow/SETTINGS/CORPUS/dataset_dict.json           what datasets.load_from_disk reads (`records.dataset_info`),
    WORKDIR/arrow/SETTINGS/CORPUS/{train,test}/{state.json,dataset_info.json}   as this too
    WORKDIR/parquet/SETTINGS/CORPUS/{train,test}/CORPUS_training_00000.parquet
    WORKDIR/tfrecord/SETTINGS/{squad_v1.1,glue_mrpc}/...      of a fine-tuning task, the same with other splits (TASK_SPLITS)
    WORKDIR/tfrecord/SETTINGS/squad_v1.1/dev.json             the questions that the records in dev/ are made of
    WORKDIR/models/RUN/...                                    what the trainer writes: checkpoints, log, TensorBoard's files

    DIR/tfrecord/{manifest.json,vocab.txt}                    for --output DIR
    DIR/tfrecord/training/CORPUS_training_00000.tfrecord
    DIR/ofrecord/{manifest.json,vocab.txt}
    DIR/ofrecord/training/part-0
    DIR/arrow/{manifest.json,vocab.txt,dataset_dict.json}
    DIR/arrow/train/{CORPUS_training_00000.arrow,state.json,dataset_info.json}
    DIR/parquet/train/CORPUS_training_00000.parquet

    DIR/{manifest.json,vocab.txt,CORPUS_training_00000.bin,CORPUS_training_00000.idx}   for tokenize --output DIR

The names are those of the field: NVIDIA's bertPrep for shards, TFRecords and SETTINGS; part-0, part-1, ... are the defaults of
OneFlow's readers. A folder of TFRecord, OFRecord or Parquet files holds nothing else, since trainers read everything in it.
"""

import re
from dataclasses import dataclass, fields
from pathlib import Path

from bertprep.config import (
    DEFAULT_DIALECT,
    GZIP,
    RECORD_FORMATS,
    TF2,
    Dialect,
    GlueSettings,
    InstanceSettings,
    RecordFormat,
    SquadSettings,
)

TRAINING, TEST = SPLITS = ("training", "test")
TRAIN = "train"
"""The folder of the training split where `datasets` is to find it."""
DEV, DEV_MISMATCHED, SUBMISSION, SUBMISSION_MISMATCHED = TASK_SPLITS = (
    "dev", "dev_mismatched", "submission", "submission_mismatched",
)  # fmt: skip
"""The splits of a fine-tuning task besides training: MNLI has two of each; those for submissions have no labels."""
SPLIT_NAMES = {
    TRAINING: TRAINING, TRAIN: TRAINING, TEST: TEST, "eval": TEST, "validation": TEST, DEV: TEST,
    **{name: name for name in TASK_SPLITS if name != DEV},
}  # fmt: skip
"""The split that a folder of any tool's name holds."""
MANIFEST = "manifest.json"
MAPPED = ".map"
"""The folder, in that of text shards, of what `shard` has sorted so far."""
DATASET_DICT, STATE, DATASET_INFO = "dataset_dict.json", "state.json", "dataset_info.json"
"""What `datasets` writes beside the Arrow files of a folder (see `records.dataset_info`)."""
QUESTIONS = "dev.json"
LISTING = "listing.json"
LEDGER = ".ledger"
"""The hidden folder, next to a manifest to come, of what is finished (`work.ledger`)."""
RECEIPTS = ".receipts"
"""What bertprep 0.2 had in its place for the parts of a run."""
VOCABULARY = "vocab.txt"
TOKENIZER = "tokenizer.json"
TOKENS = "tokens"
"""The folder of token shards."""
MODELS = "models"
"""The folder of the trainer's runs."""
GOOGLE_PREFIX = "bert_model.ckpt"
"""The file name prefix of a model in Google's releases."""


def settings_name(settings: InstanceSettings, *, shards: int, test_fraction: float, dialect: Dialect = DEFAULT_DIALECT) -> str:
    """Return the folder name for the settings, in NVIDIA's form; settings that it lacks are appended if they are not default.

    `one_seed` is not, so that NVIDIA's scripts, whose tool always uses one seed, find such records; it is in the manifest.

    >>> settings_name(InstanceSettings(), shards=256, test_fraction=0.1)
    'lower_case_1_seq_len_128_max_pred_20_masked_lm_prob_0.15_random_seed_12345_dupe_factor_5_shard_256_test_split_10'
    """
    name = (
        f"lower_case_{int(not settings.cased)}_seq_len_{settings.seq}_max_pred_{settings.pred}"
        f"_masked_lm_prob_{settings.masked_lm_prob}_random_seed_{settings.seed}_dupe_factor_{settings.dupe}"
        f"_shard_{shards}_test_split_{int(test_fraction * 100)}"
    )
    default = {f.name: f.default for f in fields(InstanceSettings)}
    if settings.short_seq_prob != default["short_seq_prob"]:
        name += f"_short_seq_prob_{settings.short_seq_prob}"
    if settings.whole_word:
        name += "_whole_word"
    if not settings.has_pairs:
        name += f"_pairs_{settings.pairs}"
    return name + _in_dialect(dialect)


def task_settings_name(settings: SquadSettings | GlueSettings, *, dialect: Dialect = DEFAULT_DIALECT) -> str:
    """Return the folder name for the settings of a fine-tuning task.

    >>> task_settings_name(GlueSettings()), task_settings_name(SquadSettings(cased=True))
    ('lower_case_1_seq_len_128', 'lower_case_0_seq_len_384_doc_stride_128_max_query_64')
    """
    name = f"lower_case_{int(not settings.cased)}_seq_len_{settings.seq}"
    if isinstance(settings, SquadSettings):
        name += f"_doc_stride_{settings.doc_stride}_max_query_{settings.max_query}"
    return name + _in_dialect(dialect)


def tokens_name(*, cased: bool, vocabulary: str, shards: int, test_fraction: float) -> str:
    """Return the folder name for token shards of the vocabulary with the sha256 `vocabulary`.

    >>> tokens_name(cased=False, vocabulary="1f2e3d4c5b6a", shards=256, test_fraction=0.1)
    'lower_case_1_vocab_1f2e3d4c_shard_256_test_split_10'
    """
    return f"lower_case_{int(not cased)}_vocab_{vocabulary[:8]}_shard_{shards}_test_split_{int(test_fraction * 100)}"


def _in_dialect(dialect: Dialect) -> str:
    """Return what the name of a folder says of the form of TFRecords.

    >>> _in_dialect(Dialect(feature_names="tf2", compress="gzip"))
    '_tf2_names_gzip'
    """
    name = ""
    if dialect.feature_names == TF2:
        name += "_tf2_names"
    if dialect.compress == GZIP:
        name += "_gzip"
    return name


def record_file_name(
    record_format: RecordFormat,
    corpus: str,
    split: str,
    shard: int,
    dialect: Dialect = DEFAULT_DIALECT,
) -> str:
    """Return the name of one record file, as the field's trainers expect it.

    Compressed ones end in .gz, so that the pattern *.tfrecord of a program that does not decompress finds none of them.
    """
    if record_format == RecordFormat.OFRECORD:
        return f"part-{shard}"
    return f"{corpus}_{split}_{shard:05d}.{record_format}" + (".gz" if dialect.compress == GZIP else "")


def split_folder(record_format: RecordFormat, split: str) -> str:
    """Return the name of a split's folder: training is train where that is the name that `datasets` looks for.

    >>> [split_folder(RecordFormat(name), TRAINING) for name in ("tfrecord", "arrow")]
    ['training', 'train']
    """
    return TRAIN if split == TRAINING and record_format.is_columnar else split


def is_saved(folder: Path) -> bool:
    """Return whether `save_to_disk` of `datasets`, or bertprep in its place, wrote the folder.

    >>> is_saved(Path("/dev"))
    False
    """
    return (folder / DATASET_DICT).is_file() or (folder / STATE).is_file()


def split_order(split: str) -> tuple[int, str]:
    """Return the key that sorts splits: training first, then the test split, then the others of a fine-tuning task."""
    return (2 if split in TASK_SPLITS else int(split == TEST)), split


def by_number(name: str) -> list[tuple[int, str]]:
    """Return the key that sorts part-2 before part-10.

    >>> sorted(["part-10", "part-2"], key=by_number)
    ['part-2', 'part-10']
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


@dataclass(frozen=True)
class Workspace:
    """The folder with downloads, text, vocabularies and records."""

    root: Path

    def download(self, name: str) -> Path:
        return self.root / "download" / name

    def google_release(self, name: str) -> Path:
        """Return the folder in which the field's scripts look for a model of this name of Google's."""
        return self.download("google_pretrained_weights") / name

    def nvidia_model(self, name: str) -> Path:
        return self.download("nvidia_pretrained") / name

    def sharded(self, corpus: str) -> Path:
        return self.root / "sharded" / corpus

    def vocabulary(self, corpus: str, *, size: int, cased: bool, text: str) -> Path:
        """Return the vocabulary of the text with the digest `text`; another text under the same name has another vocabulary."""
        return self.root / "vocab" / f"{corpus}_{size}{'_cased' if cased else ''}_{text[:8]}.txt"

    def tokens(self, settings_folder: str, corpus: str) -> Path:
        return self.root / TOKENS / settings_folder / corpus

    def records(self, record_format: str, settings_folder: str, corpus: str) -> Path:
        return self.root / record_format / settings_folder / corpus


def text_shard(split: str, corpus: str, shard: int) -> str:
    """Return the name of one text shard, relative to the corpus's folder of shards."""
    return f"{split}/{corpus}_{split}_{shard:05d}.txt"


def token_shard_name(split: str, corpus: str, shard: int, end: str) -> str:
    """Return the name of one file of a token shard, which ends in "bin" or "idx"."""
    return f"{corpus}_{split}_{shard:05d}.{end}"


def check_splits_inside(folder: Path) -> None:
    """Raise `ValueError` if the folder of a split or format in `folder` is a link to elsewhere, since nothing is written there.

    The folder itself and the files may be links: files are read through them, and replaced rather than written to.
    """
    inside = folder.resolve()
    splits = (*SPLITS, TRAIN, *TASK_SPLITS)
    for below in (*splits, *RECORD_FORMATS, *(f"{each}/{split}" for each in RECORD_FORMATS for split in splits)):
        if (found := (folder / below).resolve()) != inside / below:
            raise ValueError(f"{below} is a link to {found}, and nothing is written there; link the whole folder instead")
