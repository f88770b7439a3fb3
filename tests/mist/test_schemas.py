"""The JSON Schema of messages."""

from __future__ import annotations

import json

import jsonschema
import pytest
from vectors import LINES, ZEROS

from mttp.mist.messages.schemas import schema


def valid(document: object, type: str | None = None) -> bool:
    """Whether a document is as the schema says."""
    found = schema(type)
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found).is_valid(document)


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_lines_of_the_reference_follow_it(line: bytes):
    """
    The envelope with its payload, and the payload alone.
    """
    message = json.loads(line)

    assert valid(message)
    assert valid(message["payload"], message["type"])


@pytest.mark.parametrize("name", ZEROS)
def test_payloads_that_nobody_filled_in_follow_it(name: str):
    """
    And without a field that is always written they don't.
    """
    payload = json.loads(ZEROS[name])

    assert valid(payload, name)
    assert not valid(dict(list(payload.items())[1:]), name)


def test_a_payload_of_another_type_does_not():
    """
    Nor does a message without an id; one of an unknown type does.
    """
    message = json.loads(LINES["eval_run"])

    assert not valid(message | {"payload": {"from": "here"}})
    assert not valid({name: value for name, value in message.items() if name != "id"})
    assert valid(message | {"type": "later", "payload": 5})


def test_every_field_of_a_payload_is_in_it():
    """
    By its name on the wire.
    """
    assert {"from", "version", "uptime_s"} == schema("health.pong")["properties"].keys()
    assert "unknown" not in schema()["properties"]
