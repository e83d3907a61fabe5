"""Text on the Hub as input: a split of a data set by the rules of `datasets`, or the files at an hf:// address, fetched once.

Both stay on the commit at which they were listed; if everything is there, no request is made. With the repository's folders
they are in

    WORKDIR/download/datasets/OWNER/NAME/CONFIG-SPLIT/       a split
    WORKDIR/download/web/1f2e3d4c5b6a7988/                   an address, like that of any other web file
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
from bertprep.sources.inputs import IN_FOLDERS, Fetched, is_glob
from bertprep.sources.listing import Listing, load_listing, save_listing
from bertprep.sources.readers import suffixes
from bertprep.sources.web import RequestError, retry
from bertprep.terminal import warn
from bertprep.untrusted import check_name
from bertprep.work.layout import TRAIN, Workspace

CONVERTED = "refs/convert/parquet"
"""The revision of the Hub's own conversion to Parquet."""
_READ = ("arrow", "csv", "json", "parquet", "text")
"""What `datasets` calls the kinds of files that are read."""
_SPLIT = re.compile(r"\w+(\.\w+)*")
_ADDRESS = re.compile(
    r"hf://(?P<kind>datasets/|)(?P<repo>(?!datasets/)[^/@]+/[^/@]+)(?:@(?P<revision>refs/(?:convert|pr)/[^/]+|[^/]+))?(?:/(?P<path>.*))?",
    re.ASCII,
)
_OTHER_KINDS = ("hf://spaces/", "hf://buckets/")


def check_split(split: str) -> str:
    """Return the name of a split; raises `UsageError` for what cannot be one, such as a slice."""
    if not _SPLIT.fullmatch(split):
        raise UsageError(f"--split {split}: is not the name of a split, of letters, digits, '_' and '.', such as train")
    return split


def fetch_split(name: str, split: str | None, workspace: Workspace, *, reporter: Reporter) -> Fetched:
    """Return the files of a split (default train) of OWNER/NAME or OWNER/NAME:CONFIG, fetched once.

    They are in WORKDIR/download/datasets/OWNER/NAME/CONFIG-SPLIT/ and stay on their commit.
    """
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
    hub.tree(wanted)  # whether there is such a data set
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
        raise UsageError(f"--dataset {wanted.repo}: NAME:CONFIG must name a configuration; there are {', '.join(configs)}")
    listing = _find_split(hub, wanted, config, split)
    if any("/partial-" in file.name for file in listing.files):
        warn(f"{page_of(wanted)}: only the first few GB of its split {split} are converted to Parquet; the rest is not read")
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

    # without the export, or else another server is asked for sizes, which are not needed
    with _set_for_now(datasets.config, USE_PARQUET_EXPORT=False, HF_ENDPOINT=constants.ENDPOINT):
        builder = retry(page_of(wanted), load, reporter=hub.reporter)
    found = builder.config.data_files or {}
    if split not in found:
        raise UsageError(f"--dataset {wanted.repo}: has no split {split}; there is {', '.join(map(str, found)) or 'none'}")
    if builder.name not in _READ:
        raise UsageError(f"--dataset {wanted.repo}: holds {builder.name}, and {', '.join(_READ)} are read")
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
    """Change the settings of a library that the user's process may use too, until the block ends."""
    before = {name: getattr(config, name) for name in settings}
    try:
        for name, value in settings.items():
            setattr(config, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


def is_hub_address(location: str) -> bool:
    """Return whether it is an hf:// address of a data set or a model."""
    return location.startswith("hf://") and not location.startswith(_OTHER_KINDS)


def fetch_address(address: str, workspace: Workspace, *, reporter: Reporter) -> Fetched:
    """Return the files at hf://datasets/OWNER/NAME[@REVISION]/PATH, a file, folder or pattern, fetched once to
    download/web/.
    """
    match = _ADDRESS.fullmatch(address)
    if not match or not is_repository(match["repo"]):
        raise UsageError(f"--input {address}: is not an address; give hf://datasets/OWNER/NAME/PATH")
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
    found = [tree[each] for each in inside if suffixes(each)[0] in IN_FOLDERS]
    if not found:
        raise UsageError(f"--input {address}: has no file that ends in {', '.join(IN_FOLDERS)} (or .gz, .bz2, .zst)")
    return found


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
