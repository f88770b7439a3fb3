"""What differs between two sides of a comparison besides their results."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from mttp.codec.plain import from_json
from mttp.model.episodes import Run
from mttp.study.sample import EpisodeFigures, Sample

__all__ = ["REFUSED", "SideDifference", "differences"]

REFUSED = ("env", "tasks", "inputs", "spec", "grader")
"""Kinds of differences that a comparison refuses unless they are allowed."""
_PASSIVE_WRAPPERS = frozenset(
    {
        "AssertOutOfBoundsWrapper",
        "AsyncVectorEnv",
        "CaptureStdoutWrapper",
        "DummyVecEnv",
        "HumanRendering",
        "Monitor",
        "OrderEnforcing",
        "OrderEnforcingWrapper",
        "PassiveEnvChecker",
        "RecordAECEpisodes",
        "RecordEpisodeStatistics",
        "RecordEpisodes",
        "RecordParallelEpisodes",
        "RecordVectorEpisodes",
        "RecordVideo",
        "RenderCollection",
        "SubprocVecEnv",
        "SyncVectorEnv",
        "VecCheckNan",
        "VecMonitor",
        "VecVideoRecorder",
    }
)
"""Wrappers that change neither observations nor rewards nor the end of an episode."""
_PASSIVE_ARGUMENTS = frozenset({"render_mode", "render_fps", "disable_env_checker"})
"""Constructor arguments of which the same holds."""
_RUN_FIELDS = (
    "kind",
    "revision",
    "dirty",
    "seed",
    "algorithm",
    "trainer",
    "trainer_version",
    "policy_architecture",
    "policy_parameters",
    "optimizer",
    "python",
    "platform",
    "accelerators",
    "world_size",
)
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SideDifference:
    """One thing that is not equal on both sides."""

    kind: str
    """env, tasks, inputs, spec, grader, samples, labels, seeds, config, package, policy or run."""
    name: str
    """Which one, for example the key of a configuration."""
    base: str
    candidate: str
    is_refused: bool = False
    """Whether the sides are refused unless this kind is allowed: they are not the same experiment."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.base or 'none'} -> {self.candidate or 'none'}"


def differences(base: Sample, candidate: Sample) -> tuple[SideDifference, ...]:
    """Return the differences of two sides: those that make a comparison doubtful first."""
    refused = [
        *_env(base, candidate),
        *_tasks(base, candidate),
        *_inputs(base, candidate),
        *_scored_by("spec", "reward spec", base, candidate, attrgetter("spec"), _spec),
        *_scored_by("grader", "grader", base, candidate, attrgetter("grader"), _joined),
    ]
    others = [
        *_kwargs(base, candidate, passive=True),
        *_wrappers(base, candidate, passive=True),
        *_samples(base, candidate),
        *_labels(base, candidate),
        *_seeds(base, candidate),
        *_config(base.runs, candidate.runs),
        *_packages(base.runs, candidate.runs),
        *_sets("policy", "version", base, candidate, attrgetter("policy_version")),
        *_runs(base.runs, candidate.runs),
    ]
    return (*(replace(difference, is_refused=True) for difference in refused), *others)


# The same experiment.


def _env(base: Sample, candidate: Sample) -> Iterable[SideDifference]:
    """Yield what differs between the environments: id, version, arguments, wrappers, spaces."""
    yield from _sets("env", "id", base, candidate, attrgetter("env"))
    for name, of in (("version", attrgetter("env_version")), ("spaces", attrgetter("env_spaces"))):
        before, after = (_by_env(side, of) for side in (base, candidate))
        for env in sorted(before.keys() & after.keys()):
            if before[env] != after[env] and all(before[env]) and all(after[env]):
                yield _env_difference(f"{name} of {env}", before[env], after[env])
    yield from _kwargs(base, candidate, passive=False)
    yield from _wrappers(base, candidate, passive=False)


def _kwargs(base: Sample, candidate: Sample, *, passive: bool) -> Iterable[SideDifference]:
    """Yield each constructor argument that differs; an argument that is not there is not set."""
    before, after = (_by_env(side, attrgetter("env_kwargs")) for side in (base, candidate))
    for env in sorted(before.keys() & after.keys()):
        if before[env] == after[env]:
            continue
        sides = [_arguments(documents) for documents in (before[env], after[env])]
        for name in sorted({*sides[0], *sides[1]}):
            values = [side.get(name, set()) for side in sides]
            if values[0] != values[1] and (name in _PASSIVE_ARGUMENTS) is passive:
                yield _env_difference(f"{name} of {env}", *values)


def _arguments(documents: Iterable[str]) -> dict[str, set[str]]:
    arguments: dict[str, set[str]] = {}
    for document in documents:
        for name, value in _flat(from_json(document) if document else {}):
            arguments.setdefault(name, set()).add(value)
    return arguments


def _wrappers(base: Sample, candidate: Sample, *, passive: bool) -> Iterable[SideDifference]:
    """Yield the environments with other wrappers, of those that only watch or of all others."""

    def chain(episode: EpisodeFigures) -> str:
        return " of ".join(name for name in episode.env_wrappers if (name in _PASSIVE_WRAPPERS) is passive)

    before, after = (_by_env(side, chain) for side in (base, candidate))
    for env in sorted(before.keys() & after.keys()):
        if before[env] != after[env]:
            difference = _env_difference(f"wrappers of {env}", before[env], after[env])
            yield replace(difference, name=f"passive {difference.name}") if passive else difference


def _by_env(side: Sample, of: Callable[[EpisodeFigures], str | None]) -> dict[str, set[str]]:
    values: dict[str, set[str]] = {}
    for env, value in {(episode.env, of(episode)) for episode in side.episodes}:
        values.setdefault(env, set()).add(value or "")
    return values


def _env_difference(name: str, before: Iterable[str], after: Iterable[str]) -> SideDifference:
    return SideDifference(kind="env", name=name, base=_shown(before), candidate=_shown(after))


def _tasks(base: Sample, candidate: Sample) -> Iterable[SideDifference]:
    before, after = (
        {" ".join(filter(None, (one.env, one.task))) for one in side.episodes if one.task is not None}
        for side in (base, candidate)
    )
    if before != after:
        yield SideDifference(
            kind="tasks",
            name="only on one side",
            base=_shown(before - after),
            candidate=_shown(after - before),
        )


def _inputs(base: Sample, candidate: Sample) -> Iterable[SideDifference]:
    """Yield the tasks with other inputs under the same name; also none beside those of other tasks."""
    before, after = (_inputs_by_unit(side) for side in (base, candidate))
    if not any(map(any, before.values())) or not any(map(any, after.values())):
        return  # a side was recorded without content
    others = [unit for unit in sorted(before.keys() & after.keys()) if before[unit] != after[unit]]
    if others:
        words = [{f"{' '.join(unit)} {_digest(side[unit])}" for unit in others} for side in (before, after)]
        yield SideDifference(
            kind="inputs",
            name=f"of {len(others):,} tasks of the same name",
            base=_shown(words[0]),
            candidate=_shown(words[1]),
        )


def _inputs_by_unit(side: Sample) -> dict[tuple[str, str], set[str]]:
    inputs: dict[tuple[str, str], set[str]] = {}
    for episode in side.episodes:
        if episode.unit is not None and episode.task is not None:
            inputs.setdefault(episode.unit, set()).add(episode.inputs_json or "")
    return inputs


def _digest(documents: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(documents)).encode()).hexdigest()[:8]


def _scored_by(
    kind: str,
    name: str,
    base: Sample,
    candidate: Sample,
    of: Callable[[EpisodeFigures], tuple[str, ...]],
    text: Callable[[Any], str],
) -> Iterable[SideDifference]:
    """
    Yield the specs or graders if they differ between the sides, or scored other numbers of a task's episodes.

    Episodes without a reward are missing; a reward that was given by hand has no spec.
    """
    pairs = [_scorers(side, of) for side in (base, candidate)]
    totals = [Counter(scorer for _, scorer in side) for side in pairs]
    is_same = totals[0].keys() == totals[1].keys()
    if is_same and (len(totals[0]) < 2 or Counter(pairs[0]) == Counter(pairs[1])):
        return
    yield SideDifference(
        kind=kind, name=name, base=_counted(totals[0], text), candidate=_counted(totals[1], text)
    )


def _scorers(
    side: Sample, of: Callable[[EpisodeFigures], tuple[str, ...]]
) -> list[tuple[tuple[str, str] | None, tuple[str, ...]]]:
    """Return the task and the spec or grader of each episode with a reward or a return."""
    scored = [one for one in side.episodes if one.reward is not None or one.return_ is not None]
    return [(one.unit if one.task is not None else None, of(one)) for one in scored]


def _counted(counts: Counter[tuple[str, ...]], text: Callable[[Any], str]) -> str:
    """Return the words, with the number of episodes of each where there are several."""
    if len(counts) < 2:
        return ", ".join(map(text, counts))
    return _shown(f"{text(word) or 'none'} ({count:,} episodes)" for word, count in counts.items())


# What else differs.


def _samples(base: Sample, candidate: Sample) -> Iterable[SideDifference]:
    """Yield the tasks with another number of episodes."""
    before, after = (
        Counter(one.unit for one in side.episodes if one.task is not None) for side in (base, candidate)
    )
    others = [unit for unit in before.keys() & after.keys() if before[unit] != after[unit]]
    if others:
        words = [
            _shown(f"{' '.join(unit or ())}: {side[unit]}" for unit in others) for side in (before, after)
        ]
        name = f"of {len(others):,} tasks"
        yield SideDifference(kind="samples", name=name, base=words[0], candidate=words[1])


def _labels(base: Sample, candidate: Sample) -> Iterable[SideDifference]:
    """Yield the tasks with another split or other slices; where both sides are sliced, the base's hold."""
    for name, of in (("split", lambda one: {one.split} - {None}), ("slices", lambda one: {*one.slices})):
        before, after = (_labels_by_task(side, of) for side in (base, candidate))
        others = [unit for unit in sorted(before.keys() & after.keys()) if before[unit] != after[unit]]
        if others:
            words = [
                _shown(f"{' '.join(unit)}: {', '.join(sorted(side[unit])) or 'none'}" for unit in others)
                for side in (before, after)
            ]
            yield SideDifference(
                kind="labels", name=f"{name} of {len(others):,} tasks", base=words[0], candidate=words[1]
            )


def _labels_by_task(
    side: Sample, of: Callable[[EpisodeFigures], set[str]]
) -> dict[tuple[str, str], set[str]]:
    labels: dict[tuple[str, str], set[str]] = {}
    for episode in side.episodes:
        if episode.task is not None and episode.unit is not None:
            labels.setdefault(episode.unit, set()).update(of(episode))
    return labels


def _seeds(base: Sample, candidate: Sample) -> Iterable[SideDifference]:
    before, after = (
        {episode.seed for episode in side.episodes if episode.seed is not None and episode.task is None}
        for side in (base, candidate)
    )
    if before != after and before and after:
        yield SideDifference(
            kind="seeds",
            name="only on one side",
            base=_shown(before - after),
            candidate=_shown(after - before),
        )


def _shown(words: Iterable[str]) -> str:
    found = sorted(words)
    more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


def _joined(words: Iterable[str]) -> str:
    return " ".join(filter(None, words))


def _spec(spec: tuple[str, str, str]) -> str:
    name, version, digest = spec
    return " ".join(filter(None, (name, version, digest[:8])))


def _sets(
    kind: str, name: str, base: Sample, candidate: Sample, of: Any, text: Callable[[Any], str] = str
) -> Iterable[SideDifference]:
    before, after = (
        {word for value in {*map(of, side.episodes)} if value and (word := text(value))}
        for side in (base, candidate)
    )
    if before != after:
        yield SideDifference(kind=kind, name=name, base=_shown(before), candidate=_shown(after))


def _config(base: Iterable[Run], candidate: Iterable[Run]) -> Iterable[SideDifference]:
    before, after = (_flat_configs(runs) for runs in (base, candidate))
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            yield SideDifference(
                kind="config",
                name=key,
                base=_shown(before.get(key, ())),
                candidate=_shown(after.get(key, ())),
            )


def _flat_configs(runs: Iterable[Run]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for run in runs:
        for key, value in _flat(run.config):
            found.setdefault(key, set()).add(value)
    return found


def _flat(config: Any, prefix: str = "") -> Iterable[tuple[str, str]]:
    if isinstance(config, Mapping):
        for key, value in config.items():
            yield from _flat(value, f"{prefix}{key}.")
    elif config is not None:
        yield prefix.rstrip(".") or "config", json.dumps(config, default=str, sort_keys=True)


def _packages(base: Iterable[Run], candidate: Iterable[Run]) -> Iterable[SideDifference]:
    before, after = (
        {name: version for run in runs for name, version in run.packages.items()}
        for runs in (base, candidate)
    )
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield SideDifference(
                kind="package", name=name, base=before.get(name, ""), candidate=after.get(name, "")
            )


def _runs(base: Iterable[Run], candidate: Iterable[Run]) -> Iterable[SideDifference]:
    before, after = [*base], [*candidate]
    for name in _RUN_FIELDS:
        sides = [
            {str(value) for run in runs if (value := getattr(run, name)) not in (None, (), "")}
            for runs in (before, after)
        ]
        if sides[0] != sides[1]:
            yield SideDifference(kind="run", name=name, base=_shown(sides[0]), candidate=_shown(sides[1]))
