"""
Recordings as Arrow tables: a row per episode, agent, step, scoring, token block and so on.

Columns have the names of the values' fields, and exist even if they are empty. Missing values are null.
Free-form content (observations, actions, metadata, …) is JSON text: its shape differs from task to task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from mttp.errors import MissingExtra
from mttp.model.episodes import Agent, Annotation, Episode, Grade, Group, Reward, Update
from mttp.model.evaluations import Evaluation
from mttp.model.scorings import INVALID_VALUE
from mttp.reading.jsonable import to_json
from mttp.reading.schemas import (
    AGENTS,
    ANNOTATIONS,
    COMPONENTS,
    EPISODE_KEYS,
    EPISODES,
    EVALS,
    EVALUATION_FIELDS,
    GRADES,
    GROUPS,
    PREFERENCES,
    REWARDS,
    SCORING_FIELDS,
    STEPS,
    TOKENS,
    UPDATES,
)

__all__ = ["Tables"]

_Cells = Mapping[str, Any]
_FIELDS = {"return": "return_"}


class Tables:
    """
    A recording as `pyarrow.Table`s, each built on first access.

    Columns, types and units are listed in `docs/reading.md`. Missing values are null; NaN stays NaN.
    Times are UTC timestamps in microseconds. Raises MissingExtra if pyarrow is not installed.
    """

    NAMES = (
        "episodes",
        "agents",
        "steps",
        "rewards",
        "components",
        "grades",
        "tokens",
        "groups",
        "updates",
        "annotations",
        "preferences",
        "evals",
    )
    """Names of the tables."""

    def __init__(
        self,
        episodes: Sequence[Episode],
        *,
        groups: Sequence[Group] = (),
        updates: Sequence[Update] = (),
        annotations: Sequence[Annotation] = (),
        evals: Sequence[Evaluation] = (),
    ) -> None:
        self._episodes = episodes
        self._groups = groups
        self._updates = updates
        self._annotations = annotations
        self._evals = evals
        _pyarrow()

    @cached_property
    def episodes(self) -> Any:
        """One row per episode."""
        return _table(EPISODES, map(_episode, self._episodes))

    @cached_property
    def agents(self) -> Any:
        """One row per agent of an episode with several."""
        return _table(
            AGENTS,
            (_agent(agent) | _of(episode) for episode in self._episodes for agent in episode.agents),
        )

    @cached_property
    def steps(self) -> Any:
        """One row per step."""
        return _table(STEPS, (cells for episode in self._episodes for cells in _steps(episode)))

    @cached_property
    def rewards(self) -> Any:
        """
        One row per scoring of an episode, an agent or a step.

        Components and weights are maps by name; `components` has one row per component.
        """
        return _table(REWARDS, (cells for episode in self._episodes for cells in _rewards(episode)))

    @cached_property
    def components(self) -> Any:
        """One row per component of each scoring; the scoring's value is only in `rewards`."""
        return _table(COMPONENTS, (cells for episode in self._episodes for cells in _components(episode)))

    @cached_property
    def grades(self) -> Any:
        """One row per component of each scoring by a reward spec, including those of included specs."""
        return _table(GRADES, (cells for episode in self._episodes for cells in _grades(episode)))

    @cached_property
    def tokens(self) -> Any:
        """One row per token block."""
        return _table(TOKENS, (cells for episode in self._episodes for cells in _tokens(episode)))

    @cached_property
    def groups(self) -> Any:
        """One row per group."""
        return _table(GROUPS, (_cells(GROUPS, group) for group in self._groups))

    @cached_property
    def updates(self) -> Any:
        """One row per update."""
        return _table(UPDATES, (_cells(UPDATES, update) for update in self._updates))

    @cached_property
    def annotations(self) -> Any:
        """One row per annotation, including those that a later one overrides."""
        return _table(ANNOTATIONS, map(_annotation, self._annotations))

    @cached_property
    def preferences(self) -> Any:
        """One row per pair of a chosen episode and a rejected one."""
        return _table(PREFERENCES, (cells for found in self._annotations for cells in _preferences(found)))

    @cached_property
    def evals(self) -> Any:
        """One row per result of a task in an evaluation, including replaced results."""
        return _table(EVALS, (cells for found in self._evals for cells in _results(found)))


def _cells(columns: Iterable[str], value: object) -> dict[str, Any]:
    return {name: getattr(value, name, None) for name in columns}


def _episode(episode: Episode) -> _Cells:
    reward = {
        "reward": episode.reward.value,
        "reward_status": episode.reward.status,
        "reward_components": episode.reward.components,
    }
    cells = {name: getattr(episode, _FIELDS.get(name, name)) for name in EPISODES if name not in reward}
    return cells | reward | {"scores": _numbers(episode.scores)}


def _agent(agent: Agent) -> dict[str, Any]:
    cells = {name: getattr(agent, _FIELDS.get(name, name), None) for name in AGENTS}
    return cells | {"reward": agent.reward.value, "reward_status": agent.reward.status}


def _steps(episode: Episode) -> Iterator[_Cells]:
    for step in episode.steps:
        cells = {name: getattr(step, name) for name in STEPS if name not in EPISODE_KEYS}
        yield cells | _of(episode) | {"scores": _numbers(step.scores)}


def _numbers(scores: Mapping[str, Reward]) -> dict[str, float]:
    return {grader: scoring.value for grader, scoring in scores.items() if scoring.value is not None}


def _annotation(annotation: Annotation) -> _Cells:
    cells = _cells(ANNOTATIONS, annotation) | _cells(SCORING_FIELDS, annotation.reward)
    value = annotation.value
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return cells | {"components": cells["components"] or {}, "number": float(value) if is_number else None}


def _preferences(annotation: Annotation) -> Iterator[_Cells]:
    cells = _cells(PREFERENCES, annotation) | {"chosen": annotation.episode}
    for rejected in annotation.rejected:
        yield cells | {"rejected": rejected}


def _results(evaluation: Evaluation) -> Iterator[_Cells]:
    ours = {column: getattr(evaluation, name) for column, name in EVALUATION_FIELDS.items()}
    spec = {
        name: getattr(evaluation.spec, name.removeprefix("spec_"), None)
        for name in EVALS
        if name.startswith("spec_")
    }
    latest = evaluation.latest()
    for result in evaluation.results:
        is_latest = latest[result.key] is result
        yield _cells(EVALS, result) | ours | spec | {"tags": evaluation.tags, "is_latest": is_latest}


def _of(episode: Episode) -> dict[str, Any]:
    return {name: getattr(episode, name) for name in EPISODE_KEYS}


def _rewards(episode: Episode) -> Iterator[_Cells]:
    for reward, place in _scorings(episode):
        yield _reward(reward) | _of(episode) | place


def _components(episode: Episode) -> Iterator[_Cells]:
    for reward, place in _scorings(episode):
        of_scoring = _cells(("spec_name", "spec_version"), None) | _of(episode) | place
        if reward.spec is not None:
            of_scoring |= {"spec_name": reward.spec.name, "spec_version": reward.spec.version}
        graded = {grade.name: grade.error_type for grade in reward.grades}
        for name in dict.fromkeys([*reward.components, *reward.component_statuses]):
            status = reward.component_statuses.get(name, "ok")
            by_hand = INVALID_VALUE if status == "error" else None
            yield of_scoring | {
                "component": name,
                "value": reward.components.get(name),
                "weight": reward.weights.get(name),
                "status": status,
                "error_type": graded.get(name, by_hand),
            }


def _grades(episode: Episode) -> Iterator[_Cells]:
    for reward, place in _scorings(episode):
        for grade, part_of in _with_parts(reward.grades):
            yield _cells(GRADES, grade) | _of(episode) | place | {"part_of": part_of}


def _with_parts(grades: Sequence[Grade], part_of: str | None = None) -> Iterator[tuple[Grade, str | None]]:
    for grade in grades:
        yield grade, part_of
        yield from _with_parts(grade.parts, grade.name)


def _scorings(episode: Episode) -> Iterator[tuple[Reward, dict[str, Any]]]:
    """Each scoring, and the cells of its target."""
    scored: list[tuple[int | None, str | None, Sequence[Reward]]] = [(None, None, episode.rewards)]
    scored += [(None, agent.id, agent.rewards) for agent in episode.agents]
    scored += [(step.index, step.agent, step.rewards) for step in episode.steps]
    for index, agent, rewards in scored:
        for position, reward in enumerate(rewards):
            yield reward, {"step_index": index, "agent": agent, "position": position}


def _reward(reward: Reward) -> dict[str, Any]:
    return {
        name: getattr(reward.spec, name.removeprefix("spec_"), None)
        if name.startswith("spec_")
        else getattr(reward, name, None)
        for name in REWARDS
    }


def _tokens(episode: Episode) -> Iterator[_Cells]:
    for step in episode.steps:
        if step.tokens is not None:
            cells = {name: getattr(step.tokens, name, None) for name in TOKENS}
            parent = step.tokens.parent or (None, None)
            place = {"step_index": step.index, "agent": step.agent}
            yield cells | _of(episode) | place | {"parent_step": parent[0], "parent_length": parent[1]}


def _table(columns: Mapping[str, str], rows: Iterable[_Cells]) -> Any:
    pyarrow = _pyarrow()
    schema = pyarrow.schema([(name, _type(type_)) for name, type_ in columns.items()])
    kept = list(rows)
    arrays = [
        pyarrow.array(_prepared(columns[field.name], [cells[field.name] for cells in kept]), field.type)
        for field in schema
    ]
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def _prepared(type_: str, values: list[Any]) -> list[Any]:
    return list(map(_PREPARED[type_], values)) if type_ in _PREPARED else values


def _as_json(value: Any) -> str | None:
    return None if value is None or (isinstance(value, Mapping) and not value) else to_json(value)


def _as_text(value: Any) -> str | None:
    return None if value is None else str(value)


def _as_items(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return list(value.items())


def _as_doubles(value: Any) -> Any:
    return value.astype("float64") if hasattr(value, "astype") else value


def _as_microseconds(nanoseconds: int | None) -> int | None:
    """Microseconds: Arrow converts nanoseconds to Python values only with pandas."""
    return None if nanoseconds is None else nanoseconds // 1000


_PREPARED: dict[str, Callable[[Any], Any]] = {
    "json": _as_json,
    "string": _as_text,
    "map<string, double>": _as_items,
    "map<string, string>": _as_items,
    "map<string, int64>": _as_items,
    "list<double>": _as_doubles,
    "timestamp[us, UTC]": _as_microseconds,
}


def _type(name: str) -> Any:
    """The Arrow type of that name; `json` is a string."""
    pyarrow = _pyarrow()
    scalars = {
        "string": pyarrow.string(),
        "json": pyarrow.string(),
        "int64": pyarrow.int64(),
        "double": pyarrow.float64(),
        "bool": pyarrow.bool_(),
        "timestamp[us, UTC]": pyarrow.timestamp("us", tz="UTC"),
    }
    if name.startswith("list<"):
        return pyarrow.list_(scalars[name.removeprefix("list<").removesuffix(">")])
    if name.startswith("map<"):
        return pyarrow.map_(
            *(scalars[part] for part in name.removeprefix("map<").removesuffix(">").split(", "))
        )
    return scalars[name]


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtra(package="pyarrow", extra="study", purpose="recording.tables") from error
    return pyarrow
