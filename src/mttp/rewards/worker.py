"""The far side of isolation: a process that loads a spec, calls its components, and answers."""

from __future__ import annotations

import json
import os
import pickle
import queue
import signal
import sys
import threading
from dataclasses import replace
from typing import IO, Any

from mttp.rewards import locking
from mttp.rewards.calling import Caller
from mttp.rewards.frames import read_frame, write_frame
from mttp.rewards.plan import Plan
from mttp.rewards.scores import Answer
from mttp.rewards.spec import RewardSpec
from mttp.rewards.trust import Trust

__all__ = ["main"]

_GRACE = 1.0
"""Seconds after its time limit at which a worker ends itself, should nobody be left to end it."""


def main() -> None:
    """Answer requests until there are no more; what components print goes to standard error."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    incoming: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests, incoming), daemon=True).start()
    try:
        callers = _callers(*pickle.loads(incoming.get()))
    except (Exception, SystemExit) as error:
        write_frame(answers, pickle.dumps(f"{type(error).__name__}: {error}"))
        return
    write_frame(answers, pickle.dumps(None))
    while True:
        name, samples, timeout = pickle.loads(incoming.get())
        write_frame(answers, _packed(_answered(callers[name], samples, timeout)))


def _receive(requests: IO[bytes], incoming: queue.SimpleQueue[bytes]) -> None:
    """Hand on what is asked; whoever asks being gone ends the process, whatever it is at."""
    while (request := read_frame(requests)) is not None:
        incoming.put(request)
    os._exit(0)


def _callers(location: str, trust: Trust, sha256: str | None, code_sha256: str | None) -> dict[str, Caller]:
    """The components by name, of the spec that the process which asks has loaded, with its trust."""
    locking.silence()  # the process that scores has warned of it
    plan: Plan = RewardSpec.load(location, trust=trust).plan
    if (plan.identity.sha256, plan.identity.code_sha256) != (sha256, code_sha256):
        raise ValueError("the spec or its code has changed since it was loaded; load it again")
    here = {"isolation": "none", "timeout": None}
    return {
        one.name: Caller(replace(one, entry=one.entry.model_copy(update=here)), plan)
        for one in plan.components
        if one.function is not None
    }


def _answered(caller: Caller, samples: list[Any], timeout: float | None) -> list[Answer]:
    """The timer's signal ends the process even where a function never gives the interpreter back."""
    if timeout is not None and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, timeout + _GRACE)
    try:
        return caller.many(samples)
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)


def _packed(answers: list[Answer]) -> bytes:
    """Answers as plain tuples; of evidence what JSON can say, since its classes may be unknown elsewhere."""
    return pickle.dumps([tuple(_portable(answer)) for answer in answers])


def _portable(answer: Answer) -> Answer:
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
    sys.exit("mttp starts workers by itself, where a component says `isolation: process`")
