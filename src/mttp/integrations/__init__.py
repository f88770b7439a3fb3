"""
Integrations with training libraries and model clients.

Each integration is a module that implements `contract.Integration`.
`integration_of` selects it by the packages that the target's classes come from, without importing them.
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
    """A supported library, described without importing it."""

    module: str
    """The module of the integration."""
    extra: str
    """The extra of mttp that installs the library."""
    requires: str
    """The distribution and the supported versions, as a pip requirement."""
    tested: str
    """The tested versions, for messages."""

    @property
    def distribution(self) -> str:
        """The name of the distribution."""
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
    "verifiers": LibraryInfo(
        module="mttp.integrations.verifiers",
        extra="verifiers",
        requires="verifiers >= 0.4",
        tested="0.4",
    ),
    "pettingzoo": LibraryInfo(
        module="mttp.integrations.pettingzoo",
        extra="pettingzoo",
        requires="pettingzoo >= 1.25",
        tested="1.25 and 1.27",
    ),
    "ray": LibraryInfo(
        module="mttp.integrations.rllib",
        extra="rllib",
        requires="ray >= 2.49",
        tested="2.49 and 2.60",
    ),
    "art": LibraryInfo(
        module="mttp.integrations.art",
        extra="art",
        requires="openpipe-art >= 0.5.10",
        tested="0.5.10 and 0.5.18",
    ),
    "inspect_ai": LibraryInfo(
        module="mttp.integrations.inspect_ai",
        extra="inspect",
        requires="inspect-ai >= 0.3.200",
        tested="0.3.200 and 0.3.285",
    ),
    "hud": LibraryInfo(
        module="mttp.integrations.hud",
        extra="hud",
        requires="hud >= 0.6.14",
        tested="0.6.14 and 0.6.21",
    ),
    "openenv": LibraryInfo(
        module="mttp.integrations.openenv",
        extra="openenv",
        requires="openenv >= 0.10",
        tested="0.10",
    ),
    "verl": LibraryInfo(
        module="mttp.integrations.verl",
        extra="verl",
        requires="verl >= 0.8",
        tested="0.8 and 0.9",
    ),
    "openai": LibraryInfo(
        module="mttp.integrations.openai",
        extra="openai",
        requires="openai >= 1.66",
        tested="1.66 to 3.57",
    ),
}
"""The supported libraries, by top-level package."""


def load(package: str) -> Integration:
    """Import the integration for a top-level package, and the library with it."""
    return cast("Integration", import_module(LIBRARIES[package].module))


def integration_of(target: object) -> Integration:
    """Return the integration for a target; raises InstrumentError if there is none."""
    kinds = type(target).__mro__
    packages = list(dict.fromkeys(kind.__module__.partition(".")[0] for kind in kinds))
    for package in packages:
        if package in LIBRARIES:
            return load(package)
    if isinstance(target, classmethod) or (callable(target) and not isinstance(target, type)):
        return cast("Integration", import_module("mttp.integrations.functions"))
    raise InstrumentError(_unsupported(target, packages))


def _unsupported(target: object, packages: list[str]) -> str:
    supported = ", ".join(sorted(LIBRARIES))
    if isinstance(target, type):
        return f"{target.__qualname__} is a class; instrument an instance of it (supported: {supported})"
    kind = type(target)
    named = f"{kind.__module__}.{kind.__qualname__}"
    origin = ", ".join(package for package in packages if package != "builtins") or "builtins"
    return f"mttp has no integration for {named} (packages: {origin}); supported: {supported}"
