"""Reward specs, their findings and their differences as text and as documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mttp.pages.words import count, printed
from mttp.reading.jsonable import jsonable
from mttp.rewards.difference import Bump, Difference, deserved, stated
from mttp.rewards.document import CombiningFunction, ComponentEntry
from mttp.rewards.lint import LintFinding
from mttp.rewards.spec import RewardSpec

__all__ = [
    "differences_document",
    "document",
    "finding_line",
    "findings_document",
    "headline",
    "render",
    "render_differences",
]

_RARE = ("relative", "always", "criteria", "values")
"""Fields of a component that its document has only if the spec sets them."""
_COVERAGES = {"full": "", "partial": "yellow", "opaque": "red"}


def document(spec: RewardSpec, share: float = 1.0) -> dict[str, Any]:
    """Return a spec and its includes as an object of plain data; `share` is its part of the whole reward."""
    shares = _shares(spec, share)
    return {
        **jsonable(spec.identity),
        "code_gaps": list(spec.code_gaps),
        "path": str(spec.path) if spec.path is not None else None,
        "combine": _combination(spec),
        "range": list(spec.range) if spec.range is not None else None,
        "floor": spec.floor,
        "on_invalid": spec.document.on_invalid,
        "inputs": dict(spec.document.inputs),
        "components": [_component(spec, part, shares[part.name]) for part in spec.parts],
    }


def _component(spec: RewardSpec, part: ComponentEntry, share: float | None) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": part.name,
        "kind": part.kind,
        "share": share,
        "weight": part.weight if part.kind != "check" else None,
        "range": list(part.range) if part.range is not None else None,
        "gates": _gates(spec, part),
        "scope": part.scope,
    }
    if part.name in spec.included:
        return entry | {"include": document(spec.included[part.name], share or 0.0)}
    entry |= {key: value for key in _RARE if (value := getattr(part, key))}
    code = spec.codes[part.use or part.name]
    return entry | {"use": part.use, "code_coverage": code.coverage, "code_gaps": list(code.gaps)}


def _shares(spec: RewardSpec, whole: float) -> dict[str, float | None]:
    """
    Return each component's share of the reward's range, or None for a check or a component of steps.

    A component can change the reward by its weight times its range.
    """
    changes = {
        part.name: abs(part.weight) * (part.range[1] - part.range[0] if part.range is not None else 1.0)
        for part in spec.parts
        if part.kind != "check" and part.scope == "terminal"
    }
    total = sum(changes.values())
    return {
        part.name: whole * changes[part.name] / total if total and part.name in changes else None
        for part in spec.parts
    }


def _gates(spec: RewardSpec, part: ComponentEntry) -> bool:
    """Return whether a component, or a check in its included spec, can reduce the reward to the floor."""
    if part.kind == "verifier":
        return spec.document.combine == "gated"
    inner = spec.included.get(part.name)
    return part.kind == "check" or (inner is not None and _has_check(inner))


def _has_check(spec: RewardSpec) -> bool:
    return any(part.kind == "check" for one in spec.everything() for part in one.parts)


def _combination(spec: RewardSpec) -> str:
    combine = spec.document.combine
    return (combine.use or "a function") if isinstance(combine, CombiningFunction) else combine


def render(spec: RewardSpec) -> RenderableType:
    """Return a spec as text: its identity, its combination, and its tree with shares of the reward."""
    data = document(spec)
    facts = Table.grid(padding=(0, 2))
    for name in ("sha256", "code_sha256", "code_coverage", "combine", "range", "floor", "on_invalid"):
        facts.add_row(name, printed(_fact(data[name])))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("component", no_wrap=True)
    table.add_column("kind")
    for name in ("share", "weight", "range"):
        table.add_column(name, justify="right")
    for name in ("gates", "code", "from"):
        table.add_column(name, overflow="fold")
    _add_rows(table, data["components"], "")
    parts: list[RenderableType] = [Text(f"{spec.name} {spec.version}", style="bold"), facts, Text(), table]
    if spec.code_gaps:
        parts += [Text(), Text("not in code_sha256:")]
        parts += [printed(f"  {gap}", style="yellow") for gap in spec.code_gaps]
    return Group(*parts)


def _add_rows(table: Table, components: Sequence[dict[str, Any]], indent: str) -> None:
    for one in components:
        included = one.get("include")
        coverage = included["code_coverage"] if included else one["code_coverage"]
        source = f"{included['name']} {included['version']}" if included else one["use"] or "Python"
        table.add_row(
            printed(f"{indent}{one['name']}"),
            one["kind"] if one["scope"] == "terminal" else f"{one['kind']} of steps",
            f"{one['share']:.1%}" if one["share"] is not None else "",
            _fact(one["weight"]),
            _fact(one["range"]),
            "yes" if one["gates"] else "",
            Text(coverage, style=_COVERAGES[coverage]),
            printed(source),
        )
        if included:
            _add_rows(table, included["components"], f"{indent}  ")


def _fact(value: Any) -> str:
    if isinstance(value, list):
        return f"{value[0]:g} to {value[1]:g}"
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def headline(findings: Sequence[LintFinding]) -> str:
    """Return the numbers of errors and warnings."""
    errors = sum(one.severity == "error" for one in findings)
    return f"{count(errors, 'error')}, {count(len(findings) - errors, 'warning')}"


def finding_line(finding: LintFinding, path: str) -> str:
    """Return a finding as one line, in the format of compilers."""
    place = ":".join(str(part) for part in (path, finding.line, finding.column) if part is not None)
    return f"{place}: {finding.severity}: {finding.rule}: {finding.reason}; {finding.fix}"


def findings_document(spec: RewardSpec, findings: Sequence[LintFinding]) -> dict[str, Any]:
    """Return a spec's identity and findings as an object of plain data."""
    errors = sum(one.severity == "error" for one in findings)
    return {
        "spec": jsonable(spec.identity),
        "code_gaps": list(spec.code_gaps),
        "errors": errors,
        "warnings": len(findings) - errors,
        "findings": [jsonable(one) for one in findings],
    }


def differences_document(before: RewardSpec, after: RewardSpec, found: list[Difference]) -> dict[str, Any]:
    """Return the differences between two specs as an object of plain data."""
    return {
        "before": jsonable(before.identity),
        "after": jsonable(after.identity),
        "deserved": deserved(found),
        "stated": stated(before, after),
        "differences": [jsonable(one) for one in found],
    }


def render_differences(before: RewardSpec, after: RewardSpec, found: list[Difference]) -> RenderableType:
    """Return the differences between two specs as text."""
    parts: list[RenderableType] = [
        Text(f"{before.name} {before.version} to {after.name} {after.version}", style="bold")
    ]
    if found:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("bump", "change", "before", "after"):
            table.add_column(name)
        for one in found:
            table.add_row(one.bump, *(printed(_text(part)) for part in (one.what, one.before, one.after)))
        parts += [Text(), table, Text()]
    parts.append(_verdict(deserved(found), stated(before, after)))
    return Group(*parts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _verdict(required: Bump, actual: Bump | None) -> Text:
    """Return the version bump that the differences require, and the actual one."""
    meaning = {
        "major": "rewards change their meaning: requires a new major version",
        "minor": "rewards keep their meaning and change their values: requires a new minor version",
        "patch": "rewards do not change: requires a new patch version",
        "none": "nothing changed",
    }
    versions = {None: "the version went down", "none": "the version is the same"}
    return Text(f"{meaning[required]}; {versions.get(actual) or f'the version is a new {actual} version'}")
