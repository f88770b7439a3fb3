"""Gymnasium environments with scripted behaviour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from integrations.specimen import PLAYS, Play, Turn

__all__ = ["DictEnv", "Nested", "Scripted", "act_out", "by_hand"]


class Scripted(gymnasium.Env[Any, Any]):
    """Replays plays, one per reset, in a cycle; `infos` are returned turn by turn, in a cycle too."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, plays: Sequence[Play] = PLAYS, infos: Sequence[dict[str, Any]] = ({},)) -> None:
        self.plays = plays
        self.infos = infos
        self.turns = 0
        self.index = -1
        self.at = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.index = (self.index + 1) % len(self.plays)
        self.at = 0
        return self._shown(), {}

    def _shown(self) -> Any:
        play = self.plays[self.index]
        shown = play.turns[self.at].observation if self.at < len(play.turns) else play.last
        return np.array(shown, np.float64) if isinstance(shown, list) else shown

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        turn = self.plays[self.index].turns[self.at]
        info = self.infos[self.turns % len(self.infos)]
        self.at += 1
        self.turns += 1
        return self._shown(), turn.reward, turn.terminated, turn.truncated, dict(info)


class DictEnv(gymnasium.Env[Any, Any]):
    """Returns a dict, takes a tuple, draws random numbers, and ends at random."""

    observation_space = spaces.Dict(
        {"position": spaces.Box(-1, 1, (2,), np.float32), "clock": spaces.Discrete(50)}
    )
    action_space = spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (1,), np.float32)))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.time = 0
        return self._shown(), {}

    def _shown(self) -> Any:
        position = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"position": position, "clock": np.int64(self.time)}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.time += 1
        reward = float(action[0]) + float(action[1][0])
        ends = self.np_random.random() < 0.2
        return self._shown(), reward, bool(ends), self.time >= 20, {}


class Nested(DictEnv):
    """Returns nested dicts and tuples with values of several types."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (3, 2), np.uint8),
            "both": spaces.Tuple(
                (spaces.MultiBinary(3), spaces.Dict({"far": spaces.Box(-9, 9, (), np.float64)}))
            ),
            "words": spaces.Text(8),
        }
    )

    def _shown(self) -> Any:
        image = np.full((3, 2), self.time, np.uint8)
        bits = np.array([1, 0, self.time % 2], np.int8)
        return {"image": image, "both": (bits, {"far": np.float64(0.1)}), "words": f"go {self.time % 2}"}


def act_out(env: Any, plays: Sequence[Play] = PLAYS, **reset: Any) -> None:
    """Take the actions of plays in an environment."""
    for play in plays:
        env.reset(**reset)
        for turn in play.turns:
            env.step(turn.action)


def by_hand(
    env: Any,
    *,
    seed: int,
    actions: Sequence[Any],
    skips: bool,
    read: Callable[[Any], Any],
    write: Callable[[Any], Any],
) -> list[Play]:
    """
    Return the plays of an environment that is stepped and reset by a loop. With `skips` the action after an
    end is left out, because an autoreset replaces it. `read` and `write` convert observations and actions to
    their recorded form.
    """
    plays: list[Play] = []
    turns: list[Turn] = []
    shown, _ = env.reset(seed=seed)
    over = False
    for action in actions:
        if over and skips:
            over = False
            continue
        before = read(shown)
        shown, reward, terminated, truncated, _ = env.step(action)
        turns.append(Turn(before, write(action), float(reward), bool(terminated), bool(truncated)))
        over = bool(terminated or truncated)
        if over:
            plays.append(Play(tuple(turns), read(shown)))
            turns = []
            shown, _ = env.reset()
    if turns:
        plays.append(Play(tuple(turns), read(shown)))
    return plays
