"""Lookup of modules without importing them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mttp.rewards.folder import find

LIBRARY: Final = "mttp"
"""The import name of this library."""
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Module:
    """A module that was found."""

    name: str
    """The name, as in an import."""
    path: Path | None
    """The source file; None for a built-in or compiled module."""
    root: Path | None = None
    """The directory of its own code: the spec's, or that of its package; None for a single module."""
    package: str | None = None
    """The package to which its own code belongs; None if that is all of the directory."""

    def owns(self, name: str) -> bool:
        """Return whether a module of this name belongs to the same package or folder."""
        top = name.partition(".")[0]
        if self.package is not None or self.root is None:
            return top == (self.package or self.name)
        return top != LIBRARY and find(self.root, top) is not None

    def find(self, name: str) -> Path | None:
        """Return the source file of a module of the same package or folder; None if it has none."""
        if name == self.name:
            return self.path
        place = find(self.root, name) if self.root is not None and self.owns(name) else None
        return place if place is not None and place.is_file() else None


def locate(name: str, folder: Path | None) -> Module | None:
    """Return the module of that name in `folder` or installed, or None."""
    if folder is not None and (path := find(folder, name)) is not None:
        return Module(name, path / "__init__.py" if path.is_dir() else path, folder.resolve())
    top = name.partition(".")[0]
    try:
        spec = find_spec(top)  # for a submodule, find_spec would import its parents
    except (ImportError, ValueError):
        return None
    if spec is None or (not spec.submodule_search_locations and name != top):
        return None
    for place in map(Path, spec.submodule_search_locations or ()):
        inner = find(place.parent, name) if place.name == top else None
        if inner is not None:
            return Module(name, inner / "__init__.py" if inner.is_dir() else inner, place.parent, top)
    path = Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    if path is None or spec.submodule_search_locations:
        return Module(name, None)
    module = Module(name, path)
    return module if is_installed(module) else Module(name, path, path.parent)


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
