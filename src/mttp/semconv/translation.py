"""Translation of attribute names between versions of the convention, as its schema file states it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

from mttp.semconv import SCHEMA_URL, VERSION
from mttp.semconv import attributes as a
from mttp.semconv.registry import templates
from mttp.semconv.versions import ADDED, CHANGES

__all__ = ["SCHEMA_PREFIX", "VERSIONS", "Translation", "age", "earlier_names", "lacking", "translation"]

SCHEMA_PREFIX: Final = SCHEMA_URL.removesuffix(VERSION)
"""What the schema URL of every version of the convention begins with."""

VERSIONS: Final = tuple(CHANGES)
"""The versions of the convention that are known, oldest first."""

_Place: TypeAlias = Literal["resource", "span", "event"]
_PLACES: Final[dict[str, tuple[_Place, ...]]] = {
    "all": ("resource", "span", "event"),
    "resources": ("resource",),
    "spans": ("span",),
    "span_events": ("event",),
}
"""Sections of a schema file in the order in which they apply, with what each renames in a recording."""
_COLUMN = f"{a.STEPS_COLUMN}."
"""The prefix of columns of steps, which are named after the attribute that they hold."""


@dataclass(frozen=True)
class _Rename:
    """One change of a schema file."""

    places: tuple[_Place, ...]
    names: Mapping[str, str]
    """New names by old name."""
    spans: frozenset[str] = frozenset()
    """Names of spans to which the change is limited; empty for all."""
    events: frozenset[str] = frozenset()
    """Names of events to which the change is limited; empty for all."""
    of_events: bool = False
    """Whether names of events change, instead of attributes."""

    def reversed(self) -> _Rename:
        """Return the change back; names that became one name can't be told apart and stay as they are."""
        new = list(self.names.values())
        names = {value: key for key, value in self.names.items() if new.count(value) == 1}
        return replace(self, names=names)


class Translation:
    """Renames the attributes of spans from one version to another."""

    def __init__(self, renames: Sequence[_Rename]) -> None:
        self._renames = renames

    def resource(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the attributes of a resource or an instrumentation scope with their names in the target."""
        for rename in self._of("resource"):
            attributes = _renamed(attributes, rename.names)
        return attributes

    def span(self, name: str, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the attributes of the span with that name with their names in the target."""
        for rename in self._of("span"):
            if not rename.spans or name in rename.spans:
                attributes = _renamed(attributes, rename.names)
        return attributes

    def event(
        self, span_name: str, name: str, attributes: Mapping[str, Any]
    ) -> tuple[str, Mapping[str, Any]]:
        """Return the name and the attributes of an event with their names in the target."""
        for rename in self._of("event"):
            if rename.of_events:
                name = rename.names.get(name, name)
            elif (not rename.spans or span_name in rename.spans) and (
                not rename.events or name in rename.events
            ):
                attributes = _renamed(attributes, rename.names)
        return name, attributes

    def _of(self, place: _Place) -> Iterator[_Rename]:
        return (rename for rename in self._renames if place in rename.places)


def age(schema_url: str) -> Literal["foreign", "known", "newer", "unknown"]:
    """
    Return what a schema URL says of the version that spans follow.

    `foreign` is another convention or none; `newer` is a later version than all that are known, and `unknown`
    an earlier one that was never published, or none at all.
    """
    if not schema_url.startswith(SCHEMA_PREFIX):
        return "foreign"
    version = schema_url.removeprefix(SCHEMA_PREFIX)
    if version in VERSIONS:
        return "known"
    number = _ordered(version)
    return "newer" if number is not None and number > (_ordered(VERSION) or ()) else "unknown"


def _ordered(version: str) -> tuple[int, ...] | None:
    """The version as numbers; None if it has other parts than three numbers and a suffix."""
    parts = version.split("-")[0].split("+")[0].split(".")
    is_version = len(parts) == 3 and all(part.isascii() and part.isdecimal() for part in parts)
    return tuple(map(int, parts)) if is_version else None


@lru_cache(maxsize=64)
def translation(schema_url: str, *, to: str = VERSION) -> Translation | None:
    """
    Return the translation of spans with that schema URL to a version; None if nothing is renamed.

    Spans of other conventions may have attributes of this one, of a version that they do not state. They are
    translated from the first version: no name has ever two meanings, so this changes no later name.
    Spans of a newer version are not translated.
    """
    schema_age = age(schema_url)
    if schema_age == "newer":
        return None
    source = schema_url.removeprefix(SCHEMA_PREFIX) if schema_age == "known" else VERSIONS[0]
    renames = _path(source, to) if schema_age == "known" else [*_path(source, VERSION), *_path(VERSION, to)]
    return Translation(renames) if renames else None


def _path(source: str, target: str) -> list[_Rename]:
    """The changes between two versions, in the order in which they apply."""
    start, end = VERSIONS.index(source), VERSIONS.index(target)
    if start <= end:
        return [rename for version in VERSIONS[start + 1 : end + 1] for rename in _changes(version)]
    back = [rename for version in VERSIONS[end + 1 : start + 1] for rename in _changes(version)]
    return [rename.reversed() for rename in reversed(back)]


def _changes(version: str) -> Iterator[_Rename]:
    for section, places in _PLACES.items():
        for change in CHANGES[version].get(section, {}).get("changes", ()):
            if "rename_events" in change:
                yield _Rename(places, change["rename_events"]["name_map"], of_events=True)
            elif "rename_attributes" in change:
                entry = change["rename_attributes"]
                spans, events = (
                    frozenset(entry.get(name) or ()) for name in ("apply_to_spans", "apply_to_events")
                )
                yield _Rename(places, entry["attribute_map"], spans, events)


def _renamed(attributes: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    """Rename attributes, also in values; one whose new name is already there keeps its old name."""
    values = {key: of(attributes[key], names) for key, of in _NAMING.items() if key in attributes}
    attributes = {**attributes, **values} if values else attributes
    renamed = {key: _name(key, names) for key in attributes}
    if all(key == new for key, new in renamed.items()):
        return attributes
    return {new if new not in attributes else key: attributes[key] for key, new in renamed.items()}


def _in_text(value: Any, names: Mapping[str, str]) -> Any:
    return _name(value, names) if isinstance(value, str) else value


def _in_omissions(value: Any, names: Mapping[str, str]) -> Any:
    """`attribute: reason` each."""
    if not isinstance(value, (list, tuple)):
        return value
    parts = [omission.partition(":") if isinstance(omission, str) else None for omission in value]
    return [
        omission if part is None else _name(part[0], names) + part[1] + part[2]
        for omission, part in zip(value, parts, strict=True)
    ]


def _in_layout(value: Any, names: Mapping[str, str]) -> Any:
    """A JSON list of columns, each a list that begins with an attribute."""
    try:
        columns = [[_name(key, names), *rest] for key, *rest in json.loads(value)]
    except (TypeError, ValueError, AttributeError):
        return value  # readers report a layout that makes no sense
    return json.dumps(columns, separators=(",", ":"))


_NAMING: Final = {a.ANNOTATION_KEY: _in_text, a.OMISSIONS: _in_omissions, a.STEPS_LAYOUT: _in_layout}
"""Attributes whose values name others."""


def _name(key: str, names: Mapping[str, str]) -> str:
    if key in names:
        return names[key]
    if key.startswith(_COLUMN):
        return _COLUMN + _name(key[len(_COLUMN) :], names)
    for old, new in names.items():
        if key.startswith(f"{old}.") and not templates().isdisjoint((old, new)):
            return new + key[len(old) :]
    return key


def earlier_names(keys: Iterable[str]) -> set[str]:
    """Return the names that earlier versions had for attributes."""
    current_names = set(keys)
    earlier: set[str] = set()
    for rename in reversed(_path(VERSIONS[0], VERSION)):
        earlier |= {
            old
            for key in current_names | earlier
            for old, new in rename.names.items()
            if not rename.of_events and key in (new, _COLUMN + new)
        }
    return earlier | {_COLUMN + key for key in earlier if not key.startswith(_COLUMN)}


@lru_cache(maxsize=64)
def lacking(version: str) -> frozenset[str]:
    """Return the attributes that a known version lacks, by their names in the current version."""
    later = VERSIONS[VERSIONS.index(version) + 1 :]
    attributes: set[str] = set()
    for added_in in later:
        up = translation(SCHEMA_PREFIX + added_in)
        names = dict.fromkeys(ADDED[added_in])
        attributes |= set(names if up is None else up.span("", names))
    return frozenset(attributes)
