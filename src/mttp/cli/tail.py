"""`mttp tail`: one line for each episode, as it ends."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, NamedTuple

import typer

from mttp.cli.interrupts import until_interrupted
from mttp.cli.output import Sources, console, is_discarded, say, working
from mttp.errors import ReadError
from mttp.model.estimates import mean
from mttp.model.figures import EpisodeFigures
from mttp.model.spans import SpanRecord
from mttp.pages.words import count, moment, number, printed
from mttp.reading.jsonable import to_json
from mttp.reading.problems import Problem

__all__ = ["tail"]

_POLL_SECONDS = 0.5
_WINDOW = 100
_ROOM = 100_000
"""Number of spans after which their episodes are computed, so that those of a large file need little room."""


def tail(
    paths: Sources,
    *,
    lines: Annotated[
        int, typer.Option("--lines", metavar="N", min=0, help="Number of ended episodes shown first.")
    ] = 10,
    window: Annotated[
        int, typer.Option("--window", metavar="N", min=1, help="Number of episodes in the running means.")
    ] = _WINDOW,
    no_follow: Annotated[
        bool, typer.Option("--no-follow", help="End with the last episode, and do not wait for more.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line for each episode.")
    ] = False,
) -> None:
    """
    Print one line for each episode of a recording, as it ends.

    Each line has time, episode, environment and task, steps, return, outcome, and the means of return and
    success over the last --window episodes; errors and invalid rewards are in words, and red on a terminal.
    It goes on until Ctrl-C.

    \b
    Examples:
      mttp tail runs/grpo.jsonl
      mttp tail runs/ --lines 100 --no-follow
      mttp tail runs/ --json | jq .return

    \b
    Exit codes:
      0  Everything is fine: ended by Ctrl-C or by the last episode.
      2  Wrong usage, or input that can't be read.
    """
    from mttp.reading.following import Follower

    ended = _EndedEpisodes()
    follower = Follower(paths)
    means = _RunningMeans(window)
    show = _print_json if json else _print
    shown: deque[_EpisodeLine] = deque(maxlen=lines)  # of those that ended before the command began

    def poll() -> None:
        for arrived in follower.poll():
            ended.add(arrived.spans)
            if ended.new >= _ROOM:
                shown.extend(means.line(episode) for episode in ended.take())
        shown.extend(means.line(episode) for episode in ended.take())

    with closing(ended), until_interrupted():
        with working("reading"):
            poll()
        while True:
            if not ended.count and (refused := _refused(follower.problems)):
                raise ReadError(refused)
            for line in shown:
                show(line)
            shown = deque()
            if no_follow or is_discarded():
                return
            time.sleep(_POLL_SECONDS)
            poll()


class _EndedEpisodes:
    """The figures of episodes that ended since they were last taken; each is taken once."""

    def __init__(self) -> None:
        from mttp.tables.growing import GrowingEpisodes

        self._growing = GrowingEpisodes()
        self._taken: set[str] = set()

    @property
    def count(self) -> int:
        """Number of episodes that were taken."""
        return len(self._taken)

    def close(self) -> None:
        """Free disk."""
        self._growing.close()

    @property
    def new(self) -> int:
        """Number of spans that arrived since."""
        return self._growing.new

    def add(self, spans: Sequence[SpanRecord]) -> None:
        """Add spans that were read."""
        self._growing.add(spans)

    def take(self) -> list[EpisodeFigures]:
        """The new ones, in the order in which they ended."""
        changed = self._growing.changed()
        new = [figures for figures in changed if figures.trace_id not in self._taken]
        self._taken.update(figures.trace_id for figures in new)
        self._growing.forget([figures.trace_id for figures in changed])
        return new


class _EpisodeLine(NamedTuple):
    """An episode, with the means up to it."""

    episode: EpisodeFigures
    mean_return: float | None
    success: float | None


class _RunningMeans:
    """Means of the return and of success over the last episodes with a value."""

    def __init__(self, window: int) -> None:
        self._returns: deque[float] = deque(maxlen=window)
        self._successes: deque[bool] = deque(maxlen=window)

    def line(self, episode: EpisodeFigures) -> _EpisodeLine:
        """Count an episode that ended with values."""
        counted = episode.as_counted()
        if counted.return_ is not None and math.isfinite(counted.return_):
            self._returns.append(counted.return_)
        if counted.success is not None:
            self._successes.append(counted.success)
        return _EpisodeLine(episode, mean(self._returns), mean(self._successes))


def _print(line: _EpisodeLine) -> None:
    episode = line.episode
    clock = moment(episode.start_time or None)[11:19]
    what = " ".join(filter(None, (episode.env, episode.task)))
    words = [f"{count(episode.length or 0, 'step')}", f"return {number(episode.return_)}"]
    if episode.success is not None:
        words.append("success" if episode.success else "failure")
    means = [f"mean {number(line.mean_return)}"] if line.mean_return is not None else []
    means += [f"{line.success:.0%} success"] if line.success is not None else []
    text = printed(f"{clock}  {episode.trace_id[:8]}  {what}  {', '.join(words)}  ")
    text.append_text(printed(", ".join(means), style="dim"))
    if wrong := _wrong(episode):
        text.append_text(printed(f"  {wrong}", style="red"))
    console().print(text, soft_wrap=True)


def _wrong(episode: EpisodeFigures) -> str:
    """What went wrong: the status, an invalid reward, and components with errors."""
    words = [] if episode.status == "completed" else [episode.status]
    if episode.reward_status not in ("ok", "missing"):
        words.append(f"reward {episode.reward_status}")
    words += [f"{name} {status}" for name, status in episode.component_statuses.items()]
    words += [f"failed check {name}" for name in episode.failed_checks]
    return ", ".join(words)


def _print_json(line: _EpisodeLine) -> None:
    """Print an episode as one line of JSON."""
    episode = line.episode
    document = {
        "episode": episode.trace_id,
        "start": episode.start_time,
        "run": episode.run,
        "env": episode.env,
        "task": episode.task,
        "status": episode.status,
        "outcome": episode.outcome,
        "length": episode.length,
        "return": episode.return_,
        "reward": episode.reward,
        "reward_status": episode.reward_status,
        "components": episode.components,
        "component_statuses": episode.component_statuses,
        "failed_checks": episode.failed_checks,
        "tokens": episode.tokens,
        "duration": episode.duration,
        "mean_return": line.mean_return,
        "mean_success": line.success,
    }
    say(to_json(document))


def _refused(problems: Sequence[Problem]) -> str:
    return next((str(problem) for problem in problems if problem.kind in ("not_traces", "damaged_file")), "")
