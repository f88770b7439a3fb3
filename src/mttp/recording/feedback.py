"""
Late facts: scores, labels, preferences and other annotations of an episode.

Each is a span of its own, so that it can be recorded while the episode is open, after its end, or days later.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import Unpack

from mttp.codec import annotations as codec
from mttp.codec import rewards, steps
from mttp.codec.fields import integer
from mttp.codec.plain import Faults, listed, mapped, nanoseconds, number, plain, scalar_text, text
from mttp.model import clock
from mttp.model.episodes import Annotation
from mttp.model.keys import name_key
from mttp.otlp.spans import SAMPLED
from mttp.recording import targets
from mttp.recording.arguments import SCORE_FACTS, ScoreFacts, check_names
from mttp.recording.configuration import never_raises, recording_session
from mttp.recording.segment import Segment
from mttp.recording.session import Session
from mttp.recording.targets import Target
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.semconv.registry import known_values

__all__ = ["annotate", "now", "prefer", "score"]

_lock = threading.RLock()
_last_time = 0


@never_raises(lambda *_, **__: None)
def score(
    target: object,
    value: object = rewards.COMPUTED,
    *,
    by: str | None = None,
    revision: int | None = None,
    time: int | None = None,
    **scoring: Unpack[ScoreFacts],
) -> None:
    """
    Record a score of an episode or a step, at any time; its reward does not change.

    `target` is an episode's handle, value or trace id, a step's handle, or (episode, step),
    where the step is its index, span id, handle or value.
    `value` is a number; a value that is not a finite number has the status error, is kept as text, and is
    never zero. Without it the score is the weighted sum of the components, as in `OpenEpisode.reward`.
    All scores are kept; of one grader's scores of a target, the one with the highest `revision` counts.
    `revision` is by default `time`, which is in nanoseconds since the Unix epoch, by default now.
    `by` names the author, by default the `grader`. `ScoreFacts` lists the other arguments.
    """
    check_names("score", scoring, SCORE_FACTS | {"by", "revision", "time"})
    by = scoring.get("grader") if by is None else by
    _annotate(target, _score, (value, scoring), by=by, revision=revision, time=time)


@never_raises(lambda *_, **__: None)
def annotate(
    target: object,
    key: str,
    value: object,
    *,
    by: str | None = None,
    explanation: str | None = None,
    revision: int | None = None,
    time: int | None = None,
) -> None:
    """
    Record a fact about an episode or a step; `target`, `revision` and `time` are as for `score`.

    `key` is "outcome" (success, failure or unknown), "advantage" (a number), "label" (a word), "comment",
    "score" (with the grader `by`), or a name of your own, which is read as metadata.
    With the key "steps", `value` has numbers that a trainer computes after a rollout, for the target step and
    those that follow it: it maps "advantage", "return_target", "trained_reward", "value_estimate" or
    "logprob" to an array of shape [steps], with NaN for a step without the number.
    """
    _annotate(target, _fact, (key, value, explanation, by), by=by, revision=revision, time=time)


@never_raises(lambda *_, **__: None)
def prefer(
    chosen: object,
    rejected: object,
    *,
    by: str | None = None,
    explanation: str | None = None,
    revision: int | None = None,
    time: int | None = None,
) -> None:
    """
    Record that an episode is better than another one, or than each of several.

    An episode is a handle, a value or a trace id; `revision` and `time` are as for `score`.
    """
    _annotate(chosen, _preference, (rejected, explanation), by=by, revision=revision, time=time)


def _score(faults: Faults, value: object, scoring: Mapping[str, Any]) -> Annotation:
    reward = rewards.make(value, faults, **scoring)
    return Annotation(
        kind="score", key="score", value=reward.value, reward=reward, explanation=reward.explanation
    )


def _fact(faults: Faults, key: object, value: object, explanation: str | None, by: str | None) -> Annotation:
    kind = codec.kind(text(key, []))
    if kind == codec.OF_STEPS:
        return Annotation(kind=kind, key=kind, value=_numbers(value, faults), explanation=explanation)
    if kind == "score":
        return _score(faults, value, {"grader": by, "explanation": explanation})
    name = name_key(text(key, faults)) if kind == "fact" else kind
    if kind == codec.PREFERENCE or not name:
        raise ValueError(f"{scalar_text(key):.80} is not a name for a fact")
    return Annotation(kind=kind, key=name, value=_value(kind, value, faults), explanation=explanation)


def _value(kind: str, value: object, faults: Faults) -> Any:
    """Return the value in the type of the annotation's kind; a value of another type is kept as text."""
    if value is None:
        raise ValueError(f"{kind} is None")
    if kind == "fact":
        return plain(value, faults)
    if kind == "advantage" and (advantage := number(value)) is not None:
        return advantage
    content = text(value if isinstance(value, str) else scalar_text(value), faults)
    if kind == "advantage" or (kind == "outcome" and content not in known_values(a.EPISODE_OUTCOME)):
        faults.append(f"{kind}_invalid: {content:.80}")
    return content


def _numbers(by_name: object, faults: Faults) -> dict[str, Any]:
    """Return arrays with one number per step by name; an unknown name is a fault."""
    arrays = {}
    for name, numbers in mapped("steps", by_name, faults).items():
        if name not in steps.FACTS:
            faults.append(f"steps_invalid: {name} is not one of {', '.join(steps.FACTS)}")
            continue
        try:
            arrays[str(name)] = np.array(numbers, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} is not numbers: {error}") from error
        if arrays[name].ndim != 1:
            raise ValueError(f"{name} has shape {arrays[name].shape}, expected one number per step")
    lengths = {len(numbers) for numbers in arrays.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(f"steps need arrays of one length, got lengths {sorted(lengths) or 'none'}")
    return arrays


def _preference(faults: Faults, rejected: object, explanation: str | None) -> Annotation:
    trace_ids = dict.fromkeys(_rejected(rejected, faults))
    if not trace_ids:
        raise ValueError("a preference needs a rejected episode")
    return Annotation(
        kind=codec.PREFERENCE, key=codec.PREFERENCE, rejected=tuple(trace_ids), explanation=explanation
    )


def _rejected(rejected: object, faults: Faults) -> Iterator[str]:
    is_several = issubclass(type(rejected), (list, tuple, set, frozenset))  # without asking a foreign object
    for item in listed("target", rejected, faults) or () if is_several else (rejected,):
        try:
            yield _episode_target(targets.target(item)).trace_id
        except ValueError as error:
            faults.append(f"target_invalid: {error}")


def _episode_target(resolved: Target) -> Target:
    if resolved.is_step:
        raise ValueError(f"a step of {resolved.trace_id} is given; a preference compares episodes")
    return resolved


def _annotate(
    target: object,
    make: Callable[..., Annotation],
    arguments: tuple[Any, ...],
    *,
    by: str | None,
    revision: object,
    time: object,
) -> None:
    """Record the annotation that `make` returns; an invalid argument is a fault."""
    session = recording_session()
    if session is None:
        return
    try:
        resolved = targets.target(target)
    except ValueError as error:
        session._fault("target_invalid", str(error))
        return
    faults: Faults = []
    try:
        annotation = make(faults, *arguments)
        if annotation.kind == codec.PREFERENCE:
            chosen = _episode_target(resolved).trace_id
            if chosen in annotation.rejected:
                raise ValueError(f"{chosen} is both chosen and rejected")
        _record(session, resolved, replace(annotation, by=by), faults, revision, time)
    except ValueError as error:
        session._fault("annotation_invalid", "; ".join([str(error), *faults]))


def _record(
    session: Session, resolved: Target, annotation: Annotation, faults: Faults, revision: object, time: object
) -> None:
    if annotation.kind == codec.OF_STEPS and resolved.step is None:
        raise ValueError("numbers of several steps need the first step as target: (episode, index)")
    default = now()
    moment = nanoseconds(time, faults)
    start = default if moment is None else moment
    stated_revision = integer("revision", revision, faults)
    annotation = replace(
        annotation,
        episode=resolved.trace_id,
        step=resolved.step,
        step_span_id=resolved.span_id if resolved.is_step else "",
        revision=start if stated_revision is None else stated_revision,
        run_id=session.run_id,
    )
    link = targets.link(resolved.trace_id, resolved.span_id)
    span = session._recorder.span(names.ANNOTATE, values={}, start=start, links=[link] if link else ())
    span.note(faults)
    span.values |= span.checked(codec.encode, annotation)
    if annotation.kind == codec.FACT:
        named = span.values[a.ANNOTATION_KEY]
        span.values[a.ANNOTATION_VALUE] = span.without_secrets(named, span.values.get(a.ANNOTATION_VALUE))
    if annotation.reward is not None:
        identity = {a.RUN_ID: session.run_id}
        segment = Segment(session._recorder, span.trace_id, identity=identity, flags=SAMPLED)
        reward = replace(annotation.reward, start_time=start, end_time=start + clock.MOMENT)
        segment.scoring_children(reward, span, place={})
    span.end_at_once()


def now() -> int:
    """Return the time in nanoseconds since the Unix epoch, greater than all earlier results."""
    global _last_time
    with _lock:
        _last_time = max(_last_time + 1, clock.wall())
        return _last_time


def _replace_lock() -> None:
    """After a fork, in the child: replace the lock, whose holder does not exist here."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_lock)
