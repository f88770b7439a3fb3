"""A call of a model or a tool as data of a page."""

from __future__ import annotations

from typing import Any

from mttp.model.episodes import Call
from mttp.viewing.blocks import fact
from mttp.viewing.content import content
from mttp.viewing.episode_curves import seconds_between

__all__ = ["call_block"]

_FACTS = ("provider", "response_model", "input_tokens", "output_tokens", "time_to_first_chunk")


def call_block(call: Call) -> dict[str, Any]:
    """The request, the answer, the error and the facts of a call."""
    stated = {name.replace("_", " "): getattr(call, name) for name in _FACTS}
    stated["seconds"] = seconds_between(call.start_time, call.end_time)
    stated["finish reasons"] = ", ".join(call.finish_reasons)
    stated |= {f"parameters.{name}": value for name, value in call.parameters.items()}
    return {
        "name": call.name or call.operation,
        "kind": call.operation,
        "facts": [fact(name, value) for name, value in stated.items() if value not in (None, "")],
        "error": ": ".join(filter(None, (call.error_type, call.error_message))),
        "input": content(call.arguments),
        "output": content(call.result),
    }
