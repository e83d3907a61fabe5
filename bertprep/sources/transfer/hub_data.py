"""Text on the Hub as input: a split of a data set by its name, or the files at an hf:// address, fetched as any download is.

Both are listed once and stay on that commit; if everything is there, no request is made. They lie, with the repository's
folders, in

    WORKDIR/download/datasets/OWNER/NAME/CONFIG-SPLIT/       a split
    WORKDIR/download/web/1f2e3d4c5b6a7988/                   an address, like that of any other web file
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from bertprep.errors import BertprepError, UsageError
from bertprep.files.lock import locked
from bertprep.progress import Reporter, say
from bertprep.sources import data_files
from bertprep.sources.catalogue import HubFiles, is_repository
from bertprep.sources.data_files import CARD, CARDS, CONVERTED, MOST_CARD_BYTES, Config, Split
from bertprep.sources.local import IN_FOLDERS, Fetched
from bertprep.sources.streams import is_glob, suffixes
from bertprep.sources.transfer.fetch import fetch
from bertprep.sources.transfer.http import RefusedError, Web
from bertprep.sources.transfer.hub import Entry, Hub, explain_file, list_entries, page_of, source_of
from bertprep.sources.transfer.listing import Listing, check_source, load_listing, missing, save_listing
from bertprep.untrusted import check_name
from bertprep.workspace.layout import LISTING, TRAIN, Workspace

_ADDRESS = re.compile(
    r"hf://(?P<kind>datasets/|)(?P<repo>(?!datasets/)[^/@]+/[^/@]+)(?:@(?P<revision>refs/(?:convert|pr)/[^/]+|[^/]+))?(?:/(?P<path>.*))?",
    re.ASCII,
)
_OTHER_KINDS = ("hf://spaces/", "hf://buckets/")


def is_hub_address(location: str) -> bool:
    """Whether it is an hf:// address of a data set or a model; buckets and spaces are left to fsspec."""
    return location.startswith("hf://") and not location.startswith(_OTHER_KINDS)


def fetch_split(
    name: str, split: str | None, workspace: Workspace, *, verify: bool = False, reporter: Reporter
) -> tuple[Path, Listing]:
    """The folder and listing of a split, by default train, of the data set OWNER/NAME or OWNER/NAME:CONFIG.

    Existing files are kept if their size is right, or with `verify` their checksum. Raises `UsageError` for what does not
    exist, with what does, `BertprepError` for what cannot be fetched or is not text.
    """
    split = data_files.check_split(TRAIN if split is None else split)
    repository, *after = name.split(":", 1)
    if not is_repository(repository) or after == [""]:
        raise UsageError(
            f"--dataset {name}: is neither a folder nor the name of a data set; give OWNER/NAME or OWNER/NAME:CONFIG, such as "
            "wikimedia/wikipedia:20231101.en"
        )
    wanted, config = HubFiles(repository, keep_folders=True), after[0] if after else None
    home = workspace.download("datasets") / wanted.repo
    folder = _find_kept(home, config, split)
    listing = None
    if folder is None:
        with Web() as web:
            name, listing = _list_split(Hub(web, reporter=reporter), wanted, config, split)
        folder = home / name
    label = f"{wanted.repo} {folder.name}"
    return folder, _provide(folder, listing, wanted, verify=verify, label=label, reporter=reporter)


def fetch_address(address: str, workspace: Workspace, *, verify: bool = False, reporter: Reporter) -> tuple[Path, Listing]:
    """The folder and listing of the files at hf://datasets/OWNER/NAME[@REVISION]/PATH, a file, a folder or a pattern.

    Of a folder, and of what matches a pattern, the kinds of files that are read in folders. Raises as `fetch_split` does.
    """
    match = _ADDRESS.fullmatch(address)
    if not match or not is_repository(match["repo"]):
        raise UsageError(f"--input {address}: is not an address; give hf://datasets/OWNER/NAME/PATH")
    path = (match["path"] or "").strip("/")
    kind = "dataset" if match["kind"] else "model"
    wanted = HubFiles(match["repo"], (path,), kind, unquote(match["revision"] or "main"), keep_folders=True)
    folder = workspace.download("web") / hashlib.sha256(address.encode()).hexdigest()[:16]
    listing = load_listing(folder)
    if listing is not None:
        check_source(listing, source_of(wanted), folder)
        listing = None
    else:
        with Web() as web:
            commit, tree = Hub(web, reporter=reporter).tree(wanted)
        listing = list_entries(wanted, commit, _at_path(address, path, tree), source_of(wanted))
    return folder, _provide(folder, listing, wanted, verify=verify, label=address, reporter=reporter)


def _find_kept(home: Path, config: str | None, split: str) -> Path | None:
    """The folder of a split that was listed before; without a configuration, that of the default one."""
    for path in sorted(home.glob(f"*-{split}/{LISTING}")):
        listing = load_listing(path.parent)
        source = listing.source if listing else {}
        if source.get("split") == split and (source.get("is_default") if config is None else source.get("config") == config):
            return path.parent
    return None


def _provide(
    folder: Path, listing: Listing | None, wanted: HubFiles, *, verify: bool, label: str, reporter: Reporter
) -> Listing:
    """Fetch what is missing in a folder, by its own listing if it has one, else by this one."""
    with locked(folder):
        kept = load_listing(folder)
        if kept is None:
            if listing is None:
                raise BertprepError(f"{folder / LISTING}: was removed meanwhile; run the command again")
            save_listing(listing, folder)
            kept = listing
        elif listing is not None:
            check_source(kept, listing.source, folder)
        if verify or missing(kept, folder):
            try:
                fetch(kept, folder, reporter=reporter, label=label)
            except RefusedError as refusal:
                raise explain_file(wanted, refusal) from refusal
    return kept


def _list_split(hub: Hub, wanted: HubFiles, config: str | None, split: str) -> tuple[str, Listing]:
    """The name and files of a split: those that README.md or their names tell, else those of the Hub's conversion."""
    try:
        commit, tree = hub.tree(wanted)
        found = None
        if not any(entry.path == f"{wanted.repo.rpartition('/')[2]}.py" for entry in tree):  # a script, which is not executed
            configs = _configs(hub, wanted, commit, tree)
            found = data_files.find_split([entry.path for entry in tree], configs, config, split)
        if found is None:
            wanted, (commit, tree), found = _find_converted(hub, wanted, tree, config, split)
        name = check_name(f"{found.config}-{split}".replace("/", "_"))
    except UsageError as error:
        raise UsageError(f"--dataset {wanted.repo}: {error}") from error
    except ValueError as error:
        raise BertprepError(f"{page_of(wanted)}: its {CARD} cannot be followed: {error}") from error
    entries = {entry.path: entry for entry in tree}
    source = {
        "hub": f"datasets/{wanted.repo}", "revision": wanted.revision, "config": found.config, "split": split,
        "is_default": found.is_default,
    }  # fmt: skip
    return name, list_entries(wanted, commit, [entries[path] for path in found.paths], source)


def _configs(hub: Hub, wanted: HubFiles, commit: str, tree: list[Entry]) -> dict[str, Config]:
    configs: dict[str, Config] = {}
    for entry in sorted((entry for entry in tree if entry.path in CARDS), key=lambda entry: CARDS.index(entry.path)):
        card = hub.read(wanted, commit, entry, MOST_CARD_BYTES)
        configs = data_files.read_configs(card, is_yaml=entry.path != CARD) or configs
    return configs


def _find_converted(
    hub: Hub, wanted: HubFiles, tree: list[Entry], config: str | None, split: str
) -> tuple[HubFiles, tuple[str, list[Entry]], Split]:
    """The split in the Hub's conversion; raises `BertprepError` if there is none."""
    converted = HubFiles(wanted.repo, revision=CONVERTED, keep_folders=True)
    try:
        commit, files = hub.tree(converted)
        found = data_files.find_converted([entry.path for entry in files], config, split)
    except BertprepError as error:
        if getattr(error.__cause__, "code", "") != "RevisionNotFound":
            raise
        found = None
    if found is None:
        raise BertprepError(
            f"{page_of(wanted)}: has no files for the split {split} that are read ({', '.join(IN_FOLDERS)}), and no conversion "
            f"to Parquet by the Hub; it has {_kinds(tree)}"
        )
    if found.is_partial:
        say(f"{page_of(wanted)}: only the first gigabytes of its split {split} are converted to Parquet; the rest is not read")
    return converted, (commit, files), found


def _kinds(tree: Iterable[Entry]) -> str:
    """The kinds of files in a repository, the most frequent first."""
    kinds = Counter(PurePosixPath(entry.path).suffix or entry.path for entry in tree)
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(5)) or "no file"


def _at_path(address: str, path: str, tree: list[Entry]) -> list[Entry]:
    """The files that a path means: itself, or those below it or matching it that are of a kind that folders are read for."""
    if exact := [entry for entry in tree if entry.path == path]:
        return exact
    if is_glob(path):
        try:
            inside = set(data_files.resolve([entry.path for entry in tree], [path]))
        except ValueError as error:
            raise UsageError(f"--input {address}: {error}") from error
    else:
        inside = {entry.path for entry in tree if not path or entry.path.startswith(f"{path}/")}
    if not inside:
        raise UsageError(f"--input {address}: does not exist")
    found = [entry for entry in tree if entry.path in inside and suffixes(entry.path)[0] in IN_FOLDERS]
    if not found:
        raise UsageError(f"--input {address}: has no file that ends in {', '.join(IN_FOLDERS)} (or .gz, .bz2, .zst)")
    return sorted(found, key=lambda entry: entry.path)


def files_of(folder: Path, listing: Listing) -> Fetched:
    """The files of a listing, each with its name and checksum, so that none need be read to know whether it has changed."""
    checksums = ({"sha256": file.sha256} if file.sha256 else {"git_sha1": file.git_sha1} for file in listing.files)
    return [
        (folder / file.name, {"name": file.name, "bytes": file.size_bytes, **checksum})
        for file, checksum in zip(listing.files, checksums, strict=True)
    ]
