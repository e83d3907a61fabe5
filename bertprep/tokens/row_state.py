"""What rows are made of, as the state of a data set or of a stream has it, and the refusal of the state of other rows.

A state goes through JSON in most checkpoints, so settings are compared as JSON gives them back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bertprep.errors import UsageError


def state_of_rows(made_of: Mapping[str, Any]) -> dict[str, Any]:
    """Return all that rows depend on, as a state has it that went through JSON."""
    others = json.loads(json.dumps(made_of))
    settings = others.pop("settings", {})
    return {**others, **settings}


def check_rows(state: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise `UsageError` for the state of rows that are made of something else than those here."""
    if (made_of := state.get("rows", here)) != here:
        raise UsageError(f"the state is of other rows: {_difference(made_of, here)}; take what it was saved with")


def _difference(of_state: Any, here: Mapping[str, Any]) -> str:
    """Return the settings that differ, in words."""
    if not isinstance(of_state, Mapping):
        return f"{of_state!r:.80}"
    names = [name for name in sorted({*of_state, *here}) if of_state.get(name) != here.get(name)]
    return ", ".join(f"{name} {of_state.get(name)!s:.80}, here {here.get(name)!s:.80}" for name in names)
