"""Compares the returned spans with a case, and chooses the profile that avoids losses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mttp.codec.profiles import arrays
from mttp.model.spans import SpanEvent, SpanRecord
from mttp.transports.otlp.profiles import PROFILES
from mttp.workflows.probing.cases import KEY, ProbeCase

__all__ = ["ProbeFinding", "compared", "suited"]

_MAX_SHOWN = 60
_FRAME = ("name", "parent_id", "kind", "status_code", "status_message", "start_time", "end_time")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFinding:
    """The result of one case."""

    case: str
    """Description of the case."""
    answer: str
    """`taken`, or the receiver's error message."""
    outcome: Literal["whole", "changed", "lost", "refused", "unknown"]
    """Result of reading back; unknown without a store to read."""
    detail: str = ""
    """Differences, or the error message."""

    @property
    def silent(self) -> bool:
        """Whether the receiver lost something although it reported success."""
        return self.answer == "taken" and self.outcome in ("changed", "lost")


def compared(case: ProbeCase, found: Sequence[SpanRecord]) -> tuple[Literal["whole", "changed", "lost"], str]:
    """The outcome and the differences for a case that the receiver accepted."""
    by_id = {span.span_id: span for span in found}
    if not by_id:
        return "lost", "the whole trace" if len(case.spans) > 1 else "the whole span"
    missing = [span for span in case.spans if span.span_id not in by_id]
    if missing:
        return "changed", f"{len(missing):,} of {len(case.spans):,} spans are lost"
    differences = [words for span in case.spans for words in _differences(span, by_id[span.span_id])]
    if len(found) > len(by_id):
        differences.append(
            f"{len(found) - len(by_id):,} of {len(case.spans):,} spans came back more than once"
        )
    if not differences:
        return "whole", ""
    lost = all(words == f"{KEY} is lost" for words in differences)
    return ("lost" if lost else "changed"), "; ".join(dict.fromkeys(differences))[:400]


def _differences(sent: SpanRecord, copy: SpanRecord) -> Iterator[str]:
    expected = arrays(sent.attributes)
    gone = [key for key in expected if key not in copy.attributes]
    if len(gone) > 3:
        yield f"{len(gone)} of {len(expected)} attributes are lost"
        gone = []
    for key in gone:
        inner = [name for name in copy.attributes if name.startswith(f"{key}.")]
        yield f"{key} became {', '.join(inner)}" if inner else f"{key} is lost"
    for key, value in expected.items():
        if key in copy.attributes and not _same(value, copy.attributes[key]):
            yield _change(value, copy.attributes[key])
    if expected.get(KEY) == "frame":
        yield from _frame(sent, copy)


def _frame(sent: SpanRecord, copy: SpanRecord) -> Iterator[str]:
    """Differences besides the attributes."""
    for name in _FRAME:
        before, after = getattr(sent, name), getattr(copy, name)
        if before != after:
            is_time = name.endswith("_time")
            words = f"{abs(before - after)} ns off" if is_time else f"{after!r} instead of {before!r}"
            yield f"{name.replace('_', ' ')} is {words}"
    for name in ("events", "links"):
        before, after = getattr(sent, name), getattr(copy, name)
        if len(before) > len(after):
            yield f"{name} are lost"
        else:
            yield from dict.fromkeys(
                words for pair in zip(before, after, strict=False) for words in _part_differences(*pair)
            )
    if dict(sent.scope.resource).items() - dict(copy.scope.resource).items():
        yield "resource is lost"
    if (sent.scope.name, sent.scope.version) != (copy.scope.name, copy.scope.version):
        yield "scope is lost"


def _part_differences(sent: Any, copy: Any) -> Iterator[str]:
    """Differences of an event or a link, ignoring attributes that a store adds."""
    what, identity = (
        ("event", ("name",)) if isinstance(sent, SpanEvent) else ("link", ("trace_id", "span_id"))
    )
    if any(getattr(sent, name) != getattr(copy, name) for name in identity):
        yield f"{what} came back as another"
    if what == "event" and sent.time != copy.time:
        yield f"event time is {abs(sent.time - copy.time)} ns off"
    if not all(_same(value, copy.attributes.get(key)) for key, value in sent.attributes.items()):
        yield f"attributes of the {what} came back changed"


def _same(sent: Any, copy: Any) -> bool:
    if isinstance(sent, list):
        return isinstance(copy, (list, tuple)) and len(sent) == len(copy) and all(map(_same, sent, copy))
    if isinstance(sent, Mapping):
        return (
            isinstance(copy, Mapping)
            and sent.keys() == copy.keys()
            and all(_same(sent[k], copy[k]) for k in sent)
        )
    if isinstance(sent, float) and isinstance(copy, float) and math.isnan(sent):
        return math.isnan(copy)
    return type(sent) is type(copy) and bool(sent == copy)


def _change(sent: Any, copy: Any) -> str:
    if isinstance(sent, str) and isinstance(copy, str) and sent.startswith(copy):
        return f"cut to {len(copy.encode()):,} of {len(sent.encode()):,} bytes"
    if isinstance(sent, list) and isinstance(copy, (list, tuple)):
        if len(sent) != len(copy):
            return f"{len(copy):,} of {len(sent):,} elements came back"
        if _same(sorted(sent, key=repr), sorted(copy, key=repr)):
            return "came back in another order"
    return f"came back as {_kind(copy)}: {_short(copy)}"


def _kind(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "list of " + ", ".join(sorted({_kind(item) for item in value}) or ["nothing"])
    names = {str: "text", bool: "boolean", int: "integer", float: "double", bytes: "bytes", dict: "map"}
    return names.get(type(value), "nothing")


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"


def suited(
    cases: Sequence[ProbeCase], findings: Sequence[ProbeFinding], *, guess: str | None
) -> tuple[str, list[str]]:
    """
    The profile that withholds all lost cases and the fewest others, and the cases that no profile withholds.

    Of equally suited profiles, `guess` is preferred: the address selects it automatically. A profile
    without limits is for copies, and is never advised.
    """
    by_case = list(zip(cases, findings, strict=True))
    bad = [case for case, finding in by_case if finding.outcome in ("changed", "lost", "refused")]
    good = [case for case, finding in by_case if finding.outcome == "whole"]
    helpless = [case for case in bad if not any(_withholds(name, case) for name in PROFILES)]
    ranked = sorted(
        (name for name in PROFILES if name != "all"),
        key=lambda name: (
            sum(not _withholds(name, case) for case in bad if case not in helpless),
            name != guess,
            sum(_withholds(name, case) for case in good),
        ),
    )
    return ranked[0], [case.name for case in helpless]


def _withholds(profile: str, case: ProbeCase) -> bool:
    """Whether a profile changes the case before sending, and lists that in its omissions."""
    withholding, spent = PROFILES[profile].withholding, 0
    for span in case.spans:
        selection = withholding.keep(span.attributes, spent=spent)
        spent = selection.spent
        if selection.changed:
            return True
    return False
