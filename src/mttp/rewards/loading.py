"""Validation of plain data as a spec document, with errors that name lines and suggest known words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from mttp.errors import SpecError
from mttp.model.keys import name_key
from mttp.rewards.document import (
    FORMAT,
    Better,
    Bounds,
    CombiningFunction,
    ComponentEntry,
    Expected,
    SpecCase,
    SpecDocument,
    SpecInclude,
)
from mttp.rewards.parsing import Place, SpecSource
from mttp.rewards.versions import constraint

_MODELS: Final[Mapping[str, type[BaseModel]]] = {
    "components": ComponentEntry,
    "include": SpecInclude,
    "case": SpecCase,
    "better": Better,
    "expect": Expected,
    "bounds": Bounds,
    "function": CombiningFunction,
}
"""The model of a place, by the last of these names in pydantic's location."""
_MOST = 10


def document_of(source: SpecSource) -> SpecDocument:
    """Return the validated document; raises SpecError, whose message has a line for each fault."""
    if not isinstance(source.data, dict):
        raise source.error("not a reward spec; expected a mapping with mttp, name, version and components")
    written = source.data.get("mttp")
    if written != FORMAT:
        raise source.error(f"`mttp` is {written!r}; write mttp: {FORMAT}", "mttp")
    try:
        document = SpecDocument.model_validate(source.data)
    except ValidationError as error:
        raise _joined([_fault(detail, source) for detail in error.errors(include_url=False)]) from error
    if faults := [source.error(reason, *place) for place, reason in _incoherent(document)]:
        raise _joined(faults)
    return document


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a suggestion of the closest known word and all known words, to end a sentence with."""
    choices = sorted(known)
    matches = get_close_matches(word, choices, n=1, cutoff=0.6)
    hint = f"; did you mean {matches[0]!r}?" if matches else ";"
    return f"{hint} known: {', '.join(choices)}"


def _joined(faults: list[SpecError]) -> SpecError:
    """Return one error with all messages, at the place of the first."""
    faults = sorted(faults, key=lambda fault: (fault.line or 0, fault.column or 0))
    first = faults[0]
    reasons = [first.reason, *map(str, faults[1:_MOST])]
    if len(faults) > _MOST:
        reasons.append(f"and {len(faults) - _MOST} more")
    return SpecError("\n".join(reasons), path=first.path, line=first.line, column=first.column)


def _fault(detail: Any, source: SpecSource) -> SpecError:
    """Return the error for one of pydantic's, with its line."""
    kind, loc = str(detail["type"]), detail["loc"]
    place = _place(loc, source.data)
    if kind == "extra_forbidden":
        model = _model(loc)
        keys = {field.alias or key for key, field in model.model_fields.items()}
        return source.error(f"unknown key {loc[-1]!r}{nearest(str(loc[-1]), keys)}", *place, key=True)
    if kind == "missing":
        return source.error(f"{_where(place)} lacks `{loc[-1]}`", *place)
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", str(detail["ctx"]["expected"]))
        return source.error(
            f"unknown {place[-1]} {detail['input']!r}{nearest(str(detail['input']), known)}", *place
        )
    written = source.texts.get(place, f"{detail['input']!r:.60}")
    if place == ("version",) and type(detail["input"]) in (int, float):
        two = written if "." in written else f"{written}.0"
        advice = f'write {two}.0 or "{two}"'
        return source.error(f"`version` is {written}, which YAML reads as a number; {advice}", *place)
    reason = f"{_where(place)} is {written}: {_expected(detail)}"
    return source.error(reason + _hint(detail["input"], kind, place, source), *place)


def _place(loc: tuple[str | int, ...], data: Any) -> Place:
    """Return the place in the data for pydantic's location, without the names of union members."""
    keys: list[str | int] = []
    for part in loc:
        try:
            data = data[part]
        except (LookupError, TypeError):
            continue
        keys.append(part)
    return tuple(keys)


def _model(loc: tuple[str | int, ...]) -> type[BaseModel]:
    return next((_MODELS[str(part)] for part in reversed(loc[:-1]) if str(part) in _MODELS), SpecDocument)


def _where(place: Place) -> str:
    """Return words for the value at a place."""
    words = {"components": "the component", "include": "the include", "cases": "the case"}
    if len(place) > 1 and isinstance(place[-1], int):
        return f"{words.get(str(place[-2]), f'`{place[-2]}`')} at position {place[-1] + 1}"
    return f"`{place[-1]}`" if place else "the spec"


def _expected(detail: Any) -> str:
    pattern = str(detail.get("ctx", {}).get("pattern", ""))
    for beginning, words in _PATTERNS.items():
        if pattern.startswith(beginning):
            return words
    message = str(detail["msg"]).removeprefix("Value error, ").replace("Input should be", "it should be")
    return _MAPPING.sub("a mapping", message).replace("a valid tuple", "a list")


_MAPPING = re.compile(r"a valid dictionary( or instance of \w+)?")
_PATTERNS: Final[Mapping[str, str]] = {
    r"^[A-Za-z0-9]": "a name starts with a letter or digit and has letters, digits, dots, - and _",
    r"^\d+\.\d+": "a version has two or three numbers, such as 1.2.0",
    r"^[^\W\d]\w*(\.": "write `module:function`, such as graders:math_reward",
    r"^[^\W\d]\w*$": "an input's name must be a Python identifier",
    r"^(string|": "it should be string, number, integer, boolean, array, object, any or episode, "
    "followed by ? if optional",
}


def _hint(value: object, kind: str, place: Place, source: SpecSource) -> str:
    """Return advice for text that YAML reads as another type."""
    if kind == "string_type" and place in source.texts:
        return f'; quote it: "{source.texts[place]}"'
    if kind == "bool_type" and str(value).lower() in ("yes", "no", "on", "off", "y", "n"):
        return "; write true or false"
    return ""


def _incoherent(document: SpecDocument) -> Iterator[tuple[Place, str]]:
    """Yield faults between fields: repeated names, unknown cases, missing inputs."""
    yield from _repeated_names(document)
    cases = [case for case in document.cases if isinstance(case, SpecCase)]
    known = {case.name for case in cases}
    case_names: set[str] = set()
    for index, case in enumerate(document.cases):
        if isinstance(case, Better):
            for key, name in (("better", case.better), ("than", case.than)):
                if name not in known:
                    yield ("cases", index, key), f"there is no case {name!r}{nearest(name, known)}"
        elif case.name in case_names:
            yield ("cases", index, "name"), f"two cases are named {case.name!r}; rename one"
        else:
            case_names.add(case.name)
    for index, part in enumerate(document.include):
        if part.version is not None:
            try:
                constraint(part.version)
            except ValueError as error:
                yield ("include", index, "version"), str(error)
    yield from _not_plain(document)
    for index, entry in enumerate(document.components):
        if entry.arity == "output-truth" and len(document.inputs) < 2:
            reason = f"output-truth needs two `inputs`, and the spec has {len(document.inputs)}; add them"
            yield ("components", index, "arity"), reason


def _not_plain(document: SpecDocument) -> Iterator[tuple[Place, str]]:
    """Yield parameters and samples that a spec file or its digest can't represent."""
    for index, entry in enumerate(document.components):
        for name, value in entry.params.items():
            if problem := unfit(value, is_exact=True):
                reason = f"the parameter {name!r} of the component {entry.name!r} {problem}"
                yield ("components", index, "params", name), reason
    for index, case in enumerate(document.cases):
        if isinstance(case, SpecCase):
            for name, value in case.input.items():
                if problem := unfit(value):
                    reason = f"the input {name!r} of the case {case.name!r} {problem}"
                    yield ("cases", index, "input", name), reason


def _repeated_names(document: SpecDocument) -> Iterator[tuple[Place, str]]:
    places: list[tuple[Place, str]] = [
        (("components", index, "name"), entry.name) for index, entry in enumerate(document.components)
    ]
    places += [(("include", index, "as"), part.as_) for index, part in enumerate(document.include)]
    known: dict[str, list[str]] = {}
    for place, name in places:
        others = known.setdefault(name_key(name), [])
        if others and name not in others:
            key = name_key(name)
            yield place, f"{others[0]!r} and {name!r} have the same attribute key {key!r}; rename one"
        elif others.count(name) == 1:
            yield place, f"two components are named {name!r}; rename one"
        others.append(name)


# Plain data: which values a spec document and its digest can represent.

_MOST = 2**53 - 1
"""The largest integer that canonical JSON (RFC 8785) represents exactly."""
_DEEPEST = 100


def unfit(value: Any, *, is_exact: bool = False, depth: int = 0) -> str | None:
    """Return why a value is not plain data, or with `is_exact` why a digest can't hold it; None if it is."""
    if depth > _DEEPEST:
        return f"is nested more than {_DEEPEST} levels deep"
    if isinstance(value, (list, tuple)):
        problems = (unfit(item, is_exact=is_exact, depth=depth + 1) for item in value)
        return next(filter(None, problems), None)
    if isinstance(value, dict):
        if other := [key for key in value if not isinstance(key, str)]:
            return f"holds a dict with the key {other[0]!r:.60}; write keys as text"
        return unfit([*value, *value.values()], is_exact=is_exact, depth=depth)
    if value is None or type(value) in (bool, int, float, str):
        return _inexact(value) if is_exact else None
    kind = type(value).__qualname__
    return f"holds {value!r:.60} of the type {kind}; use text, a number, a bool, a list or a dict"


def _inexact(value: Any) -> str | None:
    if type(value) is int and not -_MOST <= value <= _MOST:
        return f"holds {value}, an integer beyond 2**53; write it as text"
    if type(value) is float and not math.isfinite(value):
        return f"holds {value}, which JSON can't represent; write it as text"
    return _of_text(value) if isinstance(value, str) else None


def _of_text(value: str) -> str | None:
    try:
        value.encode()
    except UnicodeEncodeError:
        return f"holds {value!a:.60}, which UTF-8 can't encode; remove the surrogates"
    return None
