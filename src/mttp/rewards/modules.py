"""Lookup of modules without importing them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from mttp.rewards.folder import find

__all__ = ["Module", "is_installed", "locate", "version_of"]

_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Module:
    """A module that was found."""

    name: str
    """The name, as in an import."""
    path: Path | None
    """The source file; None for a built-in or compiled module."""
    root: Path | None
    """The directory of its own code: the spec's, or that of its package."""
    alone: bool = False
    """Whether it is a single installed module, whose neighbours are not its own code."""
    beside: bool = False
    """Whether it is in the spec's directory."""


def locate(name: str, folder: Path | None) -> Module | None:
    """Return the module of that name in `folder` or installed, or None."""
    if folder is not None and (path := find(folder, name)) is not None:
        return Module(name, path / "__init__.py" if path.is_dir() else path, folder.resolve(), beside=True)
    try:
        found = find_spec(name.partition(".")[0])  # for a submodule, find_spec would import its parents
    except (ImportError, ValueError):
        return None
    if found is None:
        return None
    if not found.submodule_search_locations:
        return _single(name, found.origin)
    for place in found.submodule_search_locations:
        root = Path(place)
        inner = find(root.parent, name) if root.name == name.partition(".")[0] else None
        if inner is not None:
            path = inner / "__init__.py" if inner.is_dir() else inner
            return Module(name, path, root.parent)
    return Module(name, None, None)


def _single(name: str, origin: str | None) -> Module | None:
    if "." in name:
        return None
    path = Path(origin) if origin and origin.endswith(".py") else None
    if path is None:
        return Module(name, None, None)
    alone = name in sys.stdlib_module_names or any(part in _INSTALLED for part in path.parts)
    return Module(name, path, path.parent, alone=alone)


def is_installed(module: Module) -> bool:
    """Return whether a module belongs to the standard library or an installed distribution."""
    is_python = module.name.partition(".")[0] in sys.stdlib_module_names
    return is_python or (module.path is not None and any(part in _INSTALLED for part in module.path.parts))


def version_of(distribution: str) -> str | None:
    """Return the version of a distribution, or None if it is not installed."""
    try:
        return metadata.version(distribution)
    except (metadata.PackageNotFoundError, ValueError):  # ValueError: an empty name
        return None
