"""A terminal shows everything that is printed and obeys none of it."""

import fcntl
import os
import re
import struct
import termios
import unicodedata
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep import cli
from bertprep.errors import BertprepWarning
from bertprep.progress import Progress
from bertprep.terminal import (
    LONGEST_LINE,
    exit_status,
    print_message,
    print_results,
    print_table,
    print_warnings,
    printable,
    styled,
    table_lines,
    warn,
)
from trainer import cli as trainer_cli

ATTACK = "a\x1b[2J\x9b31m\x07\r\nbertprep: error: forged\u202egpj\u2066\u200f\u2028\x85\x00\x7f\ud800"
SHOWN = r"a\x1b[2J\x9b31m\x07\r\nbertprep: error: forged\u202egpj\u2066\u200f\u2028\x85\x00\x7f\ud800"


BIDIRECTIONAL_MARKS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def test_what_a_terminal_would_obey_is_shown_as_its_escape(capsys: pytest.CaptureFixture[str]) -> None:
    print_message(ATTACK)
    print_results(ATTACK, "second")
    assert capsys.readouterr() == (f"{SHOWN}\nsecond\n", f"{SHOWN}\n")


@given(st.text(st.characters(categories=("L", "M", "N", "P", "S", "Zs", "Co"))))
def test_letters_of_all_languages_stay(text: str) -> None:
    assert printable(text) == text


@given(st.text(st.characters(), max_size=30))
def test_nothing_that_is_printed_is_a_control_or_half_a_pair(text: str) -> None:
    shown = printable(text)
    assert not [one for one in shown if unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp")]
    assert not [one for one in shown if unicodedata.bidirectional(one) in BIDIRECTIONAL_MARKS]
    shown.encode()
    assert printable(shown) is shown


def test_colours_are_ours_alone() -> None:
    assert styled("\x1b[31mred", ["1", "36"]) == "\x1b[1;36m\\x1b[31mred\x1b[0m"


def test_columns_are_as_wide_as_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("name", "MB"), ("a\nb", "7")])
    assert capsys.readouterr().out == "name  MB\na\\nb   7\n"


def test_a_line_has_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    print_message("x" * 10**6)
    assert len(capsys.readouterr().err) == LONGEST_LINE + 4


def test_warnings_of_libraries_are_lines_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    with print_warnings():
        warnings.warn_explicit(ATTACK, UserWarning, "a.py", 7)
    assert capsys.readouterr().err == f"a.py:7: UserWarning: {SHOWN}\n"


def test_a_warning_is_a_line_of_a_command_and_a_warning_to_python(capsys: pytest.CaptureFixture[str]) -> None:
    """Once in a command, whatever filters are set; to Python with the place of the call from outside of bertprep."""

    def command() -> int:
        warn("s3://me:secret@host/x: is odd")
        warn("s3://me:secret@host/x: is odd")
        return 0

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert exit_status(command, "bertprep", interrupted="") == 0
    assert capsys.readouterr().err == "warning: s3://host/x: is odd\n"
    with pytest.warns(BertprepWarning, match="^s3://host/x: is odd$") as found:
        command()
    assert {each.filename for each in found} == {__file__}
    assert capsys.readouterr().err == ""


def test_progress_before_the_first_thing_is_finished(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bertprep.progress.SECONDS_BETWEEN_LINES", 0.0)
    with Progress("validate", 2, "files") as shown:
        shown.advance(0, MB=1.0, MB_of_text=0.014)
    said = r"^validate: 0/2 files, 1.0 MB \([\d,.]+ MB/s\), 0.014 MB of text \([\d,.]+ MB/s\), 0.\d s so far$"
    assert re.search(said, capsys.readouterr().err, re.MULTILINE)


def test_progress_on_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("bertprep.progress._SECONDS_ON_TERMINAL", 0.0)
    with Progress("shard", 4) as shown:
        shown.advance()
    assert re.match(r"\x1b\[K\[#####\.{15}\] 0.\d s left, shard: 1/4 shards\r", capsys.readouterr().err)


def test_a_message_clears_the_line_of_progress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the results go to a file."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    print_message("finished")
    assert capsys.readouterr().err == "\x1b[Kfinished\n"


def test_the_units_of_progress_stay_the_same(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertprep.progress.SECONDS_BETWEEN_LINES", 0.0)
    with Progress("read", 3, "files") as shown:
        for amount in (0.001, 1.5, 4000.0):
            shown.advance(MB=amount, records=1000 * amount)
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r"\(.*?\)", "", line).split(", ")[1:3] for line in lines[:2]] == [
        ["0.001 MB ", "1 records "], ["1.5 MB ", "1,501 records "],
    ]  # fmt: skip
    assert re.search(
        r"^read: 3/3 files, 4,001.5 MB \([\d,.]+ MB/s\), 4,001,501 records \([\d,]+ records/s\), in 0.\d s$", lines[2]
    )


@pytest.mark.parametrize("columns", [80, 40])
def test_a_bar_fits_the_terminal_of_standard_error(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    monkeypatch.setattr("bertprep.progress._SECONDS_ON_TERMINAL", 0.0)
    with os.fdopen(terminal, "w", encoding="utf-8") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        with Progress("a name that is very long " * 5, 4) as shown:
            shown.advance(records=12345, MB=1.0)
    bar = os.read(ours, 1000).decode().partition("\r")[0].removeprefix("\x1b[K")
    assert len(bar) == columns - 1


def test_progress_of_nothing_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("shard", 0):
        pass
    assert capsys.readouterr().err == ""


def test_progress_shows_its_label_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(ATTACK, 1) as shown:
        shown.advance()
    assert capsys.readouterr().err.startswith(f"{SHOWN}: 1/1 shards")


@pytest.mark.parametrize("program", ["bertprep", "trainer"])
def test_arguments_and_file_names_are_shown_as_escapes(program: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main = {"bertprep": cli.main, "trainer": trainer_cli.main}[program]
    hostile = tmp_path / "\x1b]0;title\x07\nbertprep: error: forged"
    data = {"bertprep": ["validate", str(hostile)], "trainer": ["--data", str(hostile)]}[program]
    assert main([*data, f"--{ATTACK.replace(' ', '')}"]) == 2
    assert main(data) == 2
    for line in capfd.readouterr().err.splitlines():
        assert line.startswith(f"{program}: error: ")
        assert printable(line) == line


def test_a_column_of_numbers_is_to_the_right_even_if_its_last_cell_is_empty() -> None:
    """The table of a data set with two splits has the errors in the first row alone."""
    assert table_lines([("data set", "errors"), ("a", "3"), ("b", "")]) == ["data set  errors", "a              3", "b"]
    assert table_lines([("data set", "errors"), ("a", "x"), ("b", "7")]) == ["data set  errors", "a         x", "b         7"]
