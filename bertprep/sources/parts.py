"""The parts of a download: for each folder what is fetched, from where, and what is made from it.

Nothing is fetched or written here; `download` does that, part by part.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, UsageError
from bertprep.sources import catalogue
from bertprep.sources.catalogue import DEFAULT_MODEL, MODELS, NAMES, WIKIPEDIA_DATE, HubFiles
from bertprep.sources.corpora import BOOKS, wiki
from bertprep.sources.pushed import check_dataset_name, finish_pushed, list_pushed
from bertprep.sources.streams import is_web
from bertprep.sources.tasks.weights import write_bert_config
from bertprep.sources.transfer.http import Web
from bertprep.sources.transfer.hub import Hub, source_of
from bertprep.sources.transfer.listing import Listing
from bertprep.sources.transfer.own_files import list_dump, list_folder, list_url, name_in_url
from bertprep.workspace.layout import GOOGLE_PREFIX, VOCABULARY, Workspace

ALL = "all"
DATASET = "dataset"
"""What stands before the names of pushed data sets of records."""
ENGLISH = "en"
PARQUET = "parquet"
"""The folder of a task's files as they are on the Hub, below the folder of the files made from them."""


@dataclass(frozen=True)
class Part:
    """One folder of a download. A `fixed` listing, that of a commit, is never renewed."""

    name: str
    label: str
    folder: Path
    source: dict[str, Any]
    list_files: Callable[[Hub, Web], Listing]
    finish: Callable[[], None] = lambda: None
    fixed: bool = True
    makes_bytes: Callable[[Listing], int] = lambda _: 0
    """The bytes that `finish` will write, if they are many."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request to download, checked when built: `names` of `NAMES`, "all", or "dataset" and OWNER/NAME after it."""

    names: tuple[str, ...]
    language: str = ENGLISH
    date: str = WIKIPEDIA_DATE
    from_dump: str | None = None
    from_files: Path | None = None
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in (*NAMES, ALL, DATASET, *self.datasets):
                raise UsageError(
                    f"{name}: cannot be downloaded; choose from {', '.join(NAMES)}, or {ALL}; {DATASET} OWNER/NAME is one of "
                    "records that was pushed"
                )
        if DATASET in self.names and not self.datasets:
            raise UsageError(f"{DATASET}: which one? give OWNER/NAME of a data set of records that was pushed")
        for name in self.datasets:
            check_dataset_name(name)
        if not self.names:
            raise UsageError(f"nothing is named; choose from {', '.join(NAMES)}, or {ALL}")
        if not re.fullmatch("[a-z]+(-[a-z]+)*", self.language):
            raise UsageError(f"--language {self.language}: must be the code of a Wikipedia, such as en, de or zh-yue")
        if not re.fullmatch(r"\d{8}", self.date):
            raise UsageError(f"--date {self.date}: must be a day such as {WIKIPEDIA_DATE}")
        self._check_goes_with("--language", self.language != ENGLISH, "wikipedia")
        self._check_goes_with("--date", self.date != WIKIPEDIA_DATE, "wikipedia")
        self._check_goes_with("--from-dump", self.from_dump is not None, "wikipedia")
        self._check_goes_with("--from-files", self.from_files is not None, "bookcorpus")
        self._check_goes_with("--model", bool(self.models), "weights", "vocab")
        if self.from_dump is not None and self.date != WIKIPEDIA_DATE:
            raise UsageError("--date and --from-dump do not go together: a dump is of its own day")
        for model in self.models:
            if not re.fullmatch(r"(\w[\w.-]*/)?\w[\w.-]*", model):
                raise UsageError(f"--model {model}: must be a model of the Hub, such as {DEFAULT_MODEL}")

    @property
    def datasets(self) -> tuple[str, ...]:
        """The pushed data sets: names with a "/" after "dataset"."""
        after = self.names[self.names.index(DATASET) :] if DATASET in self.names else ()
        return tuple(dict.fromkeys(name for name in after if "/" in name))

    def _check_goes_with(self, option: str, given: bool, *names: str) -> None:
        if given and not any(self.asks_for(name) for name in names):
            raise UsageError(f"{option} goes with {' or '.join(names)}, which is not asked for")

    def asks_for(self, name: str) -> bool:
        return name in self.names or ALL in self.names


def find_parts(request: Request, workspace: Workspace) -> list[Part]:
    """The parts of a request, in the order of `NAMES`."""
    makers = {
        "wikipedia": _wikipedia, "bookcorpus": _bookcorpus, "squad": _squad, "glue": _glue, "weights": _weights,
        "vocab": _vocab,
    }  # fmt: skip
    known = [part for name in NAMES if request.asks_for(name) for part in makers[name](request, workspace)]
    return [*known, *(_dataset(name, workspace) for name in request.datasets)]


def _from_hub(name: str, label: str, folder: Path, files: HubFiles, finish: Callable[[], None] = lambda: None) -> Part:
    return Part(name, label, folder, source_of(files), lambda hub, _: hub.list_files(files), finish)


def _wikipedia(request: Request, workspace: Workspace) -> Iterator[Part]:
    label = wiki(request.language)
    folder = workspace.download(label)
    dump = request.from_dump
    if dump is None:
        yield _from_hub("wikipedia", label, folder, catalogue.wikipedia(request.language, request.date))
    elif is_web(dump):
        name_in_url(dump)
        yield Part(
            "wikipedia", label, folder, {"dump": dump}, lambda hub, web: list_url(dump, web, reporter=hub.reporter), fixed=False
        )
    else:
        listing = list_dump(Path(dump))
        yield Part("wikipedia", label, folder, listing.source, lambda *_: listing, fixed=False)


def _bookcorpus(request: Request, workspace: Workspace) -> Iterator[Part]:
    folder = workspace.download(BOOKS)
    if request.from_files is None:
        yield _from_hub("bookcorpus", BOOKS, folder, catalogue.BOOKCORPUS)
    else:
        listing = list_folder(request.from_files)
        yield Part("bookcorpus", BOOKS, folder, listing.source, lambda *_: listing, fixed=False)


def _squad(_: Request, workspace: Workspace) -> Iterator[Part]:
    for version, files in catalogue.SQUAD.items():
        folder = workspace.download("squad") / version
        yield _from_hub("squad", f"SQuAD {version}", folder / PARQUET, files, partial(_finish_squad, folder, version))


def _finish_squad(folder: Path, version: str) -> None:
    from bertprep.sources.tasks.squad import write_squad

    write_squad(folder / PARQUET, folder, version)


def _glue(_: Request, workspace: Workspace) -> Iterator[Part]:
    for task in catalogue.GLUE:
        folder = workspace.download(task)
        yield _from_hub("glue", f"GLUE {task}", folder / PARQUET, catalogue.glue(task), partial(_finish_glue, folder, task))


def _finish_glue(folder: Path, task: str) -> None:
    from bertprep.sources.tasks.glue import write_glue

    write_glue(task, folder / PARQUET, folder)


def _weights(request: Request, workspace: Workspace) -> Iterator[Part]:
    for model in _whole_names(request.models or MODELS):
        folder = workspace.download("weights") / model
        files = catalogue.weights(model)
        release = catalogue.GOOGLE_RELEASES.get(model)
        yield Part(
            "weights",
            model,
            folder,
            source_of(files),
            partial(_list_weights, files),
            partial(_finish_weights, folder, release, workspace),
            makes_bytes=partial(_release_bytes, release, workspace),
        )


def _list_weights(files: HubFiles, hub: Hub, _: Web) -> Listing:
    listing = hub.list_files(files)
    if not any(file.name.endswith(".safetensors") for file in listing.files):
        raise BertprepError(
            f"{files.repo}: has no *.safetensors, the only format of weights that is downloaded; choose another --model"
        )
    return listing


def _finish_weights(folder: Path, release: str | None, workspace: Workspace) -> None:
    write_bert_config(folder)
    if release:
        from bertprep.sources.tasks.google_release import write_release

        namesakes = [workspace.nvidia_model(name) for name in catalogue.NVIDIA_MODELS.get(release, ())]
        write_release(folder, workspace.google_release(release), namesakes)


def _release_bytes(release: str | None, workspace: Workspace, listing: Listing) -> int:
    """The bytes still to be written as Google's files, which repeat the weights."""
    if release is None or (workspace.google_release(release) / f"{GOOGLE_PREFIX}.index").exists():
        return 0
    return sum(file.size_bytes or 0 for file in listing.files if file.name.endswith(".safetensors"))


def _vocab(request: Request, workspace: Workspace) -> Iterator[Part]:
    for model in _whole_names(request.models or (DEFAULT_MODEL,)):
        folder = workspace.download("vocab") / model
        finish = partial(_finish_vocab, folder, model, workspace)
        yield _from_hub("vocab", f"{model} vocabulary", folder, catalogue.vocab(model), finish)


def _finish_vocab(folder: Path, model: str, workspace: Workspace) -> None:
    releases = catalogue.releases_with_vocabulary_of(model)
    if releases:
        from bertprep.sources.tasks.google_release import link_into

        for release in releases:
            link_into(workspace.google_release(release), folder / VOCABULARY)


def _dataset(name: str, workspace: Workspace) -> Part:
    folder = workspace.download(f"{DATASET}s") / name
    files = HubFiles(name, keep_folders=True)
    return Part(DATASET, name, folder, source_of(files), lambda hub, _: list_pushed(files, hub), partial(finish_pushed, folder))


def _whole_names(models: tuple[str, ...]) -> list[str]:
    """Models by their full names, each once; Google's may be given without "google-bert/"."""
    return list(dict.fromkeys(model if "/" in model else f"google-bert/{model}" for model in models))
