"""The corpora that bertprep downloads, under the names of the field.

    asked for                 name                     text of
    wikipedia                 wikicorpus_en            the Wikipedia of a language
    bookcorpus                bookscorpus              BookCorpus
    wikipedia+bookcorpus      books_wiki_en_corpus     both, the books first

Either column may be given. Any other name is that of a corpus of the user's own.
"""

import re

from bertprep.errors import UsageError
from bertprep.layout import LISTING, Workspace
from bertprep.sources.sample import SAMPLE

BOOKS = "bookscorpus"
GIVEN = "corpus"
"""The name of a corpus that the user gave as files and did not name."""
_BOTH = re.compile(r"books_wiki_([a-z-]+)_corpus")
_WIKI = re.compile(r"wikicorpus_([a-z-]+)")


def wiki(language: str) -> str:
    """The name of the corpus of one Wikipedia."""
    return f"wikicorpus_{language}"


def name_corpus(asked: str | None, workspace: Workspace, language: str | None = None) -> str:
    """The name of the corpus that is asked for; without one, of what was downloaded, or else the sample.

    Without a language, "wikipedia" is the one that the workspace has. Raises `UsageError` for no name that a file can have,
    and where the workspace has the Wikipedias of several languages and none is named.
    """
    if asked is None:
        asked = "+".join(_downloaded(workspace)) or SAMPLE
    sources = {"bookscorpus" if source == "bookcorpus" else source for source in asked.split("+")}
    if sources == {BOOKS}:
        return BOOKS
    if sources == {"wikipedia"}:
        return wiki(language or _only_language(workspace))
    if sources == {BOOKS, "wikipedia"}:
        return f"books_wiki_{language or _only_language(workspace)}_corpus"
    if not re.fullmatch(r"\w[\w.-]*", asked):
        raise UsageError(
            f"--corpus {asked}: must be wikipedia, bookcorpus, wikipedia+bookcorpus, or a name of letters, digits, '_', '-' "
            "and '.', since files are named after it"
        )
    return asked


def parts_of(corpus: str) -> list[str]:
    """The downloads that a corpus consists of, in the order in which their documents stand; none for a user's own."""
    if match := _BOTH.fullmatch(corpus):
        return [BOOKS, wiki(match[1])]
    return [corpus] if corpus == BOOKS or _WIKI.fullmatch(corpus) else []


def _downloaded(workspace: Workspace) -> list[str]:
    present = [path.parent.name for path in sorted(workspace.download("").glob(f"*/{LISTING}"))]
    return [BOOKS] * (BOOKS in present) + ["wikipedia"] * any(map(_WIKI.fullmatch, present))


def _only_language(workspace: Workspace) -> str:
    folders = [*workspace.download("").glob("wikicorpus_*"), *workspace.sharded("").glob("*wiki*")]
    matches = (_WIKI.fullmatch(folder.name) or _BOTH.fullmatch(folder.name) for folder in folders)
    languages = sorted({match[1] for match in matches if match})
    if len(languages) > 1:
        raise UsageError(
            f"--corpus wikipedia: {workspace.root} has several, {', '.join(languages)}; "
            f"name one, such as --corpus {wiki(languages[0])}"
        )
    return languages[0] if languages else "en"
