"""The commands that scripts/prepare_wiki_books runs; tests/test_readme.py runs them against a small Hub."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpora import write_books
from tests.golden import GOLDEN

SCRIPT = Path(__file__).parent.parent / "scripts" / "prepare_wiki_books"


@pytest.mark.parametrize(("arguments", "corpus"), [((), "wikipedia+bookcorpus"), (("wiki_only",), "wikipedia")])
def test_shards_are_as_many_as_nvidias_scripts_look_for_and_records_of_both_phases(
    arguments: tuple[str, ...], corpus: str, tmp_path: Path
) -> None:
    command = tmp_path / "bin" / "bertprep"
    command.parent.mkdir()
    command.write_text('#!/bin/sh\necho "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}
    run = ["bash", str(SCRIPT), *arguments, "--workdir", "data"]
    shown = subprocess.run(run, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    (shard,) = [line for line in shown.splitlines() if line.startswith("shard ")]
    assert f" --corpus {corpus} " in shard
    assert " --shards 1472 --test-fraction 0.1 " in shard
    created = [line for line in shown.splitlines() if line.startswith("create ")]
    assert [line.split()[-4:] for line in created] == [
        ["--seq", seq, "--pred", pred] for seq, pred in (("128", "20"), ("512", "80"))
    ]
    assert all(f" --workdir {tmp_path}/data" in line for line in (shard, *created))


def test_a_dump_and_books_of_ones_own_take_the_place_of_the_hubs(tmp_path: Path) -> None:
    """The real commands, with no network: a dump of a few pages, two books and a vocabulary of one's own."""
    article = "Der Hund ist ein Haustier, das in vielen Ländern lebt. Er stammt vom Wolf ab und ist sehr gesellig. " * 9
    pages = (
        f"<page><title>{name}</title><ns>0</ns><revision><text>{article}{name}.</text></revision></page>" for name in "ABCD"
    )
    dump = tmp_path / "dewiki-20260101-pages-articles.xml"
    dump.write_text(f'<mediawiki xml:lang="de">{"".join(pages)}</mediawiki>', encoding="utf-8")
    write_books(tmp_path / "books", 4)
    (tmp_path / "vocab.txt").write_bytes((GOLDEN / "vocab.txt").read_bytes())
    run = ["bash", str(SCRIPT), "--from-dump", dump.name, "--from-files", "books", "--workdir", "data"]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {"SHARDS": "2", "MODEL": "vocab.txt", "FORMAT": "tfrecord", "HF_HUB_OFFLINE": "1"}
    subprocess.run(run, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    made = sorted(path.parent.name for path in (tmp_path / "data" / "tfrecord").rglob("manifest.json"))
    assert made == ["books_wiki_de_corpus"] * 2
