"""Compare two learning rates over several seeds: train, record, and test whether one is better."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import cartpole
import gymnasium

import mttp
from mttp.study import Comparison

RATES = (0.005, 0.05)


def train(path: Path, *, rate: float, seed: int, episodes: int) -> str:
    """Train one agent, record its episodes and updates as one run in one file, and return the path."""
    path.unlink(missing_ok=True)
    cartpole.LEARNING_RATE = rate
    name = f"rate-{rate}-seed-{seed}"
    with mttp.configure(f"file://{path}", run=name, run_id=name, seed=seed, config={"learning_rate": rate}):
        env = gymnasium.make("CartPole-v1")
        mttp.instrument(env)

        def learned(index: int, _: float) -> None:
            if (index + 1) % cartpole.EPISODES_PER_UPDATE == 0:
                mttp.update(index=(index + 1) // cartpole.EPISODES_PER_UPDATE - 1, learning_rate=rate)

        cartpole.train(env, episodes=episodes, seed=seed, on_episode=learned)
        env.close()
    return str(path)


def show(found: Comparison) -> None:
    """Print the verdict on the return, with the aggregates over seeds."""
    one = found["return"]
    print(f"{found.notes[0]}")
    print(f"return: {one.base or 0:.0f} -> {one.candidate or 0:.0f}, {found.verdict}; {one.method}")
    for note in found.notes[1:]:
        print(note)
    if one.interval is not None:
        low, high = one.interval
        print(f"effect {one.effect or 0:+.0f}, {one.confidence:.0%} interval {low:+.0f} to {high:+.0f}")
    if one.over_runs is not None:
        first, second = one.over_runs.interquartile_means
        print(f"interquartile means {first:.0f} -> {second:.0f}")
        print(f"a run is better with probability {one.over_runs.improvement:.2f}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train both sides, and compare them by their last episodes and by the area under their curves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each learning rate (%(default)s)")
    parser.add_argument("--episodes", type=int, default=150, help="episodes of each run (%(default)s)")
    parser.add_argument("--out", default="runs/seeds", help="the directory of the recordings (%(default)s)")
    options = parser.parse_args(arguments)
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    base, candidate = (
        [
            train(folder / f"rate-{rate}-seed-{seed}.jsonl", rate=rate, seed=seed, episodes=options.episodes)
            for seed in range(options.seeds)
        ]
        for rate in RATES
    )
    show(mttp.compare(base, candidate, window=30))
    show(mttp.compare(base, candidate, window="area"))
    show(mttp.compare(base[0], candidate[0], window=30))  # one seed per side, which proves little


if __name__ == "__main__":
    main()
