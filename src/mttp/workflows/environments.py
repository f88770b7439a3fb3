"""Makes recorded Gymnasium environments again, and brings them to the state in which an episode began."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

from opentelemetry import context as otel_context

from mttp.codec.generators import sha256
from mttp.errors import MissingExtra, StudyError
from mttp.model.episodes import Episode

__all__ = ["EnvSource", "begin", "make", "predecessors", "unrecorded"]

EnvSource: TypeAlias = "Any | Callable[[], Any]"
"""A Gymnasium environment, or a function that makes one."""


@contextmanager
def unrecorded() -> Iterator[None]:
    """Have no instrumentation record what the block does with environments."""
    key = otel_context._SUPPRESS_INSTRUMENTATION_KEY
    token = otel_context.attach(otel_context.set_value(key, True))
    try:
        yield
    finally:
        otel_context.detach(token)


def make(episode: Episode, env: EnvSource | None) -> Any:
    """
    The environment of an episode: `env`, or what `gymnasium.make` gives for the recorded id and arguments.

    Raises StudyError where that can't be made, MissingExtra without Gymnasium.
    """
    if env is not None:
        return env() if callable(env) and not hasattr(env, "step") else env
    try:
        import gymnasium
    except ImportError as error:
        raise MissingExtra(package="gymnasium", extra="gymnasium", purpose="replaying an episode") from error
    if not episode.env:
        raise StudyError(f"episode {episode.trace_id[:8]} recorded no environment; give one by env=")
    kwargs = dict(episode.env_kwargs)
    try:
        return gymnasium.make(episode.env, **kwargs)
    except Exception as error:
        shown = ", ".join(f"{key}={value!r}" for key, value in kwargs.items())
        raise StudyError(
            f"gymnasium.make({', '.join(filter(None, (repr(episode.env), shown)))}) failed: "
            f"{type(error).__name__}: {error}; register the environment, or give one by env="
        ) from error


def predecessors(episode: Episode, episodes: Sequence[Episode]) -> list[Episode]:
    """
    The episodes that must be played before an episode: none where its seed is known.

    Else the random generator went on from the one before, so these are all from the last one with a seed.
    Raises StudyError where there is none.
    """
    if episode.seed is not None:
        return []
    same = [
        other
        for other in episodes
        if (other.run_id, other.env, other.env_index, dict(other.env_kwargs))
        == (episode.run_id, episode.env, episode.env_index, dict(episode.env_kwargs))
    ]
    before = same[: next(place for place, other in enumerate(same) if other.trace_id == episode.trace_id)]
    for place in range(len(before) - 1, -1, -1):
        if before[place].seed is not None:
            return before[place:]
    raise StudyError(
        f"the seed of episode {episode.trace_id[:8]} was not recorded, and no earlier episode of "
        f"{episode.env or 'its environment'} in this recording has one: record env.reset(seed=...)"
    )


def begin(env: Any, episode: Episode) -> Any:
    """Reset the environment as it was reset before the episode, and return the first observation."""
    if episode.seed is None and episode.env_rng_sha256 is not None:
        _check_generator(env, episode)
    seed = episode.seed
    if isinstance(seed, str):
        with suppress(ValueError):
            seed = int(seed)
    try:
        observation, _ = env.reset(seed=seed) if seed is not None else env.reset()
    except Exception as error:
        raise StudyError(f"resetting {episode.env} with seed {seed!r} failed: {error}") from error
    return observation


def _check_generator(env: Any, episode: Episode) -> None:
    """Raise StudyError unless the generator is in the recorded state."""
    base = getattr(env, "unwrapped", env)
    bits = getattr(getattr(base, "_np_random", None), "bit_generator", None)
    if bits is not None and sha256(bits.state) != episode.env_rng_sha256:
        raise StudyError(
            f"the random generator of {episode.env} is not in the state in which episode "
            f"{episode.trace_id[:8]} began, although the episodes before were played: something that was "
            "not recorded has used it; record env.reset(seed=...) for each episode"
        )
