"""
Merges later facts into episodes: groups, updates, annotations and evaluation results.

Rewards of the trainer are never changed. The latest annotation replaces an outcome, an advantage or a
metadata value; the episode's own value moves to `extra`, under the name of its attribute.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from mttp.codec import annotations as codec
from mttp.codec import steps
from mttp.model.episodes import Annotation, Episode, Group, Step, Update
from mttp.model.evaluations import Evaluation
from mttp.reading.problems import Kind
from mttp.semconv import attributes as a
from mttp.semconv.registry import known_values

__all__ = ["fold", "in_order"]

_Groups = Mapping[tuple[str, str], set[str]]


class _AddProblem(Protocol):
    def __call__(self, kind: Kind, message: str, *, trace_id: str | None = None) -> None: ...


class _Timed(Protocol):
    @property
    def start_time(self) -> int | None: ...

    @property
    def span_id(self) -> str: ...


_T = TypeVar("_T", bound=_Timed)


def in_order(found: Iterable[_T]) -> list[_T]:
    """The items in order of start, then span id."""
    return sorted(found, key=lambda item: (item.start_time or 0, item.span_id))


def fold(
    episodes: list[Episode],
    groups: Sequence[Group],
    updates: Sequence[Update],
    annotations: Sequence[Annotation],
    evals: Sequence[Evaluation] = (),
    *,
    lacks_episodes: bool = False,
    add_problem: _AddProblem,
) -> list[Episode]:
    """
    The episodes with the facts of groups, updates, annotations and evaluations, each of them in order.

    `add_problem` is called for missing group members, conflicting updates and unknown targets.
    With `lacks_episodes` a problem says already that episodes are missing, and an annotation of one is none.
    """
    known = {episode.trace_id: episode for episode in episodes}
    changes: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    _add_problems(known, groups, updates, add_problem)
    for group in groups:
        _apply_group(group, known, changes)
    if updates:
        members = _members(episodes, groups)
        for update in updates:
            _apply_update(update, members, changes)
        for change in changes.values():
            change |= {
                name: tuple(change[name]) for name in ("consumed_by", "discarded_by") if name in change
            }
    by_episode = _by_episode(annotations, known, None if lacks_episodes else add_problem)
    for trace_id, of_episode in by_episode.items():
        changes[trace_id] |= _annotated(known[trace_id], of_episode, changes[trace_id], add_problem)
    for evaluation in evals:
        for result in evaluation.results:
            if result.episode in known:
                change = changes[result.episode]
                change["results"] = (*change.get("results", ()), result)
    if not changes:
        return episodes
    return [
        replace(episode, **facts) if (facts := changes.get(episode.trace_id)) else episode
        for episode in episodes
    ]


def _add_problems(
    known: Mapping[str, Episode],
    groups: Sequence[Group],
    updates: Sequence[Update],
    add_problem: _AddProblem,
) -> None:
    """Add a problem for each group with missing members, and for updates with equal indices."""
    for group in groups:
        members = sum(trace_id in known for trace_id in group.episodes)
        if members < max(group.size, len(group.episodes)):
            size = max(group.size, len(group.episodes))
            message = f"group {group.id} lacks members: {members} of {size} were found"
            add_problem("incomplete_group", message, trace_id=group.trace_id)
    places = Counter((update.run_id, update.policy, update.index) for update in updates)
    for (run_id, policy, index), count in places.items():
        if count > 1:
            of_policy = "" if policy is None else f" of policy {policy}"
            message = f"{count} updates{of_policy} in run {run_id} have the index {index}; all were kept"
            add_problem("conflicting_updates", message)


def _apply_group(group: Group, known: Mapping[str, Episode], changes: Mapping[str, dict[str, Any]]) -> None:
    """Set the group and the advantage of members that have none."""
    aligned = len(group.advantages) == len(group.episodes)
    for position, trace_id in enumerate(group.episodes):
        episode = known.get(trace_id)
        if episode is None:
            continue
        if episode.group is None:
            changes[trace_id]["group"] = group.id
        if aligned and episode.advantage is None:
            changes[trace_id]["advantage"] = group.advantages[position]


def _members(episodes: Iterable[Episode], groups: Iterable[Group]) -> _Groups:
    """Trace ids of members by run and group, from the episodes and the groups."""
    members: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for episode in episodes:
        if episode.group is not None:
            members[episode.run_id, episode.group].add(episode.trace_id)
    for group in groups:
        members[group.run_id, group.id].update(group.episodes)
    return members


def _apply_update(update: Update, members: _Groups, changes: Mapping[str, dict[str, Any]]) -> None:
    """Note the update on the episodes that it learned from, and on those that it discarded, each once."""
    discarded = {trace_id for trace_ids in update.discarded_episodes.values() for trace_id in trace_ids}
    consumed = {*update.episodes}.union(*(members.get((update.run_id, id), ()) for id in update.groups))
    if update.index is not None:
        for trace_id in consumed - discarded:
            changes[trace_id].setdefault("consumed_by", {})[update.index] = None
    for reason, trace_ids in update.discarded_episodes.items():
        for trace_id in trace_ids:
            changes[trace_id].setdefault("discarded_by", {})[reason] = None


def _by_episode(
    annotations: Iterable[Annotation], known: Mapping[str, Episode], add_problem: _AddProblem | None
) -> dict[str, list[Annotation]]:
    """Annotations by target episode; the targets of a preference are the chosen and rejected episodes."""
    by_episode: defaultdict[str, list[Annotation]] = defaultdict(list)
    for annotation in annotations:
        for trace_id in (annotation.episode, *annotation.rejected):
            if trace_id in known:
                by_episode[trace_id].append(_on_root(annotation, known[trace_id]))
            elif add_problem is not None:
                _unknown(annotation, f"episode {trace_id or 'without an id'}", add_problem)
    return by_episode


def _on_root(annotation: Annotation, episode: Episode) -> Annotation:
    """The annotation; the target of one on the root span is the whole episode."""
    is_root = annotation.step_span_id and annotation.step_span_id == episode.span_id
    return replace(annotation, step_span_id="") if is_root else annotation


def _unknown(annotation: Annotation, what: str, add_problem: _AddProblem) -> None:
    _unclear(annotation, f"{what}, which is not in the recording", add_problem)


def _unclear(annotation: Annotation, what: str, add_problem: _AddProblem) -> None:
    by = "" if annotation.by is None else f" by {annotation.by}"
    message = f"the {annotation.key}{by} refers to {what}"
    add_problem("unknown_target", message, trace_id=annotation.trace_id)


def _annotated(
    episode: Episode, annotations: Sequence[Annotation], change: Mapping[str, Any], add_problem: _AddProblem
) -> dict[str, Any]:
    """The changed fields of an episode; annotations override groups and updates."""
    columns = [annotation for annotation in annotations if annotation.kind == codec.OF_STEPS]
    on_steps = _by_step(episode, [note for note in annotations if note.kind != codec.OF_STEPS], add_problem)
    stepped = {id(annotation) for of_step in on_steps.values() for annotation in of_step}
    remaining = tuple(annotation for annotation in annotations if id(annotation) not in stepped)
    whole = _latest(annotation for annotation in remaining if not annotation.on_step)
    changed: dict[str, Any] = {"annotations": remaining}
    changed |= _facts(episode, whole)
    for kind, key, nothing in (("outcome", a.EPISODE_OUTCOME, "unknown"), ("advantage", a.ADVANTAGE, None)):
        annotation = whole.get((kind, kind))
        if annotation is None or not _is_valid(annotation):
            continue
        changed[kind] = annotation.value
        if (before := getattr(episode, kind)) != nothing:
            changed["extra"] = {**changed.get("extra", episode.extra), key: before}
    score = whole.get(("score", "score"))
    if score is not None and score.reward is not None and _has_no_reward(episode):
        changed["reward"] = score.reward
        if score.reward.status == "ok":
            changed |= {"return_": score.reward.value, "return_basis": "episode"}
    if on_steps or columns:
        numbers = _numbers(episode, columns, add_problem)
        changed["steps"] = tuple(
            _step(step, on_steps.get(position, ()), numbers.get(position, {}))
            if position in on_steps or position in numbers
            else step
            for position, step in enumerate(episode.steps)
        )
    return {**change, **changed}


def _numbers(
    episode: Episode, annotations: Sequence[Annotation], add_problem: _AddProblem
) -> dict[int, dict[str, float]]:
    """The numbers of annotations on several steps, by the position of the step."""
    indices = {step.index: position for position, step in enumerate(episode.steps) if step.agent is None}
    by_position: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for annotation in sorted(annotations, key=lambda annotation: annotation.order):
        first = annotation.step or 0
        for name, numbers in (annotation.value or {}).items():
            for index, number in enumerate(numbers.tolist(), first):
                if number == number and index in indices:
                    by_position[indices[index]][name] = number
        count = max(map(len, (annotation.value or {}).values()), default=0)
        if missing := [index for index in range(first, first + count) if index not in indices]:
            what = f"{len(missing)} of the steps from {first} on of episode {episode.trace_id}"
            _unknown(annotation, what, add_problem)
    return by_position


def _latest(annotations: Iterable[Annotation]) -> dict[tuple[str, str], Annotation]:
    """The effective annotation by kind and key: the one with the highest revision."""
    return {
        (annotation.kind, annotation.key): annotation
        for annotation in sorted(annotations, key=lambda annotation: annotation.order)
    }


def _facts(value: Episode | Step, latest: Mapping[tuple[str, str], Annotation]) -> dict[str, Any]:
    """The fields `metadata` and `extra` after metadata annotations."""
    facts = {key: annotation.value for (kind, key), annotation in latest.items() if kind == "fact"}
    if not facts:
        return {}
    before = {f"{a.METADATA}.{key}": value.metadata[key] for key in facts if key in value.metadata}
    return {"metadata": {**value.metadata, **facts}, "extra": {**value.extra, **before}}


def _is_valid(annotation: Annotation) -> bool:
    """Whether the value of an outcome or an advantage has a valid type."""
    if annotation.kind == "outcome":
        return annotation.value in known_values(a.EPISODE_OUTCOME)
    return isinstance(annotation.value, (int, float)) and not isinstance(annotation.value, bool)


def _has_no_reward(episode: Episode) -> bool:
    """Whether the trainer recorded no reward."""
    return not episode.rewards and episode.return_basis is None and episode.step_reward_sum is None


def _by_step(
    episode: Episode, annotations: Iterable[Annotation], add_problem: _AddProblem
) -> dict[int, list[Annotation]]:
    """Annotations by the position of their step."""
    on_steps = [annotation for annotation in annotations if annotation.on_step]
    if not on_steps:
        return {}
    spans = {step.span_id: position for position, step in enumerate(episode.steps) if step.span_id}
    indices: defaultdict[int, list[int]] = defaultdict(list)
    for position, step in enumerate(episode.steps):
        indices[step.index].append(position)
    by_position: defaultdict[int, list[Annotation]] = defaultdict(list)
    for annotation in on_steps:
        targets = [spans[annotation.step_span_id]] if annotation.step_span_id in spans else []
        if not targets and annotation.step is not None:
            targets = indices.get(annotation.step, [])
        which = annotation.step_span_id if annotation.step is None else annotation.step
        what = f"step {which} of episode {episode.trace_id}"
        if len(targets) == 1:
            by_position[targets[0]].append(annotation)
        elif targets:
            _unclear(annotation, f"{what}, and {len(targets)} steps have that index", add_problem)
        else:
            _unknown(annotation, what, add_problem)
    return by_position


def _step(step: Step, annotations: Sequence[Annotation], numbers: Mapping[str, float]) -> Step:
    """The step with its annotations merged; replaced values are in `extra`."""
    changed = {**_facts(step, _latest(annotations)), **numbers}
    before = {steps.FACTS[name]: value for name in numbers if (value := getattr(step, name)) is not None}
    if before:
        changed["extra"] = {**changed.get("extra", step.extra), **before}
    return replace(step, annotations=tuple(annotations), **changed)
