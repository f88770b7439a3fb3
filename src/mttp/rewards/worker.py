"""The far side of isolation: a process that loads a spec, calls its components, and answers."""

from __future__ import annotations

import json
import pickle
import signal
from dataclasses import replace
from typing import Any

from mttp.otlp.processes import serve
from mttp.rewards import locking
from mttp.rewards.calling import Caller
from mttp.rewards.component_results import ComponentResult
from mttp.rewards.isolation import LOAD
from mttp.rewards.plan import ScoringPlan
from mttp.rewards.spec import RewardSpec
from mttp.rewards.trust import Trust

_GRACE = 1.0
"""Seconds after its time limit at which a worker ends itself, should nobody be left to end it."""


class _Calls:
    """What a worker does: it loads a spec, once, and calls its components."""

    def __init__(self) -> None:
        self._callers: dict[str, Caller] = {}

    def answer(self, kind: int, request: bytes) -> bytes:
        """What became of loading the spec, None where it is, or what a component answers."""
        if kind == LOAD:
            try:
                self._callers = _callers(*pickle.loads(request))
            except (Exception, SystemExit) as error:
                return pickle.dumps(f"{type(error).__name__}: {error}")
            return pickle.dumps(None)
        name, samples, timeout = pickle.loads(request)
        return _packed(_answered(self._callers[name], samples, timeout))


def _callers(location: str, trust: Trust, sha256: str | None, code_sha256: str | None) -> dict[str, Caller]:
    """The components by name, of the spec that the process which asks has loaded, with its trust."""
    locking.silence()  # the process that scores has warned of it
    plan: ScoringPlan = RewardSpec.load(location, trust=trust).plan
    if (plan.identity.sha256, plan.identity.code_sha256) != (sha256, code_sha256):
        raise ValueError("the spec or its code has changed since it was loaded; load it again")
    here = {"isolation": "none", "timeout": None}
    return {
        one.name: Caller(replace(one, entry=one.entry.model_copy(update=here)), plan)
        for one in plan.components
        if one.function is not None
    }


def _answered(caller: Caller, samples: list[Any], timeout: float | None) -> list[ComponentResult]:
    """The timer's signal ends the process even where a function never gives the interpreter back."""
    if timeout is not None and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, timeout + _GRACE)
    try:
        return caller.many(samples)
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)


def _packed(answers: list[ComponentResult]) -> bytes:
    """Answers as plain tuples; of evidence what JSON can say, since its classes may be unknown elsewhere."""
    return pickle.dumps([tuple(_portable(answer)) for answer in answers])


def _portable(answer: ComponentResult) -> ComponentResult:
    criteria = answer.criteria and {name: _portable(one) for name, one in answer.criteria.items()}
    return answer._replace(evidence=_plain(answer.evidence), criteria=criteria)


def _plain(evidence: Any) -> Any:
    try:
        return json.loads(json.dumps(evidence, default=_said))
    except Exception:  # keys that are no text, a loop
        return repr(evidence)


def _said(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else repr(value)


if __name__ == "__main__":
    serve(_Calls().answer)
