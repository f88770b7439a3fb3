"""The integration with HUD with a stand-in for the library, which always runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from programs import told

TESTS = Path(__file__).parents[1]
BEGINNING = f"""
    import asyncio, json, sys
    sys.path[:0] = [{str(TESTS / "integrations" / "fakes")!r}]
    import mttp
    from mttp.integrations.hud import attach_all
    from pathlib import Path

    LINES = Path({str(TESTS / "formats" / "files" / "hud.jsonl")!r}).read_text().splitlines()
    STEPS = [json.loads(line)["attributes"]["hud.payload"] for line in LINES]

    async def nothing():
        pass

    def run(digit, agent=nothing, steps=STEPS):
        from hud.eval.run import rollout

        return rollout(steps, agent, trace_id=digit * 32)
"""


def said(code: str, *, warned: str = "") -> Any:
    """What a program says after the beginning."""
    return told(BEGINNING + code, warned=warned)


def test_a_rollout_is_an_episode() -> None:
    """
    Options apply, and after a detach nothing is recorded; a new handle records again.
    """
    found = said(
        """
    with mttp.configure("memory://") as session:
        with attach_all(policy="mine", metadata={"a": 1}) as handle:
            status = [handle.status()]
            asyncio.run(run("1"))
            status.append(handle.status())
        asyncio.run(run("2"))
        with attach_all():
            asyncio.run(run("3"))
        recording = mttp.read(session)
    print(json.dumps([
        status,
        [[one.trace_id[0], one.task, one.group, one.policy, one.return_] for one in recording],
        recording[0].metadata["a"],
        recording[0].stop_reason,
        dict(session.stats.faults),
        sys.modules["hud.eval.run"].exits,
    ]))
    """
    )

    patched = {"rollout.set_trace_context": True, "rollout.trace_exit": True}
    assert [
        [{"hud.eval.run": False}, patched],
        [["1", "add-1", "g", "mine", 0.25], ["3", "add-1", "g", "scripted", 0.25]],
        1,
        "done",
        {},
        ["1" * 32, "2" * 32, "3" * 32],
    ] == [found[0], sorted(found[1]), *found[2:]]


def test_what_is_inside_a_rollout_is_not_recorded() -> None:
    """
    Neither another agent's rollout nor a rollout inside `suppress_instrumentation`; two at a time are.
    """
    found = said(
        """
    from opentelemetry.instrumentation.utils import suppress_instrumentation

    async def other():
        await asyncio.create_task(run("2"))

    async def main():
        await asyncio.gather(run("1", other), run("3"))
        with suppress_instrumentation():
            await run("4")

    with mttp.configure("memory://") as session, attach_all():
        asyncio.run(main())
        print(json.dumps(sorted(one.trace_id[0] for one in mttp.read(session))))
    """
    )

    assert ["1", "3"] == found


def test_a_hook_that_raises_harms_nothing() -> None:
    """
    It is counted; the rollout's result and its report are the library's.
    """
    found = said(
        """
    from mttp.formats import hud

    def broken(record):
        raise RuntimeError("broken")

    hud.episode = broken
    with mttp.configure("memory://") as session, attach_all():
        result = asyncio.run(run("1"))
        print(json.dumps([
            result.trace.trace_id, sys.modules["hud.eval.run"].exits, dict(session.stats.faults)
        ]))
    """,
        warned="integration_error",
    )

    assert ["1" * 32, ["1" * 32], {"integration_error": 1}] == found


def test_a_missing_seam_is_named() -> None:
    """
    By the status and one warning.
    """
    found = said(
        """
    import hud.eval.run as module

    del module.trace_exit
    with attach_all() as handle:
        print(json.dumps(handle.status()))
    """,
        warned="has no rollout.trace_exit",
    )

    assert {"rollout.set_trace_context": True, "rollout.trace_exit": False} == found


def test_an_exception_of_the_agent_is_the_caller_s() -> None:
    """
    As without recording.
    """
    found = said(
        """
    async def fails():
        raise KeyError("mine")

    with mttp.configure("memory://") as session, attach_all():
        try:
            asyncio.run(run("1", fails))
        except KeyError as error:
            print(json.dumps([str(error), len(mttp.read(session))]))
    """
    )

    assert ["'mine'", 0] == found
