"""Lazy public names of a package: each is imported from its module on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["exports"]


def exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """
    Return `__getattr__` and `__dir__` for a package; `modules` maps each public name to its module.

    A module without a dot is relative to the package, one with a dot to `mttp`.
    A name that equals its module's name is the module itself.
    """
    namespace = vars(sys.modules[package])

    def get(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        imported = import_module(f"mttp.{module}" if "." in module else f"{package}.{module}")
        namespace[name] = imported if module == name else getattr(imported, name)
        return namespace[name]

    def names() -> list[str]:
        return sorted({*namespace, *modules})

    return get, names
