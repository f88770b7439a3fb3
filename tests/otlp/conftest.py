"""A helper for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from polling import eventually

from mttp.otlp.encoding import encoder


@pytest.fixture
def helped(monkeypatch: pytest.MonkeyPatch) -> Iterator[encoder._Encoding]:
    """Encoding with a helper that is there at once."""
    own = encoder._Encoding()
    monkeypatch.setattr(encoder, "_encoding", own)
    own._start()
    helper = own._helper
    assert helper is not None
    assert eventually(lambda: helper.is_ready)
    yield own
    own.close()
