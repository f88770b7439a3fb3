"""Lookup of included specs: in files, in directories of specs and in installed packages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from mttp.errors import SpecError
from mttp.rewards.document import SpecInclude
from mttp.rewards.loading import nearest
from mttp.rewards.parsing import read
from mttp.rewards.versions import Constraint, constraint, full, version

GROUP: Final = "mttp.reward_specs"
"""The entry point group by which packages publish specs."""

_SUFFIXES: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A spec file that an include may refer to."""

    path: Path
    """The file."""
    name: str
    """The name in the file."""
    version: str
    """The version in the file."""
    package: str | None = None
    """The installed package that publishes it; None for a file named by its path."""


def choose(
    part: SpecInclude,
    folder: Path | None,
    fail: Callable[[str], SpecError],
    pins: Mapping[str, str],
) -> Candidate:
    """
    Return the file of an included spec: the version that `pins` has by name, else the newest.

    Raises SpecError when no spec is found, or none with a version that satisfies the constraint.
    """
    try:
        candidates = list(_candidates(part.spec, folder))
    except OSError as error:  # a name that is too long, an unreadable directory
        raise fail(f"can't look up the spec {part.spec:.60}: {error.strerror or error}") from error
    if not candidates:
        raise fail(f"no spec {part.spec!r} is found{nearest(part.spec, _known(folder))}")
    required = constraint(part.version) if part.version is not None else None
    matching = [
        candidate for candidate in candidates if required is None or _matches(required, candidate.version)
    ]
    if not matching:
        versions = ", ".join(sorted(candidate.version for candidate in candidates))
        raise fail(f"the version of {part.spec} is {versions}, and the include requires {part.version}")
    pinned = [candidate for candidate in matching if pins.get(candidate.name) == candidate.version]
    return max(pinned or matching, key=lambda candidate: version(candidate.version))


def refuse_version(part: SpecInclude, found: str, fail: Callable[[str], SpecError]) -> None:
    """Raise SpecError when the version of a given spec does not satisfy the include's constraint."""
    if part.version is not None and not _matches(constraint(part.version), found):
        raise fail(f"the version of {part.spec} is {found}, and the include requires {part.version}")


def _matches(required: Constraint, version_text: str) -> bool:
    try:
        return required.takes(version_text)
    except ValueError:  # not a version; loading the spec reports it
        return False


def _candidates(spec: str, folder: Path | None) -> Iterator[Candidate]:
    """Yield candidates for a file path, `directory/name`, an installed name or `collection/name`."""
    if folder is not None:
        path = folder / spec
        if path.exists() and not path.is_dir():
            yield _candidate(path)
            return
        if candidates := list(_in_directory(path.parent, path.name)):
            yield from candidates
            return
    collection, _, name = spec.rpartition("/")
    for point in metadata.entry_points(group=GROUP):
        if point.name == (collection or name):
            yield from _installed(point, name)


def _installed(point: metadata.EntryPoint, name: str) -> Iterator[Candidate]:
    """Yield the specs of an entry point: `package` is all in its folder, `package:stem` is one."""
    package, _, stem = (part.strip() for part in point.value.partition(":"))
    for place in _folders(package):
        if stem:
            files = [place / f"{stem}{suffix}" for suffix in _SUFFIXES]
            candidates = [_candidate(file) for file in files if file.is_file()]
        else:
            candidates = list(_in_directory(place, name))
        yield from (replace(candidate, package=package) for candidate in candidates)


def _folders(package: str) -> list[Path]:
    """Return the folders of an installed package without importing its parents."""
    top, *below = package.split(".")
    try:
        module_spec = find_spec(top)
    except (ImportError, ValueError):
        return []
    places = module_spec.submodule_search_locations if module_spec is not None else None
    return [Path(place, *below) for place in places or ()]


def _in_directory(directory: Path, name: str) -> Iterator[Candidate]:
    for path in _specs_in(directory):
        try:
            candidate = _candidate(path)
        except SpecError:  # not a spec file
            continue
        if candidate.name == name:
            yield candidate


def _specs_in(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.suffix in _SUFFIXES and path.is_file())


def _candidate(path: Path) -> Candidate:
    data = read(path).data
    fields = data if isinstance(data, dict) else {}
    return Candidate(path, str(fields.get("name", "")), _stated_version(fields))


def _stated_version(fields: Mapping[str, Any]) -> str:
    """Return the version with three numbers, or the text of an invalid one, which loading rejects."""
    written = str(fields.get("version", ""))
    try:
        return full(written)
    except ValueError:
        return written


def _known(folder: Path | None) -> Iterable[str]:
    """Yield known names for a suggestion: files beside the spec, and installed specs."""
    if folder is not None:
        yield from (path.name for path in _specs_in(folder))
    yield from (point.name for point in metadata.entry_points(group=GROUP))
