"""Sources of text, tasks and weights: any origin, fetched or in place, as documents and files that the rest understands."""

import importlib
from typing import Any

from bertprep.errors import BertprepError


def import_extra(name: str, extra: str, what: str) -> Any:
    """Return the module `name`; raises `BertprepError` that says which extra to install for `what` where it is missing."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise BertprepError(f"{what}: needs the Python package {name}; pip install 'bertprep[{extra}]'") from None
