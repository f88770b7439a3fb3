"""The library's vector with workers: one environment in a forked process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any


def _work(remote: Any, make: Callable[[], Any]) -> None:
    env = make()
    command, given = remote.recv()
    while command != "close":
        if command == "reset":
            remote.send(env.reset()[0])
        elif command == "step":
            remote.send(env.step(given))
        else:
            remote.send(isinstance(env, given))
        command, given = remote.recv()


class SubprocVecEnv:
    """Sends its calls to the worker."""

    def __init__(self, make: Callable[[], Any]) -> None:
        context = multiprocessing.get_context("fork")
        self.closed = self.waiting = False
        self.remote, there = context.Pipe()
        self.process = context.Process(target=_work, args=(there, make))
        self.process.start()

    def _call(self, command: str, given: Any = None) -> Any:
        self.remote.send((command, given))
        return self.remote.recv()

    def reset(self) -> Any:
        """Return the first observation."""
        return self._call("reset")

    def step(self, action: Any) -> Any:
        """Return the result of a step."""
        return self._call("step", action)

    def env_is_wrapped(self, kind: Any) -> Any:
        """Return whether the environment is of a kind."""
        return self._call("env_is_wrapped", kind)

    def close(self) -> None:
        """End the worker."""
        self.remote.send(("close", None))
        self.process.join()
        self.closed = True
