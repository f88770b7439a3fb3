"""What differs between two sides of a comparison besides their results."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias

from mttp.model.episodes import Run
from mttp.model.figures import EpisodeFigures
from mttp.model.nesting import from_json
from mttp.model.statistics.inference import scipy_stats
from mttp.study.registered_defaults import registered_default
from mttp.study.sample import Sample

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
    sides = base, candidate
    settings, tasks = _settings(sides), _differing_tasks(sides)
    scored = [
        [episode for episode in side.episodes if episode.reward is not None or episode.return_ is not None]
        for side in sides
    ]
    refused = [
        *_env(base, candidate, settings),
        *_tasks(tasks),
        *_inputs(sides, tasks),
        *_mixture("spec", "reward spec", scored, attrgetter("spec"), _spec),
        *_mixture("grader", "grader", scored, attrgetter("graders"), _graders),
    ]
    others = [
        *_facts(settings, passive=True),
        *_samples(tasks),
        *_labels(tasks),
        *_seeds(base, candidate),
        *_config(base.runs, candidate.runs),
        *_packages(base.runs, candidate.runs),
        *_sets("policy", "version", base, candidate, attrgetter("policy_version")),
        *_runs(base.runs, candidate.runs),
    ]
    return (*(replace(difference, is_refused=True) for difference in refused), *others)


# The same experiment.


def _mixture(
    kind: str,
    name: str,
    sides: Sequence[Sequence[EpisodeFigures]],
    of: Callable[[EpisodeFigures], Any],
    text: Callable[[Any], str],
) -> Iterator[SideDifference]:
    """Yield the values that only one side has, and several values of which the shares differ."""
    counts = [Counter(map(of, side)) for side in sides]
    is_same = counts[0].keys() == counts[1].keys()
    if not is_same or (len(counts[0]) > 1 and not _are_shares_equal(sides, of)):
        yield SideDifference(
            kind=kind, name=name, base=_counted(counts[0], text), candidate=_counted(counts[1], text)
        )


def _are_shares_equal(sides: Sequence[Sequence[EpisodeFigures]], of: Callable[[EpisodeFigures], Any]) -> bool:
    """
    Return whether the episodes of each task of both sides have the values equally often.

    Those of other tasks and of none are drawn, so that a test decides: a share that it can't tell from the
    other side's can't make a test of their means significant.
    """
    pools: list[dict[Any, Counter[Any]]] = [{}, {}]
    for pool, side in zip(pools, sides, strict=True):
        for episode in side:
            unit = episode.unit if episode.task is not None else None
            pool.setdefault(unit, Counter())[of(episode)] += 1
    for unit in (pools[0].keys() & pools[1].keys()) - {None}:
        base, candidate = (pool.pop(unit) for pool in pools)
        if base.keys() != candidate.keys() or (len(base) > 1 and base != candidate):
            return False
    totals = [sum(pool.values(), Counter()) for pool in pools]
    values = {*totals[0], *totals[1]}
    if len(values) < 2 or not all(totals):
        return True
    table = [[total[value] for value in values] for total in totals]
    return float(scipy_stats().chi2_contingency(table, correction=False).pvalue) > 0.05


def _counted(counts: Counter[Any], text: Callable[[Any], str]) -> str:
    """Return the words, with the number of episodes of each where there are several."""
    if len(counts) < 2:
        return ", ".join(map(text, counts))
    return _shown(f"{text(word) or 'none'} ({count:,} episodes)" for word, count in counts.items())


# Environments.

_SETTING: Callable[[EpisodeFigures], tuple[Any, ...]] = attrgetter(
    "env", "env_version", "env_spaces", "env_kwargs", "env_wrappers"
)
_IF_KNOWN = ("version", "spaces")
"""Facts of an environment that are compared where both sides state them."""
_Settings: TypeAlias = dict[tuple[Any, ...], dict[tuple[str, str], str]]
"""Facts by kind and name: `fact`, `argument`, or `passive` of those that do not change the episodes."""


def _settings(sides: Sequence[Sample]) -> list[_Settings]:
    """Return the facts of the environments of each side; of one id they have the same names."""
    settings = [
        {setting: dict(_facts_of(*setting)) for setting in {*map(_SETTING, side.episodes)}} for side in sides
    ]
    by_env: dict[str, list[dict[tuple[str, str], str]]] = {}
    for side in settings:
        for (env, *_), facts in side.items():
            by_env.setdefault(env, []).append(facts)
    for env, every in by_env.items():
        for key in {key for facts in every for key in facts}:
            lacking = [facts for facts in every if key not in facts]
            default = registered_default(env, key[1]) if lacking else None
            for facts in lacking:
                facts[key] = "" if default is None else json.dumps(default, default=str, sort_keys=True)
    return settings


def _facts_of(
    _: str, version: str | None, spaces: str | None, kwargs: str | None, wrappers: tuple[str, ...]
) -> Iterator[tuple[tuple[str, str], str]]:
    yield ("fact", "version"), version or ""
    yield ("fact", "spaces"), spaces or ""
    for name, value in _flat(from_json(kwargs) if kwargs else {}):
        yield ("passive" if name in _PASSIVE_ARGUMENTS else "argument", name), value
    yield ("fact", "wrappers"), " of ".join(name for name in wrappers if name not in _PASSIVE_WRAPPERS)
    yield ("passive", "passive wrappers"), " of ".join(name for name in wrappers if name in _PASSIVE_WRAPPERS)


def _env(base: Sample, candidate: Sample, settings: Sequence[_Settings]) -> Iterator[SideDifference]:
    """Yield what differs between the environments: id, facts, else the shares of several ones."""
    named = [*_sets("env", "id", base, candidate, attrgetter("env")), *_facts(settings, passive=False)]
    yield from named
    if not named and max(map(len, settings)) > 1:
        words = {setting: _words(setting[0], facts) for side in settings for setting, facts in side.items()}
        sides = base.episodes, candidate.episodes
        yield from _mixture("env", "mixture", sides, lambda episode: words[_SETTING(episode)], str)


def _words(env: str, facts: Mapping[tuple[str, str], str]) -> str:
    """Return what makes the episodes of an environment."""
    return _joined(
        [
            env,
            *(
                f"{name}={facts[kind, name]}"
                for kind, name in sorted(facts)
                if facts[kind, name] and kind != "passive" and name != "spaces"
            ),
        ]
    )


def _facts(settings: Sequence[_Settings], *, passive: bool) -> Iterator[SideDifference]:
    """Yield the facts that differ of each environment that both sides have."""
    for env in sorted({setting[0] for setting in settings[0]} & {setting[0] for setting in settings[1]}):
        sides = [[facts for setting, facts in side.items() if setting[0] == env] for side in settings]
        for key in sorted(sides[0][0]):
            kind, name = key
            values = [{facts[key] for facts in side} for side in sides]
            is_known = name not in _IF_KNOWN or all(map(all, values))
            if values[0] != values[1] and (kind == "passive") is passive and is_known:
                yield SideDifference(
                    kind="env", name=f"{name} of {env}", base=_shown(values[0]), candidate=_shown(values[1])
                )


# Tasks.

_TASK: Callable[[EpisodeFigures], tuple[Any, ...]] = attrgetter(
    "env", "task", "split", "slices", "inputs_json"
)
_Tasks: TypeAlias = dict[tuple[str, str], list[tuple[Any, ...]]]
"""Split, slices and inputs of the episodes of each task."""


def _differing_tasks(sides: Sequence[Sample]) -> list[_Tasks]:
    """Return the episodes of each side, of the tasks of which these are not the same on both."""
    counts = [Counter(row for row in map(_TASK, side.episodes) if row[1] is not None) for side in sides]
    differing = {row[:2] for row, _ in counts[0].items() ^ counts[1].items()}
    tasks: list[_Tasks] = [{}, {}]
    for side, by_task in zip(counts, tasks, strict=True):
        for (env, task, *facts), number in side.items():
            if (env, task) in differing:
                by_task.setdefault((env, task), []).extend([tuple(facts)] * number)
    return tasks


def _shared(tasks: Sequence[_Tasks], of: Callable[[list[tuple[Any, ...]]], Any]) -> list[dict[str, Any]]:
    """Return what the episodes of each task of both sides have, by its name, where it differs."""
    values = [
        {" ".join(task): of(side[task]) for task in sorted(tasks[0].keys() & tasks[1].keys())}
        for side in tasks
    ]
    return [
        {task: value for task, value in side.items() if values[0][task] != values[1][task]} for side in values
    ]


def _tasks(tasks: Sequence[_Tasks]) -> Iterator[SideDifference]:
    alone = [[_joined(task) for task in side.keys() - other.keys()] for side, other in (tasks, tasks[::-1])]
    if any(alone):
        yield SideDifference(
            kind="tasks", name="only on one side", base=_shown(alone[0]), candidate=_shown(alone[1])
        )


def _inputs(sides: Sequence[Sample], tasks: Sequence[_Tasks]) -> Iterator[SideDifference]:
    """Yield the tasks with other inputs under the same name; also none beside those of other tasks."""
    others = _shared(tasks, lambda rows: {row[2] for row in rows} - {None} or {""})
    if others[0] and all(
        any(episode.inputs_json and episode.task is not None for episode in side.episodes) for side in sides
    ):
        yield _of_tasks("inputs", "of {} tasks of the same name", others, "{} {}", _digest)


def _digest(documents: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(documents)).encode()).hexdigest()[:8]


def _samples(tasks: Sequence[_Tasks]) -> Iterator[SideDifference]:
    """Yield the tasks with another number of episodes."""
    if (others := _shared(tasks, len))[0]:
        yield _of_tasks("samples", "of {} tasks", others, "{}: {}", str)


def _labels(tasks: Sequence[_Tasks]) -> Iterator[SideDifference]:
    """Yield the tasks with another split or other slices; where both sides are sliced, the base's hold."""
    if (others := _shared(tasks, lambda rows: {row[0] for row in rows} - {None}))[0]:
        yield _of_tasks("labels", "split of {} tasks", others, "{}: {}", _listed)
    if (others := _shared(tasks, lambda rows: {*chain.from_iterable(row[1] for row in rows)}))[0]:
        yield _of_tasks("labels", "slices of {} tasks", others, "{}: {}", _listed)


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(words)) or "none"


def _of_tasks(
    kind: str, name: str, sides: Sequence[Mapping[str, Any]], form: str, text: Callable[[Any], str]
) -> SideDifference:
    """Return the difference of tasks by what their episodes have."""
    words = [_shown(form.format(task, text(value)) for task, value in side.items()) for side in sides]
    return SideDifference(
        kind=kind, name=name.format(f"{len(sides[0]):,}"), base=words[0], candidate=words[1]
    )


# What else differs.


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
    ordered = sorted(words)
    more = f" and {len(ordered) - _SHOWN:,} more" if len(ordered) > _SHOWN else ""
    return ", ".join(ordered[:_SHOWN]) + more


def _joined(words: Iterable[str]) -> str:
    return " ".join(filter(None, words))


def _graders(graders: Iterable[Iterable[str]]) -> str:
    return ", ".join(map(_joined, graders))


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
    by_key: dict[str, set[str]] = {}
    for run in runs:
        for key, value in _flat(run.config):
            by_key.setdefault(key, set()).add(value)
    return by_key


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
