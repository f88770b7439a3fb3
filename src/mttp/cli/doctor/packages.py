"""Checks of versions: Python, mttp, its dependencies, its extras, and the libraries that it instruments."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from mttp.cli.doctor.findings import SetupFinding, error, ok, warning
from mttp.integrations import LIBRARIES

__all__ = ["dependencies", "extras", "libraries", "python"]

_FOR_DEVELOPMENT = frozenset({"all", "dev", "docs", "test"})
"""Extras that are lists of others, or for work on mttp itself."""


def python() -> Iterator[SetupFinding]:
    """Compare the version of Python with the one that mttp requires."""
    running = platform.python_version()
    required = metadata.metadata("mttp")["Requires-Python"]
    if SpecifierSet(required).contains(running, prereleases=True):
        yield ok("python", running)
    else:
        yield error("python", f"{running}, mttp needs {required}", f"use a Python {required}")


def dependencies() -> Iterator[SetupFinding]:
    """Compare the versions of mttp's dependencies with the bounds in its metadata."""
    yield ok("mttp", metadata.version("mttp"))
    for needed in _requirements(extra=""):
        found = _version(needed.name)
        if found is None:
            yield error(needed.name, "not installed", f"pip install '{_text(needed)}'")
        elif not _fits(needed, found):
            yield error(needed.name, _outside(needed, found), f"pip install '{_text(needed)}'")
        else:
            yield ok(needed.name, found)


def extras() -> Iterator[SetupFinding]:
    """List the extras that are installed and those that are not, and packages outside their bounds."""
    names = metadata.metadata("mttp").get_all("Provides-Extra") or []
    installed, missing = [], []
    for extra in sorted(set(names) - _FOR_DEVELOPMENT):
        needed = _requirements(extra=extra)
        if not needed:  # no package of it is for this version of Python
            continue
        if any(_version(one.name) is None for one in needed):
            missing.append(extra)
            continue
        installed.append(extra)
        yield from _outside_bounds(extra, needed)
    yield ok("extras", f"installed: {', '.join(installed) or 'none'}")
    if missing:
        yield ok("extras", f"not installed: {', '.join(missing)}", "pip install 'mttp[NAME]' adds one")


def _outside_bounds(extra: str, needed: list[Requirement]) -> Iterator[SetupFinding]:
    for one in needed:
        found = _version(one.name)
        if found is not None and not _fits(one, found):
            yield warning(
                f"extra {extra}", f"{one.name} {_outside(one, found)}", f"pip install 'mttp[{extra}]'"
            )


def libraries() -> Iterator[SetupFinding]:
    """List the libraries that can be instrumented, with the versions that were tested."""
    missing = []
    for library in LIBRARIES.values():
        needed, found = Requirement(library.requires), _version(library.distribution)
        if found is None:
            missing.append(library.distribution)
        elif _fits(needed, found):
            yield ok("library", f"{library.distribution} {found}; tested: {library.tested}")
        else:
            yield warning(
                "library",
                f"{library.distribution} {_outside(needed, found)}",
                f"it may not be recorded: pip install '{_text(needed)}'",
            )
    if missing:
        yield ok("library", f"not installed: {', '.join(missing)}")


def _requirements(*, extra: str) -> list[Requirement]:
    """Return what mttp, or one of its extras, needs here; extras of mttp itself are replaced by theirs."""
    found: list[Requirement] = []
    for text in metadata.requires("mttp") or ():
        needed = Requirement(text)
        names_extra = needed.marker is not None and "extra" in str(needed.marker)
        if names_extra is not bool(extra):
            continue
        if needed.marker is not None and not needed.marker.evaluate({"extra": extra}):
            continue
        if needed.name == "mttp":
            found += [one for inner in needed.extras for one in _requirements(extra=inner)]
        else:
            found.append(needed)
    return found


def _version(distribution: str) -> str | None:
    """Return the installed version of a distribution; None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _fits(needed: Requirement, version: str) -> bool:
    return needed.specifier.contains(version, prereleases=True)


def _outside(needed: Requirement, version: str) -> str:
    return f"{version} is outside {needed.specifier}"


def _text(needed: Requirement) -> str:
    """Return the requirement without its marker."""
    inner = f"[{','.join(sorted(needed.extras))}]" if needed.extras else ""
    return f"{needed.name}{inner}{needed.specifier}"
