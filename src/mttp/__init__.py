"""
Reinforcement-learning episodes as OpenTelemetry traces.

Record with `configure`, `episode`, `instrument` and `wrap`; read back with `read`.
Nothing heavy is imported until it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import mttp.model.printable  # noqa: F401 - what mttp logs passes its filter

if TYPE_CHECKING:
    from mttp import errors
    from mttp.checks import check
    from mttp.integrations.instrumentation import instrument, wrap
    from mttp.mist import messages
    from mttp.mist.receiving import Receiver, receive
    from mttp.mist.sending import Sender, dial
    from mttp.model.episodes import (
        Agent,
        Annotation,
        Call,
        Episode,
        Grade,
        Group,
        Reward,
        Run,
        Spec,
        Step,
        Tokens,
        Update,
    )
    from mttp.model.evaluations import Evaluation, TaskResult
    from mttp.reading import Recording, read, scan, summarize
    from mttp.recording import OpenAgent, OpenEpisode, OpenStep, RemoteEpisode, current_episode, current_step
    from mttp.recording.configuration import configure, current_session, episode, step
    from mttp.recording.feedback import annotate, prefer, score
    from mttp.recording.open_group import OpenGroup
    from mttp.recording.propagation import carry, extract, inject
    from mttp.recording.session import Session
    from mttp.recording.training import group, update
    from mttp.rewards.components import judge, penalty, rubric, shaping, verifier
    from mttp.rewards.evaluating import OpenEvaluation, eval_run
    from mttp.rewards.results import RewardResult
    from mttp.rewards.scores import Score
    from mttp.rewards.spec import RewardSpec
    from mttp.transports.routes import Route
    from mttp.transports.sampling import Sampling

__version__ = "0.1.0"

__all__ = [
    # set up
    "configure",
    "instrument",
    "wrap",
    "Session",
    "Route",
    "Sampling",
    "current_session",
    # record
    "episode",
    "step",
    "current_episode",
    "current_step",
    "OpenEpisode",
    "OpenAgent",
    "OpenStep",
    # go on elsewhere
    "inject",
    "extract",
    "carry",
    "RemoteEpisode",
    # learn, and state later
    "group",
    "OpenGroup",
    "update",
    "score",
    "annotate",
    "prefer",
    # evaluate
    "eval_run",
    "OpenEvaluation",
    # pay by a spec
    "RewardSpec",
    "RewardResult",
    "Score",
    "verifier",
    "rubric",
    "shaping",
    "penalty",
    "judge",
    # read
    "read",
    "scan",
    "summarize",
    "check",
    "Recording",
    # values
    "Run",
    "Episode",
    "Agent",
    "Step",
    "Tokens",
    "Reward",
    "Grade",
    "Spec",
    "Call",
    "Group",
    "Update",
    "Annotation",
    "Evaluation",
    "TaskResult",
    # on the wire
    "messages",
    "dial",
    "Sender",
    "receive",
    "Receiver",
    # faults
    "errors",
]

_HOMES = {
    "configure": "configuration",
    "current_session": "configuration",
    "episode": "configuration",
    "step": "configuration",
    "instrument": "instrumentation",
    "wrap": "instrumentation",
    "Session": "session",
    "Route": "routes",
    "Sampling": "sampling",
    "current_episode": "recorder",
    "current_step": "recorder",
    "OpenEpisode": "recorder",
    "OpenAgent": "recorder",
    "OpenStep": "recorder",
    "RemoteEpisode": "recorder",
    "inject": "carriers",
    "extract": "carriers",
    "carry": "carriers",
    "group": "learning",
    "OpenGroup": "recorder.open_group",
    "update": "learning",
    "score": "late",
    "annotate": "late",
    "prefer": "late",
    "eval_run": "evaluating",
    "OpenEvaluation": "evaluating",
    "RewardResult": "rewards.results",
    "Score": "rewards.scores",
    "verifier": "rewards.components",
    "rubric": "rewards.components",
    "shaping": "rewards.components",
    "penalty": "rewards.components",
    "judge": "rewards.components",
    "RewardSpec": "rewards.spec",
    "read": "reading",
    "scan": "reading",
    "summarize": "reading",
    "check": "checks",
    "Recording": "reading",
    "dial": "sending",
    "Sender": "sending",
    "receive": "receiving",
    "Receiver": "receiving",
    "Run": "episodes",
    "Episode": "episodes",
    "Agent": "episodes",
    "Step": "episodes",
    "Tokens": "episodes",
    "Reward": "episodes",
    "Grade": "episodes",
    "Spec": "episodes",
    "Call": "episodes",
    "Group": "episodes",
    "Update": "episodes",
    "Annotation": "episodes",
    "Evaluation": "evaluations",
    "TaskResult": "evaluations",
}


_RECORDING = ("configuration", "carriers", "learning", "late")
"""What a training loop calls is imported together: its first call may come when no file can be opened."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        home = _HOMES[name]
        for each in _RECORDING if home in _RECORDING else ():
            import_module(f"mttp.{each}")
        found = getattr(import_module(f"mttp.{home}"), name)
        globals()[name] = found
        return found
    if name in ("errors", "messages"):
        return import_module(f"mttp.{name}")
    raise AttributeError(f"module 'mttp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
