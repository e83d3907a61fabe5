"""The token shards of a folder: those that a manifest lists, or that another tool wrote, by their splits.

FOLDER/manifest.json and FOLDER/{training,test}/*.{bin,idx}   as `tokenize` lays them out; without a manifest any tool's
FOLDER/*.{bin,idx}                                            all training data
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bertprep.errors import BertprepError, UsageError
from bertprep.files.places import local_copy
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.records.token_shards import TokenFile, TokenShard, token_files
from bertprep.workspace.layout import MANIFEST, SPLIT_NAMES, TOKENS, TRAINING, by_number
from bertprep.workspace.manifest import TOKEN_SHARDS, Manifest, read_manifest, sha256_of_vocabulary
from bertprep.workspace.record_home import RecordHome, find_vocabulary

_HEAD_BYTES = 1 << 20


@dataclass(frozen=True)
class TokenSet:
    """The token shards of a folder; shard i of a split is that with number i."""

    folder: Path
    splits: dict[str, tuple[TokenShard, ...]]
    manifest: Manifest | None

    @property
    def cased(self) -> bool | None:
        """Whether the tokens are of text as it was written; None where nothing tells."""
        return bool(self.manifest.made_with["cased"]) if self.manifest else None

    def shards(self, split: str) -> tuple[TokenShard, ...]:
        """The shards of a split; raises `UsageError` where there are none."""
        if not self.splits.get(split):
            raise UsageError(f"{self.folder}: has no {split} split of token shards, only {', '.join(self.splits)}")
        return self.splits[split]

    def sha256(self, split: str) -> str:
        """What stands for a split: a sha256 of its files' own, or without a manifest of all lengths and some tokens."""
        digest = hashlib.sha256()
        for shard in self.shards(split):
            sums = shard.sums or {each: _sha256_of_some(path) for each, path in token_files(shard.bin).items()}
            digest.update("".join(sums[each] for each in TokenFile).encode())
        return digest.hexdigest()

    def vocabulary(self, given: Path | None = None) -> Vocabulary:
        """The vocabulary that is given or beside the shards, which must be theirs."""
        path = given or find_vocabulary(self.folder)
        if path is None:
            raise UsageError(f"{self.folder}: has no vocab.txt beside its token shards; name their vocabulary with --vocab")
        vocabulary = load_vocabulary(path)
        expected = sha256_of_vocabulary(self.manifest) if self.manifest else None
        if expected not in (None, vocabulary.sha256):
            raise BertprepError(
                f"{path}: is not the vocabulary of the token shards: sha256 {vocabulary.sha256[:16]}..., expected "
                f"{str(expected)[:16]}... by {self.folder / MANIFEST}; name the right one with --vocab"
            )
        return vocabulary


def find_token_set(path: Path) -> TokenSet:
    """The token shards of a folder; raises `UsageError` where it has none, `BertprepError` where they are not complete."""
    found = _token_set(path)
    if found is None:
        raise UsageError(
            f"{path}: holds no token shards; bertprep tokenize makes them, or name a folder of .bin and .idx files"
        )
    return found


def has_token_shards(path: Path) -> bool:
    """Whether a folder holds token shards, finished or not."""
    try:
        return _token_set(path) is not None
    except BertprepError:
        return True


def search_token_sets(workdir: Path) -> Iterator[TokenSet]:
    """The finished token shards of a workspace."""
    folder = workdir / TOKENS
    for settings in sorted(folder.iterdir()) if folder.is_dir() else ():
        for corpus in sorted(settings.iterdir()) if settings.is_dir() else ():
            with contextlib.suppress(BertprepError):
                if (corpus / MANIFEST).is_file() and (found := _token_set(corpus)) is not None:
                    yield found


def _token_set(path: Path) -> TokenSet | None:
    if not path.is_dir():
        return None
    manifest = read_manifest(path)
    if manifest is None and RecordHome(path).is_unfinished and any(path.glob("**/*.idx")):
        raise BertprepError(f"{path}: is not finished; run bertprep tokenize again, which resumes it")
    if manifest is not None and manifest.kind != TOKEN_SHARDS:
        return None
    splits: dict[str, tuple[TokenShard, ...]] = {}
    if manifest is not None:
        names = sorted((name for name in manifest.files if name.endswith(f".{TokenFile.BIN}")), key=by_number)
        for name in names:
            index = name.removesuffix(TokenFile.BIN) + TokenFile.IDX
            if index not in manifest.files:
                raise BertprepError(f"{path / MANIFEST}: lists {name} without its .idx; make the folder again")
            facts, sums = manifest.files[name], {end: manifest.files[of]["sha256"] for end, of in _ends(name, index)}
            split = SPLIT_NAMES.get(name.partition("/")[0], TRAINING) if "/" in name else TRAINING
            splits[split] = (*splits.get(split, ()), TokenShard(path / name, facts.get("text", {}), sums))
    else:
        for folder in (path, *(each for each in sorted(path.iterdir()) if each.name in SPLIT_NAMES and each.is_dir())):
            split = TRAINING if folder == path else SPLIT_NAMES[folder.name]
            indexes = sorted(folder.glob(f"*.{TokenFile.IDX}"), key=lambda each: by_number(each.name))
            shards = (TokenShard(token_files(each)[TokenFile.BIN], {}, is_foreign=True) for each in indexes)
            splits[split] = (*splits.get(split, ()), *shards)
    splits = {split: shards for split, shards in splits.items() if shards}
    return TokenSet(path, splits, manifest) if splits else None


def _ends(name: str, index: str) -> tuple[tuple[TokenFile, str], ...]:
    return (TokenFile.BIN, name), (TokenFile.IDX, index)


def _sha256_of_some(path: Path) -> str:
    """Of an .idx all bytes; of a .bin its size and first bytes, since an epoch reads the rest only as it goes."""
    try:
        copy = local_copy(path)
        with copy.open("rb") as file:
            content = file.read() if path.suffix == f".{TokenFile.IDX}" else file.read(_HEAD_BYTES)
        return hashlib.sha256(f"{copy.stat().st_size}\n".encode() + content).hexdigest()
    except OSError as error:
        raise BertprepError(f"{path}: cannot be read: {error.strerror or error}; a token shard is two files") from error
