"""Text shards for tests: the golden corpus, dealt out over several files."""

from pathlib import Path

from tests.golden import GOLDEN


def deal(corpus: Path, folder: Path, shards: int) -> list[Path]:
    """The documents of a text over `shards` files, in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = [d for d in corpus.read_text(encoding="utf-8").split("\n\n") if d.strip()]
    paths = [folder / f"text_{number}.txt" for number in range(shards)]
    for number, path in enumerate(paths):
        path.write_text("\n\n".join(documents[number::shards]) + "\n\n", encoding="utf-8")
    return paths


def pad_at(number: int, folder: Path) -> Path:
    """The golden vocabulary with [PAD] as token `number`, and as many tokens of no use before it as that needs."""
    _, *tokens = (GOLDEN / "vocab.txt").read_text(encoding="utf-8").splitlines()
    tokens += [f"[pad_at_{other}]" for other in range(number - len(tokens))]
    path = folder / f"pad_at_{number}.txt"
    path.write_text("".join(f"{token}\n" for token in [*tokens[:number], "[PAD]", *tokens[number:]]), encoding="utf-8")
    return path


def sums(folder: Path) -> dict[str, str]:
    """The sha256 of every file below a folder, manifests and all, by its relative name."""
    from bertprep.workspace.manifest import sha256_of

    return {str(path.relative_to(folder)): sha256_of(path) for path in sorted(folder.rglob("*")) if path.is_file()}
