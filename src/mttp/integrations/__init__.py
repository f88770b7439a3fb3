"""
Libraries whose episodes are recorded without changes to the code that uses them.

Each integration is a module with the three functions of `contract.Integration`.
It is chosen by the packages that a target's classes come from, so that nothing foreign is imported to decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from mttp.errors import InstrumentError

if TYPE_CHECKING:
    from mttp.integrations.contract import Integration

__all__ = ["LIBRARIES", "LibraryInfo", "integration_of", "load"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryInfo:
    """What is known of a library without importing it."""

    module: str
    """The module of ours that knows it."""
    extra: str
    """The extra of ours that brings it."""
    requires: str
    """The distribution and the versions that can be recorded, as pip understands it."""
    tested: str
    """The versions that the tests have seen."""

    @property
    def distribution(self) -> str:
        """The name that it is installed by."""
        return self.requires.partition(">")[0].strip()


LIBRARIES: Mapping[str, LibraryInfo] = {
    "gymnasium": LibraryInfo(
        module="mttp.integrations.gymnasium",
        extra="gymnasium",
        requires="gymnasium >= 1.1",
        tested="1.1 to 1.4",
    ),
    "trl": LibraryInfo(
        module="mttp.integrations.trl",
        extra="trl",
        requires="trl >= 1.12",
        tested="1.12 and 1.16",
    ),
    "stable_baselines3": LibraryInfo(
        module="mttp.integrations.stable_baselines3",
        extra="sb3",
        requires="stable-baselines3 >= 2.7",
        tested="2.7 to 2.9",
    ),
    "openai": LibraryInfo(
        module="mttp.integrations.openai",
        extra="openai",
        requires="openai >= 1.66",
        tested="1.66 to 3.52",
    ),
}
"""The libraries that can be recorded, by top-level package."""


def load(package: str) -> Integration:
    """The integration for a library; it imports the library."""
    return cast("Integration", import_module(LIBRARIES[package].module))


def integration_of(target: object) -> Integration:
    """The integration that knows the target's class, or functions; raises InstrumentError for all else."""
    packages = _packages(type(target))
    for package in packages:
        if package in LIBRARIES:
            return load(package)
    if isinstance(target, classmethod) or (callable(target) and not isinstance(target, type)):
        return cast("Integration", import_module("mttp.integrations.functions"))
    raise InstrumentError(_unknown(target, packages))


def _packages(kind: type) -> list[str]:
    """The top-level packages that a class and its bases are from, nearest first."""
    return list(dict.fromkeys(base.__module__.partition(".")[0] for base in kind.__mro__))


def _unknown(target: object, packages: list[str]) -> str:
    supported = ", ".join(sorted(LIBRARIES))
    if isinstance(target, type):
        return f"{target.__qualname__} is a class; instrument an instance of it (supported: {supported})"
    kind = type(target)
    named = f"{kind.__module__}.{kind.__qualname__}"
    origin = ", ".join(package for package in packages if package != "builtins") or "builtins"
    return f"nothing here knows how to record {named} (packages: {origin}); supported: {supported}"
