"""Checks values: the same rules serve settings from Python, options from a command line and JSON from a file.

A `Rule` has a type and a range, choices, a pattern or a function. `read` returns the value as that type, or raises
`WrongValueError`, which describes the expected value.
"""

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

_IN_WORDS: dict[type, str] = {
    int: "a whole number", float: "a number", bool: "True or False", str: "text", Path: "a path",
    dict: "an object of names and values", list: "a list",
}  # fmt: skip


class WrongValueError(ValueError):
    """A value breaks a rule; the text of the error describes the expected value."""

    def __init__(self, value: Any, expected: str) -> None:
        super().__init__(expected)
        self.value = value

    @property
    def complaint(self) -> str:
        """The value and what it must be, as a message for the user who gave it."""
        return f"{shown(self.value)}: must be {self}"


class _WrongTypeError(WrongValueError):
    @property
    def complaint(self) -> str:
        return f"{self.value!r}: must be {self}, found {type(self.value).__name__}"


class _WrongChoiceError(WrongValueError):
    @property
    def complaint(self) -> str:
        return f"{shown(self.value)}: unknown; choose {self}"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A condition for a value or, with `many`, for each value of a list; `words` describes a valid value in messages.

    `check` returns the value or a replacement for it, or raises `ValueError`.
    """

    kinds: tuple[type, ...] = (object,)
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    check: Callable[[Any], Any] | None = None
    words: str = ""
    optional: bool = False
    many: bool = False

    def read(self, value: Any) -> Any:
        """Return the value with the right type: NumPy's numbers become Python's, and lists become tuples.

        >>> Rule(kinds=(int,), least=8).read(128)
        128
        >>> Rule(kinds=(int,), least=8, most=65_535).read(7)
        Traceback (most recent call last):
        bertprep.rules.WrongValueError: at least 8 and at most 65,535
        """
        if value is None and self.optional:
            return None
        if not self.many:
            return self._read_one(value)
        if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping | Path):
            raise _WrongTypeError(value, f"a list, each {self.in_words}")
        return tuple(map(self._read_one, value))

    def holds(self, value: Any) -> bool:
        try:
            self.read(value)
        except WrongValueError:
            return False
        return True

    def holds_for_all(self, values: Collection[Any]) -> bool:
        """Return whether all values are valid; many numbers, or texts with a pattern, take a tenth of the time of `holds`."""
        if set(map(type, values)) == set(self.kinds) and not (self.choices or self.check):
            if self.kinds == (int,):
                return self.holds(min(values)) and self.holds(max(values))
            if self.pattern:
                return all(map(re.compile(self.pattern).fullmatch, values))
        return all(map(self.holds, values))

    @property
    def in_words(self) -> str:
        return self.words or " or ".join(_IN_WORDS.get(kind, kind.__name__) for kind in self.kinds)

    @property
    def allowed(self) -> tuple[str, ...]:
        kind = self.kinds[0]
        return tuple(str(member.value) for member in kind) if issubclass(kind, Enum) else self.choices

    def _read_one(self, given: Any) -> Any:
        value = self._converted(given)
        if self.choices and value not in self.choices:
            raise self._not_allowed(given)
        if isinstance(value, int | float) and not self._is_in_range(value):
            bounds = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
            range_in_words = " and ".join(f"{words} {bound:,}" for words, bound in bounds.items() if bound is not None)
            raise WrongValueError(given, range_in_words or "finite")
        if self.pattern and not re.fullmatch(self.pattern, value):
            raise WrongValueError(given, self.in_words)
        try:
            return self.check(value) if self.check else value
        except ValueError as error:
            raise WrongValueError(given, self.words or str(error)) from None

    def _converted(self, value: Any) -> Any:
        for kind in self.kinds:
            try:
                return _as_kind(value, kind)
            except (TypeError, ValueError, OverflowError):
                continue
        raise self._not_allowed(value) if issubclass(self.kinds[0], Enum) else _WrongTypeError(value, self.in_words)

    def _not_allowed(self, value: Any) -> WrongValueError:
        return _WrongChoiceError(value, f"one of {', '.join(self.allowed)}")

    def _is_in_range(self, value: float) -> bool:
        return (
            (isinstance(value, int) or math.isfinite(value))
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )


def _as_kind(value: Any, kind: type) -> Any:
    if kind is int and not isinstance(value, bool):
        return value if isinstance(value, int) else operator.index(value)
    if kind is float and not isinstance(value, bool | str | bytes):
        return float(value)
    if issubclass(kind, Enum):
        return kind(value)
    if kind is int or not isinstance(value, kind):  # a bool is an int in Python, but not here
        raise TypeError
    return value


def shown(value: Any) -> str:
    """Return a value as it is written on a command line.

    >>> shown((0.5, 1e-06)), shown(True)
    ('0.5,1e-06', 'True')
    """
    if isinstance(value, tuple):
        return ",".join(map(shown, value))
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)
