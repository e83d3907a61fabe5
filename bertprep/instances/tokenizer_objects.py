"""Writes tokenizer objects of transformers or tokenizers to the files that `save_pretrained` makes.

Truncation and padding are left out, because each call of such an object may change them. So the file is the same before and
after the object was used, and its sha256 can identify the tokenizer in a manifest.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from bertprep.errors import UsageError
from bertprep.files.atomic import write_if_different
from bertprep.instances.tokenizer_files import TOKENIZER, TOKENIZER_CONFIG

_DEFAULT_NAME = "tokenizer"


def write_tokenizer(tokenizer: Any, folder: Path) -> tuple[Path, str, Path | None]:
    """Write a tokenizer to a subfolder that is named by a hash of its content; return (tokenizer.json, its name, its config).

    Raises `UsageError` for an object that is neither a fast tokenizer of transformers nor a tokenizer of tokenizers.
    """
    library = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(library, "to_str"):
        raise UsageError(
            "tokenizer: expected a path, OWNER/NAME, a fast tokenizer of transformers or a Tokenizer of tokenizers, found an "
            f"object of type {type(tokenizer).__name__}"
        )
    import tokenizers

    own = tokenizers.Tokenizer.from_str(library.to_str())
    own.no_truncation()
    own.no_padding()
    files = {TOKENIZER: str(own.to_str(pretty=True)).encode()}
    if hasattr(tokenizer, "save_pretrained"):
        with tempfile.TemporaryDirectory() as saved:
            tokenizer.save_pretrained(saved)
            files[TOKENIZER_CONFIG] = (Path(saved) / TOKENIZER_CONFIG).read_bytes()
    folder /= hashlib.sha256(b"\n".join(files.values())).hexdigest()[:16]
    for name, data in files.items():
        write_if_different(folder / name, data)
    config = folder / TOKENIZER_CONFIG if TOKENIZER_CONFIG in files else None
    return folder / TOKENIZER, name_of(tokenizer), config


def name_of(tokenizer: Any) -> str:
    """Return the name of a tokenizer: the last part of the path or OWNER/NAME that it was loaded from, or "tokenizer"."""
    found = str(getattr(tokenizer, "name_or_path", "") or "").rstrip("/").rpartition("/")[2]
    return found.removesuffix(".json") or _DEFAULT_NAME
