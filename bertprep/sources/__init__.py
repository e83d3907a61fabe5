"""Text, task files and weights from any origin.

A source is a file, a folder, a URL, a data set on the Hub or one in memory. Readers yield its documents; downloads become files
that the other packages read.
"""

import importlib
from typing import Any

from bertprep.errors import BertprepError


def import_extra(name: str, extra: str, what: str) -> Any:
    """Return the module `name`. If it is not installed, raise `BertprepError` with the `extra` to install for `what`."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise BertprepError(f"{what}: needs the Python package {name}; pip install 'bertprep[{extra}]'") from None
