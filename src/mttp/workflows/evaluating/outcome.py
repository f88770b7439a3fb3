"""Conversion of arguments of `result` and of return values to a task's outcome."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mttp.codec import rewards
from mttp.codec.fields import optional_text
from mttp.codec.plain import Faults, flag, number, scalar_text, text, unknown_arguments
from mttp.model.evaluations import OUTCOMES
from mttp.model.interrupts import is_exception, raise_interrupt
from mttp.model.scorings import INVALID_VALUE
from mttp.otlp.spans import error_message, qualified_name
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.targets import Target, target
from mttp.semconv.values import EvalOutcome as Outcome
from mttp.semconv.values import RewardStatus, RewardVerdict

__all__ = ["arguments_of", "episode_target", "result_fields", "seconds", "verdict_text"]

_ARGUMENTS = ("score", "passed", "outcome", "error", "duration", "episode")
"""The keys that a function may return in a dict."""
_VERDICTS = (bool, np.bool_, type(None))
_STATUS_MESSAGES = {
    RewardStatus.ERROR: "the reward is an error",
    RewardStatus.ABSTAINED: "the grader abstained",
    RewardStatus.PARTIAL: "a component of the reward has no value",
}
"""The error message by status, for a reward without one."""


def result_fields(
    faults: Faults,
    score: object = None,
    passed: object = None,
    error: object = None,
    outcome: object = None,
    error_type: str | None = None,
) -> dict[str, Any]:
    """
    Return outcome, score, verdict and error of a task as fields of `TaskResult`.

    A score that is not a finite number is an error, and never a zero.
    """
    value, status, raw = rewards.assess(score)
    verdict = flag("passed", passed, faults)
    if raw is not None:
        faults.append(f"score_invalid: {raw:.80}")
        if error is None:
            error = f"the score is {raw:.200}, which is not a finite number"
            error_type = INVALID_VALUE
    if value is None and status == "missing" and verdict is not None:
        value = float(verdict)
    final = _outcome(outcome, faults) or _implied(value, error)
    if final == Outcome.SCORED and (value is None or error is not None):
        final, error = Outcome.ERRORED, "the score is missing" if error is None else error
    if final == Outcome.SCORED:
        return {"outcome": final, "score": value, "passed": verdict}
    if score is not None and value is not None:
        faults.append(f"score_unused: {value!r}, and the task is {final}")
    return {"outcome": final} | ({"error_type": error_type} if error_type else {}) | _error(error, faults)


def _outcome(value: object, faults: Faults) -> str | None:
    if value is None or (outcome := optional_text("outcome", value, [])) in OUTCOMES:
        return None if value is None else outcome
    faults.append(f"outcome_invalid: {scalar_text(value):.80}")
    return None


def _implied(value: float | None, error: object) -> str:
    if error is not None:
        return Outcome.ERRORED
    return Outcome.SKIPPED if value is None else Outcome.SCORED


def _error(error: object, faults: Faults) -> dict[str, Any]:
    if error is None:
        return {}
    if is_exception(error):
        kind = qualified_name(error)
        message = error_message(error)
        described = f"{kind}: {message}" if message else kind
        return {"error": text(described, faults), "error_type": text(kind, faults)}
    return {"error": text(error if isinstance(error, str) else scalar_text(error), faults)}


def arguments_of(value: Any, faults: Faults) -> dict[str, Any]:
    """
    Convert the return value of a task's function to arguments of `result`.

    None skips the task. A number is the score, a bool the verdict, a pair both, an exception the error. A
    reward, or another object with a `value`, may have a verdict and a status; a dict has arguments by name.
    A value that raises when it is inspected is an error.
    """
    try:
        return _arguments(value, faults)
    except Exception as error:
        raise_interrupt(error)
        return {"error": error}


def _arguments(value: Any, faults: Faults) -> dict[str, Any]:
    if value is None:
        return {"outcome": Outcome.SKIPPED}
    if is_exception(value):
        return {"error": value}
    if isinstance(value, (bool, np.bool_)):
        return {"passed": bool(value)}
    if isinstance(value, Mapping):
        faults += unknown_arguments("result", [name for name in value if name not in _ARGUMENTS])
        arguments = {name: value[name] for name in _ARGUMENTS if value.get(name) is not None}
        return _scored(arguments.pop("score", None), faults) | arguments
    if isinstance(value, (tuple, list)) and len(value) == 2 and isinstance(value[1], _VERDICTS):
        return _scored(value[0], faults) | ({} if value[1] is None else {"passed": value[1]})
    if hasattr(value, "value") and number(value) is None:
        return _rewarded(value)
    return {"score": value}


def _scored(score: Any, faults: Faults) -> dict[str, Any]:
    """Return the arguments of the score in a dict or a pair."""
    return {} if score is None else _arguments(score, faults)


def _rewarded(value: Any) -> dict[str, Any]:
    """Return the arguments of a reward, with itself; only a reward with the status ok has a score."""
    status = getattr(value, "status", RewardStatus.ABSTAINED if value.value is None else RewardStatus.OK)
    verdict = getattr(value, "verdict", None)
    if verdict is None and isinstance(value.value, (bool, np.bool_)):
        verdict = bool(value.value)
    passed = verdict == RewardVerdict.PASS if isinstance(verdict, str) else verdict
    reward = value
    if rewards.stated(value) is None:
        reward = rewards.make(
            value.value,
            [],
            status=status,
            error=getattr(value, "error", None),
            verdict=verdict_text(passed),
            label=getattr(value, "label", None),
            explanation=getattr(value, "explanation", None),
        )
    if status == RewardStatus.OK:
        return {"reward": reward, "outcome": Outcome.SCORED, "score": value.value, "passed": passed}
    message = getattr(value, "error", None) or getattr(value, "raw", None) or _message(value, status)
    note = "" if value.value is None else f"; the reward {value.value:g} does not count as a score"
    if status == RewardStatus.ABSTAINED:
        return {"reward": reward, "outcome": Outcome.ABSTAINED, "error": f"{message}{note}"}
    error_type = getattr(value, "error_type", None) or status
    return {"reward": reward, "error": f"{message}{note}", "error_type": error_type}


def verdict_text(passed: bool | None) -> str | None:
    """Return a verdict as rewards name it."""
    return None if passed is None else RewardVerdict.PASS if passed else RewardVerdict.FAIL


def _message(reward: Any, status: str) -> str:
    failed = ", ".join(getattr(reward, "component_statuses", ()))
    return f"no value of {failed}" if failed else _STATUS_MESSAGES.get(status, f"the reward is {status}")


def episode_target(episode: object, faults: Faults) -> Target | None:
    """Return the episode that a handle, a value or an id refers to; None and a fault if there is none."""
    if episode is None or (isinstance(episode, OpenEpisode) and not episode):
        return None
    try:
        place = target(episode)
    except ValueError as error:
        faults.append(f"target_invalid: {error}")
        return None
    if place.is_step:
        faults.append(f"target_invalid: a step of {place.trace_id} is not an episode")
        return None
    return place


def seconds(given: object, faults: Faults) -> float | None:
    """Return a duration in seconds; None and a fault if it is not a finite number from 0 on."""
    duration = number(given)
    if duration is not None and math.isfinite(duration) and duration >= 0:
        return duration
    if given is not None:
        faults.append(f"duration_invalid: {scalar_text(given):.80}")
    return None
