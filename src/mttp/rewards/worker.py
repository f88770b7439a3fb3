"""The worker process of isolated components: it loads a spec and calls its components."""

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
"""Seconds after the time limit at which a worker ends itself, in case its parent does not."""


class _Calls:
    """Handles a worker's requests: one to load a spec, then calls of its components."""

    def __init__(self) -> None:
        self._callers: dict[str, Caller] = {}

    def answer(self, kind: int, request: bytes) -> bytes:
        """Return the pickled reply: None or an error for loading, results for a call."""
        if kind == LOAD:
            try:
                self._callers = _callers(*pickle.loads(request))
            except (Exception, SystemExit) as error:
                return pickle.dumps(f"{type(error).__name__}: {error}")
            return pickle.dumps(None)
        name, samples, timeout = pickle.loads(request)
        return _pickled(_called(self._callers[name], samples, timeout))


def _callers(location: str, trust: Trust, sha256: str | None, code_sha256: str | None) -> dict[str, Caller]:
    """Load the spec with the parent's trust, and return its components by name."""
    locking.silence()  # the parent logs these warnings
    plan: ScoringPlan = RewardSpec.load(location, trust=trust).plan
    if (plan.identity.sha256, plan.identity.code_sha256) != (sha256, code_sha256):
        raise ValueError("the spec or its code changed after the spec was loaded; load the spec again")
    here = {"isolation": "none", "timeout": None}
    return {
        component.name: Caller(replace(component, entry=component.entry.model_copy(update=here)), plan)
        for component in plan.components
        if component.function is not None
    }


def _called(caller: Caller, samples: list[Any], timeout: float | None) -> list[ComponentResult]:
    """Call a component under a timer whose signal ends the process even if a function holds the GIL."""
    if timeout is not None and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, timeout + _GRACE)
    try:
        return caller.many(samples)
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)


def _pickled(answers: list[ComponentResult]) -> bytes:
    """Return results as pickled tuples, with evidence as JSON values, as the parent may lack its classes."""
    return pickle.dumps([tuple(_portable(answer)) for answer in answers])


def _portable(answer: ComponentResult) -> ComponentResult:
    criteria = answer.criteria and {name: _portable(result) for name, result in answer.criteria.items()}
    return answer._replace(evidence=_plain(answer.evidence), criteria=criteria)


def _plain(evidence: Any) -> Any:
    try:
        return json.loads(json.dumps(evidence, default=_json_value))
    except Exception:  # keys that are not text, a cycle
        return repr(evidence)


def _json_value(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else repr(value)


if __name__ == "__main__":
    serve(_Calls().answer)
