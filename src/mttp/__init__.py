"""
Reinforcement-learning episodes as OpenTelemetry traces.

Record with `configure`, `episode`, `instrument` and `wrap`; read back with `read`.
The rest has packages: `mttp.rewards`, `mttp.model`, `mttp.recording` and `mttp.mist`.
Nothing heavy is imported until it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import mttp.model.printable  # noqa: F401 - installs the filter of mttp's logger
from mttp.model.version import __version__ as __version__

if TYPE_CHECKING:
    from mttp import errors as errors
    from mttp import mist as mist
    from mttp import model as model
    from mttp import recording as recording
    from mttp import rewards as rewards
    from mttp import study as study
    from mttp.integrations.instrumentation import instrument, wrap
    from mttp.model.episodes import Episode, Step, Tokens
    from mttp.model.scorings import Reward
    from mttp.reading import Recording, read, scan
    from mttp.reading.checking import check
    from mttp.recording.configuration import configure, current_session, episode, step
    from mttp.recording.current import current_episode, current_step
    from mttp.recording.feedback import annotate, prefer, score
    from mttp.recording.propagation import extract, inject
    from mttp.recording.session import Session
    from mttp.recording.training import group, update
    from mttp.rewards.spec import RewardSpec
    from mttp.study.comparing import compare
    from mttp.study.diagnosing.detectors import diagnose
    from mttp.study.gating import gate
    from mttp.transports.routes import Route
    from mttp.transports.sampling import Sampling
    from mttp.workflows.evaluating import evaluate
    from mttp.workflows.replaying import replay
    from mttp.workflows.rescoring import rescore

__all__ = [
    # setting up
    "configure",
    "instrument",
    "wrap",
    "Session",
    "Route",
    "Sampling",
    "current_session",
    # recording
    "episode",
    "step",
    "current_episode",
    "current_step",
    # training updates and later annotations
    "group",
    "update",
    "score",
    "annotate",
    "prefer",
    # context propagation
    "inject",
    "extract",
    # reading
    "read",
    "scan",
    "summarize",
    "check",
    "Recording",
    # scoring and evaluating
    "RewardSpec",
    "evaluate",
    # studies
    "compare",
    "diagnose",
    "gate",
    "replay",
    "rescore",
    # values
    "Episode",
    "Step",
    "Tokens",
    "Reward",
    # errors
    "errors",
]

_MODULES = {
    "configure": "recording.configuration",
    "current_session": "recording.configuration",
    "episode": "recording.configuration",
    "step": "recording.configuration",
    "instrument": "integrations.instrumentation",
    "wrap": "integrations.instrumentation",
    "Session": "recording.session",
    "Route": "transports.routes",
    "Sampling": "transports.sampling",
    "current_episode": "recording.current",
    "current_step": "recording.current",
    "inject": "recording.propagation",
    "extract": "recording.propagation",
    "group": "recording.training",
    "update": "recording.training",
    "score": "recording.feedback",
    "annotate": "recording.feedback",
    "prefer": "recording.feedback",
    "evaluate": "workflows.evaluating",
    "RewardSpec": "rewards.spec",
    "read": "reading",
    "scan": "reading",
    "summarize": "tables",
    "check": "reading.checking",
    "Recording": "reading",
    "compare": "study.comparing",
    "diagnose": "study.diagnosing.detectors",
    "gate": "study.gating",
    "replay": "workflows.replaying",
    "rescore": "workflows.rescoring",
    "Episode": "model.episodes",
    "Step": "model.episodes",
    "Tokens": "model.episodes",
    "Reward": "model.scorings",
}
_PACKAGES = ("errors", "mist", "model", "recording", "rewards", "study", "viewing")


_RECORDING = ("recording.configuration", "recording.propagation", "recording.training", "recording.feedback")
"""Imported together, because a process may be out of file descriptors at a later first use."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        module = _MODULES[name]
        try:
            for each in _RECORDING if module in _RECORDING else ():
                import_module(f"mttp.{each}")
            value = getattr(import_module(f"mttp.{module}"), name)
        except ValueError as error:
            raise _of_variable(error) from error
        globals()[name] = value
        return value
    if name in _PACKAGES:
        return import_module(f"mttp.{name}")
    raise AttributeError(f"module 'mttp' has no attribute {name!r}")


def _of_variable(error: ValueError) -> Exception:
    """Return the error for an invalid limit in a variable, which keeps OpenTelemetry from importing."""
    from mttp.errors import ConfigureError

    is_limit = str(error).startswith("OTEL_")
    return ConfigureError(f"{error}; correct the variable, or unset it") if is_limit else error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
