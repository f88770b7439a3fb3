"""Play PettingZoo's connect four: one policy plays at random, the other the middle of the board.

It needs `pip install 'mttp[pettingzoo]' pygame`, and takes seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

import mttp


def main(argv: Sequence[str] | None = None) -> None:
    """Play, record everything, and print what each player won."""
    parser = argparse.ArgumentParser(description="Play connect four, recorded.")
    parser.add_argument("--episodes", type=int, default=20, help="games to play (default: %(default)s)")
    parser.add_argument("--out", default="runs/connect.jsonl", help="file to write (default: %(default)s)")
    args = parser.parse_args(argv)

    from pettingzoo.classic.connect_four.connect_four import env as connect_four

    rng = np.random.default_rng(1)
    with mttp.configure(f"file://{args.out}", run="connect-four"):
        env = connect_four()
        mttp.instrument(env)  # the one added line
        for game in range(args.episodes):
            env.reset(seed=game)
            for agent in env.agent_iter():
                seen, _, terminated, truncated, _ = env.last()
                legal = np.flatnonzero(seen["action_mask"])
                middle = min(legal, key=lambda column: abs(column - 3), default=0)
                action = int(rng.choice(legal)) if agent == "player_0" and len(legal) else int(middle)
                env.step(None if terminated or truncated else action)
        env.close()

    episodes = mttp.read(args.out).episodes
    for player in ("player_0", "player_1"):
        agents = [agent for episode in episodes for agent in episode.agents if agent.id == player]
        returns = [agent.return_ for agent in agents if agent.return_ is not None]
        print(f"{player}: {len(returns)} games, mean return {np.mean(returns):.2f}")


if __name__ == "__main__":
    main()
