"""Define every path and file name in a workspace; no other file does. docs/reference/formats.md shows the tree.

    WORKDIR/download/CORPUS/{listing.json,...}                                     sources, task data, weights, vocabularies
    WORKDIR/sharded/CORPUS/{manifest.json,{training,test}/CORPUS_training_00000.txt,.map/}
    WORKDIR/vocab/CORPUS_8000_1f2e3d4c.txt                                         a trained vocabulary
    WORKDIR/tokens/SETTINGS/CORPUS/{manifest.json,vocab.txt,{training,test}/CORPUS_training_00000.{bin,idx}}
    WORKDIR/tokens/TOKENIZER_1f2e3d4c/CORPUS/{manifest.json,tokenizer.json,...}    the same with --tokenizer, and .words
    WORKDIR/mds/TOKENIZER_1f2e3d4c_seq_len_1024/CORPUS/{manifest.json,{train,test}/{index.json,shard.00000.mds}}
    WORKDIR/tfrecord/SETTINGS/CORPUS/{manifest.json,vocab.txt,{training,test}/CORPUS_training_00000.tfrecord}
    WORKDIR/ofrecord/SETTINGS/CORPUS/{manifest.json,vocab.txt,{training,test}/part-0}
    WORKDIR/{arrow,parquet}/SETTINGS/CORPUS/{manifest.json,vocab.txt,{train,test}/CORPUS_training_00000.arrow}
    WORKDIR/tfrecord/SETTINGS/{squad_v1.1,glue_mrpc}/...                           fine-tuning tasks (TASK_SPLITS)
    WORKDIR/models/RUN/...                                                         what the trainer writes
    DIR/FORMAT/{manifest.json,vocab.txt,training/CORPUS_training_00000.tfrecord}   for --output DIR

Names are those of NVIDIA's bertPrep and OneFlow's readers. A folder of TFRecord, OFRecord or Parquet files holds nothing else,
since trainers read everything in it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from bertprep.config import (
    DEFAULT_VARIANT,
    GZIP,
    TF2,
    GlueSettings,
    InstanceSettings,
    RecordFormat,
    SquadSettings,
    Variant,
    VocabularySettings,
)

TRAINING, TEST = SPLITS = ("training", "test")
TRAIN = "train"
"""The folder of the training split for `datasets`, which looks for this name."""
DEV, DEV_MISMATCHED, SUBMISSION, SUBMISSION_MISMATCHED = TASK_SPLITS = (
    "dev", "dev_mismatched", "submission", "submission_mismatched",
)  # fmt: skip
"""The splits of a fine-tuning task apart from training. MNLI has two of each kind; those for submissions have no labels."""
SPLIT_NAMES = {
    TRAINING: TRAINING, TRAIN: TRAINING, TEST: TEST, "eval": TEST, "validation": TEST, DEV: TEST,
    **{name: name for name in TASK_SPLITS if name != DEV},
}  # fmt: skip
"""Name of a split's folder, in the data of any tool -> role of the split."""
MANIFEST = "manifest.json"
MAPPED = ".map"
"""The folder inside that of text shards in which `shard` keeps its sorted text until the shards are finished."""
HASHED = ".hashed"
"""The folder inside that of token shards with the hashes of their documents, by which a test split is chosen."""
GIVEN_OBJECTS = ".given"
"""The folder next to token shards for tokenizers and texts that the user gave as Python objects."""
DATASET_DICT, STATE, DATASET_INFO = "dataset_dict.json", "state.json", "dataset_info.json"
"""The files that `datasets` writes next to the Arrow files of a folder (see `records.dataset_info`)."""
QUESTIONS = "dev.json"
LISTING = "listing.json"
LEDGER = ".ledger"
"""The hidden folder in which an unfinished folder records its finished files (`work.ledger`)."""
VOCABULARY = "vocab.txt"
TOKENIZER = "tokenizer.json"
TEXT = "text"
"""The format of text shards."""
TOKENS = "tokens"
"""The format, and the folder, of token shards."""
MDS_FORMAT = "mds"
"""The format, and the folder, of rows for mosaicml-streaming (`tokens.mds`)."""
MODELS = "models"
"""The folder of the trainer's runs."""
GOOGLE_PREFIX = "bert_model.ckpt"
"""The file name prefix of a model in Google's releases."""


_NAMED_ABOVE = ("cased", "seq", "pred", "masked_lm_prob", "seed", "dupe", "one_seed")


def settings_name(
    settings: InstanceSettings, *, shards: int, test_fraction: float | None, variant: Variant = DEFAULT_VARIANT
) -> str:
    """Return the folder name for settings: NVIDIA's form, then other settings that are not the default, except `one_seed`.

    >>> settings_name(InstanceSettings(), shards=256, test_fraction=0.1)
    'lower_case_1_seq_len_128_max_pred_20_masked_lm_prob_0.15_random_seed_12345_dupe_factor_5_shard_256_test_split_10'
    >>> changed = InstanceSettings(short_seq_prob=0.2, whole_word=True, one_seed=True)
    >>> settings_name(changed, shards=4, test_fraction=0).partition("_shard_")[2]
    '4_test_split_0_short_seq_prob_0.2_whole_word'
    """
    name = (
        f"lower_case_{int(not settings.cased)}_seq_len_{settings.seq}_max_pred_{settings.pred}"
        f"_masked_lm_prob_{settings.masked_lm_prob}_random_seed_{settings.seed}_dupe_factor_{settings.dupe}"
        f"_shard_{shards}_test_split_{_percent(test_fraction)}"
    )
    for field in fields(InstanceSettings):
        value = getattr(settings, field.name)
        if field.name not in _NAMED_ABOVE and value != field.default:
            name += f"_{field.name}" if value is True else f"_{field.name}_{value}"
    return name + _in_variant(variant)


def task_settings_name(settings: SquadSettings | GlueSettings, *, variant: Variant = DEFAULT_VARIANT) -> str:
    """Return the folder name for the settings of a fine-tuning task.

    >>> task_settings_name(GlueSettings()), task_settings_name(SquadSettings(cased=True))
    ('lower_case_1_seq_len_128', 'lower_case_0_seq_len_384_doc_stride_128_max_query_64')
    """
    name = f"lower_case_{int(not settings.cased)}_seq_len_{settings.seq}"
    if isinstance(settings, SquadSettings):
        name += f"_doc_stride_{settings.doc_stride}_max_query_{settings.max_query}"
    return name + _in_variant(variant)


def tokens_name(*, cased: bool, vocabulary: str, shards: int, test_fraction: float | None) -> str:
    """Return the folder name for token shards of the vocabulary with the sha256 `vocabulary`.

    >>> tokens_name(cased=False, vocabulary="1f2e3d4c5b6a", shards=256, test_fraction=0.1)
    'lower_case_1_vocab_1f2e3d4c_shard_256_test_split_10'
    """
    return f"lower_case_{int(not cased)}_vocab_{vocabulary[:8]}_shard_{shards}_test_split_{_percent(test_fraction)}"


def _percent(test_fraction: float | None) -> str:
    """Return the percentage of the text that is held out for testing, or "own" if the user gave the test split.

    >>> _percent(0.1), _percent(0.29), _percent(0.105), _percent(None)
    ('10', '29', '10.5', 'own')
    """
    if test_fraction is None:
        return "own"
    percent = f"{Decimal(repr(float(test_fraction))) * 100:f}"  # exact, so that two fractions never have the same folder
    return percent.rstrip("0").rstrip(".") if "." in percent else percent


def _in_variant(variant: Variant) -> str:
    """Return the part of a folder's name that gives the variant of TFRecord, "" for the default.

    >>> _in_variant(Variant(feature_names="tf2", compress="gzip"))
    '_tf2_names_gzip'
    """
    name = ""
    if variant.feature_names == TF2:
        name += "_tf2_names"
    if variant.compress == GZIP:
        name += "_gzip"
    return name


def record_file_name(
    record_format: RecordFormat,
    corpus: str,
    split: str,
    shard: int,
    variant: Variant = DEFAULT_VARIANT,
) -> str:
    """Return the name of one record file, as trainers expect it. Compressed files do not match *.tfrecord."""
    if record_format == RecordFormat.OFRECORD:
        return f"part-{shard}"
    return f"{corpus}_{split}_{shard:05d}.{record_format}" + (".gz" if variant.compress == GZIP else "")


def record_names(formats: Sequence[RecordFormat], corpus: str, split: str, shard: int, variant: Variant) -> dict[str, str]:
    """Return the name of a record file in the folder of each format.

    >>> record_names([RecordFormat.OFRECORD], "wiki", TEST, 3, DEFAULT_VARIANT)
    {<RecordFormat.OFRECORD: 'ofrecord'>: 'test/part-3'}
    """
    return {name: f"{split_folder(name, split)}/{record_file_name(name, corpus, split, shard, variant)}" for name in formats}


def split_folder(record_format: RecordFormat, split: str) -> str:
    """Return the name of a split's folder; the training split is train in the formats of `datasets`, else training.

    >>> [split_folder(RecordFormat(name), TRAINING) for name in ("tfrecord", "arrow")]
    ['training', 'train']
    """
    return TRAIN if split == TRAINING and record_format.is_columnar else split


def is_saved(folder: Path) -> bool:
    """Return whether a folder was written by `save_to_disk` of `datasets`, or by bertprep in that form.

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


class TokenFile(str, Enum):
    """The two files of a token shard, by suffix."""

    BIN = "bin"
    IDX = "idx"

    __str__ = str.__str__


WORDS = "words"
"""The suffix of the third file of a token shard of whole documents."""


def token_files(path: Path) -> dict[TokenFile, Path]:
    """Return both files of a token shard; `path` is either of them.

    >>> [file.name for file in token_files(Path("x_00000.idx")).values()]
    ['x_00000.bin', 'x_00000.idx']
    """
    return {each: path.with_name(f"{path.name.rpartition('.')[0]}.{each}") for each in TokenFile}


class TrainedVocabulary(NamedTuple):
    """A vocabulary of the workspace, with the parts of its name: corpus, case, and the first digits of its text's digest."""

    path: Path
    corpus: str
    is_cased: bool
    text: str

    def is_of(self, corpus: str, text: str) -> bool:
        """Return whether it was trained on this corpus, with the text whose digest is `text`."""
        return self.corpus == corpus and text.startswith(self.text)


@dataclass(frozen=True)
class Workspace:
    """The folder of downloads, text, vocabularies and records."""

    root: Path

    def download(self, name: str) -> Path:
        return self.root / "download" / name

    def google_release(self, name: str) -> Path:
        """Return the folder in which other programs' scripts look for a model of Google's with this name."""
        return self.download("google_pretrained_weights") / name

    def nvidia_model(self, name: str) -> Path:
        return self.download("nvidia_pretrained") / name

    def sharded(self, corpus: str) -> Path:
        return self.root / "sharded" / corpus

    def vocabulary(self, corpus: str, settings: VocabularySettings, text: str) -> Path:
        """Return the path of the vocabulary for the text with the digest `text`; other text has another vocabulary."""
        others = f"_with_{settings.digest}" if settings.digest else ""
        return self.root / "vocab" / f"{corpus}_{settings.size}{'_cased' if settings.cased else ''}{others}_{text[:8]}.txt"

    def trained_vocabularies(self) -> list[TrainedVocabulary]:
        """Return the vocabularies that bertprep has trained, of any text and size."""
        name_of = re.compile(r"(.+)_\d+(_cased)?(?:_with_[0-9a-f]{4})?_([0-9a-f]{8})")
        named = [(path, name_of.fullmatch(path.stem)) for path in self.vocabularies()]
        return [TrainedVocabulary(path, name[1], name[2] is not None, name[3]) for path, name in named if name]

    def vocabularies(self, name: str | None = None) -> list[Path]:
        """Return the trained vocabularies, or those that have this name, with or without the digest of their text.

        Both `books_8000` and `books_8000_1f2e3d4c` name WORKDIR/vocab/books_8000_1f2e3d4c.txt.
        """
        known = {path.stem: path for path in sorted((self.root / "vocab").glob("*.txt"))}
        return [path for stem, path in known.items() if name in (None, stem, re.sub("_[0-9a-f]{8}$", "", stem))]

    def sources(self, corpus: str) -> Path:
        """Return the file that names the sources of text shards on this machine (`sources.noted`)."""
        return self.root / ".sources" / f"{corpus}.json"

    def tokens(self, settings_folder: str, corpus: str) -> Path:
        return self.root / TOKENS / settings_folder / corpus

    def records(self, record_format: str, settings_folder: str, corpus: str) -> Path:
        return self.root / record_format / settings_folder / corpus


def text_shard(split: str, corpus: str, shard: int) -> str:
    """Return the name of one text shard, relative to the folder of the corpus."""
    return f"{split}/{corpus}_{split}_{shard:05d}.txt"


def token_shard_name(split: str, corpus: str, shard: int, end: str) -> str:
    """Return the name of one file of a token shard, which ends in "bin", "idx" or "words"."""
    return f"{corpus}_{split}_{shard:05d}.{end}"


def find_vocabulary(folder: Path) -> Path | None:
    """Return the vocabulary of the records in a folder: in it, or above it next to their manifest."""
    absolute = folder.absolute()
    above = [absolute, *absolute.parents][: 3 if absolute.name in SPLIT_NAMES else 2]
    return next((each / VOCABULARY for each in (folder, *above) if (each / VOCABULARY).is_file()), None)
