"""`mttp.replay`: a recorded episode played again in its environment, with the recorded actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mttp.errors import StudyError
from mttp.model.episodes import Episode, Step
from mttp.reading import Recording, read
from mttp.study.differing import distance, is_close
from mttp.workflows.environments import EnvSource, begin, make, predecessors, unrecorded

__all__ = ["Divergence", "Playback", "Replay", "chosen", "prepared", "replay", "take"]

_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first place in which a replay differs from the recording."""

    step: int
    """Index of the step whose outcome differs, from 0; -1 for the observation after the reset."""
    what: str
    """observation (after the step), reward, terminated, truncated or length."""
    recorded: Any
    seen: Any
    distance: float | None = None
    """The largest absolute difference of two numbers or arrays; None for other values."""

    def __str__(self) -> str:
        where = "after the reset" if self.step < 0 else f"at step {self.step}"
        return f"{self.what} {where}: recorded {self.recorded!r:.200}, seen {self.seen!r:.200}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A recorded episode and its replay."""

    episode: str
    """Trace id."""
    env: str
    seed: int | str | None
    steps: int
    """Steps that were played and compared."""
    divergence: Divergence | None
    tolerance: float
    before: tuple[str, ...] = ()
    """Trace ids of the episodes that were played before, since the random generator went on from them."""
    notes: tuple[str, ...] = ()
    """What could not be compared."""

    has_observations: bool = True
    """Whether an observation was recorded that could be compared."""

    @property
    def reproduced(self) -> bool | None:
        """Whether nothing differs; None where rewards and ends agree and no observation was recorded."""
        if self.divergence is not None:
            return False
        return True if self.has_observations else None

    @property
    def verdict(self) -> str:
        """reproduced, rewards only, or diverged."""
        if self.divergence is not None:
            return "diverged"
        return "reproduced" if self.has_observations else "rewards only"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        from mttp.reading.jsonable import jsonable

        document: dict[str, Any] = jsonable(
            {"reproduced": self.reproduced, "verdict": self.verdict, **asdict(self)}
        )
        return document

    def __repr__(self) -> str:
        word = (
            f"{self.verdict} in {self.steps:,} steps"
            if self.divergence is None
            else f"diverged, {self.divergence}"
        )
        return f"<Replay of {self.episode[:8]} {self.env}: {word}>"


def replay(
    source: Any,
    *,
    episode: str | None = None,
    env: EnvSource | None = None,
    tolerance: float = _TOLERANCE,
    progress: Callable[[int], object] | None = None,
) -> Replay:
    """
    Play a recorded Gymnasium episode again and compare each observation, reward and end.

    `source` is what `mttp.read` takes, or a Recording. `episode` is the beginning of a trace id, and may be
    left out where there is one episode. `env` is an environment or a function that makes one; by default
    `gymnasium.make` makes the recorded one.
    For an episode without a known seed the episodes from the last one with a seed are played first.
    Numbers are equal within `tolerance`, absolute and relative.

    Raises ReadError where the source can't be read or has no such episode, StudyError where the episode can't
    be played: no actions or no seed recorded, or an environment that can't be made.
    """
    recording = source if isinstance(source, Recording) else read(source, progress=progress)
    recorded = chosen(recording, episode)
    with unrecorded():
        environment = make(recorded, env)
        try:
            return _compared(recorded, recording.episodes, environment, tolerance)
        finally:
            if env is None:
                environment.close()


def chosen(recording: Recording, episode: str | None) -> Episode:
    """The episode with that id; raises ReadError where there is none, StudyError where it must be named."""
    if episode is not None:
        return recording.episode(episode)
    if len(recording) != 1:
        shown = ", ".join(candidate.trace_id[:8] for candidate in recording.episodes[:3])
        raise StudyError(
            f"there are {len(recording):,} episodes; choose one by its trace id, such as {shown}"
        )
    return recording.episodes[0]


class Playback:
    """A replay in progress."""

    def __init__(self, episode: Episode, env: Any, tolerance: float, *, before: tuple[str, ...]) -> None:
        self.before = before
        """Trace ids of the episodes that were played before."""
        self._episode = episode
        self._env = env
        self._tolerance = tolerance
        self._actions = _actions(episode)
        self.steps = 0
        """Number of steps that were played."""
        self.observation = begin(env, episode)
        """The latest observation."""
        self.divergence = _after_reset(episode, self.observation, tolerance)
        """The first difference, None so far."""

    @property
    def is_over(self) -> bool:
        """Whether a difference was found, or no action is left."""
        return self.divergence is not None or self.steps == len(self._actions)

    def advance(self) -> None:
        """Play one step and compare it."""
        outcome = take(self._env, self._actions[self.steps], self.steps)
        self.observation = outcome[0]
        self.divergence = _difference(self._episode, self.steps, outcome, self._tolerance)
        self.steps += 1


def prepared(episode: Episode, episodes: Sequence[Episode], env: Any, tolerance: float) -> Playback:
    """The replay of an episode after its reset, and after the episodes that must be played before it."""
    before = predecessors(episode, episodes)
    for earlier in before:
        begin(env, earlier)
        for place, action in enumerate(_actions(earlier)):
            take(env, action, place)
    return Playback(episode, env, tolerance, before=tuple(earlier.trace_id for earlier in before))


def _compared(episode: Episode, episodes: Sequence[Episode], env: Any, tolerance: float) -> Replay:
    playback = prepared(episode, episodes, env, tolerance)
    while not playback.is_over:
        playback.advance()
    return Replay(
        episode=episode.trace_id,
        env=episode.env,
        seed=episode.seed,
        steps=playback.steps,
        divergence=playback.divergence,
        tolerance=tolerance,
        before=playback.before,
        notes=tuple(_notes(episode, env)),
        has_observations=episode.final_observation is not None
        or any(step.observation is not None for step in episode.steps),
    )


def take(env: Any, action: Any, index: int) -> tuple[Any, float, bool, bool]:
    """Step the environment; raises StudyError where it raises."""
    try:
        observation, reward, terminated, truncated, _ = env.step(action)
    except Exception as error:
        raise StudyError(
            f"the environment raised at step {index} on the action {action!r:.80}: "
            f"{type(error).__name__}: {error}"
        ) from error
    return observation, float(reward), bool(terminated), bool(truncated)


def _actions(episode: Episode) -> list[Any]:
    """The recorded actions; raises StudyError where one is missing."""
    steps = _steps(episode)
    for step in steps:
        if step.action is None:
            omitted = next((omission for omission in step.omissions if "action" in omission), "")
            why = f" ({omitted})" if omitted else ""
            raise StudyError(
                f"step {step.index} of episode {episode.trace_id[:8]} has no recorded action{why}, "
                "so it can't be played"
            )
    return [step.action for step in steps]


def _steps(episode: Episode) -> list[Step]:
    if not episode.steps:
        raise StudyError(f"episode {episode.trace_id[:8]} has no recorded steps to play")
    if episode.agents:
        raise StudyError(f"episode {episode.trace_id[:8]} has several agents; only single ones are replayed")
    indices = [step.index for step in episode.steps]
    if indices != list(range(len(indices))):
        missing = next(place for place, index in enumerate(indices) if place != index)
        raise StudyError(
            f"step {missing} of episode {episode.trace_id[:8]} is missing, so it can't be played"
        )
    return list(episode.steps)


def _after_reset(episode: Episode, actual: Any, tolerance: float) -> Divergence | None:
    recorded = episode.steps[0].observation if episode.steps else None
    if recorded is None or is_close(recorded, actual, tolerance):
        return None
    return Divergence(
        step=-1, what="observation", recorded=recorded, seen=actual, distance=distance(recorded, actual)
    )


def _difference(
    episode: Episode, index: int, outcome: tuple[Any, float, bool, bool], tolerance: float
) -> Divergence | None:
    """What differs first in the outcome of a step."""
    observation, reward, terminated, truncated = outcome
    step, last = episode.steps[index], index == len(episode.steps) - 1
    expected = episode.final_observation if last else episode.steps[index + 1].observation
    pairs: list[tuple[str, Any, Any]] = [("observation", expected, observation)]
    if step.reward is not None:
        pairs.append(("reward", step.reward, reward))
    pairs += [("terminated", step.terminated, terminated), ("truncated", step.truncated, truncated)]
    for what, recorded, actual in pairs:
        if recorded is not None and not is_close(recorded, actual, tolerance):
            return Divergence(
                step=index, what=what, recorded=recorded, seen=actual, distance=distance(recorded, actual)
            )
    if (terminated or truncated) and not last:
        return Divergence(step=index, what="length", recorded=len(episode.steps), seen=index + 1)
    return None


def _notes(episode: Episode, env: Any) -> list[str]:
    notes = []
    lacking = [
        name
        for name, values in {
            "observations": [step.observation for step in episode.steps],
            "rewards": [step.reward for step in episode.steps],
        }.items()
        if any(value is None for value in values)
    ]
    if lacking:
        notes.append(f"not recorded for each step, and compared where they are: {', '.join(lacking)}")
    missing = [name for name in episode.env_wrappers if name not in _wrappers(env)]
    if missing:
        notes.append(
            f"recorded through wrappers that this environment lacks: {', '.join(missing)}; give one by env="
        )
    return notes


def _wrappers(env: Any) -> set[str]:
    names = set()
    while env is not None and hasattr(env, "env"):
        names.add(type(env).__name__)
        env = env.env
    return names
