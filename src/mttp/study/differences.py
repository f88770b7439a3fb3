"""What differs between two sides of a comparison besides their results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from mttp.model.episodes import Run
from mttp.study.sample import Sample

__all__ = ["REFUSED", "SideDifference", "differences"]

REFUSED = ("tasks", "spec", "grader")
"""Kinds of differences that a comparison refuses unless they are allowed."""
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
    """tasks, spec, grader, environment, config, package, policy or run."""
    name: str
    """Which one, for example the key of a configuration."""
    base: str
    candidate: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.base or 'none'} -> {self.candidate or 'none'}"


def differences(base: Sample, candidate: Sample) -> tuple[SideDifference, ...]:
    """The differences of two sides: those that make a comparison doubtful first."""
    found = [
        *_tasks(base, candidate),
        *_sets("spec", "reward spec", base, candidate, attrgetter("spec"), _spec),
        *_sets(
            "grader", "grader", base, candidate, attrgetter("grader"), lambda one: " ".join(filter(None, one))
        ),
        *_sets("environment", "id", base, candidate, attrgetter("env")),
        *_config(base.runs, candidate.runs),
        *_packages(base.runs, candidate.runs),
        *_sets("policy", "version", base, candidate, attrgetter("policy_version")),
        *_runs(base.runs, candidate.runs),
    ]
    return tuple(found)


def _tasks(base: Sample, candidate: Sample) -> Iterable[SideDifference]:
    before, after = (
        {" ".join(filter(None, (one.env, one.task))) for one in side.episodes if one.task is not None}
        for side in (base, candidate)
    )
    if before != after and before and after:
        yield SideDifference(
            kind="tasks",
            name="only on one side",
            base=_shown(before - after),
            candidate=_shown(after - before),
        )


def _shown(words: Iterable[str]) -> str:
    found = sorted(words)
    more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


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
