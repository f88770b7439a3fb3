"""The rows of the tables as the values of a recording have them, for comparison with those of the SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import mttp
from mttp.model.episodes import Agent, Annotation, Grade, Group, Reward, Spec, Step, Update
from mttp.model.evaluations import TaskResult
from mttp.model.scorings import INVALID_VALUE
from mttp.reading.jsonable import jsonable

__all__ = ["ROWS", "grades"]

_DOCUMENTS = {"observation", "action", "metadata", "extra", "evidence", "discarded_episodes", "value"}


def _cells(value: object, kind: Any, *others: str) -> dict[str, Any]:
    """Return the fields of a value, but for others; content as JSON types, and lists as lists."""
    return {
        field.name.rstrip("_"): _cell(field.name, getattr(value, field.name, None))
        for field in fields(kind)
        if field.name not in others
    }


def _cell(name: str, value: Any) -> Any:
    if name in _DOCUMENTS and not isinstance(value, float):
        return None if isinstance(value, Mapping) and not value else jsonable(value)
    return [*value] if isinstance(value, tuple) else value


def _of(episode: mttp.Episode) -> dict[str, Any]:
    return {"trace_id": episode.trace_id, "run_id": episode.run_id}


def _agents(recording: mttp.Recording) -> Iterator[dict[str, Any]]:
    for episode in recording:
        for agent in episode.agents:
            reward = {"reward": agent.reward.value, "reward_status": agent.reward.status}
            yield _cells(agent, Agent, "rewards", "extra") | _of(episode) | reward


def _steps(recording: mttp.Recording) -> Iterator[dict[str, Any]]:
    for episode in recording:
        for step in episode.steps:
            scores = {name: one.value for name, one in step.scores.items() if one.value is not None}
            cells = _cells(step, Step, "tokens", "rewards", "calls", "annotations")
            yield cells | _of(episode) | {"scores": scores}


def _scorings(recording: mttp.Recording) -> Iterator[tuple[Reward, dict[str, Any]]]:
    """Yield each scoring with the cells that name its target."""
    for episode in recording:
        scored: list[tuple[int | None, str | None, Sequence[Reward]]] = [(None, None, episode.rewards)]
        scored += [(None, agent.id, agent.rewards) for agent in episode.agents]
        scored += [(step.index, step.agent, step.rewards) for step in episode.steps]
        for index, agent, rewards in scored:
            for position, reward in enumerate(rewards):
                yield reward, _of(episode) | {"step_index": index, "agent": agent, "position": position}


def _rewards(recording: mttp.Recording) -> Iterator[dict[str, Any]]:
    for reward, place in _scorings(recording):
        spec = {f"spec_{name}": cell for name, cell in _cells(reward.spec, Spec).items()}
        yield _cells(reward, Reward, "spec", "grades", "calls") | spec | place | {"value": reward.value}


def _components(recording: mttp.Recording) -> Iterator[dict[str, Any]]:
    for reward, place in _scorings(recording):
        error_types = {grade.name: grade.error_type for grade in reward.grades}
        for name in dict.fromkeys([*reward.components, *reward.component_statuses]):
            status = reward.component_statuses.get(name, "ok")
            by_hand = INVALID_VALUE if status == "error" else None
            yield place | {
                "component": name,
                "value": reward.components.get(name),
                "weight": reward.weights.get(name),
                "status": status,
                "error_type": error_types.get(name, by_hand),
                "spec_name": getattr(reward.spec, "name", None),
                "spec_version": getattr(reward.spec, "version", None),
            }


def grades(recording: mttp.Recording) -> Iterator[dict[str, Any]]:
    """Yield the grade of each component, those of included specs below it."""
    for reward, place in _scorings(recording):
        for grade, part_of in _with_parts(reward.grades):
            yield _cells(grade, Grade, "parts", "calls") | place | {"part_of": part_of}


def _with_parts(grades: Sequence[Grade], part_of: str | None = None) -> Iterator[tuple[Grade, str | None]]:
    for grade in grades:
        yield grade, part_of
        yield from _with_parts(grade.parts, grade.name)


def _groups(recording: mttp.Recording) -> Iterator[dict[str, Any]]:
    yield from (_cells(group, Group) for group in recording.groups)


def _updates(recording: mttp.Recording) -> Iterator[dict[str, Any]]:
    yield from (_cells(update, Update) for update in recording.updates)


def _evaluations(recording: mttp.Recording) -> Iterator[dict[str, Any]]:
    names = ("run_id", "run_name", "suite", "suite_version", "status", "policy", "policy_version", "tags")
    for evaluation in recording.evals:
        shared = {"eval_id": evaluation.id} | {name: getattr(evaluation, name) for name in names}
        spec = _cells(evaluation.spec, Spec)
        shared |= {f"spec_{name}": spec[name] for name in ("name", "version", "sha256")}
        latest = evaluation.latest()
        for result in evaluation.results:
            cells = _cells(result, TaskResult, "first_token_times", "output_token_times")
            yield cells | shared | {"is_latest": latest[result.key] is result}


def _annotations(recording: mttp.Recording) -> Iterator[dict[str, Any]]:
    for annotation in recording.annotations:
        number = annotation.value
        is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
        cells = _cells(annotation, Annotation, "by", "reward")
        cells |= {"annotated_by": annotation.by, "number": float(number) if is_number else None}
        yield cells | {"value": None if annotation.kind == "steps" else jsonable(annotation.value)}


ROWS = {
    "steps": _steps,
    "scorings": _rewards,
    "components": _components,
    "groups": _groups,
    "updates": _updates,
    "evaluations": _evaluations,
    "agents": _agents,
    "annotations": _annotations,
}
"""The rows of a recording by table."""
