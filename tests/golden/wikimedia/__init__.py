"""Expected prose of three articles, and the dump excerpt that they come from."""

from importlib.util import find_spec
from pathlib import Path

EXPECTED = Path(__file__).parent


def excerpt() -> Path:
    """106 articles and 100 redirects of the English Wikipedia of 2016, a file in gensim's wheel."""
    gensim = find_spec("gensim")
    assert gensim, "the test extra is not installed"
    folder = next(iter(gensim.submodule_search_locations or ()))
    name = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
    return Path(folder, "test", "test_data", name)
