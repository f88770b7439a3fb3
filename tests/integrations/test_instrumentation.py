"""Instrumenting: the choice of the integration, its imports, and errors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib import metadata, util

import pytest

import mttp
from mttp import integrations
from mttp.errors import InstrumentError, MissingExtra


def run(code: str) -> str:
    """Return the output of a program in a new interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, "" if done.returncode == 0 else done.stderr)
    return done.stdout.strip()


@pytest.mark.parametrize("target", [3, "CartPole-v1", object(), {}.items(), Exception()])
def test_an_unknown_target_is_refused(session: mttp.Session, target: object) -> None:
    """
    The message names the type, its packages, and the supported libraries.
    """
    named = f"builtins.{type(target).__qualname__}"

    with pytest.raises(InstrumentError) as raised:
        mttp.instrument(target)

    expected = f"mttp has no integration for {named} (packages: builtins); supported: "
    expected += ", ".join(sorted(integrations.LIBRARIES))
    assert expected == str(raised.value)


def test_a_class_is_refused(session: mttp.Session) -> None:
    """
    The message says to instrument an instance.
    """
    with pytest.raises(InstrumentError, match="int is a class; instrument an instance of it"):
        mttp.instrument(int)


def test_the_bases_decide(session: mttp.Session) -> None:
    """
    A user's class is recorded by the integration of its base class.
    """
    gymnasium = pytest.importorskip("gymnasium")

    class Mine(gymnasium.Env):  # type: ignore[misc, name-defined]  # an optional import
        pass

    found = integrations.integration_of(Mine())

    assert "mttp.integrations.gymnasium" == found.__name__  # type: ignore[attr-defined]  # it is a module


@pytest.mark.parametrize("package", integrations.LIBRARIES)
def test_every_integration_has_the_same_names(package: str) -> None:
    """
    Each module of the table implements the protocol.
    """
    pytest.importorskip(package)
    module = integrations.load(package)

    assert all(callable(getattr(module, name)) for name in ("attach", "attach_all"))


def test_no_foreign_library_is_imported_to_decide() -> None:
    """
    Importing mttp and refusing a target does not import gymnasium.
    """
    code = """
import sys, mttp
with mttp.configure(transport="memory://"):
    for call in (mttp.instrument, mttp.wrap):
        try:
            call(object())
        except mttp.errors.InstrumentError:
            pass
print("gymnasium" in sys.modules)
"""
    assert "False" == run(code)


def test_a_library_is_instrumented_when_it_is_imported() -> None:
    """
    `instrument()` imports nothing; recording begins with the library's import.
    """
    pytest.importorskip("gymnasium")
    code = """
import sys, mttp
with mttp.configure(transport="memory://") as session:
    handle = mttp.instrument(policy="p")
    print("gymnasium" in sys.modules, handle.status()["gymnasium"])
    from gymnasium import make
    print(handle.status()["gymnasium.make"])
    env = make("CartPole-v1")
    env.reset(seed=1)
    env.step(0)
    env.close()
    print([(episode.env, episode.policy, episode.length) for episode in mttp.read(session)])
    handle.detach()
    import gymnasium
    print(type(gymnasium.make).__name__, any(handle.status().values()))
"""
    assert [
        "False False",
        "True",
        "[('CartPole-v1', 'p', 1)]",
        "function False",
    ] == run(code).splitlines()


def test_a_library_that_is_imported_after_detaching_is_left_alone() -> None:
    """
    A detached handle does not instrument later imports.
    """
    pytest.importorskip("gymnasium")
    code = """
import mttp
with mttp.configure(transport="memory://"):
    with mttp.instrument() as handle:
        pass
    import gymnasium
    print(type(gymnasium.make).__name__, handle.status()["gymnasium"])
"""
    assert "function False" == run(code)


def test_a_broken_integration_does_not_break_the_import() -> None:
    """
    The import succeeds, and the error is logged.
    """
    pytest.importorskip("gymnasium")
    code = """
import logging, mttp
from mttp import integrations
logging.basicConfig(format="%(message)s", stream=__import__("sys").stdout)
import dataclasses
library = dataclasses.replace(integrations.LIBRARIES["gymnasium"], module="mttp.integrations.nowhere")
integrations.LIBRARIES = {"gymnasium": library}
with mttp.configure(transport="memory://"):
    mttp.instrument()
    import gymnasium
print(gymnasium.make.__name__)
"""
    first, *_, last = run(code).splitlines()

    assert first.startswith("mttp: gymnasium is not recorded: ModuleNotFoundError")
    assert "make" == last


def test_nothing_to_instrument(session: mttp.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without any supported library, the message says what to install.
    """
    tomorrow = replace(integrations.LIBRARIES["gymnasium"], extra="tomorrow")
    monkeypatch.setattr(integrations, "LIBRARIES", {"gymnasium_of_tomorrow": tomorrow})

    with pytest.raises(MissingExtra, match=r"pip install 'mttp\[tomorrow\]'"):
        mttp.instrument()


def test_an_old_version_is_refused() -> None:
    """
    For Gymnasium before 1.1, the message has the required version.
    """
    pytest.importorskip("gymnasium")
    code = """
import gymnasium.vector, mttp
del gymnasium.vector.AutoresetMode
try:
    import mttp.integrations.gymnasium
except mttp.errors.MissingExtra as error:
    print(error)
"""
    assert "recording Gymnasium environments needs gymnasium>=1.1: pip install 'mttp[gymnasium]'" == run(code)


def test_gymnasium_is_found_without_importing_it() -> None:
    """
    The import system says whether a library is installed.
    """
    for package, library in integrations.LIBRARIES.items():
        assert (util.find_spec(package) is None) is not _is_installed(library.distribution)


def _is_installed(distribution: str) -> bool:
    try:
        return bool(metadata.version(distribution))
    except metadata.PackageNotFoundError:
        return False
