"""Serialization of spec documents to YAML and JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from mttp.errors import MissingExtra, SpecError

_NUMBER = re.compile(
    r"([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0o[0-7]+|0x[0-9a-fA-F]+|[-+]?\.(inf|nan))$",
    re.IGNORECASE,
)
_NEEDS_ESCAPES = re.compile("[\x85\u2028\u2029\ufeff]")
_WIDTH = 110


def to_yaml(data: Any) -> str:
    """Return plain data as YAML, with quotes around text that some YAML version reads as another type."""
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra(package="pyyaml", extra="spec", purpose="writing a reward spec") from error

    class Dumper(yaml.SafeDumper):
        """A dumper for YAML 1.1 and 1.2 readers, without aliases."""

        def ignore_aliases(self, _data: Any) -> bool:
            return True

        def represent_str(self, data: str) -> Any:
            style = '"' if _NEEDS_ESCAPES.search(data) else None
            return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    Dumper.add_representer(str, Dumper.represent_str)
    Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))
    return str(yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH))


def to_json(data: Any) -> str:
    """Return plain data as JSON; raises SpecError for NaN and the infinities."""
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    except ValueError as error:
        raise SpecError(f"the spec has a value that JSON can't represent: {error}") from error
