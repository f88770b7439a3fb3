"""The integration with Inspect AI with a stand-in for the library, which always runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from programs import told

from mttp.formats.zip_files import json_member

TESTS = Path(__file__).parents[1]
FILE = TESTS / "formats" / "files" / "inspect.eval"
BEGINNING = f"""
    import asyncio, json, sys
    sys.path[:0] = [{str(TESTS / "integrations" / "fakes")!r}]
    import mttp
    from mttp.formats.zip_files import json_member
    from mttp.integrations.inspect_ai import attach_all
    from pathlib import Path

    class Document:
        def __init__(self, value):
            self.value = value

        def model_dump(self, *, mode, exclude_none, exclude=()):
            assert mode == "json" and exclude_none
            return {{key: one for key, one in self.value.items() if key not in exclude}}

    FILE = Path({str(FILE)!r})
    HEADER = json_member(FILE, "header.json")
    NAMES = ["1_epoch_1", "1_epoch_2", "2_epoch_1", "2_epoch_2"]
    SAMPLES = [json_member(FILE, f"samples/{{name}}.json") for name in NAMES]

    def run(samples=SAMPLES):
        from inspect_ai.hooks import run

        asyncio.run(run("e1", Document(HEADER["eval"]), [Document(one) for one in samples], Document(HEADER)))
"""


def said(code: str, *, warned: str = "") -> Any:
    """What a program says after the beginning."""
    return told(BEGINNING + code, warned=warned)


def test_samples_are_episodes_and_the_task_is_an_evaluation() -> None:
    """
    Options apply, and after a detach nothing is recorded.
    """
    found = said(
        """
    with mttp.configure("memory://") as session:
        with attach_all(policy="mine") as handle:
            status = [handle.status()]
            run()
        status.append(handle.status())
        run()
        recording = mttp.read(session)
    (evaluation,) = recording.evals
    print(json.dumps([
        status,
        [[one.task, one.attempt, one.return_, one.policy] for one in recording],
        [[one.task, one.sample, one.score, one.passed] for one in evaluation.results],
        evaluation.metrics["includes_accuracy"],
        dict(session.stats.faults),
    ]))
    """
    )

    assert [
        [{"hooks": True}, {"hooks": False}],
        [["1", 0, 1.0, "mine"], ["1", 1, 1.0, "mine"], ["2", 0, 0.0, "mine"], ["2", 1, 0.0, "mine"]],
        [["1", 0, 1.0, True], ["1", 1, 1.0, True], ["2", 0, 0.0, False], ["2", 1, 0.0, False]],
        0.5,
        {},
    ] == [found[0], sorted(found[1]), sorted(found[2]), *found[3:]]


def test_a_sample_that_can_t_be_mapped_is_counted() -> None:
    """
    The others are recorded, and the evaluation with them.
    """
    found = said(
        """
    with mttp.configure("memory://") as session, attach_all():
        run([{}, *SAMPLES[:1]])
        recording = mttp.read(session)
    print(json.dumps([len(recording), len(recording.evals[0].results), dict(session.stats.faults)]))
    """,
        warned="integration_error",
    )

    assert [1, 1, {"integration_error": 1}] == found


def test_an_open_session_is_enough() -> None:
    """
    Inspect imports the hooks by their entry point; without a session and a variable they do nothing.
    """
    found = said(
        """
    import mttp.integrations.inspect_ai.hooks

    run()
    with mttp.configure("memory://") as session:
        run()
        print(json.dumps([len(mttp.read(session)), Path("mttp-runs").exists()]))
    """
    )

    assert [4, False] == found


def test_the_file_is_there() -> None:
    """
    The stand-in runs what the library wrote.
    """
    assert "sums" == json_member(FILE, "header.json")["eval"]["task"]
