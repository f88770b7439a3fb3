"""Whose code a spec may import and call. The user says so, and no file does."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from mttp.errors import SpecError
from mttp.rewards.folder import is_within

__all__ = ["VARIABLE", "Trust", "Trusted"]

VARIABLE = "MTTP_TRUST"
"""The environment variable that names trusted modules, separated by commas."""

Trusted: TypeAlias = "bool | str | Collection[str] | Trust"
"""What a caller trusts: nothing (False), all code (True), or the modules of these names."""

_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Trust:
    """The code that the user trusts."""

    everything: bool = False
    """Whether any code may be called."""
    modules: frozenset[str] = frozenset()
    """Names of modules; what is below them is trusted, too."""
    directories: tuple[Path, ...] = ()
    """Directories whose modules are trusted, with those below them."""
    package: str | None = None
    """The installed package that brings the spec, if one does."""

    @classmethod
    def of(cls, given: Trusted, directory: Path | None) -> Trust:
        """
        What a caller and the environment trust, with the directory of the spec that the caller named.

        Raises SpecError for a name that no module can have.
        """
        if isinstance(given, Trust):
            return given
        names = [part.strip() for part in os.environ.get(VARIABLE, "").split(",") if part.strip()]
        if not isinstance(given, bool):
            names += [given] if isinstance(given, str) else given
        for name in names:
            if not all(part.isidentifier() for part in name.split(".")):
                raise SpecError(
                    f"{name!r} is trusted, and is not the name of a module; "
                    f"trust and {VARIABLE} take names as in an import, such as acme_rewards.graders"
                )
        directories = () if directory is None else (directory.absolute(),)
        return cls(given is True, frozenset(names), directories)

    def of_package(self, package: str, directory: Path) -> Trust:
        """The trust in a spec that an installed package has in a directory."""
        directories = (directory.absolute(),) if self.has_module(package) else ()
        return replace(self, directories=(*self.directories, *directories), package=package)

    def has_module(self, name: str) -> bool:
        """Whether the user trusts a module of this name, or one above it."""
        return self.everything or any(f"{name}.".startswith(f"{one}.") for one in self.modules)

    def has_directory(self, directory: Path) -> bool:
        """
        Whether the modules in a directory are trusted: links are followed first.

        Installed packages below a trusted directory, as in a virtual environment, are not.
        """
        return self.everything or any(_is_below(directory, one) for one in self.directories)


def _is_below(directory: Path, top: Path) -> bool:
    if not is_within(directory, top):
        return False
    return not set(directory.resolve().relative_to(top.resolve()).parts) & set(_INSTALLED)
