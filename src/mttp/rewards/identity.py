"""What a spec is: the digest of what changes its scores, and that of the code that scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from errno import EFBIG
from math import isfinite
from pathlib import Path
from typing import Any, Final

from mttp.errors import MissingExtra, SpecError
from mttp.otlp import regular_files
from mttp.rewards.combining import threshold
from mttp.rewards.document import CombiningFunction, ComponentEntry, SpecDocument, SpecInclude
from mttp.rewards.modules import version_of
from mttp.rewards.reward_range import floor, stated_or_reachable
from mttp.rewards.static_analysis import Code, Coverage

__all__ = ["canonical", "canonical_json", "code_digest", "coverage", "digest", "recordable"]

MAX_DEPENDS_BYTES: Final = 1 << 30
"""Most bytes that all files under `depends` have together."""
_UNSAID: Final = {"description", "depends"}
"""Fields of a component that change no score; what `depends` holds is part of the code."""
_LATER: Final = ("always", "criteria", "values")
"""Fields of a component that came later: they are left out at their defaults, so that digests stay."""


def canonical(document: SpecDocument, parts: Sequence[ComponentEntry], included: Mapping[str, str]) -> str:
    """
    The canonical JSON (RFC 8785) of what changes scores; stating a default equals leaving it out.

    `parts` are the components with the entries of the includes, `included` the includes' digests by name.
    Raises SpecError for parameters that JSON can't hold.
    """
    return canonical_json(
        {
            "mttp": document.mttp,
            "inputs": document.inputs,
            "components": sorted(
                (_component(entry, document) for entry in document.components),
                key=lambda one: str(one["name"]),
            ),
            "include": sorted(
                (_include(part, included[part.as_]) for part in document.include),
                key=lambda one: str(one["as"]),
            ),
            "combine": document.combine.model_dump()
            if isinstance(document.combine, CombiningFunction)
            else document.combine,
            "partial_credit": document.partial_credit,
            "range": _listed(stated_or_reachable(document, parts)),
            "clip": document.clip,
            "floor": floor(document, parts),
            "on_invalid": document.on_invalid,
            **({} if document.step_total is None else {"step_total": list(document.step_total)}),
        }
    )


def digest(text: str) -> str:
    """SHA-256 of a text, 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def code_digest(
    codes: Mapping[str, Code],
    included: Mapping[str, str],
    files: Mapping[str, Path],
    distributions: Iterable[str],
    fail: Callable[[str, str], SpecError],
) -> str:
    """
    The digest of the code that scores.

    `codes` is by target, `included` has the includes' own by name, `files` are those of `depends`.
    `fail` makes the error for a field and what is wrong with it: a file or distribution that is not there.
    """
    return digest(
        canonical_json(
            {
                "targets": {target: [list(part) for part in code.parts] for target, code in codes.items()},
                "include": dict(included),
                "depends": _file_digests(files, fail),
                "distributions": {name: _version(name, fail) for name in distributions},
            }
        )
    )


def coverage(codes: Iterable[Code], included: Iterable[Coverage]) -> Coverage:
    """How much of all the code was read."""
    found = {*(code.coverage for code in codes), *included}
    if found <= {"full"}:
        return "full"
    return "opaque" if found == {"opaque"} else "partial"


def _component(entry: ComponentEntry, document: SpecDocument) -> dict[str, Any]:
    said = entry.model_dump(exclude=_UNSAID)
    for name in _LATER:
        if said[name] == ComponentEntry.model_fields[name].get_default(call_default_factory=True):
            del said[name]
    if entry.kind == "check":
        said["weight"] = 1.0
    if entry.kind in ("verifier", "check"):
        said["threshold"] = threshold(entry.kind, entry.threshold, entry.range)
    if entry.arity == "output-truth":
        said["takes"] = list(document.inputs)[:2]  # by position, so that here the order of inputs counts
    return said


def _include(part: SpecInclude, sha256: str) -> dict[str, Any]:
    return {**part.model_dump(by_alias=True, exclude={"spec", "version"}), "sha256": sha256}


def _listed(bounds: tuple[float, float] | None) -> list[float] | None:
    return None if bounds is None else list(bounds)


def canonical_json(value: Any) -> str:
    """Plain data as canonical JSON (RFC 8785); raises SpecError for what that can't hold."""
    try:
        import rfc8785
    except ImportError as error:
        raise MissingExtra(package="rfc8785", extra="spec", purpose="a reward spec's digest") from error
    try:
        return rfc8785.dumps(value).decode()
    except (rfc8785.CanonicalizationError, UnicodeError) as error:
        raise SpecError(f"the spec holds what canonical JSON can't: {error}") from error


def recordable(data: Any) -> str:
    """
    A document as a recording keeps it: canonical JSON.

    Cases may hold what that can't: integers beyond 2**53 are written out, NaN and the infinities are null.
    """
    try:
        return canonical_json(data)
    except SpecError:
        return json.dumps(_finite(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _file_digests(files: Mapping[str, Path], fail: Callable[[str, str], SpecError]) -> dict[str, str]:
    """SHA-256 of each file by its name; the limit is one for all of them."""
    found, left = {}, MAX_DEPENDS_BYTES
    for name, path in files.items():
        content = hashlib.sha256()
        try:
            for piece in regular_files.pieces(path, left):
                content.update(piece)
                left -= len(piece)
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno == EFBIG:
                reason = f"all files under `depends` together have more than {MAX_DEPENDS_BYTES:,} bytes"
            raise fail("depends", f"the file {name} can't be read: {reason}") from error
        found[name] = content.hexdigest()
    return found


def _version(distribution: str, fail: Callable[[str, str], SpecError]) -> str:
    found = version_of(distribution)
    if found is None:
        raise fail("distributions", f"the distribution {distribution} is not installed")
    return found
