"""The format number of what bertprep writes for later runs to read back: `"format": 1` in a manifest, ledger, listing or state.

The number goes up when this version would misread what the next one writes. A later version reads the lower numbers; a higher
one is refused before anything else is read.
"""

from collections.abc import Mapping

from bertprep.errors import BertprepError
from bertprep.version import __version__

FORMAT = 1


class FormatError(BertprepError):
    """A file or state has no format number, or one that this version does not read."""


def check_format(where: object, content: object, remedy: str) -> None:
    """Raise `FormatError` unless an object has a format that this version reads; `remedy` says how to get one that has.

    What is no object at all is left to the check of its values.

    >>> check_format("x.json", {"kind": "MDS"}, "make it again")
    Traceback (most recent call last):
    bertprep.work.format.FormatError: x.json: has no format number, so no released version of bertprep wrote it; make it again
    """
    if not isinstance(content, Mapping):
        return
    if "format" not in content:
        raise FormatError(f"{where}: has no format number, so no released version of bertprep wrote it; {remedy}")
    found = content["format"]
    if type(found) is not int or found < 1:
        raise FormatError(f"{where}: has format {found!r:.40}, expected {FORMAT}; {remedy}")
    if found > FORMAT:
        raise FormatError(
            f"{where}: has format {found!r:.40}, but bertprep {__version__} reads format {FORMAT}; use the version of bertprep "
            "that wrote it, or a later one"
        )
