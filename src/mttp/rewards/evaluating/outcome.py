"""What became of a task: from what is said of it, or what the function that did it returned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mttp.codec import rewards
from mttp.codec.plain import Faults, flag, number, scalar_text, text, unknown_arguments
from mttp.model.evaluations import OUTCOMES
from mttp.model.scorings import INVALID_VALUE
from mttp.otlp.spans import error_message, qualified_name
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.targets import Target, target
from mttp.semconv.values import EvalOutcome as Outcome
from mttp.semconv.values import RewardStatus, RewardVerdict

__all__ = ["found", "said", "seconds", "whole"]

_PARTS = ("score", "passed", "outcome", "error", "duration", "episode")
"""What a function may say of a task in a mapping."""
_VERDICTS = (bool, np.bool_, type(None))
_WORDS = {
    RewardStatus.ERROR: "the reward is an error",
    RewardStatus.ABSTAINED: "the grader abstained",
    RewardStatus.PARTIAL: "a component of the reward has no value",
}
"""Why a reward is no score, by its status, where it does not say so itself."""


def found(
    faults: Faults,
    score: object = None,
    passed: object = None,
    error: object = None,
    outcome: object = None,
    error_type: str | None = None,
) -> dict[str, Any]:
    """
    Outcome, score, verdict and error of a task, under the names that `TaskResult` has.

    A score that is no finite number is an error, and never a zero.
    """
    value, status, raw = rewards.assess(score)
    verdict = flag("passed", passed, faults)
    if raw is not None:
        faults.append(f"score_invalid: {raw:.80}")
        if error is None:
            error = f"the score is {raw:.200}, which is no finite number"
            error_type = INVALID_VALUE
    if value is None and status == "missing" and verdict is not None:
        value = float(verdict)
    what = _outcome(outcome, faults) or _implied(value, error)
    if what == Outcome.SCORED and (value is None or error is not None):
        what, error = Outcome.ERRORED, "there is no score" if error is None else error
    if what == Outcome.SCORED:
        return {"outcome": what, "score": value, "passed": verdict}
    if score is not None and value is not None:
        faults.append(f"score_unused: {value!r}, and the task is {what}")
    return {"outcome": what} | ({"error_type": error_type} if error_type else {}) | _error(error, faults)


def _outcome(given: object, faults: Faults) -> str | None:
    if given is None or given in OUTCOMES:
        return None if given is None else text(given, [])
    faults.append(f"outcome_invalid: {scalar_text(given):.80}")
    return None


def _implied(value: float | None, error: object) -> str:
    if error is not None:
        return Outcome.ERRORED
    return Outcome.SKIPPED if value is None else Outcome.SCORED


def _error(given: object, faults: Faults) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, BaseException):
        kind = qualified_name(given)
        said = error_message(given)
        return {"error": text(f"{kind}: {said}" if said else kind, faults), "error_type": text(kind, faults)}
    return {"error": text(given if isinstance(given, str) else scalar_text(given), faults)}


def said(value: Any, faults: Faults) -> dict[str, Any]:
    """
    What a function's result says of the task, as arguments of `result`.

    None skips it. A number is its score, True or False its verdict, a pair both, an exception its error; a
    reward, or whatever has a `value` like one, may have a verdict and a status, and a mapping names whatever
    `result` takes. One that raises when it is looked at is an error.
    """
    try:
        return _said(value, faults)
    except Exception as error:
        return {"error": error}


def _said(value: Any, faults: Faults) -> dict[str, Any]:
    if value is None:
        return {"outcome": Outcome.SKIPPED}
    if isinstance(value, BaseException):
        return {"error": value}
    if isinstance(value, (bool, np.bool_)):
        return {"passed": bool(value)}
    if isinstance(value, Mapping):
        faults += unknown_arguments("result", [name for name in value if name not in _PARTS])
        stated = {name: value[name] for name in _PARTS if value.get(name) is not None}
        return _scored(stated.pop("score", None), faults) | stated
    if isinstance(value, (tuple, list)) and len(value) == 2 and isinstance(value[1], _VERDICTS):
        return _scored(value[0], faults) | ({} if value[1] is None else {"passed": value[1]})
    if hasattr(value, "value") and number(value) is None:
        return _rewarded(value)
    return {"score": value}


def _scored(score: Any, faults: Faults) -> dict[str, Any]:
    """What the score of a mapping or a pair says; None says nothing."""
    return {} if score is None else _said(score, faults)


def _rewarded(reward: Any) -> dict[str, Any]:
    """What a scoring says; only one whose status is ok has a score, whatever was paid."""
    status = getattr(reward, "status", RewardStatus.OK)
    if status == RewardStatus.OK:
        verdict = getattr(reward, "verdict", None)
        passed = verdict == RewardVerdict.PASS if isinstance(verdict, str) else verdict
        return {"outcome": Outcome.SCORED, "score": reward.value, "passed": passed}
    said = getattr(reward, "error", None) or getattr(reward, "raw", None) or _why(reward, status)
    paid = "" if reward.value is None else f"; {reward.value:g} was paid, which is no score"
    if status == RewardStatus.ABSTAINED:
        return {"outcome": Outcome.ABSTAINED, "error": f"{said}{paid}"}
    return {"error": f"{said}{paid}", "error_type": getattr(reward, "error_type", None) or status}


def _why(reward: Any, status: str) -> str:
    failed = ", ".join(getattr(reward, "component_statuses", ()))
    return f"no value of {failed}" if failed else _WORDS.get(status, f"the reward is {status}")


def whole(episode: object, faults: Faults) -> Target | None:
    """Which episode is meant; None, said in `faults`, where that can't be told."""
    if episode is None or (isinstance(episode, OpenEpisode) and not episode):
        return None
    try:
        meant = target(episode)
    except ValueError as error:
        faults.append(f"target_invalid: {error}")
        return None
    if meant.is_step:
        faults.append(f"target_invalid: a step of {meant.trace_id} is no episode")
        return None
    return meant


def seconds(given: object, faults: Faults) -> float | None:
    """A duration; None, said in `faults`, for what is none."""
    found = number(given)
    if found is not None and math.isfinite(found) and found >= 0:
        return found
    if given is not None:
        faults.append(f"duration_invalid: {scalar_text(given):.80}")
    return None
