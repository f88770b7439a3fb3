"""
Pytest's plugin: `--mttp PATH` keeps what a test session records, and the fixtures below.

Where none of these is used, pytest imports this small file and nothing else of mttp.
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
    """The option, and its twin in the configuration file."""
    parser.getgroup("mttp", "recorded episodes").addoption(
        "--mttp",
        metavar="PATH",
        help="write the episodes that the tests record to PATH: a file, a directory or a transport's address",
    )
    parser.addini("mttp_path", "where to write the episodes that the tests record, where --mttp doesn't say")


def pytest_configure(config: pytest.Config) -> None:
    """Record the test session if `--mttp` or `mttp_path` asks for it."""
    given, base = config.getoption("--mttp"), config.invocation_params.dir
    if given is None:
        given, base = config.getini("mttp_path"), config.rootpath
    if given:
        from mttp.testing.suite import Suite

        config.pluginmanager.register(Suite(config, given, base), "mttp-suite")


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Explain `assert expected == actual` for recorded values by the places in which they differ."""
    kind = type(left[0] if isinstance(left, (list, tuple)) and left else left)
    if op != "==" or type(left) is not type(right) or kind.__module__ != "mttp.model.episodes":
        return None
    from mttp.testing.comparison import where_different

    return ["what was recorded differs:", *where_different(left, right)]


@pytest.fixture
def mttp_episodes() -> Iterator[Captured]:
    """What this test records, as values: `.episodes`, `.runs`, `.faults` and more, at any time."""
    from mttp.testing.capture import capture_episodes

    with capture_episodes() as captured:
        yield captured


@pytest.fixture
def mttp_gate() -> Callable[..., GateResult]:
    """
    `mttp.gate` that fails the test unless the verdict is `promote`; its arguments are those of `mttp.gate`.

    With `strict=False` an inconclusive verdict passes.
    """
    from mttp.study import gate

    def gated(*args: Any, strict: bool = True, **options: Any) -> GateResult:
        found = gate(*args, **options)
        if found.verdict == "reject" or (strict and found.verdict == "inconclusive"):
            lines = [
                f"{rule.verdict}: {rule.name}: {rule.evidence}" for rule in found if rule.verdict != "pass"
            ]
            pytest.fail("\n".join([f"{found.candidate}: {found.verdict}", *lines]), pytrace=False)
        return found

    return gated
