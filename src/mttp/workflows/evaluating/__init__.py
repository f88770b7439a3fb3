"""
Evaluations of a policy on a suite of tasks: `evaluate` opens one.

Results are recorded; baselines and interrupted evaluations are read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias, cast
from weakref import WeakKeyDictionary

from mttp.codec.fields import convert, mapping
from mttp.codec.plain import Faults, number, scalar_text, text
from mttp.errors import ConfigureError, MttpError
from mttp.model import ids
from mttp.model.episodes import Spec
from mttp.model.evaluations import Evaluation
from mttp.model.interrupts import raise_interrupt
from mttp.recording.configuration import recording_session
from mttp.recording.session import Session
from mttp.workflows.evaluating.open_evaluation import OpenEvaluation
from mttp.workflows.evaluating.previous import Baseline, Resumable, compared, resumed
from mttp.workflows.evaluating.tasks import tasks_of

if TYPE_CHECKING:
    from mttp.rewards.spec import RewardSpec

__all__ = ["OpenEvaluation", "evaluate"]


Identified: TypeAlias = "Spec | RewardSpec"

_lock = threading.RLock()
_open: WeakKeyDictionary[Session, dict[int, OpenEvaluation]] = WeakKeyDictionary()
"""The open evaluations of each session; they end when it closes."""


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
    Open an evaluation of a policy on a suite of tasks, in the current session or a new one.

        >>> import mttp
        >>> with mttp.configure("memory://"), mttp.evaluate("sums", tasks=["1+1", "2+2"]) as run:
        ...     results = run.map(lambda task: task == "1+1")
        >>> print(run.summary())
        2 tasks: 2 scored, mean 0.5, pass rate 0.5

    The result is a context manager, sync and async; without one, call its `end`.

    `suite` (str) and `suite_version` name the suite.
    `tasks` are names, or dicts or objects with an `id`, `task` or `name` and optional `slices` (names of
    subsets). Each task needs an id of its own.
    `samples` (int, 1 or more) is the number of samples of each task; each sample has its own result.
    `spec` is the reward spec: an `mttp.RewardSpec`, an `mttp.model.Spec`, or an object with one as
    `identity`.
    `policy` and `policy_version` name the policy. `tags` (text by name) and `metadata` (any JSON values by
    name) are kept with the evaluation.

    `baseline` has the scores to compare with: a recording (a path, a list of paths, a session, or the result
    of `mttp.read`), an `mttp.model.Evaluation`, or a dict from task to score. True marks this evaluation as a
    baseline.
    `resume` continues an interrupted evaluation and keeps its results, except errors and time-outs: True
    looks in the session's own recording, a path in another one. Suite, version, spec, policy and run must
    be equal, and `samples` must not be lower.

    `concurrency` (int, 1 or more) is the number of samples that `map` and `amap` run at once. `timeout` is in
    seconds for each sample, unlimited by default.
    `progress` shows a progress bar on standard error, if it is a terminal and `rich` is installed.

    Raises ConfigureError for an invalid argument, a task without an id and a repeated id, and ReadError when
    the baseline or the interrupted evaluation can't be read.
    """
    _check(suite, samples, concurrency)
    limit = _seconds(timeout)
    faults: Faults = []
    with _asking("tasks", tasks):
        todo = tasks_of(tasks)
    session = recording_session()
    evaluation = Evaluation(
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
    with _asking("resume", resume):
        evaluation, results = resumed(evaluation, resume, session)
    with _asking("baseline", baseline):
        evaluation, scores = compared(evaluation, baseline)
    return _opened(
        OpenEvaluation(
            session,
            evaluation,
            todo,
            baseline=scores,
            done=results,
            concurrency=concurrency,
            timeout=limit,
            progress=progress,
            at_end=_forget,
        ),
        session,
        faults,
        metadata,
    )


@contextmanager
def _asking(name: str, value: object) -> Iterator[None]:
    """Raise ConfigureError for whatever a foreign object in an argument raises when it is asked."""
    try:
        yield
    except MttpError:
        raise
    except Exception as error:
        raise_interrupt(error)
        raise ConfigureError(f"{name}={scalar_text(value):.80} can't be read: {error!r:.200}") from error


def _check(suite: object, samples: object, concurrency: object) -> None:
    if not issubclass(type(suite), str) or not text(suite, []):
        raise ConfigureError(f"suite={scalar_text(suite):.80} is not a name; pass the suite's name as a str")
    for name, value in (("samples", samples), ("concurrency", concurrency)):
        if type(value) is not int or value < 1:
            raise ConfigureError(f"{name}={scalar_text(value):.80} is not a positive integer; pass 1 or more")


def _seconds(timeout: object) -> float | None:
    """Return a time limit; raises ConfigureError if it is none."""
    limit = convert("timeout", lambda value, _: number(value), timeout, [])
    if timeout is not None and (type(timeout) is bool or limit is None or not limit > 0):
        raise ConfigureError(
            f"timeout={scalar_text(timeout):.80} is not a positive number of seconds; omit it for no limit"
        )
    return cast("float | None", limit)


def _identity(spec: Identified | None) -> Spec | None:
    identity = convert("spec", lambda value, _: getattr(value, "identity", value), spec, [])
    if spec is not None and type(identity) is not Spec:
        raise ConfigureError(
            f"spec={scalar_text(spec):.80} is not a reward spec; pass an mttp.RewardSpec or mttp.model.Spec"
        )
    return cast("Spec | None", identity)


def _text(value: object, faults: Faults) -> str | None:
    return None if value is None else text(value, faults)


def _tags(items: Mapping[str, object] | None, faults: Faults) -> dict[str, str]:
    """Return tags as text; names with an equals sign are errors, since they can't be read back."""
    problems: Faults = []
    known = mapping("tags", items, problems)
    if problems:
        raise ConfigureError(f"tags={scalar_text(items):.80} is not a dict; pass tags={{'name': 'value'}}")
    tags = {text(name, faults): text(value, faults) for name, value in known.items()}
    for name in tags:
        if "=" in name or not name:
            raise ConfigureError(
                f"the tag name {name!r:.80} is empty or has an equals sign; use another name"
            )
    return tags


def _opened(
    opened: OpenEvaluation, session: Session | None, faults: Faults, metadata: Mapping[str, object] | None
) -> OpenEvaluation:
    if session is None:
        return opened
    with _lock:
        evaluations = _open.get(session)
        if evaluations is None:
            evaluations = _open[session] = {}
            session._before_close(_close, session, evaluations)
        evaluations[id(opened)] = opened
    opened._begin(faults, metadata)
    return opened


def _forget(ended: OpenEvaluation) -> None:
    if ended._session is not None:
        _open.get(ended._session, {}).pop(id(ended), None)


def _close(session: Session, evaluations: dict[int, OpenEvaluation]) -> None:
    """End the open evaluations of a closing session; a forked child leaves its parent's open."""
    for opened in list(evaluations.values()):
        if session._records_for(opened._host):
            opened._end_open()


def _renew() -> None:
    """Replace the lock in a forked child, since the thread that held it does not exist there."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
