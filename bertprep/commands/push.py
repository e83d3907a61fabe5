"""`bertprep push`: check a finished folder of records, and upload it to a dataset repository on the Hub in one commit.

The upload has Parquet files, the folder's own or converted ones, with the manifest, vocabulary, tokenizer and a card. A
repository with other contents is never changed. A push asks the Hub first, so that a wrong token is not found after an hour of
work. A dry run asks it last, since it needs no Hub to check and convert the records.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from bertprep.terminal import counted, listed, print_results, print_table, warn
from bertprep.untrusted import MAX_JSON_BYTES
from bertprep.work.layout import MANIFEST, QUESTIONS, VOCABULARY, Workspace
from bertprep.work.made import files_table
from bertprep.work.manifest import RECORDS, Manifest

if TYPE_CHECKING:
    from bertprep.check.finding import Finding
    from bertprep.records.examples import Shape
    from bertprep.sources.catalogue import HubFiles
    from bertprep.sources.hub import Hub
    from bertprep.work.data_set import DataSet

_PREFERRED = (RecordFormat.PARQUET, *RECORD_FORMATS)  # all have the same records
_SAME = ("corpus", "seq", "task", "name", "version")
"""The settings in which two pushes to the same repository must agree."""


@dataclass(frozen=True)
class Upload:
    """What a push sends: the content of each file by its path in the repository, and the manifest of the record files."""

    contents: dict[str, Path | bytes]
    manifest: Manifest
    title: str  # of the commit

    @property
    def card(self) -> str:
        from bertprep.sources.downloads import CARD

        card = self.contents[CARD]
        assert isinstance(card, bytes)
        return card.decode()

    def sizes(self) -> dict[str, int]:
        """Return the size of each file in bytes: training records, other records, other files."""
        names = sorted(self.contents, key=lambda name: (name not in self.manifest.files, not name.startswith("train/"), name))
        return {name: _size_bytes(self.contents[name]) for name in names}


@dataclass(frozen=True, repr=False)
class Pushed:
    """The result of `push`: repository, URL, commit, and the manifest's entries.

    `changed` and `deleted` are the paths that this push changed and deleted; `sizes` are the bytes of all its files, and `card`
    is the text of README.md. A dry run lists what a push would change, and has no commit. If it could not compare the
    repository, `not_compared` says why, and `changed` has all files.
    """

    repository: str
    url: str
    commit: str | None
    files: dict[str, dict[str, Any]]
    changed: list[str]
    deleted: list[str]
    sizes: dict[str, int]
    card: str
    not_compared: str = ""

    def __repr__(self) -> str:
        changes = f"{len(self.changed):,} changed, {len(self.deleted):,} deleted"
        if self.not_compared:
            changes = "not compared with the repository"
        commit = self.commit or "no commit, a dry run"
        return f"<Pushed {self.url} at {commit}: {counted(len(self.files), 'file')}, {changes}>"


@dataclass(frozen=True, kw_only=True)
class Push(Where, How):
    """The request of `push`: a folder of records, and a data set on the Hub."""

    group: ClassVar[str] = OPTIONS
    folder: Path | str = field(
        kw_only=False,
        metadata=described(
            "finished records of any format, with their vocab.txt", metavar="FOLDER", check=path_arg, positional=True
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
    dry_run: bool = option(
        False, "check the records, print the files and the card that would be sent, compare the repository; send nothing"
    )
    workdir: Path | str = option(
        Path("data"), "workspace in which records of another format or at a URL are converted", metavar="DIR", check=local_path
    )

    def push(self) -> Pushed:
        """Upload the finished records of a folder to the dataset repository OWNER/NAME on the Hub, in one commit.

        All records are checked as `validate` does. Records in another format than Parquet or at URLs are converted, in the
        workspace of `folder` or in `workdir`. `license` names the licence of the text if bertprep does not know it. After an
        interruption, the same call resumes. With `dry_run` nothing is created on the Hub or sent; without a token or a network
        it does everything but compare the repository. A push needs a token (HF_TOKEN, or `hf auth login`). Raises
        `BertprepError` for unfinished or wrong records, and for a repository with other contents.

            bertprep.push("data/tfrecord/.../sample", "you/sample-bert-128")
        """
        if self.dry_run:
            return self.compare(self.prepare())
        from bertprep.sources.downloads import NEXT_TO_MANIFEST
        from bertprep.sources.hub import open_hub, page_of, publish
        from bertprep.sources.web import retry

        wanted, repository = self._wanted(), self.repository
        page, data_set = page_of(wanted), self._find_records()
        with open_hub(reporter=self.reporter) as hub:
            exists, earlier = _find_earlier(hub, wanted, self.private)
            _check_same(page, earlier, data_set.manifest)
            upload = self.prepare(data_set)
            _check_same(page, earlier, upload.manifest)
            if not exists:
                create = partial(
                    hub.api.create_repo, repository, repo_type="dataset", private=self.private or None, exist_ok=True
                )
                retry(page, create, reporter=self.reporter)

            def removable(_: object) -> tuple[str, ...]:
                there = _earlier(hub, wanted, self.private)
                _check_same(page, there, upload.manifest)
                return (*there.files, *NEXT_TO_MANIFEST) if there else ()

            published = publish(hub, wanted, upload.contents, removable, upload.title)
        changed, deleted = sorted(published.changed), sorted(published.deleted)
        return self._pushed(upload, changed, deleted, commit=published.commit)

    def prepare(self, data_set: DataSet | None = None) -> Upload:
        """Check the records, convert them if they are not local Parquet files, and return what is to be sent. Asks no Hub."""
        from bertprep.commands.card import name_on_hub, warn_of_licence
        from bertprep.sources.hub import page_of

        page = page_of(self._wanted())
        data_set = data_set or self._find_records()
        warn_of_licence(self.license)
        _vocabulary_of(data_set)  # raises if it is missing, before anything is converted
        is_local = not is_object(data_set.folder)
        if is_local:
            self._check(data_set)
        parquet = _as_parquet(data_set, as_path(self.workdir), self.repository, self._workers, progress=self.progress)
        if not parquet.manifest:
            raise BertprepError(
                f"{parquet.folder}: has no {MANIFEST} of its Parquet files; name the folder that they were converted from"
            )
        if not is_local:
            self._check(parquet)
        elif parquet is not data_set:  # the records of the copy were checked, but its files may have changed since
            _check_files(parquet)
        manifest = replace(parquet.manifest, files={name_on_hub(name): parquet.manifest.files[name] for name in parquet.files})
        contents, title = _contents(parquet, manifest, self.repository, page, self.license)
        return Upload(contents, manifest, title)

    def compare(self, upload: Upload) -> Pushed:
        """Return what a push of `upload` would change in the repository, or why it could not be compared. Sends nothing."""
        from bertprep.sources.downloads import NEXT_TO_MANIFEST
        from bertprep.sources.hub import open_hub, page_of, publish
        from bertprep.sources.web import RequestError

        wanted = self._wanted()
        page = page_of(wanted)
        try:
            with open_hub(reporter=self.reporter) as hub:
                exists, earlier = _find_earlier(hub, wanted, self.private)
                _check_same(page, earlier, upload.manifest)
                if not exists:
                    return self._pushed(upload, sorted(upload.contents), [])
                removable = (*earlier.files, *NEXT_TO_MANIFEST) if earlier else ()
                published = publish(hub, wanted, upload.contents, lambda _: removable, upload.title, dry_run=True)
        except RequestError as error:
            return replace(self._pushed(upload, sorted(upload.contents), []), not_compared=str(error))
        return self._pushed(upload, sorted(published.changed), sorted(published.deleted))

    @property
    def _workers(self) -> int:
        return self.workers or pool.default_workers()

    def _wanted(self) -> HubFiles:
        from bertprep.sources.catalogue import HubFiles
        from bertprep.sources.downloads import check_dataset_name

        return HubFiles(check_dataset_name(self.repository), keep_folders=True)

    def _find_records(self) -> DataSet:
        from bertprep.work.choose import find_records

        data_set = find_records(as_path(self.folder), prefer=_PREFERRED)
        if not data_set.is_whole:
            raise UsageError(f"{self.folder}: is only part of a data set; name the whole data set, {data_set.folder}")
        for note in data_set.notes:
            warn(note)
        return data_set

    def _check(self, data_set: DataSet) -> None:
        """Check all records, and the splits against each other, as `validate` does; raise `BertprepError` for an error."""
        from bertprep import kernels
        from bertprep.check.data_set import check_data_set

        kernels.load()  # before workers fork, so that they share the compiled code
        with self.reporter.progress("check", len(data_set.files), "files") as shown:
            outcome = check_data_set(data_set, None, workers=self._workers, shown=shown)
        if outcome.errors:
            raise _cannot_push(data_set, outcome.findings, outcome.errors)
        if outcome.findings:
            first, others = outcome.findings[0].fault.removeprefix("warning: "), len(outcome.findings) - 1
            more = f" and {others:,} more" if others else ""
            warn(f"{data_set.folder}: {first}{more}; bertprep validate {data_set.folder} lists all findings")

    def _pushed(self, upload: Upload, changed: list[str], deleted: list[str], *, commit: str | None = None) -> Pushed:
        from bertprep.sources.hub import page_of

        page = page_of(self._wanted())
        return Pushed(self.repository, page, commit, upload.manifest.files, changed, deleted, upload.sizes(), upload.card)


REQUEST = Push
push = function_of(Push, Push.push)


def run(request: Push) -> None:
    """Push the records, and print the repository's files, the changes and its address; or print what a dry run finds."""
    if request.dry_run:
        _run_dry(request)
        return
    pushed = request.push()
    _print_files(pushed.files)
    changed = counted(len(pushed.changed), "file")
    has_changed = bool(pushed.changed or pushed.deleted)
    deleted = f", {len(pushed.deleted):,} deleted" if pushed.deleted else ""
    how = f"{changed} changed{deleted}" if has_changed else "nothing has changed"
    print_results(f"{how}: {pushed.url}", f"next: bertprep download dataset {pushed.repository}")


def _run_dry(request: Push) -> None:
    upload = request.prepare()
    _print_files(upload.manifest.files)
    print_results("")
    print_table([("file", "bytes"), *((name, f"{size:,}") for name, size in upload.sizes().items())])
    print_results("", "README.md, the card:", "", *upload.card.splitlines(), "")
    pushed = request.compare(upload)
    if pushed.not_compared:
        print_results(f"the repository was not compared: {pushed.not_compared}")
        how = f"{counted(len(pushed.changed), 'file')} would be sent, or fewer if the repository has some of them"
    else:
        if 0 < len(pushed.changed) < len(pushed.sizes):
            print_results(f"would be sent: {listed(pushed.changed)}")
        if pushed.deleted:
            print_results(f"would be deleted: {listed(pushed.deleted)}")
        how = f"{counted(len(pushed.changed), 'file')} would be sent, {len(pushed.deleted):,} deleted"
    print_results(f"a dry run: {how}: {pushed.url}; nothing was sent")


def _print_files(files: dict[str, dict[str, Any]]) -> None:
    print_table(files_table({RecordFormat.PARQUET: Manifest(RECORDS, {}, files)}))


def _size_bytes(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _check_files(data_set: DataSet) -> None:
    """Raise `BertprepError` if the size or checksum of a file differs from the manifest."""
    from bertprep.check.folder import check_content

    assert data_set.manifest
    entries = data_set.manifest.files
    findings = [each for name in data_set.files for each in check_content(data_set.folder / name, name, entries[name])]
    if findings:
        raise _cannot_push(data_set, findings, len(findings))


def _cannot_push(data_set: DataSet, findings: Sequence[Finding], errors: int) -> BertprepError:
    first, rest = str(findings[0]).removeprefix("error: "), "all findings"
    if errors > 1:
        rest = counted(errors - 1, "more error")
    return BertprepError(f"{data_set.folder}: cannot be pushed: {first}; bertprep validate {data_set.folder} lists {rest}")


def _find_earlier(hub: Hub, wanted: HubFiles, private: bool) -> tuple[bool, Manifest | None]:
    """Return whether the repository exists, and the manifest of an earlier push; raise if the token cannot write."""
    from bertprep.sources.hub import check_token, page_of
    from bertprep.sources.web import RequestError

    check_token(hub, page_of(wanted))
    try:
        return True, _earlier(hub, wanted, private)
    except RequestError as error:
        if error.status not in (401, 404):
            raise
        return False, None


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
        return manifest_in(hub.read(wanted, MANIFEST, MAX_JSON_BYTES), f"{page}: its {MANIFEST}", advice)
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
