"""The corpora that bertprep downloads, under the names of the field.

    asked for                 name                     text of
    wikipedia                 wikicorpus_en            the Wikipedia of a language
    bookcorpus                bookscorpus              BookCorpus
    wikipedia+bookcorpus      books_wiki_en_corpus     both, the books first

Either name is accepted. Any other name is a corpus of the user's own.
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
"""The name of a corpus given as files without a name."""
_BOTH = re.compile(r"books_wiki_([a-z-]+)_corpus")
_WIKI = re.compile(r"wikicorpus_([a-z-]+)")


def wiki(language: str) -> str:
    return f"wikicorpus_{language}"


def books_and_wiki(language: str) -> str:
    return f"books_wiki_{language}_corpus"


def name_corpus(asked: str | None, workspace: Workspace, language: str | None = None) -> str:
    """Return the name of the requested corpus; by default the downloaded one, or else the sample.

    Without a language, "wikipedia" is the one in the workspace; several are a `UsageError`.
    """
    if asked is None:
        asked = "+".join(_downloaded(workspace)) or SAMPLE
    sources = {BOOKS if source == "bookcorpus" else source for source in asked.split("+")}
    if sources == {BOOKS}:
        return BOOKS
    if sources in ({"wikipedia"}, {BOOKS, "wikipedia"}):
        name = wiki if sources == {"wikipedia"} else books_and_wiki
        languages = [language] if language else _languages(workspace) or ["en"]
        if len(languages) > 1:
            raise UsageError(
                f"--corpus {asked}: {workspace.root} has Wikipedia in {', '.join(languages)}; "
                f"name one, such as --corpus {name(languages[0])}"
            )
        return name(languages[0])
    if "+" in asked and all(map(CORPUS.holds, sources)):
        raise UsageError(
            f"--corpus {asked}: only wikipedia and bookcorpus are made together; make {' and '.join(asked.split('+'))} one "
            "by one with the same --vocab, and name their folders to the trainer: --data DIR DIR"
        )
    if not CORPUS.holds(asked):
        raise UsageError(
            f"--corpus {asked}: must be wikipedia, bookcorpus, wikipedia+bookcorpus, or a name of letters, digits, '_', '-' "
            "and '.', since files are named after it"
        )
    return asked


def name_data_set(dataset: object, split: str | None = None) -> str:
    """Return the corpus name for a data set, without its owner; names of downloads are taken.

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
    """Return the only corpus that was downloaded or sharded, or else the sample; several are a `UsageError`."""
    made = {path.parent.name for path in workspace.sharded("").glob(f"*/{MANIFEST}")} - {SAMPLE}
    found = sorted(made | ({name_corpus(None, workspace)} - {SAMPLE}))
    if len(found) > 1:
        raise UsageError(f"{workspace.root} has the text of {', '.join(found)}; name one with --corpus")
    return found[0] if found else SAMPLE


def language_of(corpus: str) -> str | None:
    match = _BOTH.fullmatch(corpus) or _WIKI.fullmatch(corpus)
    return match[1] if match else None


def parts_of(corpus: str) -> list[str]:
    """The downloads that a corpus consists of, in the order of their documents; none for a user's own."""
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
