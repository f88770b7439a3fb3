"""A call of a model or a tool as data of a page."""

from __future__ import annotations

from typing import Any

from mttp.model.episodes import Call, Step
from mttp.pages.blocks import fact
from mttp.viewing.content import content
from mttp.viewing.episode_curves import seconds_between

__all__ = ["call_block"]

_FACTS = ("provider", "response_model", "input_tokens", "output_tokens", "time_to_first_chunk")


def call_block(call: Call, step: Step | None = None) -> dict[str, Any]:
    """Return the request, the answer, the error and the facts of a call; what its step shows is left out."""
    stated = {name.replace("_", " "): getattr(call, name) for name in _FACTS}
    stated["seconds"] = seconds_between(call.start_time, call.end_time)
    stated["finish reasons"] = ", ".join(call.finish_reasons)
    stated |= {f"parameters.{name}": value for name, value in call.parameters.items()}
    error = ": ".join(filter(None, (call.error_type, call.error_message)))
    return {
        "name": call.name or call.operation,
        "kind": call.operation,
        "facts": [fact(name, value) for name, value in stated.items() if value not in (None, "")],
        "error": error,
        "input": None if step and call.arguments is step.observation else content(call.arguments),
        "output": None if step and call.result is step.action else content(call.result),
    }
