"""The corpora that bertprep downloads, and the names that the field has for them.

    --corpus                  name of folders and files    text
    wikipedia                 wikicorpus_en                the English Wikipedia
    wikipedia_de              wikicorpus_de                that of another language
    bookcorpus                bookscorpus                  BookCorpus
    wikipedia+bookcorpus      books_wiki_en_corpus         both, the books first

The names on the left are printed. Folders and files have NVIDIA's, which --corpus accepts too. Any other name is that of
text of the user's own.
"""

import re
from pathlib import Path

from bertprep.errors import UsageError
from bertprep.files.paths import as_path
from bertprep.sources.sample import SAMPLE
from bertprep.untrusted import CORPUS
from bertprep.work.layout import LISTING, MANIFEST, Workspace

BOOKS = "bookscorpus"
GIVEN = "corpus"
"""The name of a corpus to which the user gives no name."""
_BOTH = re.compile(r"books_wiki_([a-z-]+)_corpus")
_WIKI = re.compile(r"wikicorpus_([a-z-]+)")
_WIKIPEDIA = re.compile(r"wikipedia(?:_([a-z]+(?:-[a-z]+)*))?")


def wiki(language: str) -> str:
    return f"wikicorpus_{language}"


def books_and_wiki(language: str) -> str:
    return f"books_wiki_{language}_corpus"


def name_corpus(asked: str | None, workspace: Workspace, language: str | None = None) -> str:
    """Return the name of the requested corpus: by default what is downloaded, else the sample.

    Without `language`, "wikipedia" is the one in the workspace, else the English one. Raises `UsageError` if there are several.
    """
    if asked is None:
        asked = "+".join(_downloaded(workspace)) or SAMPLE
    sources = {BOOKS if source == "bookcorpus" else source for source in asked.split("+")}
    if sources == {BOOKS}:
        return BOOKS
    wikipedia = next(filter(None, map(_WIKIPEDIA.fullmatch, sources)), None)
    if wikipedia and sources <= {BOOKS, wikipedia[0]}:
        name = books_and_wiki if BOOKS in sources else wiki
        named = wikipedia[1] or language
        languages = [named] if named else _languages(workspace) or ["en"]
        if len(languages) > 1:
            raise UsageError(
                f"--corpus {asked}: {workspace.root} has several languages of Wikipedia: {', '.join(languages)}; "
                f"choose one, such as --corpus {printed_name(name(languages[0]))}"
            )
        return name(languages[0])
    if "+" in asked and all(map(CORPUS.holds, sources)):
        raise UsageError(
            f"--corpus {asked}: only wikipedia and bookcorpus can be joined; run the command once each for "
            f"{' and '.join(asked.split('+'))}, with the same --vocab, then give the trainer both folders: --data DIR DIR"
        )
    if not CORPUS.holds(asked):
        raise UsageError(
            f"--corpus {asked}: must be wikipedia, bookcorpus, wikipedia+bookcorpus, or a name of letters, digits, '_', '-' "
            "and '.', since files are named after it"
        )
    return asked


def printed_name(corpus: str) -> str:
    """Return the name of a corpus as --corpus has it, from the name of its folder.

    >>> printed_name("wikicorpus_en"), printed_name("books_wiki_de_corpus"), printed_name("mine")
    ('wikipedia', 'wikipedia_de+bookcorpus', 'mine')
    """
    language = language_of(corpus)
    names = [] if language is None else ["wikipedia" if language == "en" else f"wikipedia_{language}"]
    if BOOKS in parts_of(corpus):
        names.append("bookcorpus")
    return "+".join(names) or corpus


def name_data_set(dataset: object, split: str | None = None) -> str:
    """Return a corpus name for a data set: its name without the owner, unless that is the name of a download.

    >>> name_data_set("wikimedia/wikipedia:20231101.de"), name_data_set("Salesforce/wikitext", "validation")
    ('wikipedia_20231101.de', 'wikitext_validation')
    >>> name_data_set("bookcorpus/bookcorpus")
    'bookcorpus_bookcorpus'
    """
    if not isinstance(dataset, str | Path):
        return GIVEN
    if (folder := as_path(dataset)).is_dir():
        name, owner = folder.resolve().name, "own"
    else:
        of_the_hub, _, config = str(dataset).partition(":")
        owner, _, name = of_the_hub.rpartition("/")
        name += f"_{config}" if config else ""
    name = re.sub(r"[^\w.-]+", "_", name.lower()).lstrip(".-") or GIVEN
    if name in ("wikipedia", "bookcorpus", SAMPLE) or parts_of(name):
        name = f"{re.sub('[^a-z0-9]+', '_', owner.lower())}_{name}"
    return name + ("" if split in (None, "train") else f"_{split}")


def name_made_corpus(workspace: Workspace) -> str:
    """Return the only corpus that was downloaded or sharded, or the one that contains all others, else the sample.

    Raises `UsageError` if there are several.
    """
    made = {path.parent.name for path in workspace.sharded("").glob(f"*/{MANIFEST}")} - {SAMPLE}
    found = sorted(made | ({name_corpus(None, workspace)} - {SAMPLE}))
    if not found:
        return SAMPLE
    parts = {corpus: {*parts_of(corpus)} or {corpus} for corpus in found}
    largest = max(found, key=lambda corpus: len(parts[corpus]))
    if parts[largest] < set().union(*parts.values()):
        names = ", ".join(map(printed_name, found))
        raise UsageError(f"{workspace.root} has the text of several corpora: {names}; choose one with --corpus")
    return largest


def downloaded_corpus(workspace: Workspace, language: str | None) -> str:
    """Return the corpus of all text that was downloaded; of several Wikipedias that in `language`, without one none."""
    try:
        return name_corpus(None, workspace, language)
    except UsageError:
        return BOOKS


def language_of(corpus: str) -> str | None:
    match = _BOTH.fullmatch(corpus) or _WIKI.fullmatch(corpus)
    return match[1] if match else None


def parts_of(corpus: str) -> list[str]:
    """Return the downloads that make up a corpus, in the order of their documents; none for a corpus of the user's own."""
    if match := _BOTH.fullmatch(corpus):
        return [BOOKS, wiki(match[1])]
    return [corpus] if corpus == BOOKS or _WIKI.fullmatch(corpus) else []


def _downloaded(workspace: Workspace) -> list[str]:
    present = [path.parent.name for path in sorted(workspace.download("").glob(f"*/{LISTING}"))]
    found = [BOOKS] if BOOKS in present else []
    if any(map(_WIKI.fullmatch, present)):
        found.append("wikipedia")
    return found


def _languages(workspace: Workspace) -> list[str]:
    folders = [*workspace.download("").glob("wikicorpus_*"), *workspace.sharded("").glob("*wiki*")]
    return sorted({language for folder in folders if (language := language_of(folder.name))})
