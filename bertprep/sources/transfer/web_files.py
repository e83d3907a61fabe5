"""A file at any http or https address, brought into the workspace before it is read.

So it resumes, retries and is kept as every download, where reading it as a stream would start anew after each cut connection.
"""

import hashlib
from pathlib import Path

from bertprep.errors import BertprepError
from bertprep.files.lock import locked
from bertprep.progress import Reporter, say
from bertprep.sources.transfer.fetch import fetch
from bertprep.sources.transfer.http import Web
from bertprep.sources.transfer.listing import load_listing, missing, save_listing
from bertprep.sources.transfer.own_files import list_url, name_in_url
from bertprep.workspace.layout import Workspace


def fetch_web_file(url: str, workspace: Workspace, *, reporter: Reporter) -> Path:
    """The file at `url`; each address has a folder of its own.

    The server is asked whether a file that is there is still the same, and it is fetched again where it is not. Where the
    server cannot be reached, the file that is there is taken, and that is said.
    """
    name_in_url(url)
    folder = workspace.download("web") / hashlib.sha256(url.encode()).hexdigest()[:16]
    with locked(folder):
        kept = load_listing(folder)
        whole = kept is not None and not missing(kept, folder)
        try:
            with Web() as web:
                listing = list_url(url, web, reporter=reporter)
        except BertprepError as error:
            if kept is None or not whole:
                raise
            say(f"{error}; the file that was fetched from there before is taken")
            return folder / kept.files[0].name
        path = folder / listing.files[0].name
        if listing != kept:
            path.unlink(missing_ok=True)
            save_listing(listing, folder)
        if listing != kept or not whole:
            fetch(listing, folder, connections=1, reporter=reporter, label=path.name)
    return path
