"""
The pytest plugin: `--mttp PATH` records a test session, and the fixtures capture and gate episodes.

Until one of them is used, pytest imports this small module and nothing else of mttp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mttp.study import GateResult
    from mttp.testing.capture import Captured

__all__ = ["mttp_episodes", "mttp_gate", "pytest_addoption", "pytest_assertrepr_compare", "pytest_configure"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command-line option and the setting of the configuration file."""
    parser.getgroup("mttp", "recorded episodes").addoption(
        "--mttp",
        metavar="PATH",
        help="write the episodes that the tests record to PATH: a file, a directory or a transport's address",
    )
    parser.addini("mttp_path", "the default of --mttp")


def pytest_configure(config: pytest.Config) -> None:
    """Record the test session if `--mttp` or `mttp_path` is set."""
    path, base = config.getoption("--mttp"), config.invocation_params.dir
    if path is None:
        path, base = config.getini("mttp_path"), config.rootpath
    if path:
        from mttp.testing.suite import Suite

        config.pluginmanager.register(Suite(config, path, base), "mttp-suite")


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """List the places in which recorded values differ when `assert expected == actual` fails."""
    kind = type(left[0] if isinstance(left, (list, tuple)) and left else left)
    if op != "==" or type(left) is not type(right) or kind.__module__ != "mttp.model.episodes":
        return None
    from mttp.testing.comparison import where_different

    return ["what was recorded differs:", *where_different(left, right)]


@pytest.fixture
def mttp_episodes() -> Iterator[Captured]:
    """The captured recording of this test: `.episodes`, `.runs`, `.faults`, `.recording`, `.session`."""
    from mttp.testing.capture import capture_episodes

    with capture_episodes() as captured:
        yield captured


@pytest.fixture
def mttp_gate() -> Callable[..., GateResult]:
    """
    A function that calls `mttp.gate` with its arguments, and fails the test unless the verdict is `promote`.

    With `strict=False` an inconclusive verdict passes.
    """
    from mttp.study import gate

    def gated(*args: Any, strict: bool = True, **options: Any) -> GateResult:
        result = gate(*args, **options)
        if result.verdict == "reject" or (strict and result.verdict == "inconclusive"):
            lines = [
                f"{rule.verdict}: {rule.name}: {rule.evidence}" for rule in result if rule.verdict != "pass"
            ]
            pytest.fail("\n".join([f"{result.candidate}: {result.verdict}", *lines]), pytrace=False)
        return result

    return gated
