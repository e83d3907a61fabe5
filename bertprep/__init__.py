"""Makes, checks and converts pretraining data for BERT-type models.

    import bertprep

    bertprep.create(workdir="data")  # the sample corpus as TFRecord and OFRecord
    with bertprep.records.open("data/.../part-0") as file:
        examples = file[0:8]  # arrays: examples.input_ids has shape (8, 128)

Names are imported on first use, so a command loads only what it needs.
"""

import importlib
from typing import TYPE_CHECKING, Any

from bertprep.version import __version__ as __version__

if TYPE_CHECKING:
    from bertprep import records as records
    from bertprep.commands.convert import convert as convert
    from bertprep.commands.create import create as create
    from bertprep.commands.create import forecast as forecast
    from bertprep.commands.download import download as download
    from bertprep.commands.load_dataset import load_dataset as load_dataset
    from bertprep.commands.push import push as push
    from bertprep.commands.shard import shard as shard
    from bertprep.commands.task import create_glue as create_glue
    from bertprep.commands.task import create_ner as create_ner
    from bertprep.commands.task import create_squad as create_squad
    from bertprep.commands.tokenize import tokenize as tokenize
    from bertprep.commands.validate import validate as validate
    from bertprep.commands.vocab import train_vocabulary as train_vocabulary
    from bertprep.config import InstanceSettings as InstanceSettings
    from bertprep.config import MaskSchedule as MaskSchedule
    from bertprep.errors import BertprepError as BertprepError
    from bertprep.errors import BertprepWarning as BertprepWarning
    from bertprep.errors import UsageError as UsageError
    from bertprep.instances import load_vocabulary as load_vocabulary
    from bertprep.recipes import recipe as recipe
    from bertprep.records.record_dataset import RecordDataset as RecordDataset
    from bertprep.tokens.dataset import TokenDataset as TokenDataset
    from bertprep.tokens.live import LiveExamples as LiveExamples
    from bertprep.tokens.mixture import Mixture as Mixture
    from bertprep.tokens.pairs import PairDataset as PairDataset
    from bertprep.tokens.replaced import replace_tokens as replace_tokens

_HOME = {
    "BertprepError": "bertprep.errors",
    "BertprepWarning": "bertprep.errors",
    "InstanceSettings": "bertprep.config",
    "LiveExamples": "bertprep.tokens.live",
    "MaskSchedule": "bertprep.config",
    "Mixture": "bertprep.tokens.mixture",
    "PairDataset": "bertprep.tokens.pairs",
    "RecordDataset": "bertprep.records.record_dataset",
    "TokenDataset": "bertprep.tokens.dataset",
    "UsageError": "bertprep.errors",
    "convert": "bertprep.commands.convert",
    "create": "bertprep.commands.create",
    "create_glue": "bertprep.commands.task",
    "create_ner": "bertprep.commands.task",
    "create_squad": "bertprep.commands.task",
    "download": "bertprep.commands.download",
    "forecast": "bertprep.commands.create",
    "load_dataset": "bertprep.commands.load_dataset",
    "load_vocabulary": "bertprep.instances",
    "push": "bertprep.commands.push",
    "recipe": "bertprep.recipes",
    "replace_tokens": "bertprep.tokens.replaced",
    "shard": "bertprep.commands.shard",
    "tokenize": "bertprep.commands.tokenize",
    "train_vocabulary": "bertprep.commands.vocab",
    "validate": "bertprep.commands.validate",
}
__all__ = [*_HOME, "records"]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "records":
        return importlib.import_module("bertprep.records")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'bertprep' has no attribute {name!r}")
