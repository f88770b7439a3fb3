"""Silencing an environment's recorders while a trainer's recorder records it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mttp.integrations.gymnasium import facts
from mttp.integrations.gymnasium.inplace import EnvAttachment
from mttp.integrations.gymnasium.recorder import EnvRecorder
from mttp.integrations.gymnasium.wrappers import RecordEpisodes
from mttp.integrations.patching import handle_in

__all__ = ["silence"]


def silence(env: Any, *, silent: bool) -> None:
    """Stop every recorder in an environment's stack, or let it record again from the next reset on."""
    for recorder in _recorders(env):
        recorder.silence(silent=silent)


def _recorders(env: Any) -> Iterator[EnvRecorder]:
    for layer in facts.layers(env):
        attachment = handle_in(layer, EnvAttachment, "step")
        if attachment is not None:
            yield attachment.recorder
        if isinstance(layer, RecordEpisodes):
            yield layer.recorder
