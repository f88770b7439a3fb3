"""The registry of hooks."""

from __future__ import annotations

from typing import Any

REGISTRY: dict[str, Any] = {}


def registry_lookup(kind: str, name: str) -> Any:
    """Return a registered object."""
    return REGISTRY.get(f"{kind}:{name}")
