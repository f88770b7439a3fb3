"""Wrong arguments of set-up and of reading are errors of mttp, and nothing else escapes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mttp
from mttp.errors import MttpError


class RaisingPath:
    """A path whose conversion raises."""

    def __fspath__(self) -> str:
        raise RuntimeError("no path")


TEXTS = {
    "null": "a\0b",
    "surrogate": "a\udcffb",
    "newline": "a\nb",
    "empty": "",
    "too long": "a" * 5_000,
    "bytes": b"a",
    "path that raises": RaisingPath(),
    "number": 3,
    "negative": -1,
    "not a number": float("nan"),
    "infinity": float("inf"),
    "huge": 10**400,
    "list": [3],
    "dict": {"a": 1},
    "object": object(),
    "function": lambda: None,
}
CONFIGURE = [*inspect.signature(mttp.configure).parameters]


@pytest.mark.parametrize("name", CONFIGURE)
def test_a_wrong_argument_of_configure_is_an_error_of_mttp(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is taken, or an error that names the argument."""
    monkeypatch.chdir(tmp_path)
    messages = {}
    for kind, value in TEXTS.items():
        arguments: dict[str, Any] = {"transport": "memory://", "provenance": False, name: value}
        try:
            mttp.configure(**arguments).close()
        except MttpError as error:
            messages[kind] = str(error)
    assert all(messages.values()), messages


@pytest.mark.parametrize("read", [mttp.read, lambda path: next(iter(mttp.scan(path)), None)])
@pytest.mark.parametrize("kind", TEXTS)
def test_a_wrong_path_is_an_error_of_mttp(
    read: Callable[[Any], Any], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else escapes."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MttpError):
        read(TEXTS[kind])


@pytest.mark.parametrize("name", ["ratio", "keep"])
def test_a_wrong_sampling_is_an_error_of_mttp(name: str) -> None:
    """When it is made, or when it is configured."""
    messages = {}
    for kind, value in TEXTS.items():
        try:
            sampling = mttp.Sampling(**{name: value})
            mttp.configure("memory://", sampling=sampling, provenance=False).close()
        except MttpError as error:
            messages[kind] = str(error)
    assert all(messages.values()), messages


@pytest.mark.parametrize("options", ["to", "content", "token_ids", "redact"])
def test_a_wrong_route_is_an_error_of_mttp(options: str) -> None:
    """When it is made, or when it is configured."""
    messages = {}
    for kind, value in TEXTS.items():
        try:
            route = mttp.Route(**{"to": "memory://", options: value})
            mttp.configure(route, provenance=False).close()
        except MttpError as error:
            messages[kind] = str(error)
    assert all(messages.values()), messages
