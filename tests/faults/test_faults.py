"""Recorded is delivered, pending or lost, whatever fails, and what was delivered arrived."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from faults import FAULTS


@pytest.mark.parametrize("name", FAULTS)
def test_every_span_is_accounted_for(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of a fork where there are threads
        account = FAULTS[name].cause(tmp_path)
    print(f"{FAULTS[name].name} {account}")


def test_there_are_as_many_faults_as_the_page_says() -> None:
    page = (Path(__file__).parents[2] / "docs/faults.md").read_text()
    assert [] == [fault.name for fault in FAULTS.values() if fault.name not in page]
    assert len(FAULTS) >= 25
