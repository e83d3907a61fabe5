"""Record in the state of a data set or stream its format and what its rows depend on, and refuse the state of other rows.

A state is what `state_dict` returns, or a position alone, such as {"epoch": 1}, which a person gives and which has no format.
Most checkpoints store a state as JSON, so settings are compared in the form that they have after a round trip through JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bertprep.errors import UsageError
from bertprep.work.format import check_format


def state_of_rows(made_of: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that rows depend on, in the form that it has in a state after a round trip through JSON."""
    others = json.loads(json.dumps(made_of))
    settings = others.pop("settings", {})
    return {**others, **settings}


def check_state(state: object, position: str) -> None:
    """Raise `FormatError` for a state in a format that this version does not read; a `position` alone needs none."""
    if isinstance(state, Mapping) and not state.keys().isdisjoint(("format", "rows")):
        check_format("the state", state, f"start from the {position} alone, such as {{'{position}': 1}}")


def check_rows(state: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise `UsageError` if the rows of a state depend on other documents or settings than those `here`."""
    if (made_of := state.get("rows", here)) != here:
        raise UsageError(
            f"the state belongs to other rows: {_difference(made_of, here)}; use the data and settings that it was saved with"
        )


def _difference(of_state: Any, here: Mapping[str, Any]) -> str:
    """Return the settings that differ, in words."""
    if not isinstance(of_state, Mapping):
        return f"{of_state!r:.80}"
    names = [name for name in sorted({*of_state, *here}) if of_state.get(name) != here.get(name)]
    return ", ".join(f"{name} {of_state.get(name)!s:.80}, here {here.get(name)!s:.80}" for name in names)
