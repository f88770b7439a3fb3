"""The public names of `mttp.testing`, and the cost of importing it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mttp import testing


def test_exported_names() -> None:
    """
    A change here changes the public API.
    """
    expected = """
        Behaviour Captured CountingIds FrozenClock OtlpReceiver
        assert_same capture_episodes counting_ids frozen_clock where_different
    """.split()

    assert expected == sorted(testing.__all__)


@pytest.mark.parametrize("name", testing.__all__)
def test_every_name_is_where_the_table_says(name: str) -> None:
    """
    Each name is imported lazily from its module.
    """
    assert name == getattr(testing, name).__name__


def test_an_unknown_name_is_an_attribute_error() -> None:
    """
    As with any module.
    """
    with pytest.raises(AttributeError, match=r"'mttp\.testing' has no attribute 'mock'"):
        _ = testing.mock  # type: ignore[attr-defined]


def test_the_plugin_costs_nothing_until_it_is_used() -> None:
    """
    Importing the plugin, as every pytest run does, imports no other module of mttp.
    """
    script = "import pytest, sys; before = set(sys.modules); import mttp.testing.plugin\n"
    script += "print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert [
        "mttp",
        "mttp.model",
        "mttp.model.exports",
        "mttp.model.printable",
        "mttp.model.version",
        "mttp.testing",
        "mttp.testing.plugin",
    ] == done.stdout.split()
