"""Fixtures of the integrations' tests: nothing stays instrumented."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mttp.integrations import instrumentation


@pytest.fixture(autouse=True)
def uninstrumented() -> Iterator[None]:
    """Check that no library is instrumented before or after a test."""
    yield
    handle = instrumentation._everything
    if handle is not None:
        handle.detach()
