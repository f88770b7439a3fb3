"""Spans in the names of another version of the convention."""

from __future__ import annotations

from dataclasses import replace

from mttp.model.spans import Scope, SpanEvent, SpanRecord
from mttp.semconv import VERSION
from mttp.semconv.translation import SCHEMA_PREFIX, Translation, age, translation

__all__ = ["Translator"]


class Translator:
    """
    Renames the attributes of spans, by default to the names of the current version.

    Spans of a version that is not known keep their names.
    """

    def __init__(self, to: str = VERSION) -> None:
        self._to = to
        self._scope = self._translated = Scope()
        self._translation: Translation | None = None

    def __call__(self, record: SpanRecord) -> SpanRecord:
        """Return the span with its names in the target version; itself if nothing changes."""
        if record.scope is not self._scope:
            self._enter(record.scope)
        if self._translation is not None:
            return _renamed(record, self._translation, self._translated)
        return record if self._translated is self._scope else replace(record, scope=self._translated)

    def _enter(self, scope: Scope) -> None:
        self._scope = self._translated = scope
        self._translation = renames = translation(scope.schema_url, to=self._to)
        if age(scope.schema_url) == "known" and not scope.schema_url.endswith(f"/{self._to}"):
            self._translated = replace(self._translated, schema_url=SCHEMA_PREFIX + self._to)
        if renames is not None:
            self._translated = replace(
                self._translated,
                resource=renames.resource(scope.resource),
                attributes=renames.resource(scope.attributes),
            )


def _renamed(record: SpanRecord, names: Translation, scope: Scope) -> SpanRecord:
    return replace(
        record,
        scope=scope,
        attributes=names.span(record.name, record.attributes),
        events=tuple(_event(event, record.name, names) for event in record.events),
        links=tuple(replace(link, attributes=names.span("", link.attributes)) for link in record.links),
    )


def _event(event: SpanEvent, span_name: str, names: Translation) -> SpanEvent:
    name, attributes = names.event(span_name, event.name, event.attributes)
    return replace(event, name=name, attributes=attributes)
