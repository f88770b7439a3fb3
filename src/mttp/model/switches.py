"""Arguments of set-up and reading that are True or False."""

from __future__ import annotations

from collections.abc import Mapping

from mttp.errors import MttpError
from mttp.model.reprs import bounded_repr

__all__ = ["check_switches"]

_KINDS = frozenset({"bool", "bool_", "int"})
"""Names of types: also those of numpy, which is not imported for it."""


def check_switches(error: type[MttpError], switches: Mapping[str, object]) -> None:
    """Raise the error for an argument that is neither True nor False, nor absent."""
    for name, switch in switches.items():
        if switch is not None and not (type(switch).__name__ in _KINDS and switch in (0, 1)):
            raise error(f"{name}={bounded_repr(switch):.80} is neither True nor False")
