"""Everything that is derived from the registry, as text by path below the repository's root."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
import yaml

from tool import data, package, python_name, schema_file
from tool.registry import Attribute, Registry
from tool.resolve import ResolvedAttribute, ResolvedSignal, order, resolve

__all__ = ["generate"]

TEMPLATES = Path(__file__).parent.parent / "templates"
LINE_LENGTH = 110
LEVELS = ("required", "conditionally_required", "recommended", "opt_in")

PYTHON = "src/mttp/semconv"
MODULES = {
    "package.py.j2": f"{PYTHON}/__init__.py",
    "attributes.py.j2": f"{PYTHON}/attributes.py",
    "metrics.py.j2": f"{PYTHON}/metrics.py",
    "spans.py.j2": f"{PYTHON}/spans.py",
    "versions.py.j2": f"{PYTHON}/versions.py",
    "values.py.j2": f"{PYTHON}/values.py",
    "semconv.md.j2": "docs/semconv.md",
}
"""Where each template's output goes."""


def generate(
    registry: Registry,
    *,
    earlier: Mapping[str, Any] | None = None,
    published: Mapping[str, frozenset[str]] | None = None,
) -> dict[str, str]:
    """
    Every derived file.

    `earlier` is the schema file of the version before, and `published` has the attributes of each version
    before, both as they were published.
    """
    signals = resolve(registry)
    schema = schema_file.render(registry, earlier=earlier)
    texts = {
        "semconv/resolved.json": json.dumps(package.resolved(registry, signals), indent=1, ensure_ascii=False)
        + "\n",
        f"{PYTHON}/registry.json": data.render(registry, signals),
        f"semconv/schemas/{registry.version}.yaml": schema,
        f"semconv/schemas/{registry.version}.txt": schema_file.names(registry),
    }
    environment, names = _environment(), _names(registry, signals)
    versions = names["versions"] = dict(reversed(yaml.safe_load(schema)["versions"].items()))
    names["added"] = schema_file.added(registry, before=published or {}, versions=versions)
    for template, path in MODULES.items():
        texts[path] = environment.get_template(template).render(names)
    return texts


def _names(registry: Registry, signals: tuple[ResolvedSignal, ...]) -> dict[str, Any]:
    attributes = sorted((*registry.attributes, *registry.upstream), key=order)
    return {
        "registry": registry,
        "attributes": attributes,
        "namespaces": groupby(sorted(registry.attributes, key=_namespace), key=_namespace),
        "enums": [attribute for attribute in attributes if attribute.members],
        "spans": _section(signals, "spans"),
        "metrics": _section(signals, "metrics"),
        "entities": _section(signals, "entities"),
        "usual": usual_conditions(signals),
    }


def _section(signals: tuple[ResolvedSignal, ...], section: str) -> list[ResolvedSignal]:
    return [signal for signal in signals if signal.definition.section == section]


def _namespace(attribute: Attribute) -> str:
    """Where the reference lists an attribute: under `mttp.run`, or under `mttp` for a lone name."""
    words = attribute.key.split(".")
    return ".".join(words[:2]) if len(words) > 2 else words[0]


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # The output is Python and Markdown, never HTML.
        autoescape=False,
    )
    environment.filters |= {
        "constant": python_name.constant,
        "enum_class": python_name.enum_class,
        "docstring": docstring,
        "literal": literal,
        "pretty": pretty,
        "cell": cell,
        "sentences": sentences,
        "level": level,
        "condition": condition,
        "by_level": by_level,
    }
    return environment


def docstring(text: str, indent: int = 0) -> str:
    """`text` as a docstring: on one line where it fits, else wrapped between lines of quotes."""
    escaped = " ".join(text.split()).replace("\\", "\\\\").replace('"""', r"\"\"\"")
    margin = " " * indent
    if len(margin) + len(escaped) + 6 <= LINE_LENGTH and not escaped.endswith('"'):
        return f'"""{escaped}"""'
    lines = textwrap.wrap(escaped, LINE_LENGTH - indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(['"""', *(margin + line for line in lines), f'{margin}"""'])


def literal(value: str | int) -> str:
    """`value` as Python writes it, with double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def pretty(value: Any) -> str:
    """`value` of dicts, lists and texts as Python writes it, as a formatter leaves it."""
    if not isinstance(value, (dict, list)):
        return literal(value)
    pairs = (
        [f"{literal(key)}: {pretty(item)}," for key, item in value.items()]
        if isinstance(value, dict)
        else [f"{pretty(item)}," for item in value]
    )
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    inside = textwrap.indent("\n".join(pairs), "    ")
    return f"{opened}\n{inside}\n{closed}" if pairs else f"{opened}{closed}"


def cell(text: str) -> str:
    """`text` on one line, safe within a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def sentences(text: str) -> str:
    """`text` with one sentence per line."""
    return re.sub(r"(?<=\.) (?=[A-Z])", "\n", text)


def level(requirement: str | Mapping[str, str]) -> str:
    """A requirement level in words."""
    if isinstance(requirement, str):
        return requirement.replace("_", " ")
    ((name, condition),) = requirement.items()
    return f"{name.replace('_', ' ')} {condition}"


def condition(attribute: ResolvedAttribute) -> str:
    """Return the condition of a requirement level; that content may be recorded is none."""
    stated = attribute.requirement_level
    if isinstance(stated, str) or (attribute.definition.is_content and "recommended" in stated):
        return ""
    return next(iter(stated.values()))


def usual_conditions(signals: Sequence[ResolvedSignal]) -> dict[str, str]:
    """Return, by key, on what each attribute is required that has one requirement level in all signals."""
    levels: dict[str, list[str | Mapping[str, str]]] = {}
    for attribute in (attribute for signal in signals for attribute in signal.attributes):
        levels.setdefault(attribute.definition.key, []).append(attribute.requirement_level)
    return {
        key: first["conditionally_required"]
        for key, (first, *others) in levels.items()
        if not isinstance(first, str)
        and "conditionally_required" in first
        and all(first == other for other in others)
    }


def by_level(attributes: Sequence[ResolvedAttribute]) -> list[tuple[str, list[ResolvedAttribute]]]:
    """Return the attributes of each requirement level, the strictest level first."""
    levels: dict[str, list[ResolvedAttribute]] = {name: [] for name in LEVELS}
    for attribute in attributes:
        level = attribute.requirement_level
        levels[level if isinstance(level, str) else next(iter(level))].append(attribute)
    return [(name.replace("_", " "), members) for name, members in levels.items() if members]
