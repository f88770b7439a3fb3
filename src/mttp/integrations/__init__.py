"""
Libraries whose episodes are recorded without changes to the code that uses them.

Each integration is a module with the three functions of `contract.Integration`.
It is chosen by the packages that a target's classes come from, so that nothing foreign is imported to decide.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from mttp.errors import InstrumentError

if TYPE_CHECKING:
    from mttp.integrations.contract import Integration

__all__ = ["MODULES", "integration_of", "load"]

MODULES = {"gymnasium": "mttp.integrations.gymnasium"}
"""The module that knows a library, by the library's top-level package."""


def load(package: str) -> Integration:
    """The integration for a library; it imports the library."""
    return cast("Integration", import_module(MODULES[package]))


def integration_of(target: object) -> Integration:
    """The integration that knows the target's class; raises InstrumentError where there is none."""
    packages = _packages(type(target))
    for package in packages:
        if package in MODULES:
            return load(package)
    raise InstrumentError(_unknown(target, packages))


def _packages(kind: type) -> list[str]:
    """The top-level packages that a class and its bases are from, nearest first."""
    return list(dict.fromkeys(base.__module__.partition(".")[0] for base in kind.__mro__))


def _unknown(target: object, packages: list[str]) -> str:
    supported = ", ".join(sorted(MODULES))
    if isinstance(target, type):
        return f"{target.__qualname__} is a class; instrument an instance of it (supported: {supported})"
    kind = type(target)
    named = f"{kind.__module__}.{kind.__qualname__}"
    origin = ", ".join(package for package in packages if package != "builtins") or "builtins"
    return f"nothing here knows how to record {named} (packages: {origin}); supported: {supported}"
