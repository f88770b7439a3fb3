"""The identity of a spec: digests of its rules and of its scoring code."""

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
from mttp.rewards.source_files import METHOD, Code, Coverage

MAX_DEPENDS_BYTES: Final = 1 << 30
"""The maximum total size in bytes of the files under `depends`."""
_EXCLUDED: Final = {"description", "depends"}
"""Component keys that are not in the digest; the files under `depends` are in that of the code."""
_OMITTED_DEFAULTS: Final = ("always", "criteria", "values")
"""Component keys that are omitted at their defaults, which keeps the digests of specs without them."""


def canonical(document: SpecDocument, parts: Sequence[ComponentEntry], included: Mapping[str, str]) -> str:
    """
    Return the canonical JSON (RFC 8785) of the keys that affect scores, with defaults filled in.

    `parts` are the components and the entries of includes; `included` has the includes' digests by name.
    Raises SpecError for parameters that JSON can't represent.
    """
    return canonical_json(
        {
            "mttp": document.mttp,
            "inputs": document.inputs,
            "components": sorted(
                (_component(entry, document) for entry in document.components),
                key=lambda fields: str(fields["name"]),
            ),
            "include": sorted(
                (_include(part, included[part.as_]) for part in document.include),
                key=lambda fields: str(fields["as"]),
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
    """Return the SHA-256 of a text, 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def code_digest(
    codes: Mapping[str, Code],
    included: Mapping[str, str],
    files: Mapping[str, Path],
    distributions: Iterable[str],
    fail: Callable[[str, str], SpecError],
) -> str:
    """
    Return the digest of the scoring code: its method, a colon and a SHA-256.

    `codes` is by target, `included` has the includes' digests by name, `files` are those under `depends`.
    `fail` returns the error for a key and a message, such as a missing file or distribution.
    """
    text = canonical_json(
        {
            "targets": {target: [list(part) for part in code.parts] for target, code in codes.items()},
            "include": dict(included),
            "depends": _file_digests(files, fail),
            "distributions": {name: _version(name, fail) for name in distributions},
        }
    )
    return f"{METHOD}:{digest(text)}"


def coverage(codes: Iterable[Code], included: Iterable[Coverage]) -> Coverage:
    """Return the coverage of all code together."""
    coverages = {*(code.coverage for code in codes), *included}
    if coverages <= {"full"}:
        return "full"
    return "opaque" if coverages == {"opaque"} else "partial"


def _component(entry: ComponentEntry, document: SpecDocument) -> dict[str, Any]:
    fields = entry.model_dump(exclude=_EXCLUDED)
    for name in _OMITTED_DEFAULTS:
        if fields[name] == ComponentEntry.model_fields[name].get_default(call_default_factory=True):
            del fields[name]
    if entry.kind == "check":
        fields["weight"] = 1.0
    if entry.kind in ("verifier", "check"):
        fields["threshold"] = threshold(entry.kind, entry.threshold, entry.range)
    if entry.arity == "output-truth":
        fields["takes"] = list(document.inputs)[:2]  # positional, so the order of inputs counts here
    return fields


def _include(part: SpecInclude, sha256: str) -> dict[str, Any]:
    return {**part.model_dump(by_alias=True, exclude={"spec", "version"}), "sha256": sha256}


def _listed(bounds: tuple[float, float] | None) -> list[float] | None:
    return None if bounds is None else list(bounds)


def canonical_json(value: Any) -> str:
    """Return plain data as canonical JSON (RFC 8785); raises SpecError for values it can't represent."""
    try:
        import rfc8785
    except ImportError as error:
        raise MissingExtra(package="rfc8785", extra="spec", purpose="a reward spec's digest") from error
    try:
        return rfc8785.dumps(value).decode()
    except (rfc8785.CanonicalizationError, UnicodeError) as error:
        raise SpecError(f"the spec has a value that canonical JSON can't represent: {error}") from error


def recordable(data: Any) -> str:
    """
    Return a document as canonical JSON for a recording.

    Cases may have other values: integers beyond 2**53 are written in full, NaN and the infinities as null.
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
    """Return the SHA-256 of each file by name, within the limit for all files together."""
    digests, left = {}, MAX_DEPENDS_BYTES
    for name, path in files.items():
        content = hashlib.sha256()
        try:
            for piece in regular_files.pieces(path, left):
                content.update(piece)
                left -= len(piece)
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno == EFBIG:
                reason = f"the files under `depends` have more than {MAX_DEPENDS_BYTES:,} bytes together"
            raise fail("depends", f"can't read the file {name}: {reason}") from error
        digests[name] = content.hexdigest()
    return digests


def _version(distribution: str, fail: Callable[[str, str], SpecError]) -> str:
    version = version_of(distribution)
    if version is None:
        raise fail("distributions", f"the distribution {distribution} is not installed; install or remove it")
    return version
