"""OpenTelemetry's policies for registries, as far as `checks` has not: names, units, examples, stability."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Final

from tool.finding import Check, Problem
from tool.registry import Attribute, Registry
from tool.resolve import resolve

__all__ = ["POLICIES"]

DOCS: Final = "https://opentelemetry.io/docs/specs/semconv/general/naming"
ONE_THING: Final = ("shape", "range", "parent")
"""Last words of arrays whose entries make one thing."""
SINGULAR: Final = ("us", "ss", "is")
"""Ends of words in the singular that look like plurals: status, loss, basis."""
UNIT: Final = re.compile(r"1|s|By|%|\{[a-z_]+\}")
"""The units of UCUM that are in use here: one, seconds, bytes, percent, and things that are counted."""
STABILITY: Final = ("development", "alpha", "beta", "release_candidate", "stable")


def array_in_singular(registry: Registry) -> Iterator[Problem]:
    """An array that is named like one thing."""
    for attribute in registry.attributes:
        if attribute.value_type.endswith("[]") and not _last_word(attribute).endswith(("s", *ONE_THING)):
            yield attribute.file, attribute.key, "it is an array; put its last word in the plural"


def text_in_plural(registry: Registry) -> Iterator[Problem]:
    """A text that is named like several things, and is not a JSON document of them."""
    for attribute in registry.attributes:
        word, is_text = _last_word(attribute), attribute.value_type == "string"
        if is_text and word.endswith("s") and not word.endswith(SINGULAR) and "JSON" not in attribute.brief:
            yield attribute.file, attribute.key, "it is one text; put its last word in the singular"


def brief_format(registry: Registry) -> Iterator[Problem]:
    """A brief or a note that is not a sentence."""
    of_attributes = ((one.file, one.key, [one.brief, one.note]) for one in registry.attributes)
    of_signals = (
        (one.file, one.name, [str(one.facts.get(name, "")) for name in ("brief", "note")])
        for one in registry.signals
    )
    for file, where, texts in chain(of_attributes, of_signals):
        for text in filter(None, map(str.strip, texts)):
            if not text.endswith("."):
                yield file, where, f"{text[-40:]!r} does not end with a full stop; write a sentence"


def missing_example(registry: Registry) -> Iterator[Problem]:
    """A text attribute without an example."""
    for attribute in registry.attributes:
        is_text = attribute.value_type in ("string", "string[]") and not attribute.members
        if is_text and not attribute.examples and attribute.deprecated is None:
            yield attribute.file, attribute.key, "a text needs an example; add `examples`"


def example_type(registry: Registry) -> Iterator[Problem]:
    """An example that the attribute could not have."""
    kinds = {"string": str, "boolean": bool, "int": int, "double": (int, float)}
    for attribute in registry.attributes:
        type_ = attribute.value_type
        kind = kinds.get(type_.removesuffix("[]"))
        for example in attribute.examples if kind else ():
            values = example if type_.endswith("[]") and isinstance(example, list) else [example]
            if not all(isinstance(value, kind) for value in values):  # type: ignore[arg-type]  # not None
                yield attribute.file, attribute.key, f"the example {example!r} is no {type_}; correct it"


def unit_format(registry: Registry) -> Iterator[Problem]:
    """A metric whose unit is not one of UCUM."""
    for metric in registry.of("metrics"):
        unit = str(metric.facts["unit"])
        if not UNIT.fullmatch(unit):
            yield metric.file, metric.name, f"the unit {unit!r} is not 1, s, By, % or {{things}}; use UCUM"


def metric_total(registry: Registry) -> Iterator[Problem]:
    """A metric that is called a total, which every counter is."""
    for metric in registry.of("metrics"):
        if re.search(r"[._]total$", metric.name):
            yield metric.file, metric.name, f"leave `total` out of the name; see {DOCS}"


def complex_dimension(registry: Registry) -> Iterator[Problem]:
    """A metric or an entity with an attribute that is not a scalar or an array of scalars."""
    for signal in resolve(registry):
        definition = signal.definition
        for attribute in signal.attributes if definition.section != "spans" else ():
            if attribute.definition.value_type in ("any", "bytes"):
                key = attribute.definition.key
                yield definition.file, definition.name, f"`{key}` is of any type; only spans may have such"


def stability_order(registry: Registry) -> Iterator[Problem]:
    """A signal that claims to be more stable than what it is made of."""
    for signal in resolve(registry):
        definition = signal.definition
        stated = STABILITY.index(definition.facts["stability"])
        for attribute in signal.attributes:
            if attribute.requirement_level == "opt_in" or "opt_in" in attribute.requirement_level:
                continue
            if STABILITY.index(attribute.definition.stability) < stated:
                key, found = attribute.definition.key, attribute.definition.stability
                yield definition.file, definition.name, f"`{key}` is only at {found}; be no more stable"


def rename_target(registry: Registry) -> Iterator[Problem]:
    """An attribute that was renamed to one that is deprecated, or of another type."""
    known = {attribute.key: attribute for attribute in (*registry.upstream, *registry.attributes)}
    for attribute in registry.attributes:
        target = known.get((attribute.deprecated or {}).get("renamed_to", ""))
        if target is None:
            continue
        if target.deprecated is not None:
            yield attribute.file, attribute.key, f"`{target.key}` is deprecated too; name what it became"
        if target.type != attribute.type:
            yield (
                attribute.file,
                attribute.key,
                f"it is a {attribute.type} and `{target.key}` a {target.type}; obsolete it instead",
            )


POLICIES: Final[tuple[Check, ...]] = (
    array_in_singular,
    text_in_plural,
    brief_format,
    missing_example,
    example_type,
    unit_format,
    metric_total,
    complex_dimension,
    stability_order,
    rename_target,
)
"""Every policy."""


def _last_word(attribute: Attribute) -> str:
    return re.split(r"[._]", attribute.key)[-1]
