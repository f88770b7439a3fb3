"""A thousand pendulums on tensors of torch, of which two are recorded; seconds on CPU."""

from __future__ import annotations

import torch

import mttp
from mttp.integrations.arrays import ArrayRollouts

WORLDS, TIMES, LIMIT = 1000, 100, 0.6


def main() -> None:
    """Swing the pendulums for five rollouts, and print how long the chosen ones stood."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    with mttp.configure(transport="file://runs/pendulums.jsonl", run="pendulums"):
        rollouts = ArrayRollouts("pendulum", worlds=[0, 1], seed=1)
        state = torch.randn(WORLDS, 2, device=device) * 0.1
        for version in range(5):
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

    episodes = [
        episode for episode in mttp.read("runs/pendulums.jsonl").episodes if episode.status == "completed"
    ]
    lengths = [episode.length for episode in episodes]
    print(f"{len(episodes)} episodes of 2 worlds, mean length {sum(lengths) / max(len(lengths), 1):.1f}")


if __name__ == "__main__":
    main()
