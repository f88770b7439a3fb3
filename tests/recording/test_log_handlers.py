"""Handlers of the program's log that raise."""

from __future__ import annotations

import logging

import mttp


class _Raises(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError("no space")


def test_a_log_handler_that_raises_costs_no_value() -> None:
    """What is recorded while a fault is logged is recorded."""
    handler = _Raises()
    logging.getLogger("mttp").addHandler(handler)
    try:
        with mttp.configure("memory://") as session, mttp.episode() as episode, episode.step() as step:
            step.reward(float("nan"), components={"a": 1.0})
            step.action("go")
    finally:
        logging.getLogger("mttp").removeHandler(handler)

    (recorded,) = mttp.read(session).episodes
    assert session.stats.faults
    assert "internal_error" not in session.stats.faults
    assert (recorded.steps[0].action, recorded.steps[0].reward_status) == ("go", "error")
