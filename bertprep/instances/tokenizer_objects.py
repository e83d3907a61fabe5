"""Writes tokenizer objects of transformers or tokenizers to the files that `save_pretrained` makes.

Truncation and padding are left out, because each call of such an object may change them. So the file is the same before and
after the object was used, and its sha256 can identify the tokenizer in a manifest.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertprep.errors import UsageError, first_line
from bertprep.files.atomic import write_if_different
from bertprep.instances.tokenizer_files import TOKENIZER, TOKENIZER_CONFIG, VOCAB, character_tokenizer, is_of_characters

_DEFAULT_NAME = "tokenizer"
_SAMPLE = (
    "In 1905 the physicist's third paper wasn't finished; see 3.14 or A_b-c.",
    "Über Straßen, où l'été naît, 北京大学生活动中心 и Москва, สวัสดีครับ 東京都",
    "MKTAYIAKQR acgtacgt",
)
"""Texts for comparing the ids of an object with those of its tokenizer."""


def write_tokenizer(tokenizer: Any, folder: Path) -> tuple[Path, str]:
    """Write a tokenizer to a subfolder that is named by a hash of its content; return (tokenizer.json, its name).

    Raises `UsageError` for an object that is neither a fast tokenizer of transformers nor a tokenizer of tokenizers, for one
    that cannot be written, and for one whose calls give other ids than the tokenizer that it writes.
    """
    library = getattr(tokenizer, "backend_tokenizer", tokenizer)
    with tempfile.TemporaryDirectory() as saved:
        files = _save(tokenizer, Path(saved))
        if hasattr(library, "to_str"):
            files[TOKENIZER] = _file_of(tokenizer, library)
        elif is_of_characters(Path(saved) / TOKENIZER_CONFIG):
            files[TOKENIZER] = character_tokenizer(Path(saved) / VOCAB, Path(saved) / TOKENIZER_CONFIG)
        else:
            raise UsageError(
                "tokenizer: expected a path, OWNER/NAME, a fast tokenizer of transformers or a Tokenizer of tokenizers, found "
                f"an object of type {type(tokenizer).__name__}"
            )
    _check_calls(tokenizer, files[TOKENIZER])
    return write_files(files, folder), name_of(tokenizer)


def write_files(files: Mapping[str, bytes], folder: Path) -> Path:
    """Write the files of a tokenizer to a subfolder that is named by a hash of them; return the path of the tokenizer.json."""
    folder /= hashlib.sha256(b"\n".join(files.values())).hexdigest()[:16]
    for name, data in files.items():
        write_if_different(folder / name, data)
    return folder / TOKENIZER


def name_of(tokenizer: Any) -> str:
    """Return the name of a tokenizer: the last part of the path or OWNER/NAME that it was loaded from, or "tokenizer"."""
    found = str(getattr(tokenizer, "name_or_path", "") or "").rstrip("/").rpartition("/")[2]
    return file_name_of(found.removesuffix(".json"))


def file_name_of(name: str) -> str:
    """Return a name that a folder can have, from one that a model has."""
    return re.sub(r"[^\w.-]+", "_", name).lstrip(".-") or _DEFAULT_NAME


def _save(tokenizer: Any, folder: Path) -> dict[str, bytes]:
    """Return the tokenizer_config.json of an object, if it writes one."""
    if not hasattr(tokenizer, "save_pretrained"):
        return {}
    try:
        tokenizer.save_pretrained(folder)
    except Exception as error:
        raise UsageError(f"tokenizer: save_pretrained of this {type(tokenizer).__name__} fails: {first_line(error)}") from error
    config = folder / TOKENIZER_CONFIG
    return {TOKENIZER_CONFIG: config.read_bytes()} if config.is_file() else {}


def _file_of(tokenizer: Any, library: Any) -> bytes:
    """Return the tokenizer.json of an object of tokenizers."""
    import tokenizers

    try:
        own = tokenizers.Tokenizer.from_str(library.to_str())
        own.no_truncation()
        own.no_padding()
        return str(own.to_str(pretty=True)).encode()
    except Exception as error:  # the library raises no narrower class
        raise UsageError(
            f"tokenizer: this {type(tokenizer).__name__} cannot be written as a {TOKENIZER}: {first_line(error)}; parts in "
            "Python, such as a pre-tokenizer of your own, are in no such file: use parts of tokenizers"
        ) from error


def _check_calls(tokenizer: Any, content: bytes) -> None:
    """Raise `UsageError` if calls of an object give other ids than its tokenizer.json, which only its class could know."""
    if not callable(tokenizer):
        return
    import tokenizers

    own = tokenizers.Tokenizer.from_str(content.decode())
    for text in _SAMPLE:
        try:
            found, expected = (
                tokenizer(text, add_special_tokens=False)["input_ids"],
                own.encode(text, add_special_tokens=False).ids,
            )
        except Exception:  # a vocabulary that does not cover this text
            continue
        if list(found) != expected:
            raise UsageError(
                f"tokenizer: calls of this {type(tokenizer).__name__} give other ids than its {TOKENIZER}, which is all that "
                f"token shards can keep: {found[:5]} and {expected[:5]} for {text[:20]!r}; do to the text first what the class "
                "does to it, or put that into the tokenizer's own normalizer or pre-tokenizer"
            )
