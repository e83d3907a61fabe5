"""A file at any http or https address, brought into the workspace before it is read.

So it resumes, retries and is kept as every download, where reading it as a stream would start anew after each cut connection.
"""

import hashlib
from pathlib import Path

from bertprep.layout import Workspace
from bertprep.sources.transfer.fetch import fetch
from bertprep.sources.transfer.http import Web
from bertprep.sources.transfer.listing import load_listing, missing, save_listing
from bertprep.sources.transfer.lock import locked
from bertprep.sources.transfer.own_files import list_url


def fetch_web_file(url: str, workspace: Workspace, *, progress: bool) -> Path:
    """The file at `url`, fetched now where it is not there yet; each address has a folder of its own."""
    folder = workspace.download("web") / hashlib.sha256(url.encode()).hexdigest()[:16]
    with locked(folder):
        listing = load_listing(folder)
        if listing is None or missing(listing, folder):
            with Web() as web:
                listing = list_url(url, web, progress=progress)
            save_listing(listing, folder)
            fetch(listing, folder, connections=1, progress=progress, label=listing.files[0].name)
    return folder / listing.files[0].name
