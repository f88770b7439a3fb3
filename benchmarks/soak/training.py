"""
A training process that records at a steady rate.

It reads commands, one per line, as JSON: {"do": "stats"}, {"do": "fork"}, {"do": "clock", "seconds": 3600}
and {"do": "end"}; it answers each with its counters. What it counts itself is in "own".
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
from pathlib import Path
from typing import Any

from live import live

import mttp

__all__ = ["Loop"]

_TICK = 0.02
_MOST_BEHIND = 2.0
"""Seconds of steps that are caught up on after a pause; what is older is skipped."""
_LONG_EPISODE, _LONG_EVERY = 1500, 400
_GROUP = 8
_TEXT = "the quick brown fox jumps over the lazy dog and goes on to the next question of the day"
_CLOSING_SECONDS = 60.0


class Loop:
    """Episodes one after another, with all that a trainer records now and then."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.steps = self.episodes = 0
        self._tokens = [[self.random.randrange(150_000) for _ in range(48)] for _ in range(64)]
        self._logprobs = [[-self.random.random() for _ in range(48)] for _ in range(64)]
        self._group: Any = None
        self._episode: Any = None
        self._left = 0

    def step(self) -> None:
        """Record one step; the last of an episode ends it."""
        if self._episode is None:
            self._begin()
        number = self.steps
        with self._episode.step() as step:
            step.observation(_TEXT[number % 40 :])
            step.action(_TEXT[: number % 40])
            if number % 4 == 0:
                length = 8 + number % 40
                block = number % 64
                step.tokens(ids=self._tokens[block][:length], logprobs=self._logprobs[block][:length])
            if number % 25 == 0:
                with step.model_call("tiny", provider="local", temperature=0.7) as call:
                    call.response(finish_reasons=["stop"], input_tokens=12, output_tokens=3)
            if number % 40 == 0:
                with step.tool_call("search", arguments={"query": number}) as call:
                    call.result(["4"])
            step.reward(0.01 * (number % 7))
        self.steps += 1
        self._left -= 1
        if not self._left:
            self._end()

    def _begin(self) -> None:
        if self._group is None:
            self._group = mttp.group(size=_GROUP, normalization="mean_std", task=f"soak/{self.episodes}")
        is_long = self.episodes % _LONG_EVERY == _LONG_EVERY - 1
        self._left = _LONG_EPISODE if is_long else 1 + int(self.random.expovariate(1 / 30))
        self._episode = mttp.episode(
            env="soak", task=f"soak/{self.episodes}", group=self._group, policy="tiny@1"
        )
        self.episodes += 1

    def _end(self) -> None:
        episode, self._episode = self._episode, None
        value = self.random.random()
        episode.reward(value, components={"right": value, "short": 0.5})
        episode.end(terminated=True, outcome="success" if value > 0.5 else "failure")
        self._group.add(episode)
        if self.episodes % 10 == 0:
            mttp.annotate(episode, "topic", "arithmetic", by="soak")
        if self.episodes % 15 == 0:
            mttp.score(episode, 0.75, grader="judge")
        if self.episodes % _GROUP == 0:
            group, self._group = self._group, None
            if self.episodes % (4 * _GROUP) == 0:
                mttp.update(self.episodes, groups=[group], loss=0.5, kl=0.004)

    def leave(self) -> None:
        """Go on to the end of the group."""
        while self._group is not None or self._episode is not None:
            self.step()


def _stepped_clock(seconds: float) -> None:
    """Step the wall clock of this process, as an administrator or NTP does."""
    given, given_ns = time.time, time.time_ns
    time.time = lambda: given() + seconds
    time.time_ns = lambda: given_ns() + int(seconds * 1e9)


def _forked(session: Any, folder: Path) -> int:
    """Fork a child that records two groups through the session of its parent, and return its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        own = Loop(os.getpid())
        while own.episodes < 2 * _GROUP:
            own.step()
        own.leave()
        session.close(_CLOSING_SECONDS)
        report = {"stats": session.stats.as_dict(), "own": {"steps": own.steps, "episodes": own.episodes}}
        (folder / f"child-{os.getpid()}.json").write_text(json.dumps(report))
        code = 0
    finally:
        os._exit(code)


def main() -> None:
    """Record until told to end."""
    folder, address, rate, seed = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    recording = f"file://{folder / 'recording' / 'a.jsonl'}?max_bytes=16MB"
    session = mttp.configure([recording, address], run="soak", seed=seed)
    loop, children = Loop(seed), set[int]()
    failed_children = 0
    skipped = 0.0

    def told(**more: Any) -> None:
        own = {
            "steps": loop.steps,
            "episodes": loop.episodes,
            "skipped_s": skipped,
            "children": len(children),
            "live": live(),
        }
        own |= {"failed_children": failed_children}
        print(json.dumps({"stats": session.stats.as_dict(), "own": own, **more}), flush=True)

    told()
    due, commands = time.monotonic(), sys.stdin.buffer.raw
    while True:
        if select.select([commands], [], [], 0)[0]:
            line = commands.readline()
            command = json.loads(line) if line else {"do": "end"}
            if command["do"] == "end":
                break
            if command["do"] == "fork":
                children.add(_forked(session, folder))
            elif command["do"] == "clock":
                _stepped_clock(command["seconds"])
            told()
        for child in list(children):
            if (found := os.waitpid(child, os.WNOHANG))[0]:
                children.discard(child)
                failed_children += bool(found[1])
        for _ in range(round(rate * _TICK)):
            loop.step()
        due += _TICK
        rest = due - time.monotonic()
        if rest > 0:
            time.sleep(rest)
        elif rest < -_MOST_BEHIND:
            skipped -= rest
            due -= rest
    loop.leave()
    for child in children:
        failed_children += bool(os.waitpid(child, 0)[1])
    is_delivered = session.close(_CLOSING_SECONDS)
    told(delivered=is_delivered)


if __name__ == "__main__":
    main()
