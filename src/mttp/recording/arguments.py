"""Types of the recording calls' arguments, and the check of their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from difflib import get_close_matches
from typing import TYPE_CHECKING, SupportsFloat, TypeAlias, TypedDict

from mttp.otlp.spans.guarding import MisuseError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from mttp.model.calls import Call
    from mttp.model.results import RewardResult
    from mttp.model.scorings import Reward, Spec

__all__ = [
    "EPISODE_ENDING",
    "EPISODE_FACTS",
    "SCORE_FACTS",
    "SCORING_FACTS",
    "TOKEN_FACTS",
    "EpisodeEnding",
    "EpisodeFacts",
    "RewardValue",
    "ScoreFacts",
    "ScoringFacts",
    "TokenFacts",
    "check_names",
]

RewardValue: TypeAlias = "SupportsFloat | Reward | RewardResult | None"
"""A number, None if it is not known, or a whole scoring."""


class TokenFacts(TypedDict, total=False):
    """
    Arguments of `tokens` besides `ids` and `logprobs`.

    Arrays are one-dimensional: lists of Python numbers, or arrays of any array library. An array other than
    `prompt_ids` usually has one value per completion token; `alignment` names the tokens that it covers.
    """

    prompt_ids: ArrayLike | None
    """Token ids that the policy was given."""
    trainer_logprobs: ArrayLike | None
    """Log probabilities (nats) under the policy that is trained."""
    ref_logprobs: ArrayLike | None
    """Log probabilities (nats) under the reference policy."""
    masks: ArrayLike | None
    """1 if the loss counts the token, else 0."""
    advantages: ArrayLike | None
    rewards: ArrayLike | None
    entropies: ArrayLike | None
    """Entropies (nats) of the distributions that the tokens were sampled from."""
    values: ArrayLike | None
    """The critic's values."""
    loss_weights: ArrayLike | None
    alignment: Mapping[str, str] | None
    """By array: all, completion, sampled, prompt or unaligned; by default derived from its length."""
    parent: tuple[int, int] | None
    """The step whose token block this one continues: (step index, length of the shared prefix)."""
    count: int | None
    """The number of completion tokens, if the ids are not recorded."""
    prompt_count: int | None
    """The number of prompt tokens, if the ids are not recorded."""
    tokenizer: str | None
    texts: Sequence[str] | None
    """The text of each completion token."""
    logprob_basis: str | None
    """raw, or processed (after temperature, top-k, top-p)."""
    policy_version: str | None
    omitted_reason: str | None
    """The reason why arrays are not recorded."""


class ScoreFacts(TypedDict, total=False):
    """Arguments of `mttp.score` and of an episode's `reward` besides the value."""

    components: Mapping[str, object] | None
    """Values by component name."""
    weights: Mapping[str, object] | None
    """Weights by component name."""
    status: str | None
    error: object
    spec: Spec | None
    range: tuple[float, float] | None
    """Lowest and highest possible value."""
    verdict: str | None
    """pass or fail."""
    failed_checks: Sequence[str]
    grader: str | None
    grader_kind: str | None
    grader_version: str | None
    relative: bool | None
    """Whether the value is comparable only within its group."""
    label: str | None
    explanation: str | None
    calls: Sequence[Call]
    """Model calls of the grader."""


class ScoringFacts(ScoreFacts, total=False):
    """Arguments of a step's `reward` besides the value."""

    start_time: int | None
    """The start of scoring in nanoseconds since the Unix epoch, by default now."""
    end_time: int | None


class EpisodeFacts(TypedDict, total=False):
    """Arguments of `mttp.episode` and `Session.episode`; an argument that is None is not recorded."""

    env: str | None
    """The environment's id."""
    task: object
    """The task's id."""
    group: object
    """The group whose episodes are compared: its id or its handle."""
    seed: int | str | None
    """The environment's seed."""
    policy: object
    """The policy's id."""
    slices: Sequence[str]
    """Named subsets that the task belongs to, for comparisons."""
    inputs: object
    """What a reward needs besides the steps, such as the right answer."""
    metadata: Mapping[str, object] | None
    """Your own facts, by name."""
    id: str | None
    """The episode's id, by default a new one; several attempts at one episode share it."""
    index: int | None
    """Its number, by default counted in the session."""
    attempt: int | None
    """The number of this attempt at the episode."""
    split: str | None
    """The data split of the task."""
    policy_version: object
    """The policy's version."""
    policy_update_index: int | None
    """The index of the update that produced the policy."""
    env_version: str | None
    """The environment's version."""
    env_index: int | None
    """The index in a vector environment."""
    env_kwargs: Mapping[str, object] | None
    """The environment's arguments."""
    env_spaces: Mapping[str, object] | None
    """The environment's observation and action spaces."""
    env_wrappers: Sequence[str]
    """The environment's wrappers, outermost first."""
    env_rng_sha256: str | None
    """A digest of the state of the environment's random number generator."""
    timing: str
    """live, the default, or batch if the times are those of a whole batch."""
    start_time: int | None
    """The start in nanoseconds since the Unix epoch, by default now."""
    steps: str | None
    """How steps are written: spans, packed or auto; by default as in `configure`."""


class EpisodeEnding(TypedDict, total=False):
    """Arguments of an episode's `end`."""

    terminated: bool | None
    """Whether the task ended."""
    truncated: bool | None
    """Whether a limit cut the episode off."""
    outcome: str | None
    """success, failure or unknown, the default."""
    status: str
    """completed, the default, aborted or error."""
    stop_reason: str | None
    """Why it ended, as the library that ran it says."""
    length: int | None
    """The number of environment steps, by default those of the recording."""
    policy_version_end: object
    """The policy's version at the end."""
    discount: float | None
    """The trainer's discount factor."""
    advantage: float | None
    """The episode's advantage, as computed by the trainer."""
    final_value: float | None
    """The critic's value of the final observation."""
    cost_usd: float | None
    """What it cost, in US dollars."""
    error_type: str | None
    """The class of the exception that ended it."""
    error_message: str
    """The message of that exception."""
    inputs: object
    """Inputs that are known only now, added as by `set_inputs`."""
    end_time: int | None
    """The end in nanoseconds since the Unix epoch, by default now."""


TOKEN_FACTS = frozenset(TokenFacts.__annotations__)
SCORE_FACTS = frozenset(ScoreFacts.__annotations__)
SCORING_FACTS = frozenset(ScoringFacts.__annotations__)
EPISODE_FACTS = frozenset(EpisodeFacts.__annotations__)
EPISODE_ENDING = frozenset(EpisodeEnding.__annotations__)


def check_names(call: str, given: Mapping[str, object], known: Set[str]) -> None:
    """Raise MisuseError for an unknown argument name, with the nearest known name."""
    if known >= given.keys():
        return
    unknown = [name for name in given if name not in known]
    near = get_close_matches(unknown[0], known, n=1)
    advice = f". Did you mean {near[0]!r}?" if near else ""
    raise MisuseError(f"{call}() got an unexpected keyword argument {unknown[0]!r}{advice}")
