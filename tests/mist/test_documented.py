"""The messages that the documentation shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mttp.mist.messages import PAYLOADS, Message
from mttp.semconv.registry import attributes

PAGE = (Path(__file__).parents[2] / "docs" / "mist.md").read_text()
SHOWN = dict(re.findall(r"^### (\S+)\n\n```json\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL))


def test_every_type_is_shown():
    """
    In the order in which the package has them.
    """
    assert list(PAYLOADS) == list(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown_is_a_message(name: str):
    """
    Of that type, with a checksum that holds, and as it would be written here.
    """
    message = Message.from_bytes(SHOWN[name].encode())
    message.verify_checksum()

    assert name == message.type
    assert SHOWN[name].encode() == message.to_bytes()
    assert message.payload == Message.new("s", message.decode()).payload


def test_attributes_that_are_named_exist():
    """
    Each key of ours on the page is one of the convention.
    """
    named = set(re.findall(r"`(mttp\.(?!mist|model|errors)[a-z_]+\.[a-z0-9_.]+)`", PAGE))

    assert named
    assert set() == named - attributes().keys()
