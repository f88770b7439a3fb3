"""Recording never raises into the training loop, even without memory or file descriptors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from surface import CALLS, calls

import mttp


def test_every_call_of_the_surface_is_tested() -> None:
    """
    A new public call must be added to the table.
    """
    assert calls() == set(CALLS)


def program(code: str) -> str:
    """Run a program that uses the table, and return its output."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout.strip()


WITHOUT_HANDLES = """
import os, resource
import mttp
session = mttp.configure("file://a.jsonl")
import surface
held = []
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for name, call in surface.CALLS.items():
    if name not in surface.BLOCKING:
        scene = surface.Scene(session)
        try:
            call(scene)
        except BaseException as error:
            print(name, repr(error))
        scene.close()
for each in held:
    os.close(each)
if not session.close() or session.stats.faults["internal_error"]:
    print(session.stats)
"""


def test_calls_need_no_file_descriptors() -> None:
    """
    Modules are imported when the session opens; spans are delivered later.
    """
    pytest.importorskip("resource")

    assert "" == program(WITHOUT_HANDLES)
    assert mttp.read("a.jsonl").episodes


WITHOUT_MEMORY = """
import os, resource
import numpy as np
import mttp
import surface
session = mttp.configure("file://a.jsonl")
surface.Scene(session).close()
session.flush()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
arrays = [np.zeros(size * 2**17) for size in (1, 40, 120, 240)]
used += sum(array.nbytes for array in arrays)
resource.setrlimit(resource.RLIMIT_AS, (used + 60 * 2**20, resource.RLIM_INFINITY))
with mttp.episode() as episode:
    for array in arrays:
        for say in (
            lambda step: step.tokens(array.view(np.int64), logprobs=array),
            lambda step: step.tokens(array.view(np.int64)),
            lambda step: step.observation(array),
            lambda step: step.action({"a": array}),
            lambda step: step.set_metadata("a", array),
            lambda step: step.span.set_attribute("a", array),
            lambda step: step.reward(1.0, explanation=array),
            lambda step: step.tool_call("t", arguments=array).end(),
            lambda step: step.record(advantage=array),
            lambda step: episode.final_observation(array),
            lambda step: mttp.annotate(episode, "a", array),
            lambda step: mttp.group("g", metadata={"a": array}).end(),
        ):
            with mttp.step() as step:
                say(step)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
session.close()
stats = session.stats
assert stats.recorded == stats.delivered + stats.pending + sum(stats.lost.values()), stats
print(stats.steps, stats.faults["internal_error"] > 0)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
def test_arrays_beyond_the_memory_limit_are_faults() -> None:
    """
    The array is an internal error, and all other steps are recorded.
    """
    assert "49 True" == program(WITHOUT_MEMORY)


NO_MEMORY = """
import gc, logging, os, traceback
import _testcapi
import mttp, surface
logging.disable(logging.CRITICAL)
gc.disable()
source = os.path.dirname(mttp.__file__)
session = mttp.configure("memory://")
for name, call in surface.CALLS.items():
    if name in surface.BLOCKING:
        continue
    call(surface.Scene(session))
    for number in range(40):
        scene, error = surface.Scene(session), None
        try:
            _testcapi.set_nomemory(number, number + 1)
            call(scene)
            _testcapi.remove_mem_hooks()
        except BaseException as raised:
            _testcapi.remove_mem_hooks()
            error = raised
        if error is not None:
            found = [each for each in traceback.extract_tb(error.__traceback__) if source in each.filename]
            if found:
                print(name, number, repr(error), found[-1])
        scene.close()
print(session.stats.faults["internal_error"] > 0, flush=True)
os._exit(0)
"""


def test_a_failed_allocation_never_raises() -> None:
    """
    A call returns whichever of its first allocations fails.
    """
    pytest.importorskip("_testcapi")

    assert "True" == program(NO_MEMORY)


@pytest.mark.parametrize("steps", ["spans", "packed"])
def test_endlessly_nested_values_never_raise(session: mttp.Session, steps: str) -> None:
    """
    This holds for every argument that takes a structure.
    """
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    with mttp.episode(inputs=nested, metadata={"a": nested}, steps=steps) as episode, episode.step() as step:
        step.observation(nested)
        step.action(nested)
        step.set_metadata("a", nested)
        step.span.set_attribute("a", nested)  # type: ignore[arg-type]
        step.tokens(nested)
        step.reward(nested, components={"a": nested})
        step.tool_call("t", arguments=nested).end()
        episode.final_observation(nested)
        episode.reward(1.0, explanation=nested)  # type: ignore[arg-type]
        mttp.annotate(episode, "a", nested)
        mttp.update(loss=nested, metadata={"a": nested})  # type: ignore[arg-type]
        session.describe(config=nested)

    assert 1 == len(mttp.read(session).episodes)


def test_an_internal_error_is_noted_counted_and_logged_once(
    session: mttp.Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    It is on the span, in the session's counters, and in the log.
    """

    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("mttp.codec.tokens.snapshot", no_memory)
    with mttp.episode() as episode:
        for _ in range(2):
            with episode.step() as step:
                step.tokens([1, 2, 3])
                step.reward(1.0)

    assert {"internal_error": 2} == dict(session.stats.faults)
    assert ("internal_error: OpenStep.tokens: MemoryError()",) == mttp.read(session).episodes[0].steps[
        0
    ].faults
    assert 1 == caplog.text.count("internal_error")


def test_an_unknown_argument_raises_type_error(session: mttp.Session) -> None:
    """
    It is a bug of the program.
    """
    with pytest.raises(TypeError, match="nothing_of_the_kind"):
        mttp.group(nothing_of_the_kind=1)  # type: ignore[call-arg]
