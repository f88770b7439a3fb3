"""Numbers that were left out of a span because its receiver can't hold them, and that its omissions name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mttp.semconv import attributes as a

__all__ = ["UNSUPPORTED", "restored"]

UNSUPPORTED = "not supported by the receiver"
_NUMBER_LEFT_OUT = re.compile(f"(.+): (nan|inf|-inf) is {UNSUPPORTED}", re.DOTALL)


def restored(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return attributes with each number that was left out because it is NaN or infinite."""
    omissions = attributes.get(a.OMISSIONS)
    if not isinstance(omissions, (list, tuple)):
        return attributes
    matches = filter(None, map(_NUMBER_LEFT_OUT.fullmatch, map(str, omissions)))
    numbers = {match[1]: float(match[2]) for match in matches}
    return {**numbers, **attributes} if numbers else attributes
