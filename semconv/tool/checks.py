"""The rules of the registry: each check yields what breaks it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from tool import python_name
from tool.finding import Check, Finding, Problem
from tool.load import Document, build
from tool.policies import POLICIES
from tool.registry import Attribute, Ref, Registry, Signal, condition
from tool.resolve import mentions, resolve
from tool.shape import shape

__all__ = ["CHECKS", "check"]

NAME = re.compile(r"(?=[a-z0-9_]+\.)[a-z][a-z0-9]*([._][a-z0-9]+)+")
NAMESPACE = "mttp"
MOST_ATTRIBUTES = 127
"""A span drops what is beyond 128 by default, and the user's own attributes come on top."""


def check(documents: Iterable[Document]) -> list[Finding]:
    """Everything that is wrong with the registry in `documents`, sorted by file."""
    documents = list(documents)
    misshapen = sorted(set(shape(documents)))
    if misshapen:
        return misshapen
    registry = build(documents)
    return sorted(
        Finding(file=file, where=where, id=each.__name__, message=message)
        for each in CHECKS
        for file, where, message in each(registry)
    )


def name_format(registry: Registry) -> Iterator[Problem]:
    """A name that is not words in snake_case with dots between."""
    for file, name in chain(_attribute_names(registry), _signal_names(registry), _group_ids(registry)):
        if not NAME.fullmatch(name):
            yield (
                file,
                name,
                "the name must be two or more words of [a-z0-9] with dots or single `_` between; rename it",
            )


def foreign_namespace(registry: Registry) -> Iterator[Problem]:
    """A name of ours outside our namespace."""
    own = ((each.file, each.key) for each in registry.attributes)
    for file, name in chain(own, _signal_names(registry), _group_ids(registry)):
        if not name.startswith(f"{NAMESPACE}."):
            yield (
                file,
                name,
                f"names of ours begin with `{NAMESPACE}.`; rename it, or list it in upstream.yaml",
            )


def duplicate_name(registry: Registry) -> Iterator[Problem]:
    """Two definitions of one kind with the same name."""
    kinds: list[list[tuple[str, str]]] = [list(_attribute_names(registry)), list(_group_ids(registry))]
    kinds += [
        [(signal.file, signal.name) for signal in registry.of(section)]
        for section in ("spans", "metrics", "entities")
    ]
    for names in kinds:
        times = Counter(name for _, name in names)
        for file, name in sorted({pair for pair in names if times[pair[1]] > 1}):
            yield file, name, f"it is defined {times[name]} times in the registry; keep one"


def name_is_namespace(registry: Registry) -> Iterator[Problem]:
    """An attribute that other attributes lie below, or a metric that other metrics do."""
    metrics = [(metric.file, metric.name) for metric in registry.of("metrics")]
    for names in (list(_attribute_names(registry)), metrics):
        for file, name in names:
            below = sorted(other for _, other in names if other.startswith(f"{name}."))
            if below:
                yield (
                    file,
                    name,
                    f"`{below[0]}` lies below it, and a name is never a namespace too; rename one",
                )


def constant_collision(registry: Registry) -> Iterator[Problem]:
    """Two names that are written alike in Python."""
    spans = (
        (span.file, str(name)) for span in registry.of("spans") if (name := _generated(span).get("name"))
    )
    metrics = ((metric.file, metric.name) for metric in registry.of("metrics"))
    for names in (_attribute_names(registry), spans, metrics):
        constants: dict[str, str] = {}
        for file, name in names:
            constant = python_name.constant(name)
            first = constants.setdefault(constant, name)
            if first != name:
                yield file, name, f"it becomes {constant} in Python, as `{first}` does; rename one"


def metric_is_attribute(registry: Registry) -> Iterator[Problem]:
    """A metric that is named like an attribute."""
    keys = {name for _, name in _attribute_names(registry)}
    for metric in registry.of("metrics"):
        if metric.name in keys:
            yield (
                metric.file,
                metric.name,
                "an attribute has this name; put the metric's namespace in the plural",
            )


def enum_duplicate(registry: Registry) -> Iterator[Problem]:
    """Two members of an enum with the same id or value."""
    for attribute in _all(registry):
        for what in ("id", "value"):
            times = Counter(getattr(member, what) for member in attribute.members)
            for value in (value for value, count in times.items() if count > 1):
                yield _enum(attribute, f"{times[value]} members have the {what} {value!r}")


def enum_mixed(registry: Registry) -> Iterator[Problem]:
    """An enum whose values are of several types."""
    for attribute in _all(registry):
        types = sorted({type(member.value).__name__ for member in attribute.members})
        if len(types) > 1:
            yield _enum(attribute, f"its values are of types {' and '.join(types)}")


def enum_brief(registry: Registry) -> Iterator[Problem]:
    """A member of an enum that has no brief."""
    for attribute in _all(registry):
        for member in attribute.members:
            if not member.brief:
                yield _enum(attribute, f"the member `{member.id}` has no brief")


def dangling_reference(registry: Registry) -> Iterator[Problem]:
    """A reference to something that is not defined."""
    keys = {name for _, name in _attribute_names(registry)}
    groups = {group.id for group in registry.groups}
    for file, where, key in _references(registry):
        if key not in keys:
            yield file, where, f"`{key}` is not defined; define it in model/ or list it in upstream.yaml"
    for signal in registry.signals:
        for group in signal.groups:
            if group not in groups:
                yield signal.file, signal.name, f"there is no attribute group `{group}`; define it in model/"


def dangling_rename(registry: Registry) -> Iterator[Problem]:
    """A deprecated name that became one that does not exist."""
    keys = {name for _, name in _attribute_names(registry)}
    metrics = {metric.name for metric in registry.of("metrics")}
    attributes = ((each.file, each.key, each.deprecated, keys) for each in registry.attributes)
    measured = (
        (each.file, each.name, each.facts.get("deprecated"), metrics) for each in registry.of("metrics")
    )
    for file, name, deprecated, known in chain(attributes, measured):
        target = (deprecated or {}).get("renamed_to")
        if target is not None and target not in known:
            yield file, name, f"it was renamed to `{target}`, which is not defined; define that"


def group_collision(registry: Registry) -> Iterator[Problem]:
    """Two groups on one signal that hold the same attribute."""
    groups = {group.id: group for group in registry.groups}
    for signal in registry.signals:
        holders: dict[str, list[str]] = {}
        for group, ref in mentions(signal, groups):
            if group is not None:
                holders.setdefault(ref.key, []).append(group)
        for key, held in holders.items():
            if len(set(held)) > 1:
                both = " and ".join(sorted(set(held)))
                yield signal.file, signal.name, f"the groups {both} hold `{key}` each; split one of them"


def repeated_reference(registry: Registry) -> Iterator[Problem]:
    """A signal or a group that refers to the same thing twice."""
    signals = (
        (signal.file, signal.name, [*_keys(signal.refs), *signal.groups]) for signal in registry.signals
    )
    groups = ((group.file, group.id, _keys(group.refs)) for group in registry.groups)
    for file, where, keys in chain(signals, groups):
        for key in (key for key, count in Counter(keys).items() if count > 1):
            yield file, where, f"it refers to `{key}` more than once; keep one reference"


def span_too_wide(registry: Registry) -> Iterator[Problem]:
    """A span with more attributes than are kept."""
    for signal in resolve(registry):
        count, definition = len(signal.attributes), signal.definition
        if definition.section == "spans" and count > MOST_ATTRIBUTES:
            yield (
                definition.file,
                definition.name,
                f"it carries {count} attributes of at most {MOST_ATTRIBUTES}; move some to a child",
            )


def unused_attribute(registry: Registry) -> Iterator[Problem]:
    """An attribute of ours that no signal carries."""
    used = {attribute.definition.key for signal in resolve(registry) for attribute in signal.attributes}
    for attribute in registry.attributes:
        if attribute.key not in used and attribute.deprecated is None:
            yield (
                attribute.file,
                attribute.key,
                "no signal refers to it; refer to it where it is written, or delete it",
            )


def unknown_source(registry: Registry) -> Iterator[Problem]:
    """A reused attribute from a registry that upstream.yaml does not name."""
    for attribute in registry.upstream:
        if attribute.source not in registry.sources:
            yield (
                attribute.file,
                attribute.key,
                f"there is no source `{attribute.source}`; add it under `sources`",
            )


def unknown_dependency(registry: Registry) -> Iterator[Problem]:
    """A dependency in the manifest at another version than upstream.yaml is from."""
    urls = {source["schema_url"] for source in registry.sources.values()}
    for dependency in registry.manifest["dependencies"]:
        if dependency["schema_url"] not in urls:
            yield (
                "manifest.yaml",
                "dependencies",
                f"no source in upstream.yaml is at {dependency['schema_url']}; use one version",
            )


def missing_annotation(registry: Registry) -> Iterator[Problem]:
    """A signal that the generator cannot write down."""
    wanted = {"spans": {"name", "exclude"}, "metrics": {"metric_value_type"}}
    for signal in registry.signals:
        names = wanted.get(signal.section)
        if names and not names & _generated(signal).keys():
            either = " or ".join(sorted(names))
            yield signal.file, signal.name, f"its `code_generation` annotation lacks {either}; add it"


CHECKS: tuple[Check, ...] = (
    name_format,
    foreign_namespace,
    duplicate_name,
    name_is_namespace,
    constant_collision,
    metric_is_attribute,
    enum_duplicate,
    enum_mixed,
    enum_brief,
    dangling_reference,
    dangling_rename,
    group_collision,
    repeated_reference,
    span_too_wide,
    unused_attribute,
    unknown_source,
    unknown_dependency,
    missing_annotation,
    *POLICIES,
)
"""Every check of meaning; `shape` goes before them."""


def _all(registry: Registry) -> Iterator[Attribute]:
    # Reused names come first: where two clash, ours is the one to change.
    return chain(registry.upstream, registry.attributes)


def _attribute_names(registry: Registry) -> Iterator[tuple[str, str]]:
    return ((attribute.file, attribute.key) for attribute in _all(registry))


def _signal_names(registry: Registry) -> Iterator[tuple[str, str]]:
    return ((signal.file, signal.name) for signal in registry.signals)


def _group_ids(registry: Registry) -> Iterator[tuple[str, str]]:
    return ((group.file, group.id) for group in registry.groups)


def _references(registry: Registry) -> Iterator[tuple[str, str, str]]:
    for group in registry.groups:
        yield from ((group.file, group.id, key) for ref in group.refs for key in _referred(ref))
    for signal in registry.signals:
        yield from ((signal.file, signal.name, key) for ref in signal.refs for key in _referred(ref))


def _referred(ref: Ref) -> Iterator[str]:
    """The attribute itself, and the one on which it depends whether it is required."""
    yield ref.key
    depends = condition(ref.refinements.get("annotations", {}))
    if depends is not None:
        yield depends[0]


def _keys(refs: Iterable[Any]) -> list[str]:
    return [ref.key for ref in refs]


def _generated(signal: Signal) -> Mapping[str, Any]:
    """What a signal states for the generator."""
    stated: Mapping[str, Any] = signal.facts.get("annotations", {}).get("code_generation", {})
    return stated


def _enum(attribute: Attribute, message: str) -> Problem:
    return attribute.file, attribute.key, f"{message}; correct the members"
