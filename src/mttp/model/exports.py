"""Public names of a package, each imported from its module when it is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["exports"]


def exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """
    The `__getattr__` and `__dir__` of a package with these public names, each with its module.

    A module without a dot is one of the package, one with a dot is one of `mttp`.
    A name that equals its module's is the module.
    """
    namespace = vars(sys.modules[package])

    def get(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = import_module(f"mttp.{module}" if "." in module else f"{package}.{module}")
        namespace[name] = found if module == name else getattr(found, name)
        return namespace[name]

    def names() -> list[str]:
        return sorted({*namespace, *modules})

    return get, names
