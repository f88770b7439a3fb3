"""Wrong arguments of set-up and of reading are errors of mttp, and nothing else escapes."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from awkward import AWKWARD

import mttp
from mttp.codec.plain import scalar_text
from mttp.errors import MttpError
from mttp.integrations.functions import FunctionOptions
from mttp.integrations.options import Options


class RaisingPath:
    """A path whose conversion raises."""

    def __fspath__(self) -> str:
        raise RuntimeError("no path")


class WrongRepr:
    """An object that can't be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def nothing() -> None:
    """Return nothing."""


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
    "function": nothing,
    "wrong repr": WrongRepr(),
    "array": np.arange(3.0),
}
CONFIGURE = [*inspect.signature(mttp.configure).parameters]


def errors(call: Callable[[Any], object]) -> dict[str, str]:
    """Return the messages of the errors of a call by the kind of the value; other errors escape."""
    messages = {}
    for kind, value in TEXTS.items():
        try:
            call(value)
        except MttpError as error:
            messages[kind] = str(error)
    assert all(messages.values()), messages
    return messages


def assert_named(messages: dict[str, str], name: str) -> None:
    """Assert that each message has the name of the argument and the value."""
    assert messages
    for kind, message in messages.items():
        assert name in message, message
        shown = scalar_text(TEXTS[kind])[:20] if isinstance(TEXTS[kind], (int, float, str)) else ""
        assert shown in message, message


@pytest.mark.parametrize("name", CONFIGURE)
def test_a_wrong_argument_of_configure_is_an_error_of_mttp(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is taken, or an error."""
    monkeypatch.chdir(tmp_path)
    usual: dict[str, Any] = {"transport": "memory://", "provenance": False}
    errors(lambda value: mttp.configure(**{**usual, name: value}).close())


@pytest.mark.parametrize("read", [mttp.read, lambda path: next(iter(mttp.scan(path)), None)])
@pytest.mark.parametrize("kind", TEXTS)
def test_a_wrong_path_is_an_error_of_mttp(
    read: Callable[[Any], Any], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else escapes."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MttpError):
        read(TEXTS[kind])


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (mttp.read, "strict"),
        (mttp.read, "progress"),
        (mttp.summarize, "strict"),
        (mttp.summarize, "progress"),
        (mttp.scan, "arrays"),
        (mttp.check, "progress"),
    ],
)
def test_a_wrong_option_of_reading_is_named(function: Callable[..., object], name: str) -> None:
    """With its value, before anything is read."""
    with mttp.configure("file://a.jsonl"), mttp.episode():
        pass
    messages = errors(lambda value: function("a.jsonl", **{name: value}) if value is not nothing else None)

    assert_named(messages, f"{name}=")
    assert len(messages) == len(TEXTS) - 1


@pytest.mark.parametrize("name", ["ratio", "keep"])
def test_a_wrong_sampling_is_an_error_of_mttp(name: str) -> None:
    """When it is made, or when it is configured."""

    def configure(value: object) -> None:
        sampling: Any = mttp.Sampling(**{name: value})  # type: ignore[arg-type]
        mttp.configure("memory://", sampling=sampling, provenance=False).close()

    errors(configure)


@pytest.mark.parametrize("name", ["to", "content", "token_ids", "redact"])
def test_a_wrong_route_is_an_error_of_mttp(name: str) -> None:
    """When it is made, or when it is configured; it is named with its value."""

    def configure(value: object) -> None:
        route: Any = mttp.Route(**{"to": "memory://", name: value})  # type: ignore[arg-type]
        mttp.configure(route, provenance=False).close()

    messages = errors(configure)
    del messages["path that raises"]  # it can't be shown

    assert_named(messages, "transport" if name == "to" else f"{name}=")


@pytest.mark.parametrize(
    "name", ["timeout", "compression", "max_bytes", "spool", "certificate", "headers", "profile", "other"]
)
def test_a_wrong_option_of_a_route_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers may be secrets, and are not shown."""
    monkeypatch.chdir(tmp_path)

    def configure(value: object) -> None:
        mttp.configure(mttp.Route("http://127.0.0.1:9", **{name: value}), provenance=False).close()

    messages = errors(configure)

    assert messages
    assert all(name in message for message in messages.values())


class Env(gymnasium.Env[Any, Any]):
    """An environment without anything."""


@pytest.mark.parametrize("record", [mttp.instrument, mttp.wrap, "function"])
@pytest.mark.parametrize("name", [item.name for item in fields(FunctionOptions)])
def test_a_wrong_option_of_instrument_is_named(record: Any, name: str) -> None:
    """With its value; names that are recorded, such as a task's, may be any value."""
    is_function = record == "function"
    if not is_function and name not in {item.name for item in fields(Options)}:
        return

    def instrument(value: object) -> None:
        if is_function:
            mttp.instrument(lambda text: text, **{name: value})
        else:
            record(Env(), **{name: value})

    messages = errors(instrument)

    if name not in ("policy", "group", "task", "env"):
        assert_named(messages, f"{name}=")
        assert len(messages) >= len(TEXTS) - 3


@pytest.mark.parametrize("record", [mttp.instrument, mttp.wrap])
def test_what_can_not_be_instrumented_is_named(record: Any) -> None:
    """With its type."""
    messages = errors(lambda value: record(value) if value is not nothing else None)

    assert len(messages) == len(TEXTS) - 1
    assert all(type(TEXTS[kind]).__name__ in message for kind, message in messages.items())


@pytest.mark.parametrize("name", sorted(AWKWARD))
def test_a_transport_that_raises_when_it_is_asked_is_an_error_of_mttp(name: str) -> None:
    """
    Whatever a foreign object raises is the cause of the error.
    """
    with contextlib.suppress(MttpError):
        mttp.configure(AWKWARD[name](), provenance=False).close()  # type: ignore[operator]
