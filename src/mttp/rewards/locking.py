"""Lock files: the versions and digests of a spec and its includes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from mttp.errors import SpecError
from mttp.model.log import log
from mttp.otlp import regular_files
from mttp.otlp.whole_files import replacing
from mttp.rewards.parsing import MAX_BYTES
from mttp.rewards.protocols import LockedSpec
from mttp.rewards.source_files import is_same_method

FORMAT: Final = "reward-lock/1"
"""The value of `mttp` in a lock file."""

_warned: set[tuple[str, str, str]] = set()
_is_silent = False

_ChangeKind: TypeAlias = Literal["code", "method", "spec", "stale"]

_FIXES: Final[dict[_ChangeKind, str]] = {
    "code": "change the version, then run `mttp spec lock`",
    "method": "run `mttp spec lock`",
    "spec": "change the version, then run `mttp spec lock`",
    "stale": "run `mttp spec lock` if the change is intended",
}


@dataclass(frozen=True, slots=True)
class Locked:
    """The locked version and digests of one spec."""

    version: str
    """The spec's version."""
    sha256: str
    """The digest of the document."""
    code_sha256: str
    """The digest of the code."""


@dataclass(frozen=True, slots=True)
class Lock:
    """The contents of a lock file."""

    specs: Mapping[str, Locked] = field(default_factory=dict)
    """The spec and its includes by name."""

    @property
    def pins(self) -> dict[str, str]:
        """The locked versions by name, which includes prefer."""
        return {name: entry.version for name, entry in self.specs.items()}


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between a spec and its lock."""

    kind: _ChangeKind
    """
    code or spec: the digest changed and the version did not; method: the lock's digest of the code was made
    by another method and can't be compared; stale: other versions or includes.
    """
    name: str
    """The spec's name."""
    reason: str
    """The difference as a message."""

    @property
    def fix(self) -> str:
        """What to do about it."""
        return _FIXES[self.kind]


def lock_path(path: Path) -> Path:
    """Return the path of a spec's lock file, which is beside the spec."""
    return path.with_name(f"{path.name}.lock")


def locked(spec: LockedSpec) -> Lock:
    """Return the lock for a spec and its includes in their present state."""
    return Lock(
        {
            part.name: Locked(part.version, part.sha256, part.code_sha256)
            for part in sorted(spec.everything(), key=lambda part: part.name)
        }
    )


def write_lock(spec: LockedSpec) -> None:
    """Write the lock file of a spec; raises SpecError for a spec without a file."""
    if spec.path is None:
        raise SpecError(f"spec {spec.name} has no file to lock; write it to a file and load it from there")
    specs = {name: asdict(entry) for name, entry in locked(spec).specs.items()}
    with replacing(lock_path(spec.path), keep_mode=True) as partial:
        partial.write_text(json.dumps({"mttp": FORMAT, "specs": specs}, indent=2) + "\n")


def read_lock(spec: Path) -> Lock | None:
    """Read the lock of a spec file; None if it has none. Raises SpecError for an unreadable lock."""
    path = lock_path(spec)
    try:
        text = regular_files.read(path, MAX_BYTES).decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = f"can't read the lock: {error.strerror or error}"
        raise SpecError(reason, path=str(path)) from error
    except UnicodeError as error:
        raise SpecError(f"can't read the lock: {error}", path=str(path)) from error
    try:
        return _lock(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"not a valid lock ({error}); run `mttp spec lock` to write a new one"
        raise SpecError(reason, path=str(path)) from error


def _lock(data: Any) -> Lock:
    if data["mttp"] != FORMAT:
        raise ValueError(f"`mttp` is {data['mttp']!r}, expected {FORMAT}")
    return Lock({str(name): Locked(**fields) for name, fields in data["specs"].items()})


def changes(lock: Lock, spec: LockedSpec) -> Iterator[Change]:
    """Yield the differences between a spec and its lock."""
    now = locked(spec).specs
    for name in sorted({*lock.specs, *now}):
        then, current = lock.specs.get(name), now.get(name)
        if then is None or current is None:
            reason = "is not in the lock" if then is None else "is in the lock and no longer included"
            yield Change("stale", name, f"{name} {reason}")
        elif then.version != current.version:
            yield Change("stale", name, f"{name} is {current.version}, and {then.version} in the lock")
        elif then.sha256 != current.sha256:
            yield Change("spec", name, f"the rules of {name} {current.version} differ from those in its lock")
        elif not is_same_method(then.code_sha256, current.code_sha256):
            reason = "a version of mttp that computes digests of code otherwise wrote the lock"
            yield Change("method", name, f"the code of {name} {current.version} is not comparable: {reason}")
        elif then.code_sha256 != current.code_sha256:
            yield Change("code", name, f"the code of {name} {current.version} differs from that in its lock")


def silence() -> None:
    """Disable warnings in this process; its parent logs them."""
    global _is_silent
    _is_silent = True


def warn(spec: LockedSpec) -> None:
    """Log once if a spec or its code differs from its lock, or can't be compared, under the same version."""
    if _is_silent or spec.path is None or (lock := read_lock(spec.path)) is None:
        return
    key = (str(spec.path), spec.sha256, spec.code_sha256)
    changed = [change for change in changes(lock, spec) if change.kind != "stale"]
    if changed and key not in _warned:
        _warned.add(key)
        log.warning("%s: %s", spec.path, "; ".join(f"{change.reason}; {change.fix}" for change in changed))
