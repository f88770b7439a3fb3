"""Types of the columns of attributes, as the convention tells them."""

from __future__ import annotations

from mttp.semconv import registry

ATTRIBUTES: dict[str, str] = {
    key: "bytes" if definition.type == "any" else definition.type
    for key, definition in registry.attributes().items()
    if not definition.is_template
}
"""Types of the attribute columns; an attribute of any type has a column for packed arrays."""

TEMPLATES: dict[str, str] = {
    key: definition.type
    for key, definition in registry.attributes().items()
    if definition.is_template and definition.type != "any"
}
"""Value types of the map columns, whose keys are the user's own names."""
