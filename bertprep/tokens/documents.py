"""The documents of one split of token shards, with their tokenizer: the input for encoders' rows and for MDS.

Token shards of sentences work too: a document is its sentences joined, and a table of the vocabulary says which tokens begin a
word.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.files.object_cache import fetch
from bertprep.files.paths import as_path, sizes_of
from bertprep.instances.document_tokenizer import TokenizerInfo as TokenizerInfo
from bertprep.instances.vocabulary import load_vocabulary_of
from bertprep.terminal import counted
from bertprep.tokens.shard import BIN, TokenShard
from bertprep.work.choose import find_token_shards
from bertprep.work.layout import MANIFEST, SPLIT_NAMES, TOKENIZER, TRAINING
from bertprep.work.manifest import UNCOVERED

_AGAIN = "make the token shards again with bertprep tokenize"


@dataclass(frozen=True, repr=False)
class TokenDocuments:
    """The documents of a split; `sha256` identifies their contents.

    If the shards have no .words files, `begins_word` tells for each id whether it begins a word: (width,). `eod` is the token
    that `tokenize --append-eod` put after each document. `uncovered` is the number of characters of the text, in all splits,
    that the tokenizer has no token for.
    """

    folder: Path
    split: str
    tokenizer: TokenizerInfo
    shards: tuple[TokenShard, ...]
    sha256: str
    begins_word: NDArray[np.bool_] | None = None
    eod: int | None = None
    uncovered: int = 0

    def __repr__(self) -> str:
        counts = f"{counted(self.documents, 'document')}, {counted(self.tokens, 'token')}"
        return f"<TokenDocuments {self.folder}, {self.split}: {counts} by {self.tokenizer.name}>"

    @cached_property
    def documents(self) -> int:
        return sum(shard.sizes[0] for shard in self.shards)

    @cached_property
    def tokens(self) -> int:
        return sum(shard.sizes[1] for shard in self.shards)


def open_token_documents(
    folder: Path | str, split: str = TRAINING, vocab: Path | str | None = None, *, verify: bool = False
) -> TokenDocuments:
    """Return the documents of a split of token shards, whether a tokenizer.json or a vocabulary made them.

    Raises `UsageError` if there are none, and `BertprepError` if a file is missing, if its size differs from the manifest's
    (with `verify` also its checksum), or if the run that makes them has not finished.
    """
    data_set = find_token_shards([as_path(folder)], any_tokenizer=True)
    folder, manifest = data_set.folder, data_set.manifest
    if manifest and manifest.tokenizer:
        if vocab is not None:
            raise UsageError(
                f"--vocab {vocab}: {folder} has its own {TOKENIZER}, and --vocab is for token shards made without one; omit it"
            )
        tokenizer, begins_word = TokenizerInfo.from_manifest(manifest.tokenizer), None
    else:
        vocabulary = load_vocabulary_of(data_set, None if vocab is None else as_path(vocab))
        tokenizer = TokenizerInfo.from_vocabulary(vocabulary)
        begins_word = ~vocabulary.continues_word
    shards = tuple(
        TokenShard.of(
            folder,
            path.relative_to(folder).as_posix(),
            manifest,
            width=tokenizer.width,
            has_words=begins_word is None,
        )
        for path in data_set.named(split)
    )
    for shard in shards:
        _check_sizes(shard)
    fetch({path: checksum for shard in shards for path, checksum in shard.checksums.items()})
    for shard in shards if verify else ():
        if not shard.listed:
            raise UsageError(f"{folder}: has no {MANIFEST} with checksums of its files, which verify=True needs; omit verify")
        shard.verify()
    sha256 = hashlib.sha256("".join(shard.fingerprint() for shard in shards).encode()).hexdigest()
    eod = manifest.made_with.get("eod") if manifest else None
    uncovered = sum(entry.get(UNCOVERED, 0) for entry in manifest.files.values()) if manifest else 0
    return TokenDocuments(folder, split, tokenizer, shards, sha256, begins_word, eod, uncovered)


def open_all_splits(folder: Path | str) -> dict[str, TokenDocuments]:
    """Return the documents of all splits by name, training first; raises the errors of `open_token_documents`."""
    splits = find_token_shards([as_path(folder)], any_tokenizer=True).split_names or [TRAINING]
    return {SPLIT_NAMES[split]: open_token_documents(folder, split) for split in splits}


def _check_sizes(shard: TokenShard) -> None:
    """Raise `BertprepError` unless each file has its size in the manifest, and the manifest's counts are possible."""
    for end, entry in shard.listed.items():
        path = shard.paths[end]
        if (found := sizes_of(path.parent, [path.name]).get(path.name)) != entry["bytes"]:
            has = "is missing" if found is None else f"has {found:,} bytes"
            raise BertprepError(f"{path}: {has}, expected {entry['bytes']:,} bytes as in {MANIFEST}; {_AGAIN}")
    if shard.counts is None:
        return
    size_bytes, (documents, tokens) = shard.listed[BIN]["bytes"], shard.counts
    if not 0 < documents <= tokens <= size_bytes:
        raise BertprepError(
            f"{shard.path}: {MANIFEST} lists {documents:,} documents with {tokens:,} tokens in {size_bytes:,} bytes, which is "
            f"impossible; {_AGAIN}"
        )
