"""PettingZoo's connect four: one policy plays at random, the other the middle; seconds on CPU."""

from __future__ import annotations

import numpy as np
from pettingzoo.classic.connect_four.connect_four import env as connect_four

import mttp


def main() -> None:
    """Play twenty games, and print what each player won."""
    rng = np.random.default_rng(1)
    with mttp.configure(transport="file://runs/connect.jsonl", run="connect-four"):
        env = connect_four()
        mttp.instrument(env)  # the one added line
        for game in range(20):
            env.reset(seed=game)
            for agent in env.agent_iter():
                seen, _, terminated, truncated, _ = env.last()
                legal = np.flatnonzero(seen["action_mask"])
                middle = min(legal, key=lambda column: abs(column - 3), default=0)
                action = int(rng.choice(legal)) if agent == "player_0" and len(legal) else int(middle)
                env.step(None if terminated or truncated else action)
        env.close()

    episodes = mttp.read("runs/connect.jsonl").episodes
    for player in ("player_0", "player_1"):
        returns = [agent.return_ for episode in episodes for agent in episode.agents if agent.id == player]
        print(f"{player}: {len(returns)} games, mean return {np.mean(returns):.2f}")


if __name__ == "__main__":
    main()
