"""Options are the annotated parameters of what they are for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mttp.mist.receiving.listener import ListeningOrigin
from mttp.mist.transport.channel import ChannelOutlet
from mttp.mist.transport.http import HttpOutlet
from mttp.transports.file import FileTransport
from mttp.transports.memory import MemoryTransport
from mttp.transports.options import parsers
from mttp.transports.otlp.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "model", "options"),
    [
        ("transports", MemoryTransport, "max_episodes"),
        ("transports", FileTransport, "max_bytes fsync suffix"),
        (
            "transports",
            Settings,
            "headers compression timeout certificate client_key client_certificate max_bytes profile"
            " names spool spool_bytes",
        ),
        ("mist", HttpOutlet, "timeout max_bytes headers certificate"),
        ("mist", ChannelOutlet, "capacity full"),
        ("mist", ListeningOrigin, "capacity max_bytes timeout max_unfinished_bytes token"),
    ],
)
def test_a_page_has_every_option(page: str, model: Callable[..., object], options: str) -> None:
    """
    Each is written as an address has it.
    """
    text = (DOCS / f"{page}.md").read_text()

    assert options.split() == list(parsers(model))
    assert [] == [name for name in parsers(model) if f"{name}=" not in text]
