"""`bertprep push`: check a finished folder of records, and upload it to a dataset repository on the Hub in one commit.

The upload has Parquet files, the folder's own or converted ones, with the manifest, vocabulary, tokenizer and a card. A
repository with other contents is never changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bertprep import pool
from bertprep.commands.function import function_of
from bertprep.commands.request import How, Where
from bertprep.config import RECORD_FORMATS, RecordFormat
from bertprep.errors import BertprepError, UsageError
from bertprep.files.checksums import SHA256
from bertprep.files.paths import as_path, checksum_of, is_object, local_path, path_arg
from bertprep.options import OPTIONS, described, option
from bertprep.terminal import counted, print_results, print_table, warn
from bertprep.untrusted import MAX_JSON_BYTES
from bertprep.work.layout import MANIFEST, QUESTIONS, VOCABULARY, Workspace
from bertprep.work.made import files_table
from bertprep.work.manifest import RECORDS, Manifest

if TYPE_CHECKING:
    from bertprep.records.examples import Shape
    from bertprep.sources.catalogue import HubFiles
    from bertprep.sources.hub import Hub
    from bertprep.work.data_set import DataSet

_PREFERRED = (RecordFormat.PARQUET, *RECORD_FORMATS)  # all have the same records
_CHECKED_RECORDS = 1_000
"""The number of records read from each file to measure the fractions in the card."""
_SAME = ("corpus", "seq", "task", "name", "version")
"""The settings in which two pushes to the same repository must agree."""


@dataclass(frozen=True, repr=False)
class Pushed:
    """The result of `push`: repository, URL, commit, and the manifest's entries.

    `changed` and `deleted` are the paths that this push changed and deleted. A dry run lists those that a push would, and has
    no commit.
    """

    repository: str
    url: str
    commit: str | None
    files: dict[str, dict[str, Any]]
    changed: list[str]
    deleted: list[str]

    def __repr__(self) -> str:
        changes = f"{len(self.changed):,} changed, {len(self.deleted):,} deleted"
        commit = self.commit or "no commit, a dry run"
        return f"<Pushed {self.url} at {commit}: {counted(len(self.files), 'file')}, {changes}>"


@dataclass(frozen=True, kw_only=True)
class Push(Where, How):
    """The request of `push`: a folder of records, and a data set on the Hub."""

    group: ClassVar[str] = OPTIONS
    folder: Path | str = field(
        kw_only=False,
        metadata=described(
            "finished records of any format, with their manifest", metavar="FOLDER", check=path_arg, positional=True
        ),
    )
    repository: str = field(
        kw_only=False,
        metadata=described("data set on the Hub; created if it does not exist", metavar="OWNER/NAME", positional=True),
    )
    private: bool = option(False, "create a private data set")
    license: str | None = option(
        None, "the Hub's name for the licence of the text (default: that of the corpus)", metavar="ID",
        pattern="[a-z0-9][a-z0-9.-]*", words="one of the Hub's names, such as cc-by-4.0, mit or other",
    )  # fmt: skip
    dry_run: bool = option(False, "check the records and the repository, and print what would be sent; send nothing")
    workdir: Path | str = option(
        Path("data"), "workspace in which records of another format or at a URL are converted", metavar="DIR", check=local_path
    )

    def push(self) -> Pushed:
        """Upload the finished records of a folder to the dataset repository OWNER/NAME on the Hub, in one commit.

        Records in another format than Parquet or at URLs are converted first, in the workspace of `folder` or in `workdir`.
        `license` names the licence of the text if bertprep does not know it. After an interruption, the same call resumes. With
        `dry_run` nothing is created or sent. Needs a token (HF_TOKEN, or `hf auth login`). Raises `BertprepError` for
        unfinished or wrong records, and for a repository with other contents.

            bertprep.push("data/tfrecord/.../sample", "you/sample-bert-128")
        """
        from bertprep.sources.catalogue import HubFiles
        from bertprep.sources.downloads import check_dataset_name
        from bertprep.sources.hub import open_hub
        from bertprep.work.choose import find_records

        reporter, repository = self.reporter, self.repository
        workers = self.workers or pool.default_workers()
        wanted = HubFiles(check_dataset_name(repository), keep_folders=True)
        data_set = find_records(as_path(self.folder), prefer=_PREFERRED)
        if not data_set.is_whole:
            raise UsageError(f"{self.folder}: is only part of a data set; name the whole data set, {data_set.folder}")
        for note in data_set.notes:
            warn(note)
        with open_hub(reporter=reporter) as hub:
            return self._push(data_set, hub, wanted, workers)

    def _push(self, data_set: DataSet, hub: Hub, wanted: HubFiles, workers: int) -> Pushed:
        from bertprep.check.data_set import check_data_set
        from bertprep.commands.card import name_on_hub
        from bertprep.sources.downloads import NEXT_TO_MANIFEST
        from bertprep.sources.hub import check_token, page_of, publish
        from bertprep.sources.web import RequestError, retry

        reporter, repository, page = self.reporter, self.repository, page_of(wanted)
        check_token(hub, page)
        earlier: Manifest | None = None
        try:
            earlier = _earlier(hub, wanted, self.private)
            exists = True
        except RequestError as error:
            if error.status not in (401, 404):
                raise
            exists = False
        _check_same(page, earlier, data_set.manifest)
        _vocabulary_of(data_set)  # raises if it is missing, before anything is converted
        data_set = _as_parquet(data_set, as_path(self.workdir), repository, workers, progress=self.progress)
        if not data_set.manifest:
            raise BertprepError(
                f"{data_set.folder}: has no {MANIFEST} of its Parquet files; name the folder that they were converted from"
            )
        _check_same(page, earlier, data_set.manifest)
        manifest = replace(
            data_set.manifest, files={name_on_hub(name): data_set.manifest.files[name] for name in data_set.files}
        )
        with reporter.progress("check", len(data_set.files), "files") as shown:
            outcome = check_data_set(data_set, None, sample=_CHECKED_RECORDS, workers=workers, shown=shown)
        if outcome.errors:
            found = f"{outcome.findings[0]} and {outcome.errors - 1:,} more" if outcome.errors > 1 else outcome.findings[0]
            raise BertprepError(f"{data_set.folder}: cannot be pushed: {found}; bertprep validate lists all findings")
        contents, title = _contents(data_set, manifest, repository, page, self.license)
        if self.dry_run and not exists:
            return Pushed(repository, page, None, manifest.files, sorted(contents), [])
        if not exists:
            create = partial(hub.api.create_repo, repository, repo_type="dataset", private=self.private or None, exist_ok=True)
            retry(page, create, reporter=reporter)

        def removable(_: object) -> tuple[str, ...]:
            there = _earlier(hub, wanted, self.private)
            _check_same(page, there, manifest)
            return (*there.files, *NEXT_TO_MANIFEST) if there else ()

        published = publish(hub, wanted, contents, removable, title, dry_run=self.dry_run)
        commit = None if self.dry_run else published.commit
        return Pushed(repository, page, commit, manifest.files, sorted(published.changed), sorted(published.deleted))


REQUEST = Push
push = function_of(Push, Push.push)


def run(request: Push) -> None:
    """Push the records, and print the repository's files, the changes and its address."""
    pushed = request.push()
    print_table(files_table({RecordFormat.PARQUET: Manifest(RECORDS, {}, pushed.files)}))
    changed, deleted = counted(len(pushed.changed), "file"), f"{len(pushed.deleted):,}"
    if request.dry_run:
        print_results(f"a dry run: {changed} would be sent, {deleted} deleted: {pushed.url}; nothing was sent")
        return
    has_changed = bool(pushed.changed or pushed.deleted)
    how = f"{changed} changed{f', {deleted} deleted' if pushed.deleted else ''}" if has_changed else "nothing has changed"
    print_results(f"{how}: {pushed.url}", f"next: bertprep download dataset {pushed.repository}")


def _earlier(hub: Hub, wanted: HubFiles, private: bool) -> Manifest | None:
    from bertprep.sources.downloads import manifest_in
    from bertprep.sources.hub import page_of
    from bertprep.sources.web import retry

    page = page_of(wanted)
    _, tree = hub.tree(wanted)
    if private and not retry(page, lambda: hub.api.repo_info(wanted.repo, repo_type="dataset").private, reporter=hub.reporter):
        raise UsageError(f"--private: {page} is public; make it private in its settings, or name another repository")
    advice = f"name another repository, or delete this one at {page}/settings"
    if MANIFEST not in tree:
        if foreign := [path for path in tree if path != ".gitattributes"]:  # the Hub puts this file into a new repository
            raise BertprepError(f"{page}: contains {foreign[0]}, which bertprep push did not write; {advice}")
        return None
    try:
        return manifest_in(hub.read(wanted, MANIFEST, MAX_JSON_BYTES))
    except ValueError as error:
        raise BertprepError(f"{page}: its {MANIFEST} is not a manifest of bertprep's records ({error}); {advice}") from error


def _check_same(page: str, earlier: Manifest | None, manifest: Manifest | None) -> None:
    if earlier is None or manifest is None:
        return
    there = {key: earlier.made_with.get(key) for key in _SAME}
    here = {key: manifest.made_with.get(key) for key in _SAME}
    if there != here or earlier.kind != manifest.kind:
        key = next((key for key in _SAME if there[key] != here[key]), "kind")
        found, expected = there.get(key, earlier.kind), here.get(key, manifest.kind)
        raise BertprepError(
            f"{page}: contains another data set, whose {key} is {found}, expected {expected}; name another repository, or "
            f"delete this one at {page}/settings"
        )


def _as_parquet(data_set: DataSet, workdir: Path, repository: str, workers: int, *, progress: bool) -> DataSet:
    from bertprep.commands.convert import convert
    from bertprep.work.choose import find_records
    from bertprep.work.manifest import read_manifest

    is_remote = is_object(data_set.folder)
    if not is_remote and data_set.manifest and all(name.endswith(f".{RecordFormat.PARQUET}") for name in data_set.files):
        return data_set
    of_settings = data_set.folder.absolute().parent
    if not is_remote and of_settings.parent.name in RECORD_FORMATS:
        target = Workspace(of_settings.parents[1]).records(RecordFormat.PARQUET, of_settings.name, data_set.folder.name)
        made = read_manifest(target)  # perhaps by create, whose records are the same in every format
        if made and data_set.manifest and made.made_with == data_set.manifest.made_with:
            return find_records(target)
    else:
        target = Workspace(workdir).records(RecordFormat.PARQUET, *repository.split("/"))
    converted = convert(data_set.folder, target, to=RecordFormat.PARQUET, workers=workers, progress=progress)
    return find_records(converted.folder)


def _vocabulary_of(data_set: DataSet) -> Path:
    if data_set.vocabulary is None:
        raise BertprepError(
            f"{data_set.folder}: has no {VOCABULARY}, without which nobody can use the records; copy the one that they were "
            "made with to this folder"
        )
    return data_set.vocabulary


def _contents(
    data_set: DataSet, manifest: Manifest, repository: str, page: str, licence: str | None
) -> tuple[dict[str, Path | bytes], str]:
    from bertprep.commands.card import PushedSet, card, name_on_hub
    from bertprep.instances import load_vocabulary
    from bertprep.instances.tokenizer_files import tokenizer_files
    from bertprep.records.records import Records
    from bertprep.sources.downloads import CARD, manifest_bytes
    from bertprep.work.manifest import sha256_of_questions

    vocabulary = load_vocabulary(_vocabulary_of(data_set))
    cased = manifest.made_with.get(
        "cased", any(not token.startswith("[") and token.lower() != token for token in vocabulary.tokens)
    )
    shapes: dict[str, Shape] = {}
    for name in data_set.files:
        if (split := name_on_hub(name).partition("/")[0]) not in shapes:
            with Records.open(data_set.folder / name) as file:
                shapes[split] = file.shape
    pushed = PushedSet(repository, page, data_set.corpus, manifest, shapes, cased, licence)
    contents: dict[str, Path | bytes] = {name_on_hub(name): data_set.folder / name for name in data_set.files}
    contents |= {
        MANIFEST: manifest_bytes(manifest),
        VOCABULARY: vocabulary.path,
        **tokenizer_files(vocabulary, cased=cased, seq=pushed.shape.seq),
        CARD: card(pushed),
    }
    if expected := sha256_of_questions(manifest):
        contents[QUESTIONS] = questions = data_set.folder / QUESTIONS
        if checksum_of(questions, SHA256) != expected:
            raise BertprepError(
                f"{questions}: is not the file from which the records in dev/ were made; put that file there again"
            )
    return contents, pushed.title
