"""`mttp schema`: JSON Schemas of messages."""

from __future__ import annotations

from typing import Annotated

import typer

from mttp.cli.output import print_json
from mttp.errors import ConfigureError

__all__ = ["schema"]


def schema(
    type_: Annotated[str, typer.Argument(metavar="[TYPE]", help="A message type, such as trace.span.")] = "",
) -> None:
    """
    Print the JSON Schema of a message, or of one payload type.

    \b
    Examples:
      mttp schema
      mttp schema eval.result
      mttp schema trace.span | jq '.properties | keys'

    \b
    Exit codes:
      0  Everything is fine.
      2  Wrong usage, or an unknown type.
    """
    from mttp.mist.messages import PAYLOADS, schemas  # pydantic, which no other command needs

    if type_ and type_ not in PAYLOADS:
        raise ConfigureError(f"{type_!r} is not a message type; the types are {', '.join(PAYLOADS)}")
    print_json(schemas.schema(type_ or None))
