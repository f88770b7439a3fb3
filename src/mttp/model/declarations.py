"""
The table of fields: each field of a value with its declared type and its attribute.

A field is declared once, on its class, as `name: Annotated[TYPE, a.ATTRIBUTE]`. Its attribute, its value from
an attribute and the check of arguments follow from that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any, NamedTuple

from mttp.semconv import attributes as a

__all__ = ["DOCUMENTS", "Field", "keys", "table"]

DOCUMENTS = frozenset({a.ENV_KWARGS, a.ENV_SPACES, a.INPUTS_JSON, a.REWARD_EVIDENCE, a.RUN_CONFIG_JSON})
"""Text attributes with the JSON of a value of any type."""


class Field(NamedTuple):
    """A field of a value."""

    name: str
    declared: str
    """Its type, without `| None`."""
    is_optional: bool
    attribute: str
    """The attribute that holds it; empty if it has none of its own."""
    of_tool: str
    """The attribute that holds it in a call of a tool; empty for other fields."""
    default: Any
    """Its default, or what makes it; empty text for a required field, such as a name."""


@lru_cache(maxsize=64)
def table(kind: Any) -> tuple[Field, ...]:
    """Return the fields of a class of values in their order."""
    rows = []
    for item in fields(kind):
        declared, *constants = str(item.type).removeprefix("Annotated[").split(", a.")
        constants = [constant.rstrip("]") for constant in constants]
        attribute, of_tool = [*(getattr(a, constant) for constant in constants), "", ""][:2]
        default = item.default if item.default_factory is MISSING else item.default_factory
        default = "" if default is MISSING else default
        shortest = declared.removesuffix(" | None")
        rows.append(Field(item.name, shortest, shortest != declared, attribute, of_tool, default))
    return tuple(rows)


@lru_cache(maxsize=64)
def keys(kind: Any, *names: str) -> Mapping[str, str]:
    """Return the attribute of each field that has one, or of the fields with these names."""
    known = {field.name: field.attribute for field in table(kind) if field.attribute}
    return {name: known[name] for name in names} if names else known
