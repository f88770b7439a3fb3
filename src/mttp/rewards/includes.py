"""Where the specs are that a spec includes: in files, in directories of specs, in installed packages."""

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

__all__ = ["GROUP", "Candidate", "choose", "refuse_version"]

GROUP: Final = "mttp.reward_specs"
"""The group of entry points by which a package says which specs it brings."""

_SUFFIXES: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A spec that may be the one that is meant."""

    path: Path
    """Its file."""
    name: str
    """What it says its name is."""
    version: str
    """What it says its version is."""
    package: str | None = None
    """The installed package that brings it; None for a file that was named by its path."""


def choose(
    part: SpecInclude,
    folder: Path | None,
    fail: Callable[[str], SpecError],
    pins: Mapping[str, str],
) -> Candidate:
    """
    The file of an included spec: of several versions the one that `pins` has by name, else the newest.

    Raises SpecError where there is none, or none of a version that will do.
    """
    try:
        found = list(_candidates(part.spec, folder))
    except OSError as error:  # a name that is too long, a directory that may not be read
        raise fail(f"{part.spec:.60} can't be looked for: {error.strerror or error}") from error
    if not found:
        raise fail(f"there is no spec {part.spec!r}{nearest(part.spec, _known(folder))}")
    wanted = constraint(part.version) if part.version is not None else None
    fitting = [one for one in found if wanted is None or _takes(wanted, one.version)]
    if not fitting:
        versions = ", ".join(sorted(one.version for one in found))
        raise fail(f"{part.spec} is there as {versions}, and {part.version} is asked for")
    pinned = [one for one in fitting if pins.get(one.name) == one.version]
    return max(pinned or fitting, key=lambda one: version(one.version))


def refuse_version(part: SpecInclude, found: str, fail: Callable[[str], SpecError]) -> None:
    """Raise SpecError where a spec that was given is not of a version that will do."""
    if part.version is not None and not _takes(constraint(part.version), found):
        raise fail(f"{part.spec} is there as {found}, and {part.version} is asked for")


def _takes(wanted: Constraint, found: str) -> bool:
    try:
        return wanted.takes(found)
    except ValueError:  # the document says something else there, which loading it will tell
        return False


def _candidates(spec: str, folder: Path | None) -> Iterator[Candidate]:
    """By a file's path, by `directory/name`, by the name of an installed one, by `collection/name`."""
    if folder is not None:
        path = folder / spec
        if path.exists() and not path.is_dir():
            yield _candidate(path)
            return
        if found := list(_in_directory(path.parent, path.name)):
            yield from found
            return
    collection, _, name = spec.rpartition("/")
    for point in metadata.entry_points(group=GROUP):
        if point.name == (collection or name):
            yield from _installed(point, name)


def _installed(point: metadata.EntryPoint, name: str) -> Iterator[Candidate]:
    """What an entry point brings: `package` all specs in its folder, `package:stem` one of them."""
    package, _, stem = (part.strip() for part in point.value.partition(":"))
    for place in _folders(package):
        if stem:
            files = [place / f"{stem}{suffix}" for suffix in _SUFFIXES]
            found = [_candidate(file) for file in files if file.is_file()]
        else:
            found = list(_in_directory(place, name))
        yield from (replace(one, package=package) for one in found)


def _folders(package: str) -> list[Path]:
    """The folders of an installed package; what is above it is not imported."""
    top, *below = package.split(".")
    try:
        found = find_spec(top)
    except (ImportError, ValueError):
        return []
    places = found.submodule_search_locations if found is not None else None
    return [Path(place, *below) for place in places or ()]


def _in_directory(directory: Path, name: str) -> Iterator[Candidate]:
    for path in _specs_in(directory):
        try:
            found = _candidate(path)
        except SpecError:  # a file of another sort lies beside the specs
            continue
        if found.name == name:
            yield found


def _specs_in(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.suffix in _SUFFIXES and path.is_file())


def _candidate(path: Path) -> Candidate:
    data = read(path).data
    said = data if isinstance(data, dict) else {}
    return Candidate(path, str(said.get("name", "")), _stated_version(said))


def _stated_version(said: Mapping[str, Any]) -> str:
    """The version with its three numbers; as it is written where it is none, which loading refuses."""
    written = str(said.get("version", ""))
    try:
        return full(written)
    except ValueError:
        return written


def _known(folder: Path | None) -> Iterable[str]:
    """What could have been meant: files beside the spec, and installed specs."""
    if folder is not None:
        yield from (path.name for path in _specs_in(folder))
    yield from (point.name for point in metadata.entry_points(group=GROUP))
