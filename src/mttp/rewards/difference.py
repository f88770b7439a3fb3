"""Differences between two specs, and the version bump that they require."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from mttp.rewards.spec import RewardSpec
from mttp.rewards.versions import version

Bump: TypeAlias = Literal["major", "minor", "patch", "none"]
"""
major: rewards have another meaning, or samples that could be scored no longer can.
minor: rewards have the same meaning and other values. patch: rewards are equal. none: nothing changed.
"""

BUMPS: Final[tuple[Bump, ...]] = get_args(Bump)
"""The bumps, from major to none."""

_MEANING: Final = {"kind", "range", "relative", "scope"}
"""Keys of a component that define the meaning of its value."""
_SETTINGS: Final[Mapping[str, Bump]] = {
    "combine": "major",
    "range": "major",
    "floor": "major",
    "on_invalid": "major",
    "partial_credit": "major",
    "clip": "minor",
    "step_total": "minor",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One change between two specs."""

    what: str
    """The changed item, such as `components.math.weight` or `code.graders.py`."""
    bump: Bump
    """The part of the version that the change requires to raise."""
    before: Any = None
    """The old value; None if there was none."""
    after: Any = None
    """The new value; None if there is none."""


def differences(before: RewardSpec, after: RewardSpec) -> list[Difference]:
    """Return all changes between two specs, those with the highest bump first."""
    changes = [*_scoring(before, after), *_code(before, after), *_words(before, after)]
    return sorted(changes, key=lambda change: (BUMPS.index(change.bump), change.what))


def deserved(found: list[Difference]) -> Bump:
    """Return the highest bump that the changes require."""
    return min((change.bump for change in found), key=BUMPS.index, default="none")


def stated(before: RewardSpec, after: RewardSpec) -> Bump | None:
    """Return the part of the version that was raised, or None if the version went down."""
    old, new = version(before.version), version(after.version)
    if new < old:
        return None
    for bump, old_number, new_number in zip(BUMPS, old.numbers, new.numbers, strict=False):
        if old_number != new_number:
            return bump
    return "patch" if old != new else "none"


def is_enough(before: RewardSpec, after: RewardSpec, found: list[Difference]) -> bool:
    """Return whether the version was raised as far as the changes require."""
    raised = stated(before, after)
    return raised is not None and BUMPS.index(raised) <= BUMPS.index(deserved(found))


def _scoring(before: RewardSpec, after: RewardSpec) -> Iterator[Difference]:
    """Yield changes that affect scores, from the canonical JSON of both specs."""
    old, new = json.loads(before.canonical), json.loads(after.canonical)
    if before.name != after.name:
        yield Difference("name", "major", before.name, after.name)
    for key, bump in _SETTINGS.items():
        if old.get(key) != new.get(key):
            yield Difference(key, bump, old.get(key), new.get(key))
    yield from _inputs(old["inputs"], new["inputs"])
    yield from _parts("components", "name", old["components"], new["components"])
    yield from _parts("include", "as", old["include"], new["include"])
    for name in sorted(before.included.keys() & after.included.keys()):
        for change in differences(before.included[name], after.included[name]):
            yield Difference(f"include.{name}.{change.what}", change.bump, change.before, change.after)


def _inputs(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        is_easier = after is None or (before is None and after.endswith("?")) or after == f"{before}?"
        yield Difference(f"inputs.{name}", "minor" if is_easier else "major", before, after)


def _parts(key: str, named: str, old: list[Any], new: list[Any]) -> Iterator[Difference]:
    before, after = ({entry[named]: entry for entry in part} for part in (old, new))
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            kinds = [part.get(name, {}).get("kind") for part in (before, after)]
            yield Difference(f"{key}.{name}", "major", *kinds)
            continue
        for field in sorted({*before[name], *after[name]} - {"sha256"}):
            old_value, new_value = before[name].get(field), after[name].get(field)
            if old_value != new_value:
                bump: Bump = "major" if field in _MEANING else "minor"
                yield Difference(f"{key}.{name}.{field}", bump, old_value, new_value)


def _code(before: RewardSpec, after: RewardSpec) -> Iterator[Difference]:
    """Yield changed files; if there are none, a change of the code digest for another reason."""
    old, new = _files(before), _files(after)
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    for name in changed:
        yield Difference(f"code.{name}", "minor", _there(name, old), _there(name, new))
    if not changed and before.own_code_sha256 != after.own_code_sha256:
        digests = [spec.own_code_sha256.rpartition(":")[2][:12] for spec in (before, after)]
        yield Difference("code", "minor", *digests)


def _files(spec: RewardSpec) -> dict[str, str]:
    return {name: text for code in spec.codes.values() for name, text in code.parts if text}


def _there(name: str, files: Mapping[str, str]) -> str | None:
    return files[name][:12] if name in files else None


def _words(before: RewardSpec, after: RewardSpec) -> Iterator[Difference]:
    """Yield changes that do not affect scores."""
    old, new = before.to_dict(), after.to_dict()
    for key in ("description", "horizon", "cases"):
        if old.get(key) != new.get(key):
            yield Difference(key, "patch")
    texts = [[part.get("description") for part in fields.get("components", [])] for fields in (old, new)]
    if len(texts[0]) == len(texts[1]) and texts[0] != texts[1]:
        yield Difference("components.description", "patch")
