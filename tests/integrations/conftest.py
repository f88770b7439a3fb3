"""What every test of an integration leaves behind: nothing instrumented."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mttp.integrations import instrumentation


@pytest.fixture(autouse=True)
def uninstrumented() -> Iterator[None]:
    """No library is instrumented before or after."""
    yield
    handle = instrumentation._everything
    if handle is not None:
        handle.detach()
