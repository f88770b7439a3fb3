"""A call of a model or a tool as data of a page."""

from __future__ import annotations

from typing import Any

from mttp.model.episodes import Call, Step
from mttp.pages.blocks import fact
from mttp.pages.episode import error_of, stated
from mttp.viewing.content import content
from mttp.viewing.episode_curves import seconds_between

__all__ = ["call_block"]


def call_block(call: Call, step: Step | None = None) -> dict[str, Any]:
    """Return the request, the answer, the error and the facts of a call; what its step shows is left out."""
    facts = stated(call) | {"seconds": seconds_between(call.start_time, call.end_time)}
    facts["finish reasons"] = ", ".join(call.finish_reasons)
    facts |= {f"parameters.{name}": value for name, value in call.parameters.items()}
    return {
        "name": call.name or call.operation,
        "kind": call.operation,
        "facts": [fact(name, value) for name, value in facts.items() if value not in (None, "")],
        "error": error_of(call),
        "input": None if step and call.arguments is step.observation else content(call.arguments),
        "output": None if step and call.result is step.action else content(call.result),
    }
