"""Text shards for tests: the golden corpus, dealt out over several files."""

from pathlib import Path


def deal(corpus: Path, folder: Path, shards: int) -> list[Path]:
    """The documents of a text over `shards` files, in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = [d for d in corpus.read_text(encoding="utf-8").split("\n\n") if d.strip()]
    paths = [folder / f"text_{number}.txt" for number in range(shards)]
    for number, path in enumerate(paths):
        path.write_text("\n\n".join(documents[number::shards]) + "\n\n", encoding="utf-8")
    return paths


def sums(folder: Path) -> dict[str, str]:
    """The sha256 of every file below a folder, manifests and all, by its relative name."""
    from bertprep.workspace.manifest import sha256_of

    return {str(path.relative_to(folder)): sha256_of(path) for path in sorted(folder.rglob("*")) if path.is_file()}
