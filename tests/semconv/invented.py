"""Invented versions of the convention, before and after the current one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from mttp.semconv import VERSION, translation

FIRST, SECOND = "0.0.1", "0.0.2"
"""Two versions before the current one."""


def renames(**names: str) -> dict[str, Any]:
    """A section of a schema file; double underscores stand for dots."""
    found = {key.replace("__", "."): value.replace("__", ".") for key, value in names.items()}
    return {"changes": [{"rename_attributes": {"attribute_map": found}}]}


EARLIER: dict[str, dict[str, Any]] = {
    FIRST: {},
    SECOND: {"all": renames(mttp__verdict="mttp.result", mttp__job__id="mttp.run.id")},
    VERSION: {
        "all": renames(
            mttp__result="mttp.episode.outcome",
            mttp__problems="mttp.faults",
            mttp__user="mttp.metadata",
            mttp__final_reward="mttp.episode.return",
        ),
        "spans": {
            "changes": [
                {
                    "rename_attributes": {
                        "attribute_map": {"mttp.position": "mttp.step.index"},
                        "apply_to_spans": ["step"],
                    }
                }
            ]
        },
        "span_events": {
            "changes": [
                {"rename_events": {"name_map": {"mttp.oops": "exception"}}},
                {
                    "rename_attributes": {
                        "attribute_map": {"mttp.what": "exception.message"},
                        "apply_to_events": ["exception"],
                    }
                },
            ]
        },
        "metrics": {"changes": [{"rename_metrics": {"mttp.a": "mttp.b"}}]},
    },
}
"""Two renames of one attribute, of a template, of a list, of a step's and an event's attribute."""


def install(
    monkeypatch: pytest.MonkeyPatch,
    changes: Mapping[str, Any],
    added: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Let the translation know these versions."""
    monkeypatch.setattr(translation, "CHANGES", changes)
    monkeypatch.setattr(translation, "VERSIONS", tuple(changes))
    monkeypatch.setattr(
        translation, "ADDED", {version: (added or {}).get(version, ()) for version in changes}
    )
    translation.translation.cache_clear()
    translation.lacking.cache_clear()


def forget() -> None:
    """Drop what was cached of them."""
    translation.translation.cache_clear()
    translation.lacking.cache_clear()
