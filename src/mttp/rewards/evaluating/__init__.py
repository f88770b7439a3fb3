"""
Evaluations: a suite of tasks, done one by one or several at once, and what became of each.

Writes what it finds out, and reads what it is compared with or goes on from: both halves are used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias
from weakref import WeakKeyDictionary

from mttp.codec.plain import Faults, scalar_text, text
from mttp.errors import ConfigureError
from mttp.model import ids
from mttp.model.episodes import Spec
from mttp.model.evaluations import Evaluation
from mttp.recording.configuration import recording_session
from mttp.recording.session import Session
from mttp.rewards.evaluating.open_evaluation import OpenEvaluation
from mttp.rewards.evaluating.previous import Baseline, Resumable, compared, goes_on
from mttp.rewards.evaluating.tasks import tasks_of

__all__ = ["OpenEvaluation", "evaluate"]


class _Identity(Protocol):
    """A reward spec that knows its name, version and digests."""

    @property
    def identity(self) -> Spec:
        """These."""


Identified: TypeAlias = "Spec | _Identity"

_lock = threading.RLock()
_open: WeakKeyDictionary[Session, dict[int, OpenEvaluation]] = WeakKeyDictionary()
"""Evaluations that are still open, by session: they end when it closes."""


def evaluate(
    suite: str,
    suite_version: object = None,
    *,
    tasks: Iterable[object] = (),
    samples: int = 1,
    spec: Identified | None = None,
    baseline: Baseline = None,
    policy: object = None,
    policy_version: object = None,
    tags: Mapping[str, object] | None = None,
    metadata: Mapping[str, object] | None = None,
    concurrency: int = 8,
    timeout: float | None = None,
    resume: Resumable = False,
    progress: bool = True,
) -> OpenEvaluation:
    """
    Evaluate a policy on a suite of tasks, in the session that records; without one, one is started.

    Use it as a context manager, sync or async, or call `end`.
    `tasks` are names, or mappings or objects with an `id`, `task` or `name`, and maybe `slices`.
    `samples` is how many samples are taken of each task; each has a result of its own.
    `spec` says which reward spec scores: an `mttp.model.Spec`, or a spec that has one as its `identity`.
    `tags` are text by which the evaluation is found again.

    `baseline` is what each score is compared with: an earlier recording (a path, a list, a session, or what
    `mttp.read` returns), one evaluation of it, or a mapping from task to score. True says that others are to
    be compared with this one.
    `resume` keeps what an interrupted evaluation has, but for failures: True for one that is where this
    session writes, else a path to it. It must be of the same suite, version, spec, policy and run, and may
    have taken fewer samples.

    `concurrency` is how many tasks or samples `map` and `amap` do at once, and `timeout` how many seconds one
    of these may take.
    `progress` shows a bar on standard error while they do, if that is a terminal and rich is installed.

    Raises ConfigureError for tasks without an id, several with one id, and arguments that make no sense, and
    ReadError where a baseline, or what to go on from, can't be read.
    """
    _check(suite, samples, concurrency, timeout)
    faults: Faults = []
    todo = tasks_of(tasks)
    session = recording_session()
    stated = Evaluation(
        id=ids.run_id(),
        suite=text(suite, faults),
        suite_version=_text(suite_version, faults),
        run_id="" if session is None else session.run_id,
        run_name=None if session is None else session.run_name,
        tasks=tuple(todo),
        samples=samples,
        is_baseline=baseline is True,
        tags=_tags(tags, faults),
        spec=_identity(spec),
        policy=_text(policy, faults),
        policy_version=_text(policy_version, faults),
    )
    stated, done = goes_on(stated, resume, session)
    stated, scores = compared(stated, baseline)
    return _opened(
        OpenEvaluation(
            session,
            stated,
            todo,
            baseline=scores,
            done=done,
            concurrency=concurrency,
            timeout=timeout,
            progress=progress,
            at_end=_forget,
        ),
        session,
        faults,
        metadata,
    )


def _check(suite: object, samples: object, concurrency: object, timeout: object) -> None:
    if not isinstance(suite, str) or not suite:
        raise ConfigureError(f"suite={suite!r:.80} is no name; give the suite's name as text")
    for name, given in (("samples", samples), ("concurrency", concurrency)):
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise ConfigureError(f"{name}={given!r:.80} is no whole number from 1 on; give 1 or more")
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
        raise ConfigureError(
            f"timeout={timeout!r:.80} is no number of seconds above 0; leave it out for none"
        )


def _identity(spec: Identified | None) -> Spec | None:
    found = spec if spec is None or isinstance(spec, Spec) else getattr(spec, "identity", None)
    if spec is not None and not isinstance(found, Spec):
        raise ConfigureError(
            f"spec={scalar_text(spec):.80} is no mttp.model.Spec; write spec=mttp.model.Spec(name=...)"
        )
    return found


def _text(given: object, faults: Faults) -> str | None:
    return None if given is None else text(given, faults)


def _tags(given: Mapping[str, object] | None, faults: Faults) -> dict[str, str]:
    """Tags as text; a name with an equals sign could not be read back."""
    if given is not None and not isinstance(given, Mapping):
        raise ConfigureError(f"tags={scalar_text(given):.80} maps no names; write tags={{'name': 'value'}}")
    tags = {text(name, faults): text(value, faults) for name, value in (given or {}).items()}
    for name in tags:
        if "=" in name or not name:
            raise ConfigureError(f"tag {name!r:.80} is no name; give it one without an equals sign")
    return tags


def _opened(
    opened: OpenEvaluation, session: Session | None, faults: Faults, metadata: Mapping[str, object] | None
) -> OpenEvaluation:
    if session is None:
        return opened
    with _lock:
        held = _open.get(session)
        if held is None:
            held = _open[session] = {}
            session.before_close(_close, session, held)
        held[id(opened)] = opened
    opened.begin(faults, metadata)
    return opened


def _forget(ended: OpenEvaluation) -> None:
    if ended.session is not None:
        _open.get(ended.session, {}).pop(id(ended), None)


def _close(session: Session, held: dict[int, OpenEvaluation]) -> None:
    """End what is still open; a forked child leaves its parent's evaluations to the parent."""
    for opened in list(held.values()):
        if session.records_for(opened.host):
            opened.close()


def _renew() -> None:
    """After a fork, in the child: who held the lock there is not here to release it."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
