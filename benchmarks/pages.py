"""Rewrite the blocks of pages that benchmarks make, from `<!-- python -m benchmarks NAME -->` to `<!-- end -->`."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def rewrite(path: Path, name: str, block: str) -> None:
    """Replace the block of a page that the benchmark `name` makes."""
    begin, end = f"<!-- python -m benchmarks {name} -->", "<!-- end -->"
    text, found = re.subn(f"(?<={begin}\n).*?(?={end})", lambda _: f"{block}\n", path.read_text("utf-8"), flags=re.DOTALL)
    if found != 1:
        raise SystemExit(f"{path}: expected one block between {begin} and {end}, found {found}")
    path.write_text(text, "utf-8")
