"""Checks a recording span by span, in constant memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from mttp.codec import summary_fields
from mttp.codec.conformity import Conformity
from mttp.codec.translating import Translator
from mttp.model.spans import Scope, SpanRecord
from mttp.otlp.streams import Progress
from mttp.reading.checking import attributes, recorded, spans
from mttp.reading.checking.findings import Findings, Issue, Place, Register
from mttp.reading.completeness import CountedSpans
from mttp.reading.problems import Problem
from mttp.reading.scanning import Scan
from mttp.reading.sources import Source
from mttp.semconv import SCHEMA_URL, VERSION, registry
from mttp.semconv import attributes as a
from mttp.semconv.translation import SCHEMA_PREFIX

__all__ = ["check"]

_SCOPE = "mttp"


def check(source: Source, *, progress: Progress | None = None) -> Findings:
    """
    Compare each span of `source` with the registry of the convention, and return the findings.

    Findings also include the faults and failed gradings that spans of mttp state.
    Spans of other instrumentations are counted, and only their attributes under `mttp` are checked.
    Episodes that a run states and that are not here are problems, as for `mttp.read`.
    Arguments and errors are those of `mttp.read`. Memory grows by some 200 bytes per episode.
    """
    scan = Scan(source, arrays=True, as_written=True, progress=progress)
    register, conformity, counted = Register(), Conformity(), CountedSpans()
    mttp_spans = foreign = 0
    omissions = Counter[str]()
    issues: Iterator[Issue]
    scope: Scope | None = None
    translate = Translator()
    for written in scan:
        record = translate(written)
        if not _is_ours(record):
            foreign += 1
            issues = spans.foreign_issues(record)
        else:
            mttp_spans += 1
            counted.add(record)
            omissions.update(summary_fields.omitted(record.attributes))
            issues = chain(spans.issues(record), recorded.issues(conformity.examine(record)[0]))
            if record.scope is not scope:
                scope = record.scope
                _check_origin(record, written.scope.schema_url, register)
        for issue in issues:
            register.add(issue, Place("span", spans.word(record), record.trace_id, record.span_id))
    scan.add_missing_episodes(counted.runs, counted.by_run)
    return register.findings(
        spans=mttp_spans,
        foreign=foreign,
        omissions=dict(omissions.most_common()),
        problems=_problems(scan, register),
        sources=scan.sources,
    )


def _problems(scan: Scan, register: Register) -> list[Problem]:
    """The problems without values of a wrong type that are already findings."""
    named = register.mismatched
    return [
        item for item in scan.problems if item.kind != "wrong_type" or item.message.split()[0] not in named
    ]


def _is_ours(record: SpanRecord) -> bool:
    """Whether the span was recorded by mttp, or by another recorder that follows the convention."""
    scope = record.scope
    if scope.name == _SCOPE or scope.schema_url.startswith(SCHEMA_PREFIX):
        return True
    return not scope.name and a.RUN_ID in record.attributes


def _check_origin(record: SpanRecord, schema_url: str, register: Register) -> None:
    scope = record.scope
    for issue in _of_scope(schema_url):
        register.add(issue, Place("instrumentation_scope", scope.name, record.trace_id, record.span_id))
    for issue in _of_resource(scope):
        register.add(issue, Place("resource", "", record.trace_id, record.span_id))


def _of_scope(schema_url: str) -> Iterator[Issue]:
    if schema_url == SCHEMA_URL:
        return
    if schema_url.startswith(SCHEMA_PREFIX):
        version = schema_url.removeprefix(SCHEMA_PREFIX)
        message = f"Scope follows version '{version}' of the convention. It was checked against '{VERSION}'."
        yield Issue("schema_url_mismatch", "information", message)
    else:
        message = f"Scope has schema URL '{schema_url}'. It should be '{SCHEMA_URL}'."
        yield Issue("schema_url_mismatch", "improvement", message)


def _of_resource(scope: Scope) -> Iterator[Issue]:
    for entity, required in registry.required_of_resource().items():
        for key in sorted(required - scope.resource.keys()):
            message = f"Required attribute '{key}' for entity '{entity}' is not present in the resource."
            yield Issue("entity_required_attribute_not_present", "violation", message, key)
    for key, value in scope.resource.items():
        yield from attributes.issues(key, value)
