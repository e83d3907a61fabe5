"""Fetch text from the Hub as input: a split of a data set, found by the rules of `datasets`, or the files at an hf:// address.

Both stay at the commit at which they were listed. Once all files are here, no request is made. They keep the repository's
folders, below

    WORKDIR/download/datasets/OWNER/NAME/CONFIG-SPLIT/       a split
    WORKDIR/download/web/1f2e3d4c5b6a7988/                   an address, named by its hash like any other web address
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fsspec.utils import glob_translate
from huggingface_hub import RepoFile, constants

from bertprep.errors import BertprepError, UsageError, quoted
from bertprep.files.lock import locked
from bertprep.progress import Reporter
from bertprep.sources import import_extra
from bertprep.sources.catalogue import HubFiles, is_repository
from bertprep.sources.hub import Hub, list_paths, open_hub, page_of, source_of
from bertprep.sources.inputs import IN_FOLDERS, Fetched, choose_files, is_glob
from bertprep.sources.listing import Listing, load_listing, save_listing
from bertprep.sources.web import RequestError, retry
from bertprep.terminal import warn
from bertprep.untrusted import check_name
from bertprep.work.layout import TRAIN, Workspace

CONVERTED = "refs/convert/parquet"
"""The revision with the Hub's own conversion to Parquet."""
_READ = ("arrow", "csv", "json", "parquet", "text")
"""The names in `datasets` of the file formats that can be read."""
_SPLIT = re.compile(r"\w+(\.\w+)*")
_ADDRESS = re.compile(
    r"hf://(?P<kind>datasets/|)(?P<repo>(?!datasets/)[^/@]+/[^/@]+)(?:@(?P<revision>refs/(?:convert|pr)/[^/]+|[^/]+))?(?:/(?P<path>.*))?",
    re.ASCII,
)
_OTHER_KINDS = ("hf://spaces/", "hf://buckets/")


def check_split(split: str) -> str:
    """Return `split`; raises `UsageError` if it cannot be the name of a split, for example if it is a slice."""
    if not _SPLIT.fullmatch(split):
        raise UsageError(f"--split {split}: a split's name has only letters, digits, '_' and '.'; give one, such as train")
    return split


def fetch_split(name: str, split: str | None, workspace: Workspace, *, reporter: Reporter) -> Fetched:
    """Return the files of a split of OWNER/NAME or OWNER/NAME:CONFIG, fetched if they are not here; `None` is train."""
    split = check_split(TRAIN if split is None else split)
    repository, *after = name.split(":", 1)
    if not is_repository(repository) or after == [""]:
        raise UsageError(
            f"--dataset {name}: is neither a folder nor the name of a data set; give OWNER/NAME or OWNER/NAME:CONFIG, such as "
            "wikimedia/wikipedia:20231101.en"
        )
    config = after[0] if after else None
    try:
        folder = workspace.download("datasets") / repository / check_name(f"{config or 'default'}-{split}".replace("/", "_"))
    except ValueError as error:
        raise UsageError(f"--dataset {name}: {error}") from error
    wanted = HubFiles(repository, keep_folders=True)
    return _provide(folder, lambda hub: _list_split(hub, wanted, config, split), reporter=reporter)


def _list_split(hub: Hub, wanted: HubFiles, config: str | None, split: str) -> Listing:
    hub.tree(wanted)  # raises if there is no such data set
    try:
        return _find_split(hub, wanted, config, split)
    except UsageError as problem:
        wanted = replace(wanted, revision=CONVERTED)
        try:
            _, tree = hub.tree(wanted)
        except RequestError:
            raise problem from None
    configs = sorted({path.partition("/")[0] for path in tree if path.count("/") == 2})
    if config is None and len(configs) == 1:
        [config] = configs
    if config not in configs:
        raise UsageError(f"--dataset {wanted.repo}: name its configuration as NAME:CONFIG, one of {', '.join(configs)}")
    listing = _find_split(hub, wanted, config, split)
    if any("/partial-" in file.name for file in listing.files):
        warn(f"{page_of(wanted)}: the Hub converted only the first few GB of split {split} to Parquet; the rest is not read")
    return listing


def _find_split(hub: Hub, wanted: HubFiles, config: str | None, split: str) -> Listing:
    datasets = import_extra("datasets", "datasets", f"--dataset {wanted.repo}")

    commit, tree = hub.tree(wanted)
    is_folder = any(path.startswith(f"{config}/") for path in tree)

    def load() -> Any:
        try:
            try:
                return datasets.load_dataset_builder(wanted.repo, config, revision=commit)
            except ValueError:
                if not is_folder:
                    raise
                return datasets.load_dataset_builder(wanted.repo, data_dir=config, revision=commit)
        except (ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
            raise UsageError(f"--dataset {wanted.repo}: {quoted(str(error))}") from error

    # with the export, `datasets` would ask another server for sizes, which are not needed
    with _set_for_now(datasets.config, USE_PARQUET_EXPORT=False, HF_ENDPOINT=constants.ENDPOINT):
        builder = retry(page_of(wanted), load, reporter=hub.reporter)
    found = builder.config.data_files or {}
    if split not in found:
        raise UsageError(f"--dataset {wanted.repo}: has no split {split}; it has {', '.join(map(str, found)) or 'none'}")
    if builder.name not in _READ:
        raise UsageError(f"--dataset {wanted.repo}: its format is {builder.name}, expected one of {', '.join(_READ)}")
    start = f"hf://datasets/{wanted.repo}@{commit}/"
    paths = [str(path).removeprefix(start) for path in found[split]]
    if outside := [path for path in paths if path not in tree]:
        raise BertprepError(f"{page_of(wanted)}: its split {split} names {quoted(outside[0])}, which is not in this repository")
    source = {
        "hub": f"datasets/{wanted.repo}",
        "revision": wanted.revision,
        "config": config or builder.config.name,
        "split": split,
    }
    return list_paths(wanted, commit, [tree[path] for path in paths], source)


@contextmanager
def _set_for_now(config: Any, **settings: Any) -> Iterator[None]:
    """Change settings of a library until the block ends, since the user's process may use the library too."""
    before = {name: getattr(config, name) for name in settings}
    try:
        for name, value in settings.items():
            setattr(config, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


def is_hub_address(location: str) -> bool:
    """Return whether `location` is the hf:// address of a data set or a model."""
    return location.startswith("hf://") and not location.startswith(_OTHER_KINDS)


def fetch_address(address: str, workspace: Workspace, *, reporter: Reporter) -> Fetched:
    """Return the files at hf://datasets/OWNER/NAME[@REVISION]/PATH, fetched if they are not here.

    PATH is a file, a folder or a pattern.
    """
    match = _ADDRESS.fullmatch(address)
    if not match or not is_repository(match["repo"]):
        raise UsageError(f"--input {address}: is not an address on the Hub; give hf://datasets/OWNER/NAME/PATH")
    path = (match["path"] or "").strip("/")
    kind = "dataset" if match["kind"] else "model"
    wanted = HubFiles(match["repo"], (path,), kind, unquote(match["revision"] or "main"), keep_folders=True)
    folder = workspace.download("web") / hashlib.sha256(address.encode()).hexdigest()[:16]

    def list_files(hub: Hub) -> Listing:
        commit, tree = hub.tree(wanted)
        return list_paths(wanted, commit, _at_path(address, path, tree), source_of(wanted))

    return _provide(folder, list_files, reporter=reporter)


def _at_path(address: str, path: str, tree: dict[str, RepoFile]) -> list[RepoFile]:
    if path in tree:
        return [tree[path]]
    if is_glob(path):
        pattern = re.compile(glob_translate(path))
        inside = [each for each in sorted(tree) if pattern.match(each)]
    else:
        inside = [each for each in sorted(tree) if not path or each.startswith(f"{path}/")]
    if not inside:
        raise UsageError(f"--input {address}: does not exist")
    chosen = choose_files(inside, 0 if is_glob(path) else len(path), is_text=_is_part)
    if not chosen.files:
        kinds = f"{', '.join(IN_FOLDERS)} (or .gz, .bz2, .zst, .xz)"
        raise UsageError(f"--input {address}: has no file that ends in {kinds}; {chosen.describe()}")
    if chosen.passed_over:
        warn(f"--input {address}: {chosen.describe()}")
    return [tree[each] for each in chosen.files]


def _is_part(path: str) -> bool:
    """Return whether a file, whose content is not here yet, is named like the parts that programs write: `wiki_00`."""
    return re.fullmatch(r"[a-z]+[-_]\d+", path.rpartition("/")[2], re.IGNORECASE) is not None


def _provide(folder: Path, list_files: Callable[[Hub], Listing], *, reporter: Reporter) -> Fetched:
    with open_hub(reporter=reporter) as hub:
        listing = load_listing(folder) or list_files(hub)
        with locked(folder):
            if (kept := load_listing(folder)) is None:
                save_listing(listing, folder)
            listing = kept or listing
            if listing.missing(folder):
                hub.fetch(listing, folder)
    checksums = ({"sha256": file.sha256} if file.sha256 else {"git_sha1": file.git_sha1} for file in listing.files)
    return [
        (folder / file.name, {"name": file.name, "bytes": file.size_bytes, **checksum})
        for file, checksum in zip(listing.files, checksums, strict=True)
    ]
