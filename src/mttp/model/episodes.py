"""
Run, episode and their parts, group, update and annotation as frozen values: no I/O, no attribute names.

They are what reading returns and what `session.record` takes.
Times are nanoseconds since the Unix epoch; arrays are numpy arrays of the stated shape.
Two values are equal when they say the same thing: NaN equals NaN, arrays compare by dtype, shape and content,
and neither span ids nor clock times count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from mttp.model.calls import Call
from mttp.model.scorings import Grade, GradingUsage, Reward, Spec
from mttp.model.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mttp.model.evaluations import TaskResult

    IntArray: TypeAlias = NDArray[np.int64]
    FloatArray: TypeAlias = NDArray[np.float32] | NDArray[np.float64]

__all__ = [
    "Agent",
    "Annotation",
    "Call",
    "Episode",
    "Grade",
    "Group",
    "Reward",
    "Run",
    "Spec",
    "Step",
    "Tokens",
    "Update",
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Tokens(Value):
    """
    One block of sampled tokens: what the policy was given, what it produced, and what is known per token.

    Lists are accepted and become arrays: ids and masks int64, the rest float64 unless they came as float32.
    Raises OverflowError for ids beyond int64 and ValueError for arrays that are not one-dimensional.
    """

    ids: IntArray | None = None
    """Completion token ids, shape [completion]; None when they were left out (see `omitted_reason`)."""
    prompt_ids: IntArray | None = None
    """Prompt token ids, shape [prompt]; with a `parent`, only what follows the parent's prefix."""
    logprobs: FloatArray | None = None
    """Log probabilities (nats) under the policy that sampled."""
    trainer_logprobs: FloatArray | None = None
    """Log probabilities (nats) as the trainer computed them again."""
    ref_logprobs: FloatArray | None = None
    """Log probabilities (nats) under the reference policy."""
    masks: IntArray | None = None
    """1 where a token was sampled by the policy, or counts in the loss; 0 elsewhere."""
    advantages: FloatArray | None = None
    """Advantage per token."""
    rewards: FloatArray | None = None
    """Reward per token."""
    entropies: FloatArray | None = None
    """Entropy (nats) of the distribution that each token was sampled from."""
    values: FloatArray | None = None
    """Value estimate per token."""
    loss_weights: FloatArray | None = None
    """Weight of each token in the loss."""
    alignment: Mapping[str, str] = field(default_factory=dict)
    """What each array covers: all, completion, sampled, prompt, or unaligned where no length fits."""
    parent: tuple[int, int] | None = None
    """The block that this one continues: (step index, length of the prefix taken from it)."""
    count: int | None = None
    """Number of completion tokens, known even where the ids were left out."""
    prompt_count: int | None = None
    """Number of prompt tokens."""
    tokenizer: str | None = None
    """The tokenizer's name."""
    template_sha256: str | None = None
    """Digest of the chat template."""
    logprob_basis: str | None = None
    """raw, or processed (after temperature, top-k, top-p)."""
    policy_version: str | None = None
    """Version of the policy that sampled this block."""
    omitted_reason: str | None = None
    """Why the arrays were left out, where they were."""

    ARRAYS: ClassVar[tuple[str, ...]] = (
        "ids",
        "prompt_ids",
        "logprobs",
        "trainer_logprobs",
        "ref_logprobs",
        "masks",
        "advantages",
        "rewards",
        "entropies",
        "values",
        "loss_weights",
    )
    """The arrays, in the order in which they are laid out."""

    INTEGER_ARRAYS: ClassVar[frozenset[str]] = frozenset({"ids", "prompt_ids", "masks"})

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        for name in self.ARRAYS:
            given = getattr(self, name)
            if given is not None:
                set_(self, name, _token_array(name, given, integer=name in self.INTEGER_ARRAYS))
        if self.count is None and self.ids is not None:
            set_(self, "count", len(self.ids))
        if self.prompt_count is None and self.prompt_ids is not None:
            set_(self, "prompt_count", len(self.prompt_ids))
        set_(self, "alignment", {**self._guess_alignment(), **self.alignment})

    def arrays(self) -> dict[str, Any]:
        """The arrays that are present, by name, in layout order."""
        return {name: value for name in self.ARRAYS if (value := getattr(self, name)) is not None}

    def _guess_alignment(self) -> dict[str, str]:
        completion, prompt = self.count or 0, self.prompt_count or 0
        sampled = None if self.masks is None else int(self.masks.astype(bool).sum())
        lengths = {completion: "completion"}
        lengths.setdefault(prompt + completion, "all")
        if sampled is not None:
            lengths.setdefault(sampled, "sampled")
        guessed = {name: lengths.get(len(array), "unaligned") for name, array in self.arrays().items()}
        for name, alignment in (("ids", "completion"), ("prompt_ids", "prompt")):
            if name in guessed:
                guessed[name] = alignment
        return guessed


def _token_array(name: str, given: Any, *, integer: bool) -> Any:
    """A one-dimensional copy of `given`: int64, or float64 unless it came as float32."""
    import numpy as np

    if type(given) is not np.ndarray:  # of a masked array what is under the mask
        given = np.asarray(_to_numpy(given))
    if given.ndim != 1:
        raise ValueError(f"tokens: {name} has shape {given.shape}, expected one dimension")
    if integer:
        return _int64(name, given)
    if given.dtype.kind not in "fiub":
        raise ValueError(f"tokens: {name} holds {given.dtype}, expected numbers")
    return given.astype(np.float32 if given.dtype == np.float32 else np.float64)


def _int64(name: str, given: Any) -> Any:
    import numpy as np

    if given.dtype.kind in "iub":
        if given.dtype == np.uint64 and given.size and int(given.max()) > np.iinfo(np.int64).max:
            raise OverflowError(f"tokens: {name} holds {given.max()}, which is beyond int64")
        return given.astype(np.int64)
    if given.size == 0:
        return np.empty(0, np.int64)
    if given.dtype.kind == "f" and np.array_equal(given, np.trunc(given)):
        if np.abs(given).max() >= 2.0**63:
            raise OverflowError(f"tokens: {name} holds {np.abs(given).max()}, which is beyond int64")
        return given.astype(np.int64)
    if given.dtype.kind == "O" and all(isinstance(item, int) for item in given):
        raise OverflowError(f"tokens: {name} holds an integer beyond int64")
    raise ValueError(f"tokens: {name} holds {given.dtype}, expected integers")


def _to_numpy(given: Any) -> Any:
    """What numpy can take: a list, or the array of another library, a device tensor of torch included."""
    if isinstance(given, (list, tuple)):
        return given
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        if str(given.dtype) == "torch.bfloat16":
            given = given.float()
    if hasattr(given, "__array__"):
        return given
    return given.tolist() if hasattr(given, "tolist") else list(given)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Annotation(Value):
    """A statement about an episode or a step, made apart from it: meanwhile, after its end, or days later."""

    kind: str = "fact"
    """score, outcome, advantage, label, comment, preference, steps, or fact where the key is your own."""
    key: str = ""
    """What it states: the kind itself, or a name of the user's own."""
    value: Any = None
    """
    What it states that to be; None for a preference, and for a score that is no number.

    Of the kind steps it is numbers by name, shape [steps] each, NaN where nothing is stated.
    """
    episode: str = ""
    """Trace id of the episode that it is about; of a preference, of the chosen one."""
    step: int | None = None
    """
    Index of the step that it is about, or of the first of several.

    None for the whole episode, and where only the span is known.
    """
    step_span_id: str = ""
    """Span of that step, 16 hex digits, where it is known."""
    by: str | None = None
    """Who or what states it."""
    revision: int = 0
    """Of statements about one key of one target the highest wins; by default nanoseconds since 1970."""
    reward: Reward | None = None
    """The whole scoring, where it is a score."""
    rejected: tuple[str, ...] = ()
    """Trace ids of the episodes that the chosen one is preferred to."""
    explanation: str | None = None
    """Why."""
    run_id: str = ""
    """The run in which it was stated."""
    faults: tuple[str, ...] = ()
    """What was wrong with what was stated, `kind: detail` each."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know."""
    trace_id: str = field(default="", compare=False)
    """The annotation's own trace, 32 hex digits."""
    span_id: str = field(default="", compare=False)
    """Its span, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """When it was stated."""
    end_time: int | None = field(default=None, compare=False)
    """The same."""

    @property
    def on_step(self) -> bool:
        """Whether it is about a step."""
        return self.step is not None or bool(self.step_span_id)

    @property
    def order(self) -> tuple[int, int, str]:
        """By what the winning statement is found: revision, then start, then span id; the highest wins."""
        return self.revision, self.start_time or 0, self.span_id


def _scores(scorings: Sequence[Reward], annotations: Sequence[Annotation]) -> dict[str, Reward]:
    """The last word of each grader: a later statement over a scoring of the run."""
    scores = {scoring.grader: scoring for scoring in scorings if scoring.grader is not None}
    for annotation in sorted(annotations, key=lambda annotation: annotation.order):
        if annotation.reward is not None:
            scores[annotation.reward.grader or ""] = annotation.reward
    return scores


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Step(Value):
    """One decision of the policy: what it saw, did, and was paid."""

    index: int = 0
    """Position in the episode, or among the steps of its agent, from 0."""
    agent: str | None = None
    """The agent whose step it is, in an episode with several."""
    observation: Any = None
    """What the policy saw, before acting."""
    action: Any = None
    """What it did."""
    reward: float | None = None
    """What this step paid; None when nothing was stated or the value was not a finite number."""
    reward_status: str = "missing"
    """ok, error, abstained or missing."""
    reward_raw: str | None = None
    """What was given as the reward, as text, where it is not a finite number."""
    trained_reward: float | None = None
    """What the trainer used instead, where a library changes rewards."""
    terminated: bool | None = None
    """Whether this step ended the task."""
    truncated: bool | None = None
    """Whether a limit cut the episode off after this step."""
    value_estimate: float | None = None
    """The critic's value of the observation."""
    return_target: float | None = None
    """What the critic is trained towards."""
    advantage: float | None = None
    """How much better the action turned out than the critic expected, as the trainer computed it."""
    logprob: float | None = None
    """Log probability (nats) of the action."""
    tokens: Tokens | None = None
    """The sampled tokens, for a policy that is a language model."""
    rewards: tuple[Reward, ...] = ()
    """Scorings of this step, in order of start."""
    calls: tuple[Call, ...] = ()
    """Calls of models and tools within this step, in order of start."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The user's own numbers by name."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The user's own facts by name."""
    error_type: str | None = None
    """Class of the exception that ended the step."""
    error_message: str | None = None
    """That exception's message."""
    faults: tuple[str, ...] = ()
    """What was wrong with what was recorded, `kind: detail` each."""
    omissions: tuple[str, ...] = ()
    """What was left out and why, `attribute: reason` each."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know, and what the step said where a later statement won."""
    annotations: tuple[Annotation, ...] = field(default=(), compare=False)
    """What was stated about it apart from it, in order of time."""
    span_id: str = field(default="", compare=False)
    """The step's span, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """When the observation was there."""
    end_time: int | None = field(default=None, compare=False)
    """When the reward was there."""

    def __post_init__(self) -> None:
        if self.reward is not None and self.reward_status == "missing":
            object.__setattr__(self, "reward_status", "ok")

    @property
    def scores(self) -> dict[str, Reward]:
        """The winning scoring by grader, late ones included; "" is a late one whose grader is not known."""
        return _scores(self.rewards, self.annotations)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Agent(Value):
    """One agent's part in an episode with several; its steps are those of the episode that name it."""

    id: str
    """Its identity within the episode."""
    name: str | None = None
    """Its name as people read it."""
    policy: str | None = None
    """The id of the policy that acts for it."""
    policy_version_start: str | None = None
    """Version of that policy at its first step."""
    policy_version_end: str | None = None
    """Version of that policy at its last step."""
    return_: float | None = None
    """What it was paid: the total that its scoring states, else the sum of its steps; None when not known."""
    length: int = 0
    """Steps that it took."""
    terminated: bool | None = None
    """Whether the task ended for it."""
    truncated: bool | None = None
    """Whether a limit cut it off."""
    advantage: float | None = None
    """Its advantage, where it was known in time."""
    reward: Reward = field(default_factory=Reward)
    """The last scoring of the agent as a whole; status missing where there is none."""
    rewards: tuple[Reward, ...] = ()
    """All scorings of the agent as a whole, in order of start."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The user's own numbers by name."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The user's own facts by name."""
    error_type: str | None = None
    """Class of the exception that ended it."""
    error_message: str | None = None
    """That exception's message."""
    faults: tuple[str, ...] = ()
    """What was wrong with what was recorded, `kind: detail` each."""
    omissions: tuple[str, ...] = ()
    """What was left out and why, `attribute: reason` each."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know."""
    span_id: str = field(default="", compare=False)
    """The agent's span, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """When it began."""
    end_time: int | None = field(default=None, compare=False)
    """When it ended."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Episode(Value):
    """One attempt at one episode, from the first observation to the end."""

    trace_id: str = ""
    """The episode's trace, 32 hex digits."""
    run_id: str = ""
    """The run that it belongs to."""
    id: str = ""
    """The episode's own id: the trace id, unless several attempts share one."""
    index: int | None = None
    """Position among the episodes that this process started."""
    attempt: int | None = None
    """Which try at this episode, from 0."""
    env: str = ""
    """The environment's id."""
    env_version: str | None = None
    """The environment's version."""
    env_index: int | None = None
    """Which sub-environment of a vector environment."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """What the environment was made with."""
    env_spaces: Mapping[str, Any] = field(default_factory=dict)
    """Its observation and action space."""
    env_wrappers: tuple[str, ...] = ()
    """Its wrappers, outermost first."""
    env_rng_sha256: str | None = None
    """Digest of its random generator's state before the reset, where the seed is unknown."""
    task: str | None = None
    """The task's id."""
    split: str | None = None
    """The data split that the task is from."""
    slices: list[str] = field(default_factory=list)
    """Named subsets that the task belongs to."""
    group: str | None = None
    """The group that it is compared within: what the episode says, else the group that has it as a member."""
    seed: int | str | None = None
    """The environment's seed."""
    policy: str | None = None
    """The policy's id."""
    policy_version_start: str | None = None
    """Version of the policy at the first step."""
    policy_version_end: str | None = None
    """Version of the policy at the last step."""
    policy_update_index: int | None = None
    """The optimizer update that made the policy."""
    inputs: Any = None
    """What a reward needs besides the steps: answer, ground truth, final state."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The user's own facts by name."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The user's own numbers by name."""
    status: str = "completed"
    """completed, aborted or error; unfinished where the end is not in the recording."""
    outcome: str = "unknown"
    """success, failure or unknown."""
    stop_reason: str | None = None
    """Why it ended, in the environment's words."""
    terminated: bool | None = None
    """Whether the task itself ended."""
    truncated: bool | None = None
    """Whether a limit cut it off."""
    return_: float | None = None
    """What the whole episode was paid; None when that is not known. Agents' pay is theirs, and not in it."""
    return_basis: str | None = None
    """Where `return_` is from: episode (a stated total) or steps (their sum, without those of agents)."""
    step_reward_sum: float | None = None
    """Sum of the step rewards that are numbers, without those of agents; None when no step states one."""
    discount: float | None = None
    """The discount factor that the trainer uses."""
    advantage: float | None = None
    """The advantage: what was stated about it later, else what the episode says, else its group."""
    length: int = 0
    """Environment steps."""
    step_count: int = 0
    """Recorded steps."""
    span_count: int = field(default=0, compare=False)
    """Recorded spans of the trace, by which a reader proves completeness."""
    final_observation: Any = None
    """What the environment showed after the last action."""
    final_value: float | None = None
    """The critic's value of that."""
    cost_usd: float | None = None
    """What it cost, in US dollars."""
    timing: str = "live"
    """live, or batch where the times are those of the whole batch."""
    steps: tuple[Step, ...] = ()
    """The steps of everybody, by index, those of one index in order of start."""
    agents: tuple[Agent, ...] = ()
    """The agents, in order of start, where there are several; empty otherwise."""
    reward: Reward = field(default_factory=Reward)
    """The last scoring of the whole episode, else a late score where nothing was paid; else missing."""
    rewards: tuple[Reward, ...] = ()
    """All scorings of the whole episode while it went on, in order of start."""
    complete: bool = True
    """Whether every recorded span was found."""
    segments: tuple[str, ...] = field(default=(), compare=False)
    """Ids of the parts that processes other than the one that started it recorded, in order of start."""
    error_type: str | None = None
    """Class of the exception that ended it."""
    error_message: str | None = None
    """That exception's message."""
    faults: tuple[str, ...] = ()
    """What was wrong with what was recorded, `kind: detail` each."""
    omissions: tuple[str, ...] = ()
    """What was left out and why, `attribute: reason` each."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know, and what the episode said where a later statement won."""
    annotations: tuple[Annotation, ...] = field(default=(), compare=False)
    """What was stated about it apart from it, in order of time; statements about its steps are theirs."""
    results: tuple[TaskResult, ...] = field(default=(), compare=False)
    """What it showed in evaluations, in order of time."""
    consumed_by: tuple[int, ...] = field(default=(), compare=False)
    """Indices of the updates that learned from it."""
    discarded_by: tuple[str, ...] = field(default=(), compare=False)
    """Why updates did not learn from it, a reason each."""
    span_id: str = field(default="", compare=False)
    """The root span, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """When it began."""
    end_time: int | None = field(default=None, compare=False)
    """When it ended; None while unfinished."""

    def __repr__(self) -> str:
        """Which one it is and how it went, in a line."""
        which = " ".join(map(_word, filter(None, (self.trace_id[:8], self.env, self.task))))
        words = [self.status, self.outcome, f"{self.step_count} step{'' if self.step_count == 1 else 's'}"]
        if self.return_ is not None:
            words.append(f"return {self.return_:.6g}")
        if self.reward.status not in ("ok", "missing"):
            words.append(f"reward {self.reward.status}")
        return f"<Episode{which and ' '}{which}: {', '.join(map(_word, words))}>"

    @property
    def duration(self) -> float | None:
        """Seconds from start to end; None while unfinished."""
        if self.start_time is None or self.end_time is None:
            return None
        return (self.end_time - self.start_time) / 1e9

    @property
    def scores(self) -> dict[str, Reward]:
        """The winning scoring by grader, late ones included; "" is a late one whose grader is not known."""
        return _scores(self.rewards, [found for found in self.annotations if not found.on_step])

    @property
    def grading_usage(self) -> GradingUsage:
        """What graders' own calls of models came to, in all its scorings, late ones included."""
        scorings = [*self.rewards, *(found for step in self.steps for found in step.rewards)]
        scorings += [found for agent in self.agents for found in agent.rewards]
        scorings += [found.reward for found in self.annotations if found.reward is not None]
        return GradingUsage.total(scoring.usage for scoring in scorings)


def _word(said: str) -> str:
    """A name as a line can show it: without control characters, and not too long."""
    shown = str(said) if str(said).isprintable() else repr(said)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Group(Value):
    """Episodes that are compared with each other: what they were paid, and what their advantages are."""

    id: str = ""
    """The group's id, unique in the run."""
    run_id: str = ""
    """The run that it belongs to."""
    episodes: tuple[str, ...] = ()
    """Trace ids of the members, in the trainer's order."""
    rewards: tuple[float, ...] = ()
    """Reward of each member in that order; NaN where a member has no valid one."""
    advantages: tuple[float, ...] = ()
    """Advantage of each member in that order, NaN where there is none; empty where none is known."""
    size: int = 0
    """How many members it has, or should have where it never completed."""
    valid_count: int = 0
    """How many rewards are finite numbers."""
    reward_mean: float | None = None
    """Mean of the valid rewards; None where there is none."""
    reward_std: float | None = None
    """Their standard deviation; None where there are no more than `ddof`."""
    ddof: int | None = None
    """What was subtracted from the count in that standard deviation, 0 or 1."""
    scope: str | None = None
    """Which rewards that deviation is taken over: group, batch, or none where advantages are not scaled."""
    normalization: str | None = None
    """How advantages are made from rewards: none, mean, mean_std or leave_one_out."""
    task: str | None = None
    """The members' task."""
    env: str | None = None
    """The members' environment."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The user's own numbers by name."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The user's own facts by name."""
    faults: tuple[str, ...] = ()
    """What was wrong with what was recorded, `kind: detail` each."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know."""
    trace_id: str = field(default="", compare=False)
    """The group's own trace, 32 hex digits."""
    span_id: str = field(default="", compare=False)
    """Its span, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """When it was opened."""
    end_time: int | None = field(default=None, compare=False)
    """When it was complete, or given up."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Update(Value):
    """One update of a policy: how it went, and what it learned from. Its numbers may be NaN or infinite."""

    index: int | None = None
    """Position in the run, from 0."""
    run_id: str = ""
    """The run that it belongs to."""
    policy: str | None = None
    """The policy that was updated."""
    loss: float | None = None
    """Value of the loss."""
    kl: float | None = None
    """Divergence from the policy that sampled, or from the reference, in nats."""
    entropy: float | None = None
    """Mean entropy of the policy, in nats."""
    grad_norm: float | None = None
    """Norm of the gradient before clipping."""
    learning_rate: float | None = None
    """The learning rate."""
    clip_fraction: float | None = None
    """Share of samples whose probability ratio was clipped, from 0 to 1."""
    policy_version_before: str | None = None
    """Version of the policy that it started from."""
    policy_version_after: str | None = None
    """Version of the policy that it made."""
    groups: tuple[str, ...] = ()
    """Ids of the groups that it learned from."""
    episodes: tuple[str, ...] = ()
    """Trace ids of the episodes that it learned from, other than as members of `groups`."""
    consumed: int | None = None
    """How many episodes it learned from."""
    discarded: Mapping[str, int] = field(default_factory=dict)
    """How many episodes were generated and not learned from, by reason."""
    discarded_episodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Trace ids of these by reason, where they were named."""
    sampled_versions: tuple[str, str] | None = None
    """Oldest and newest policy version among the samples, where a replay buffer can't name its episodes."""
    lag_min: int | None = None
    """Fewest updates between sampling an episode and learning from it."""
    lag_mean: float | None = None
    """Mean number of updates between them."""
    lag_max: int | None = None
    """Most updates between them."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The user's own numbers by name."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The user's own facts by name."""
    faults: tuple[str, ...] = ()
    """What was wrong with what was recorded, `kind: detail` each."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know."""
    trace_id: str = field(default="", compare=False)
    """The update's own trace, 32 hex digits."""
    span_id: str = field(default="", compare=False)
    """Its span, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """When it began."""
    end_time: int | None = field(default=None, compare=False)
    """When it ended."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Run(Value):
    """One process's part in one run: what it was and what it ran with."""

    id: str
    """The run's id, shared by every process of it."""
    name: str | None = None
    """The run's name."""
    kind: str = "train"
    """train, eval or replay."""
    status: str | None = None
    """completed, aborted or error; None while it goes on."""
    episode_count: int | None = None
    """How many episodes the process began; None while the run goes on, and where sampling is set up."""
    attempt: int | None = None
    """Which try at this run, from 0."""
    seed: int | str | None = None
    """The run's seed."""
    rank: int | None = None
    """This process's rank among the launched ones."""
    world_size: int | None = None
    """How many were launched."""
    config: Any = None
    """Hyperparameters and whatever else it was configured with."""
    config_sha256: str | None = None
    """Digest of the configuration's canonical JSON."""
    revision: str | None = None
    """The git commit of the working directory."""
    dirty: bool | None = None
    """Whether that working directory had changes."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Version by name of the installed packages that were imported."""
    python: str | None = None
    """Interpreter and version, e.g. `cpython 3.11.7`."""
    host: str | None = None
    """The host's name."""
    platform: str | None = None
    """Operating system and processor architecture."""
    pid: int | None = None
    """The process."""
    accelerators: tuple[str, ...] = ()
    """Names of the accelerators, where known."""
    algorithm: str | None = None
    """The training algorithm."""
    trainer: str | None = None
    """The training library."""
    trainer_version: str | None = None
    """Its version."""
    spec_documents: tuple[str, ...] = ()
    """Canonical JSON of each reward spec whose rewards it recorded."""
    policy_architecture: str | None = None
    """Shape of the policy's network in words, or its class."""
    policy_parameters: int | None = None
    """Number of trainable parameters of the policy."""
    optimizer: str | None = None
    """The optimizer that changes them."""
    faults: tuple[str, ...] = ()
    """What could not be found out or recorded, `kind: detail` each."""
    omissions: tuple[str, ...] = ()
    """What was left out and why, `attribute: reason` each."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know."""
    complete: bool = True
    """Whether the run's end is in the recording."""
    start_time: int | None = field(default=None, compare=False)
    """When it began."""
    end_time: int | None = field(default=None, compare=False)
    """When it ended; None while it goes on."""


def ordered(episodes: Sequence[Episode]) -> list[Episode]:
    """Episodes in order of start, then trace id."""
    return sorted(episodes, key=lambda episode: (episode.start_time or 0, episode.trace_id))
