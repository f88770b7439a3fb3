"""Swing a thousand pendulums on tensors of torch, and record two of them.

It needs `pip install torch`, and takes seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import mttp
from mttp.integrations.arrays import ArrayRollouts

WORLDS, TIMES, LIMIT = 1000, 100, 0.6


def main(argv: Sequence[str] | None = None) -> None:
    """Swing the pendulums, record two, and print how long these stood."""
    parser = argparse.ArgumentParser(description="Swing pendulums on tensors, two of them recorded.")
    parser.add_argument("--rollouts", type=int, default=5, help="rollouts (default: %(default)s)")
    parser.add_argument("--out", default="runs/pendulums.jsonl", help="file to write (default: %(default)s)")
    args = parser.parse_args(argv)

    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    with mttp.configure(f"file://{args.out}", run="pendulums"):
        rollouts = ArrayRollouts("pendulum", worlds=[0, 1], seed=1)
        state = torch.randn(WORLDS, 2, device=device) * 0.1
        for version in range(args.rollouts):
            rows = []
            for _ in range(TIMES):
                angle, speed = state.unbind(1)
                force = -2.0 * angle - 0.5 * speed + torch.randn(WORLDS, device=device)
                following = torch.stack([angle + 0.05 * speed, speed + 0.05 * (9.8 * angle + 4 * force)], 1)
                fallen = following[:, 0].abs() > LIMIT
                rows.append((state, force, (~fallen).float(), fallen))
                state = torch.where(fallen[:, None], torch.randn_like(state) * 0.1, following)
            observations, actions, rewards, terminated = (
                torch.stack(column) for column in zip(*rows, strict=True)
            )
            rollouts.record(
                observations=observations,
                actions=actions,
                rewards=rewards,
                terminated=terminated,
                policy_version=version,
            )

    episodes = [episode for episode in mttp.read(args.out).episodes if episode.status == "completed"]
    lengths = [episode.length for episode in episodes]
    print(f"{len(episodes)} episodes of 2 worlds, mean length {sum(lengths) / max(len(lengths), 1):.1f}")


if __name__ == "__main__":
    main()
