"""Runs: attributes of run spans, and runs from spans."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from mttp.codec import fields, kinds
from mttp.codec.plain import Faults, Plain, to_json
from mttp.codec.secrets import Secrets
from mttp.model.declarations import keys
from mttp.model.episodes import Run
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["config", "decode", "encode"]

_PYTHON = (a.PROCESS_RUNTIME_NAME, a.PROCESS_RUNTIME_VERSION)
_PLATFORM = (a.OS_TYPE, a.HOST_ARCH)
KEYS = frozenset({*keys(Run).values(), *_PYTHON, *_PLATFORM, a.RUN_PACKAGES})
"""All attributes of a run span."""


def config(value: object, faults: Faults, secrets: Secrets) -> dict[str, Plain]:
    """Return a configuration as JSON without secrets, and the SHA-256 of its canonical form (keys sorted)."""
    omissions: list[str] = []
    document = secrets.document(a.RUN_CONFIG_JSON, to_json(value, faults), omissions)
    canonical = json.dumps(json.loads(document), sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    attributes: dict[str, Plain] = {a.RUN_CONFIG_JSON: document, a.RUN_CONFIG_SHA256: digest}
    return attributes | {a.OMISSIONS: omissions} if omissions else attributes


def encode(faults: Faults, **values: Any) -> dict[str, Plain]:
    """Return the attributes of a run's fields; None values are skipped."""
    attributes = fields.encode(keys(Run), values, faults)
    for name, (first_key, rest_key) in (("python", _PYTHON), ("platform", _PLATFORM)):
        if values.get(name):
            first, _, rest = str(values[name]).partition(" ")
            attributes |= {first_key: first, rest_key: rest}
    if values.get("packages"):
        attributes[a.RUN_PACKAGES] = [f"{name}=={version}" for name, version in values["packages"].items()]
    return attributes


def decode(records: Sequence[SpanRecord]) -> Run:
    """Return the run of one trace's spans: from its root, else from the marker with most attributes."""
    root = next((record for record in records if kinds.kind(record) == names.RUN), None)
    record = root or max(records, key=lambda record: len(record.attributes))
    attributes: Mapping[str, Any] = record.attributes
    packages = dict(str(item).partition("==")[::2] for item in attributes.get(a.RUN_PACKAGES) or ())
    return Run(
        packages=packages,
        python=_joined(attributes, _PYTHON),
        platform=_joined(attributes, _PLATFORM),
        complete=root is not None,
        **fields.of_span(Run, record, KEYS, (a.METADATA,)) | ({"end_time": None} if root is None else {}),
    )


def _joined(attributes: Mapping[str, Any], keys: tuple[str, str]) -> str | None:
    return " ".join(str(attributes[key]) for key in keys if attributes.get(key)) or None
