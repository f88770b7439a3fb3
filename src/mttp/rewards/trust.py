"""Trust: the modules and directories whose code a spec may import and call."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from mttp.errors import SpecError
from mttp.rewards.folder import is_within

VARIABLE = "MTTP_TRUST"
"""The environment variable with the names of trusted modules, separated by commas."""

Trusted: TypeAlias = "bool | str | Collection[str] | Trust"
"""The `trust` argument: no further code (False), all code (True), or modules by name."""

_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Trust:
    """The code that the user trusts."""

    everything: bool = False
    """Whether all code is trusted."""
    modules: frozenset[str] = frozenset()
    """Names of trusted modules; their submodules are trusted as well."""
    directories: tuple[Path, ...] = ()
    """Directories whose modules, and those below, are trusted."""
    package: str | None = None
    """The installed package that contains the spec; None for other specs."""

    @classmethod
    def of(cls, given: Trusted, directory: Path | None) -> Trust:
        """
        Return the trust from an argument, the environment and the directory of the loaded spec.

        Raises SpecError for a name that is not a module name.
        """
        if isinstance(given, Trust):
            return given
        names = [part.strip() for part in os.environ.get(VARIABLE, "").split(",") if part.strip()]
        if not isinstance(given, bool):
            names += [given] if isinstance(given, str) else given
        for name in names:
            if not all(part.isidentifier() for part in name.split(".")):
                raise SpecError(
                    f"{name!r} is not a module name; "
                    f"write the names in `trust` and {VARIABLE} as in an import, such as acme_rewards.graders"
                )
        directories = () if directory is None else (directory.absolute(),)
        return cls(given is True, frozenset(names), directories)

    def of_package(self, package: str, directory: Path) -> Trust:
        """Return the trust for a spec in a directory of an installed package."""
        directories = (directory.absolute(),) if self.has_module(package) else ()
        return replace(self, directories=(*self.directories, *directories), package=package)

    def has_module(self, name: str) -> bool:
        """Return whether the module or one of its parents is trusted."""
        return self.everything or any(f"{name}.".startswith(f"{module}.") for module in self.modules)

    def has_directory(self, directory: Path) -> bool:
        """
        Return whether a directory, with links resolved, is in or below a trusted one.

        Installed packages below a trusted directory, as in a virtual environment, are not trusted.
        """
        return self.everything or any(_is_below(directory, root) for root in self.directories)


def _is_below(directory: Path, top: Path) -> bool:
    if not is_within(directory, top):
        return False
    return not set(directory.resolve().relative_to(top.resolve()).parts) & set(_INSTALLED)
