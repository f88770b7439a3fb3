"""The lock of a spec: which versions and digests it and its includes had when somebody looked."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from mttp.errors import SpecError
from mttp.otlp import regular_files
from mttp.rewards.parsing import MAX_BYTES
from mttp.rewards.protocols import LockedSpec

__all__ = [
    "Change",
    "Lock",
    "Locked",
    "changes",
    "lock_path",
    "locked",
    "read_lock",
    "silence",
    "warn",
    "write_lock",
]

FORMAT: Final = "reward-lock/1"
"""What a lock says under `mttp`."""

_log = logging.getLogger("mttp")
_warned: set[tuple[str, str, str]] = set()
_is_silent = False

_ChangeKind: TypeAlias = Literal["code", "spec", "stale"]


@dataclass(frozen=True, slots=True)
class Locked:
    """One spec as it was."""

    version: str
    """Its version."""
    sha256: str
    """The digest of its document."""
    code_sha256: str
    """The digest of its code."""


@dataclass(frozen=True, slots=True)
class Lock:
    """A spec and its includes as they were."""

    specs: Mapping[str, Locked] = field(default_factory=dict)
    """By name."""

    @property
    def pins(self) -> dict[str, str]:
        """The version of each, which is taken where there are several."""
        return {name: one.version for name, one in self.specs.items()}


@dataclass(frozen=True, slots=True)
class Change:
    """What is no longer as it was locked."""

    kind: _ChangeKind
    """code or spec: its digest changed, its version did not; stale: another version, or other includes."""
    name: str
    """The spec's name."""
    reason: str
    """What changed, in words."""


def lock_path(path: Path) -> Path:
    """Where a spec's lock is: beside it."""
    return path.with_name(f"{path.name}.lock")


def locked(spec: LockedSpec) -> Lock:
    """A spec and its includes as they are."""
    return Lock(
        {
            one.name: Locked(one.version, one.sha256, one.code_sha256)
            for one in sorted(spec.everything(), key=lambda one: one.name)
        }
    )


def write_lock(spec: LockedSpec) -> None:
    """Lock a spec that has a file."""
    if spec.path is None:
        raise SpecError("only a spec in a file has a lock")
    specs = {name: asdict(one) for name, one in locked(spec).specs.items()}
    lock_path(spec.path).write_text(json.dumps({"mttp": FORMAT, "specs": specs}, indent=2) + "\n")


def read_lock(spec: Path) -> Lock | None:
    """The lock of the spec in a file; None where it has none."""
    path = lock_path(spec)
    try:
        text = regular_files.read(path, MAX_BYTES).decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = f"the lock can't be read: {error.strerror or error}"
        raise SpecError(reason, path=str(path)) from error
    except UnicodeError as error:
        raise SpecError(f"the lock can't be read: {error}", path=str(path)) from error
    try:
        return _lock(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"is no lock that can be read ({error}); `mttp spec lock` writes another"
        raise SpecError(reason, path=str(path)) from error


def _lock(data: Any) -> Lock:
    if data["mttp"] != FORMAT:
        raise ValueError(f"it says {data['mttp']!r} under `mttp`, not {FORMAT}")
    return Lock({str(name): Locked(**one) for name, one in data["specs"].items()})


def changes(lock: Lock, spec: LockedSpec) -> Iterator[Change]:
    """What is no longer as it was locked."""
    now = locked(spec).specs
    for name in sorted({*lock.specs, *now}):
        then, found = lock.specs.get(name), now.get(name)
        if then is None or found is None:
            reason = "is not in the lock" if then is None else "is in the lock, and no longer used"
            yield Change("stale", name, f"{name} {reason}")
        elif then.version != found.version:
            yield Change("stale", name, f"{name} is {found.version}, and {then.version} in the lock")
        elif then.sha256 != found.sha256:
            yield Change(
                "spec", name, f"{name} scores by other rules than in the lock, and is still {found.version}"
            )
        elif then.code_sha256 != found.code_sha256:
            yield Change(
                "code", name, f"{name} runs other code than in the lock, and is still {found.version}"
            )


def silence() -> None:
    """Leave warnings to the process that started this one."""
    global _is_silent
    _is_silent = True


def warn(spec: LockedSpec) -> None:
    """Say once that a spec changed under its version, where it has a lock."""
    if _is_silent or spec.path is None or (lock := read_lock(spec.path)) is None:
        return
    key = (str(spec.path), spec.sha256, spec.code_sha256)
    changed = [change for change in changes(lock, spec) if change.kind != "stale"]
    if changed and key not in _warned:
        _warned.add(key)
        _log.warning(
            "%s: %s: give it another version, then `mttp spec lock`",
            spec.path,
            "; ".join(one.reason for one in changed),
        )
