"""Reward specs, their findings and their differences: their pages, and plain data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from mttp.pages.blocks import Block, column, fact, facts, note, table
from mttp.pages.words import count
from mttp.reading.jsonable import jsonable
from mttp.rewards.difference import deserved, stated
from mttp.rewards.document import CombiningFunction

if TYPE_CHECKING:
    from mttp.rewards.difference import Difference
    from mttp.rewards.document import ComponentEntry
    from mttp.rewards.lint import LintFinding
    from mttp.rewards.spec import RewardSpec

__all__ = [
    "differences_document",
    "differences_page",
    "document",
    "finding_lines",
    "findings_document",
    "page",
]

_RARE: Final = ("relative", "always", "criteria", "values")
"""Fields of a component that its document has only if the spec sets them."""
_FACTS: Final = ("sha256", "code_sha256", "code_coverage", "combine", "range", "floor", "on_invalid")
_MEANINGS: Final = {
    "major": "rewards change their meaning: requires a new major version",
    "minor": "rewards keep their meaning and change their values: requires a new minor version",
    "patch": "rewards do not change: requires a new patch version",
    "none": "nothing changed",
}
_VERSIONS: Final = {None: "the version went down", "none": "the version is the same"}


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
    return any(part.kind == "check" for each in spec.everything() for part in each.parts)


def _combination(spec: RewardSpec) -> str:
    combine = spec.document.combine
    return (combine.use or "a function") if isinstance(combine, CombiningFunction) else combine


def page(spec: RewardSpec) -> Iterator[Block | None]:
    """Yield a spec's identity, its combination, and its components with their shares of the reward."""
    data = document(spec)
    yield note(f"{spec.name} {spec.version}")
    yield facts([fact(name, _text(data[name])) for name in _FACTS if data[name] is not None])
    columns = [
        *(column("component"), column("kind")),
        *(column("share", kind="share", help="of the whole reward's range"), column("weight", kind="number")),
        *(column("range", kind="number"), column("gates"), column("code", kind="state"), column("from")),
    ]
    yield table("Components", columns, _rows(data["components"], ""))
    yield table("Not in code_sha256", [column("code")], [(gap,) for gap in spec.code_gaps])


def _rows(components: Sequence[dict[str, Any]], above: str) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each component, those of an included spec below it."""
    for each in components:
        included = each.get("include")
        yield (
            f"{above}{each['name']}",
            each["kind"] if each["scope"] == "terminal" else f"{each['kind']} of steps",
            None if each["share"] is None else f"{each['share']:.1%}",
            *(each["weight"], _text(each["range"]), "yes" if each["gates"] else None),
            included["code_coverage"] if included else each["code_coverage"],
            f"{included['name']} {included['version']}" if included else each["use"] or "Python",
        )
        if included:
            yield from _rows(included["components"], f"{above}{each['name']}.")


def _text(value: Any) -> Any:
    """Return a range as text; other values as they are."""
    return f"{value[0]:g} to {value[1]:g}" if isinstance(value, list) else value


def finding_lines(spec: RewardSpec, findings: Sequence[LintFinding], path: str) -> Iterator[str]:
    """Yield each finding as one line, in the format of compilers, and the number of errors and warnings."""
    for finding in findings:
        place = ":".join(str(part) for part in (path, finding.line, finding.column) if part is not None)
        yield f"{place}: {finding.severity}: {finding.rule}: {finding.reason}; {finding.fix}"
    errors = sum(finding.severity == "error" for finding in findings)
    numbers = f"{count(errors, 'error')}, {count(len(findings) - errors, 'warning')}"
    yield f"{spec.name} {spec.version}: {numbers}"


def findings_document(spec: RewardSpec, findings: Sequence[LintFinding]) -> dict[str, Any]:
    """Return a spec's identity and findings as an object of plain data."""
    errors = sum(finding.severity == "error" for finding in findings)
    return {
        "spec": jsonable(spec.identity),
        "code_gaps": list(spec.code_gaps),
        "errors": errors,
        "warnings": len(findings) - errors,
        "findings": [jsonable(finding) for finding in findings],
    }


def differences_document(
    before: RewardSpec, after: RewardSpec, differences: list[Difference]
) -> dict[str, Any]:
    """Return the differences between two specs as an object of plain data."""
    return {
        "before": jsonable(before.identity),
        "after": jsonable(after.identity),
        "deserved": deserved(differences),
        "stated": stated(before, after),
        "differences": [jsonable(difference) for difference in differences],
    }


def differences_page(
    before: RewardSpec, after: RewardSpec, differences: list[Difference]
) -> Iterator[Block | None]:
    """Yield the differences between two specs, the version bump that they require, and the actual one."""
    yield note(f"{before.name} {before.version} to {after.name} {after.version}")
    rows = [(each.bump, *map(_json, (each.what, each.before, each.after))) for each in differences]
    yield table("Differences", [*map(column, ("bump", "change", "before", "after"))], rows)
    actual = stated(before, after)
    version = _VERSIONS.get(actual) or f"the version is a new {actual} version"
    yield note(f"{_MEANINGS[deserved(differences)]}; {version}")


def _json(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
