"""The downloads of `bertprep download`: for each folder its origin, its files, and what is made of them.

Nothing is fetched here; `Hub.fetch` and `fetch_url` do that.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import write_if_different
from bertprep.files.checksums import BLAKE3, show_checksum
from bertprep.files.paths import as_local_path, checksum_of
from bertprep.instances.tokenizer_files import TOKENIZER_FILES
from bertprep.sources import catalogue
from bertprep.sources.catalogue import DEFAULT_MODEL, MODELS, NAMES, WIKIPEDIA_DATE, HubFiles, is_repository
from bertprep.sources.corpora import BOOKS, wiki
from bertprep.sources.documents import Source
from bertprep.sources.dump import choose_language, language_in_name
from bertprep.sources.hub import Hub, list_paths, page_of, remote_file, source_of
from bertprep.sources.inputs import files_in
from bertprep.sources.kinds import DUMP
from bertprep.sources.listing import Listing, RemoteFile
from bertprep.sources.readers import is_web
from bertprep.sources.release import link_into, write_bert_config, write_release
from bertprep.sources.web import list_url, name_in_url
from bertprep.tasks.glue import TASKS
from bertprep.terminal import near
from bertprep.untrusted import MAX_JSON_BYTES, parse_json, read_bounded
from bertprep.work.format import check_format
from bertprep.work.layout import GOOGLE_PREFIX, MANIFEST, QUESTIONS, VOCABULARY, Workspace
from bertprep.work.manifest import RECORD_KINDS, Manifest, manifest_of

ALL = "all"
DATASET = "dataset"
"""The word that precedes the names of pushed data sets: `bertprep download dataset OWNER/NAME`."""
ENGLISH = "en"
PARQUET = "parquet"
"""The folder of a task's Parquet files from the Hub, inside the folder of the files made from them."""
CARD = "README.md"
PUSHED = "pushed.json"
"""The name of a pushed manifest until its data set is complete here, since a folder with a manifest counts as finished."""
NEXT_TO_MANIFEST = (VOCABULARY, QUESTIONS, *TOKENIZER_FILES, CARD)
"""The files that a push may have next to its manifest."""


@dataclass(frozen=True)
class Download:
    """The download of one folder. A `fixed` listing is that of a commit, so it is never renewed."""

    name: str
    folder: Path
    source: dict[str, Any]
    list_files: Callable[[Hub], Listing]
    finish: Callable[[], None] = lambda: None
    fixed: bool = True
    makes_bytes: Callable[[Listing], int] = lambda _: 0
    """Return the bytes that `finish` will write; 0 if they are few."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request to download, checked when built. `names` are from `NAMES`, or "all", or "dataset" followed by OWNER/NAME."""

    names: tuple[str, ...]
    language: str | None = None
    date: str = WIKIPEDIA_DATE
    from_dump: str | None = None
    from_files: Path | None = None
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in (*NAMES, ALL, DATASET, *self.datasets):
                meant = near(name, (*NAMES, ALL, DATASET))
                raise UsageError(
                    f"{name}: cannot be downloaded{meant or ';'} choose from {', '.join(NAMES)}, or {ALL}; "
                    f"or {DATASET} OWNER/NAME for records that bertprep push uploaded to the Hub"
                )
        if DATASET in self.names and not self.datasets:
            raise UsageError(f"{DATASET}: needs a name; give the OWNER/NAME of a data set that bertprep push uploaded")
        for name in self.datasets:
            check_dataset_name(name)
        if not self.names:
            raise UsageError(f"expected the name of a download; choose from {', '.join(NAMES)}, or {ALL}")
        for option, is_given, *names in (
            ("--language", self.language not in (None, ENGLISH), "wikipedia"),
            ("--date", self.date != WIKIPEDIA_DATE, "wikipedia"),
            ("--from-dump", self.from_dump is not None, "wikipedia"),
            ("--from-files", self.from_files is not None, "bookcorpus"),
            ("--model", bool(self.models), "weights", "vocab"),
        ):
            if is_given and not any(map(self.includes, names)):
                raise UsageError(f"{option} goes with {' or '.join(names)}, which is not requested")
        if self.from_dump is not None and self.date != WIKIPEDIA_DATE:
            raise UsageError("--date and --from-dump cannot be combined: a dump has its own date")

    @property
    def datasets(self) -> tuple[str, ...]:
        after = self.names[self.names.index(DATASET) :] if DATASET in self.names else ()
        return tuple(dict.fromkeys(name for name in after if "/" in name))

    def includes(self, name: str) -> bool:
        return name in self.names or ALL in self.names


def find_downloads(request: Request, workspace: Workspace) -> list[Download]:
    """Return the downloads of a request in the order of `NAMES`, then the data sets. Nothing is fetched or written."""
    kinds = (_wikipedia, _bookcorpus, _squad, _glue, _weights, _vocab)
    found = [
        each for name, kind in zip(NAMES, kinds, strict=True) if request.includes(name) for each in kind(request, workspace)
    ]
    return [*found, *(_dataset(name, workspace) for name in request.datasets)]


def check_dataset_name(name: str) -> str:
    """Return `name`; raises `UsageError` if the Hub does not allow it as OWNER/NAME."""
    if not is_repository(name):
        raise UsageError(
            f"{name}: is not the name of a data set on the Hub; give OWNER/NAME, each of letters, digits, '_', '-' and '.', "
            "such as you/wikipedia-bert-128"
        )
    return name


def _from_hub(name: str, folder: Path, files: HubFiles, finish: Callable[[], None] = lambda: None) -> Download:
    return Download(name, folder, source_of(files), lambda hub: hub.list_files(files), finish)


def _linked(name: str, folder: Path, option: str, source: dict[str, Any], *files: Path) -> Download:
    try:
        listing = Listing(source, "", tuple(RemoteFile(path.name, path.as_uri(), path.stat().st_size) for path in files))
    except ValueError as error:
        raise UsageError(f"{option}: its name cannot be used here ({error}); rename it") from error
    return Download(name, folder, source, lambda _: listing, fixed=False)


def _wikipedia(request: Request, workspace: Workspace) -> Iterator[Download]:
    dump = request.from_dump
    if dump is None:
        language = request.language or ENGLISH
        yield _from_hub("wikipedia", workspace.download(wiki(language)), catalogue.wikipedia(language, request.date))
    elif is_web(dump):
        named = language_in_name(name_in_url(dump))  # its content is not here yet
        folder = workspace.download(wiki(choose_language(request.language, [named] if named else [], dump) or ENGLISH))
        yield Download("wikipedia", folder, {"dump": dump}, lambda hub: list_url(dump, reporter=hub.reporter), fixed=False)
    else:
        path = as_local_path("--from-dump", dump).absolute()
        if not path.is_file():
            raise UsageError(f"--from-dump {dump}: is not a file; give a pages-articles dump, or the http(s) address of one")
        try:
            found = Source(str(path), DUMP, {}).languages()
        except BertprepError:  # shard reports a corrupt dump, which may be replaced until then
            found = []
        folder = workspace.download(wiki(choose_language(request.language, found, dump) or ENGLISH))
        yield _linked("wikipedia", folder, f"--from-dump {dump}", {"dump": str(path)}, path)


def _bookcorpus(request: Request, workspace: Workspace) -> Iterator[Download]:
    folder = workspace.download(BOOKS)
    if request.from_files is None:
        yield _from_hub("bookcorpus", folder, catalogue.BOOKCORPUS)
        return
    path = request.from_files.absolute()
    if not files_in(path):
        raise UsageError(
            f"--from-files {request.from_files}: has no file of text; give a folder with a text file for each book"
        )
    yield _linked("bookcorpus", folder, f"--from-files {path}", {"files": str(path)})


def _squad(_: Request, workspace: Workspace) -> Iterator[Download]:
    from bertprep.sources.task_files import write_squad

    for version, files in catalogue.SQUAD.items():
        folder = workspace.download("squad") / version
        finish = partial(write_squad, folder / PARQUET, folder, version)
        yield _from_hub("squad", folder / PARQUET, files, finish)


def _glue(_: Request, workspace: Workspace) -> Iterator[Download]:
    from bertprep.sources.task_files import write_glue

    for task in TASKS.values():
        folder = workspace.download(task.folder)
        finish = partial(write_glue, task, folder / PARQUET, folder)
        yield _from_hub("glue", folder / PARQUET, catalogue.glue(task.name), finish)


def _weights(request: Request, workspace: Workspace) -> Iterator[Download]:
    for model in _full_names(request.models or MODELS):
        folder = workspace.download("weights") / model
        files = catalogue.weights(model)
        release = catalogue.GOOGLE_RELEASES.get(model)
        yield Download(
            "weights",
            folder,
            source_of(files),
            partial(_list_weights, files),
            partial(_finish_weights, folder, release, workspace),
            makes_bytes=partial(_release_bytes, release, workspace),
        )


def _list_weights(files: HubFiles, hub: Hub) -> Listing:
    listing = hub.list_files(files)
    if not any(file.name.endswith(".safetensors") for file in listing.files):
        raise BertprepError(
            f"{files.repo}: has no *.safetensors file, the only format of weights that is downloaded; choose another --model"
        )
    return listing


def _finish_weights(folder: Path, release: str | None, workspace: Workspace) -> None:
    write_bert_config(folder)
    if release:
        namesakes = [workspace.nvidia_model(name) for name in catalogue.NVIDIA_MODELS.get(release, ())]
        write_release(folder, workspace.google_release(release), namesakes)


def _release_bytes(release: str | None, workspace: Workspace, listing: Listing) -> int:
    if release is None or (workspace.google_release(release) / f"{GOOGLE_PREFIX}.index").exists():
        return 0
    return sum(file.size_bytes or 0 for file in listing.files if file.name.endswith(".safetensors"))


def _vocab(request: Request, workspace: Workspace) -> Iterator[Download]:
    for model in _full_names(request.models or (DEFAULT_MODEL,)):
        folder = workspace.download("vocab") / model
        finish = partial(_finish_vocab, folder, model, workspace)
        yield _from_hub("vocab", folder, catalogue.vocab(model), finish)


def _finish_vocab(folder: Path, model: str, workspace: Workspace) -> None:
    for release in catalogue.releases_with_vocabulary_of(model):
        link_into(workspace.google_release(release), folder / VOCABULARY)


def _full_names(models: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(model if "/" in model else f"google-bert/{model}" for model in models))


def _dataset(name: str, workspace: Workspace) -> Download:
    folder = workspace.download(f"{DATASET}s") / name
    files = HubFiles(name, keep_folders=True)
    return Download(DATASET, folder, source_of(files), partial(_list_pushed, files), partial(_finish_pushed, folder))


def _list_pushed(wanted: HubFiles, hub: Hub) -> Listing:
    """Return the listing of a pushed data set.

    Raises `BertprepError` if bertprep did not push the repository, or if the files differ from its manifest.
    """
    commit, tree = hub.tree(wanted)
    advice = f"bertprep push did not write it; to use its text, run bertprep shard --dataset {wanted.repo}"
    if MANIFEST not in tree:
        raise BertprepError(f"{page_of(wanted)}: has no {MANIFEST}, so {advice}")
    try:
        data = hub.read(wanted, MANIFEST, MAX_JSON_BYTES)
        manifest = manifest_in(data, f"{page_of(wanted)}: its {MANIFEST}", advice)
        for name, listed in manifest.files.items():
            entry = tree.get(name)
            if entry is None or entry.size != listed["bytes"]:
                found = "is missing" if entry is None else f"has {entry.size:,} bytes"
                raise BertprepError(
                    f"{page_of(wanted)}: {name} {found}, expected {listed['bytes']:,} bytes as in {MANIFEST}; ask its owner to "
                    "push it again"
                )
        names = [*manifest.files, *(name for name in NEXT_TO_MANIFEST if name in tree)]
        listing = list_paths(wanted, commit, [tree[name] for name in names], source_of(wanted))
        own = remote_file(wanted, commit, tree[MANIFEST], PUSHED)
        return Listing(listing.source, commit, (*listing.files, own))
    except ValueError as error:
        raise BertprepError(f"{page_of(wanted)}: its {MANIFEST} was not made by bertprep push ({error}); {advice}") from error


def manifest_in(data: bytes, where: object, advice: str) -> Manifest:
    """Return the manifest in the bytes of a `manifest.json`; raises `ValueError` if it is not a manifest of records.

    Raises `FormatError` for a format that this version does not read; `where` and `advice` are for that.
    """
    content = parse_json(data)
    check_format(where, content, advice)
    manifest = manifest_of(content)
    if manifest.kind not in RECORD_KINDS:
        raise ValueError(f"its kind is {manifest.kind}, expected records")
    return manifest


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return a manifest as bertprep writes it."""
    return (json.dumps(manifest.as_json(), indent=1) + "\n").encode()


def _finish_pushed(folder: Path) -> None:
    """Verify the files against the pushed manifest, then write it as manifest.json, which makes the folder a data set."""
    content = read_bounded(folder / PUSHED)
    files = manifest_in(content, folder / PUSHED, "remove the folder and download it again").files
    for name, entry in files.items() if not (folder / MANIFEST).exists() else ():
        if (found := checksum_of(folder / name)) != entry[BLAKE3]:
            raise BertprepError(
                f"{folder / name}: has {show_checksum(found)}, expected {show_checksum(entry[BLAKE3])} as in {MANIFEST}; ask "
                "its owner to push it again"
            )
    write_if_different(folder / MANIFEST, content)
