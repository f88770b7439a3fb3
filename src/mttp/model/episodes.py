"""
Runs, episodes, steps, tokens, groups, updates and annotations as frozen values.

Readers return them, and `session.record` takes them.
Times are nanoseconds since the Unix epoch; arrays are numpy arrays of the stated shape.
NaN equals NaN, arrays compare by dtype, shape and content, and comparisons ignore span ids and times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

from mttp.model.calls import Call
from mttp.model.interrupts import raise_interrupt
from mttp.model.scorings import Grade, GradingUsage, Reward, Spec
from mttp.model.values import Value
from mttp.semconv import attributes as a

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
    A block of sampled tokens: prompt, completion and values per token.

    Lists and other arrays become numpy arrays: ids and masks int64, the rest float64, or float32 if they
    were float32.
    Raises OverflowError for ids beyond int64, and ValueError for arrays that are not one-dimensional or not
    numeric.
    """

    ids: Annotated[IntArray | None, a.TOKEN_IDS] = None
    """Completion token ids, shape [completion]; None if they were left out (see `omitted_reason`)."""
    prompt_ids: Annotated[IntArray | None, a.TOKEN_PROMPT_IDS] = None
    """Prompt token ids, shape [prompt]; with a `parent`, only those after the parent's prefix."""
    logprobs: Annotated[FloatArray | None, a.TOKEN_LOGPROBS] = None
    """Log probabilities (nats) under the sampling policy."""
    trainer_logprobs: Annotated[FloatArray | None, a.TOKEN_TRAINER_LOGPROBS] = None
    """Log probabilities (nats) recomputed by the trainer."""
    ref_logprobs: Annotated[FloatArray | None, a.TOKEN_REF_LOGPROBS] = None
    """Log probabilities (nats) under the reference policy."""
    masks: Annotated[IntArray | None, a.TOKEN_MASKS] = None
    """1 for tokens that were sampled by the policy or count in the loss; 0 for others."""
    advantages: Annotated[FloatArray | None, a.TOKEN_ADVANTAGES] = None
    """The advantage per token."""
    rewards: Annotated[FloatArray | None, a.TOKEN_REWARDS] = None
    """The reward per token."""
    entropies: Annotated[FloatArray | None, a.TOKEN_ENTROPIES] = None
    """The entropy (nats) of the distribution that each token was sampled from."""
    values: Annotated[FloatArray | None, a.TOKEN_VALUES] = None
    """The value estimate per token."""
    loss_weights: Annotated[FloatArray | None, a.TOKEN_LOSS_WEIGHTS] = None
    """The weight of each token in the loss."""
    alignment: Mapping[str, str] = field(default_factory=dict)
    """The tokens that each array covers: all, completion, sampled, prompt, or unaligned if unclear."""
    parent: Annotated[tuple[int, int] | None, a.TOKEN_PARENT] = None
    """The block that this one continues: (step index, length of its prefix in this block)."""
    count: Annotated[int | None, a.TOKEN_COUNT] = None
    """The number of completion tokens, also if the ids were left out."""
    prompt_count: Annotated[int | None, a.TOKEN_PROMPT_COUNT] = None
    """The number of prompt tokens."""
    tokenizer: Annotated[str | None, a.TOKEN_TOKENIZER] = None
    """The tokenizer's name."""
    texts: Annotated[tuple[str, ...], a.TOKEN_TEXTS] = ()
    """The text of each completion token, where the server gives it."""
    template_sha256: Annotated[str | None, a.TOKEN_TEMPLATE_SHA256] = None
    """SHA-256 of the chat template."""
    logprob_basis: Annotated[str | None, a.TOKEN_LOGPROB_BASIS] = None
    """raw, or processed (after temperature, top-k, top-p)."""
    policy_version: Annotated[str | None, a.TOKEN_POLICY_VERSION] = None
    """The version of the policy that sampled this block."""
    omitted_reason: Annotated[str | None, a.TOKEN_OMITTED_REASON] = None
    """The reason for leaving the arrays out, if they were."""

    ARRAYS: ClassVar[tuple[str, ...]]
    """The names of the array fields, in layout order."""
    INTEGER_ARRAYS: ClassVar[frozenset[str]]
    """The names of those with integers."""

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        arrays = self.arrays()
        for name, array in arrays.items():
            set_(self, name, _token_array(name, array, integer=name in self.INTEGER_ARRAYS))
        if self.count is None and self.ids is not None:
            set_(self, "count", len(self.ids))
        if self.prompt_count is None and self.prompt_ids is not None:
            set_(self, "prompt_count", len(self.prompt_ids))
        if issubclass(type(self.alignment), Mapping):
            is_known = self.alignment.keys() >= arrays.keys()
            guessed = dict.fromkeys(arrays, "") if is_known else self._guess_alignment()
            set_(self, "alignment", {**guessed, **self.alignment})

    def arrays(self) -> dict[str, Any]:
        """Return the arrays that are not None by name, in layout order."""
        return {name: value for name in self.ARRAYS if (value := getattr(self, name)) is not None}

    def _guess_alignment(self) -> dict[str, str]:
        completion, prompt = _index(self.count), _index(self.prompt_count)
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


_ARRAYS = {each.name: str(each.type) for each in fields(Tokens) if "Array" in str(each.type)}
Tokens.ARRAYS = tuple(_ARRAYS)
Tokens.INTEGER_ARRAYS = frozenset(name for name, declared in _ARRAYS.items() if "IntArray" in declared)


def _index(count: Any) -> int:
    """Return a whole number of any library; 0 for anything else."""
    try:
        return count if type(count) is int else 0 if count is None else int(count.__index__())
    except Exception as error:  # whatever a foreign object raises when it is asked
        raise_interrupt(error)
        return 0


def _token_array(name: str, array: Any, *, integer: bool) -> Any:
    """Return a one-dimensional copy of `array`: int64, or float64, or float32 if it was float32."""
    import numpy as np

    if type(array) in (list, tuple) and array and type(array[0]) in (list, tuple):
        raise ValueError(f"tokens: {name} is a list of lists, expected one dimension")  # it may hold itself
    if type(array) is not np.ndarray:  # unmasks a masked array, too
        array = np.asarray(_to_numpy(array))
    if array.ndim != 1:
        raise ValueError(f"tokens: {name} has shape {array.shape}, expected one dimension")
    if integer:
        return _int64(name, array)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"tokens: {name} holds {array.dtype}, expected numbers")
    return array.astype(np.float32 if array.dtype == np.float32 else np.float64)


def _int64(name: str, array: Any) -> Any:
    import numpy as np

    if array.dtype.kind in "iub":
        if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise OverflowError(f"tokens: {name} holds {array.max()}, which is beyond int64")
        return array.astype(np.int64)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind == "f" and np.array_equal(array, np.trunc(array)):
        if np.abs(array).max() >= 2.0**63:
            raise OverflowError(f"tokens: {name} holds {np.abs(array).max()}, which is beyond int64")
        return array.astype(np.int64)
    if array.dtype.kind == "O" and all(isinstance(item, int) for item in array):
        raise OverflowError(f"tokens: {name} holds an integer beyond int64")
    raise ValueError(f"tokens: {name} holds {array.dtype}, expected integers")


def _to_numpy(values: Any) -> Any:
    """Return a list, or an array that numpy can convert; a tensor of torch is copied to the CPU."""
    if isinstance(values, (list, tuple)):
        return values
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":
            values = values.float()
    if hasattr(values, "__array__"):
        return values
    return values.tolist() if hasattr(values, "tolist") else list(values)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Annotation(Value):
    """A value for an episode or a step, recorded separately from it: during the episode or later."""

    kind: Annotated[str, a.ANNOTATION_KIND] = "fact"
    """score, outcome, advantage, label, comment, preference, steps, or fact for a user-supplied key."""
    key: str = ""
    """The kind, or the user-supplied key for a fact."""
    value: Any = None
    """
    The annotation's value; None for a preference, and for a score that is not a number.

    For the kind steps, arrays of shape [steps] by name, with NaN for steps without a value.
    """
    episode: Annotated[str, a.ANNOTATION_TARGET_TRACE_ID] = ""
    """The trace id of the annotated episode; for a preference, of the chosen one."""
    step: int | None = None
    """
    The index of the annotated step, or of the first of several.

    None if the annotation is about the whole episode, or only `step_span_id` is known.
    """
    step_span_id: Annotated[str, a.ANNOTATION_TARGET_SPAN_ID] = ""
    """The span id of the annotated step, 16 hex digits; empty if unknown."""
    by: Annotated[str | None, a.ANNOTATION_SOURCE] = None
    """The source: a person or a program."""
    revision: Annotated[int, a.ANNOTATION_REVISION] = 0
    """The annotation of a key with the highest revision wins; by default nanoseconds since the Unix epoch."""
    reward: Reward | None = None
    """The complete scoring, for a score."""
    rejected: Annotated[tuple[str, ...], a.ANNOTATION_REJECTED_TRACE_IDS] = ()
    """The trace ids of the rejected episodes, for a preference."""
    explanation: Annotated[str | None, a.GEN_AI_EVALUATION_EXPLANATION] = None
    """The explanation of the value."""
    selection: Annotated[str | None, a.ANNOTATION_SELECTION] = None
    """How the episode was chosen: random, tail, disagreement or hand; None if unknown."""
    selection_probability: Annotated[float | None, a.ANNOTATION_SELECTION_PROBABILITY] = None
    """The probability of this draw; None if it was not drawn, or not every candidate could be."""
    candidates: Annotated[int | None, a.ANNOTATION_CANDIDATES] = None
    """The number of episodes among which it was drawn."""
    run_id: Annotated[str, a.RUN_ID] = ""
    """The id of the run that recorded the annotation."""
    faults: Annotated[tuple[str, ...], a.FAULTS] = ()
    """Faults in the recorded values, as `kind: detail`."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know."""
    trace_id: str = field(default="", compare=False)
    """The annotation's trace id, 32 hex digits."""
    span_id: str = field(default="", compare=False)
    """The annotation's span id, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """The time of the annotation, in nanoseconds since the Unix epoch."""
    end_time: int | None = field(default=None, compare=False)
    """A microsecond later, as a span without a duration has an end of its own."""

    @property
    def on_step(self) -> bool:
        """Whether the annotation is about a step."""
        return self.step is not None or bool(self.step_span_id)

    @property
    def order(self) -> tuple[int, int, str]:
        """Revision, start time and span id; the annotation with the highest order wins."""
        return self.revision, self.start_time or 0, self.span_id


def _scores(scorings: Sequence[Reward], annotations: Sequence[Annotation]) -> dict[str, Reward]:
    """Return the current score of each grader: the last annotation, else the last scoring of the run."""
    scores = {scoring.grader: scoring for scoring in scorings if scoring.grader is not None}
    for annotation in sorted(annotations, key=lambda annotation: annotation.order):
        if annotation.reward is not None:
            scores[annotation.reward.grader or ""] = annotation.reward
    return scores


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Step(Value):
    """A step of an episode: observation, action and reward."""

    index: Annotated[int, a.STEP_INDEX] = 0
    """The index in the episode, or among the steps of the agent, from 0."""
    agent: Annotated[str | None, a.AGENT_ID] = None
    """The id of the agent, in an episode with several agents."""
    observation: Any = None
    """The observation before the action."""
    action: Any = None
    """The action."""
    frame: Annotated[str | None, a.STEP_FRAME] = None
    """The rendered picture before the action, as a data URL; one without data repeats an earlier step's."""
    reward: Annotated[float | None, a.STEP_REWARD] = None
    """The reward; None if none was given or the value was not a finite number."""
    reward_status: Annotated[str, a.STEP_REWARD_STATUS] = "missing"
    """ok, error, abstained or missing."""
    reward_raw: Annotated[str | None, a.STEP_REWARD_RAW] = None
    """The invalid reward as text, if a reward was given that is not a finite number."""
    trained_reward: Annotated[float | None, a.STEP_TRAINED_REWARD] = None
    """The reward that the trainer used, if a library changed it."""
    terminated: Annotated[bool | None, a.STEP_TERMINATED] = None
    """Whether this step ended the task."""
    truncated: Annotated[bool | None, a.STEP_TRUNCATED] = None
    """Whether a limit cut the episode off after this step."""
    value_estimate: Annotated[float | None, a.STEP_VALUE_ESTIMATE] = None
    """The critic's value of the observation."""
    return_target: Annotated[float | None, a.STEP_RETURN_TARGET] = None
    """The training target of the critic."""
    advantage: Annotated[float | None, a.STEP_ADVANTAGE] = None
    """The advantage of the action, as computed by the trainer."""
    logprob: Annotated[float | None, a.STEP_LOGPROB] = None
    """The log probability (nats) of the action."""
    tokens: Tokens | None = None
    """The sampled tokens, if the policy is a language model."""
    rewards: tuple[Reward, ...] = ()
    """The scorings of this step, in order of start."""
    calls: tuple[Call, ...] = ()
    """The calls of models and tools within this step, in order of start."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """User-supplied numbers by name."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """User-supplied values by name."""
    error_type: str | None = None
    """The class of the exception that ended the step."""
    error_message: str | None = None
    """The message of that exception."""
    faults: tuple[str, ...] = ()
    """Faults in the recorded values, as `kind: detail`."""
    omissions: tuple[str, ...] = ()
    """Values that were left out, as `attribute: reason`."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know, and recorded values that an annotation replaced."""
    annotations: tuple[Annotation, ...] = field(default=(), compare=False)
    """The annotations of the step, in order of time."""
    span_id: str = field(default="", compare=False)
    """The span id of the step, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """The time of the observation, in nanoseconds since the Unix epoch."""
    end_time: int | None = field(default=None, compare=False)
    """The time of the reward, in nanoseconds since the Unix epoch."""

    def __post_init__(self) -> None:
        if self.reward is not None and type(self.reward_status) is str and self.reward_status == "missing":
            object.__setattr__(self, "reward_status", "ok")

    @property
    def scores(self) -> dict[str, Reward]:
        """The current score by grader, annotations included; "" for an annotation without a grader."""
        return _scores(self.rewards, self.annotations)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Agent(Value):
    """An agent of an episode with several; its steps are the episode's steps with its id as `agent`."""

    id: str
    """The agent's id, unique in the episode."""
    name: Annotated[str | None, a.GEN_AI_AGENT_NAME] = None
    """The agent's name."""
    policy: Annotated[str | None, a.POLICY_ID] = None
    """The id of the agent's policy."""
    policy_version_start: Annotated[str | None, a.POLICY_VERSION_START] = None
    """The version of the policy at the agent's first step."""
    policy_version_end: Annotated[str | None, a.POLICY_VERSION_END] = None
    """The version of the policy at the agent's last step."""
    return_: Annotated[float | None, a.AGENT_RETURN] = None
    """The return: the total of the agent's scoring, else the sum of its step rewards; None if unknown."""
    length: Annotated[int, a.AGENT_LENGTH] = 0
    """The number of steps of the agent."""
    terminated: Annotated[bool | None, a.AGENT_TERMINATED] = None
    """Whether the task ended for the agent."""
    truncated: Annotated[bool | None, a.AGENT_TRUNCATED] = None
    """Whether a limit cut the agent off."""
    advantage: Annotated[float | None, a.ADVANTAGE] = None
    """The agent's advantage, if it was known before the agent's end."""
    reward: Reward = field(default_factory=Reward)
    """The last scoring of the agent; status missing without any."""
    rewards: tuple[Reward, ...] = ()
    """All scorings of the agent, in order of start."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """User-supplied numbers by name."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """User-supplied values by name."""
    error_type: str | None = None
    """The class of the exception that ended the agent's part."""
    error_message: str | None = None
    """The message of that exception."""
    faults: tuple[str, ...] = ()
    """Faults in the recorded values, as `kind: detail`."""
    omissions: tuple[str, ...] = ()
    """Values that were left out, as `attribute: reason`."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know."""
    span_id: str = field(default="", compare=False)
    """The span id of the agent, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """The start of the agent's part, in nanoseconds since the Unix epoch."""
    end_time: int | None = field(default=None, compare=False)
    """The end of the agent's part, in nanoseconds since the Unix epoch."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Episode(Value):
    """One attempt at one episode, from the first observation to the end."""

    trace_id: str = ""
    """The trace id, 32 hex digits."""
    run_id: Annotated[str, a.RUN_ID] = ""
    """The id of the run."""
    id: Annotated[str, a.EPISODE_ID] = ""
    """The episode's id: the trace id, unless several attempts share an id."""
    index: Annotated[int | None, a.EPISODE_INDEX] = None
    """The index among the episodes that the process started, from 0."""
    attempt: Annotated[int | None, a.EPISODE_ATTEMPT] = None
    """The number of the attempt at this episode, from 0."""
    env: Annotated[str, a.ENV_ID] = ""
    """The environment's id."""
    env_version: Annotated[str | None, a.ENV_VERSION] = None
    """The environment's version."""
    env_index: Annotated[int | None, a.ENV_INDEX] = None
    """The index of the sub-environment in a vector environment."""
    env_kwargs: Annotated[Mapping[str, Any], a.ENV_KWARGS] = field(default_factory=dict)
    """The environment's constructor arguments."""
    env_spaces: Annotated[Mapping[str, Any], a.ENV_SPACES] = field(default_factory=dict)
    """The environment's observation and action space."""
    env_wrappers: Annotated[tuple[str, ...], a.ENV_WRAPPERS] = ()
    """The environment's wrappers, outermost first."""
    env_rng_sha256: Annotated[str | None, a.ENV_RNG_SHA256] = None
    """SHA-256 of the random generator's state before the reset, if the seed is unknown."""
    task: Annotated[str | None, a.TASK_ID] = None
    """The task's id."""
    split: Annotated[str | None, a.TASK_SPLIT] = None
    """The data split of the task."""
    slices: Annotated[list[str], a.TASK_SLICES] = field(default_factory=list)
    """The names of the subsets that the task belongs to."""
    group: Annotated[str | None, a.GROUP_ID] = None
    """The group's id: the episode's own, else that of the group with this episode as a member."""
    seed: Annotated[int | str | None, a.ENV_SEED] = None
    """The environment's seed."""
    policy: Annotated[str | None, a.POLICY_ID] = None
    """The policy's id."""
    policy_version_start: Annotated[str | None, a.POLICY_VERSION_START] = None
    """The version of the policy at the first step."""
    policy_version_end: Annotated[str | None, a.POLICY_VERSION_END] = None
    """The version of the policy at the last step."""
    policy_update_index: Annotated[int | None, a.POLICY_UPDATE_INDEX] = None
    """The index of the update that produced the policy."""
    inputs: Annotated[Any, a.INPUTS_JSON] = None
    """Inputs of rewards besides the steps: answer, ground truth, final state."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """User-supplied values by name."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """User-supplied numbers by name."""
    status: Annotated[str, a.EPISODE_STATUS] = "completed"
    """completed, aborted or error; unfinished if the end is not in the recording."""
    outcome: Annotated[str, a.EPISODE_OUTCOME] = "unknown"
    """success, failure or unknown."""
    stop_reason: Annotated[str | None, a.EPISODE_STOP_REASON] = None
    """The environment's reason for the end."""
    terminated: Annotated[bool | None, a.EPISODE_TERMINATED] = None
    """Whether the task ended."""
    truncated: Annotated[bool | None, a.EPISODE_TRUNCATED] = None
    """Whether a limit cut the episode off."""
    return_: Annotated[float | None, a.EPISODE_RETURN] = None
    """The return, a given total or the sum of step rewards, without those of agents; None if unknown."""
    return_basis: Annotated[str | None, a.EPISODE_RETURN_BASIS] = None
    """The basis of `return_`: episode (a given total) or steps (the sum of step rewards)."""
    step_reward_sum: Annotated[float | None, a.EPISODE_STEP_REWARD_SUM] = None
    """The sum of the valid step rewards, without those of agents; None without any."""
    discount: Annotated[float | None, a.EPISODE_DISCOUNT] = None
    """The trainer's discount factor."""
    advantage: Annotated[float | None, a.ADVANTAGE] = None
    """The advantage: from an annotation, else from the episode, else from its group."""
    length: Annotated[int, a.EPISODE_LENGTH] = 0
    """The number of environment steps."""
    step_count: Annotated[int, a.EPISODE_STEP_COUNT] = 0
    """The number of recorded steps."""
    span_count: Annotated[int, a.EPISODE_SPAN_COUNT] = field(default=0, compare=False)
    """The number of recorded spans in the trace, by which readers detect missing spans."""
    final_observation: Any = None
    """The observation after the last action."""
    final_value: Annotated[float | None, a.EPISODE_FINAL_VALUE] = None
    """The critic's value of the final observation."""
    cost_usd: Annotated[float | None, a.USAGE_COST_USD] = None
    """The cost in US dollars."""
    timing: Annotated[str, a.EPISODE_TIMING] = "live"
    """live, or batch if the times are those of the whole batch."""
    steps: tuple[Step, ...] = ()
    """The steps, including those of agents, by index, then by start."""
    agents: tuple[Agent, ...] = ()
    """The agents in order of start, if there are several; else empty."""
    reward: Reward = field(default_factory=Reward)
    """The last scoring of the episode, else a score from an annotation; status missing without any."""
    rewards: tuple[Reward, ...] = ()
    """All scorings of the episode until its end, in order of start."""
    complete: bool = True
    """Whether the recording has all spans of the episode."""
    segments: tuple[str, ...] = field(default=(), compare=False)
    """The ids of the segments that other processes recorded, in order of start."""
    error_type: str | None = None
    """The class of the exception that ended the episode."""
    error_message: str | None = None
    """The message of that exception."""
    faults: tuple[str, ...] = ()
    """Faults in the recorded values, as `kind: detail`."""
    omissions: tuple[str, ...] = ()
    """Values that were left out, as `attribute: reason`."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know, and recorded values that an annotation replaced."""
    annotations: tuple[Annotation, ...] = field(default=(), compare=False)
    """The annotations of the episode in order of time; a step's are in the step."""
    results: tuple[TaskResult, ...] = field(default=(), compare=False)
    """The episode's results in evaluations, in order of time."""
    consumed_by: tuple[int, ...] = field(default=(), compare=False)
    """The indices of the updates that trained on the episode."""
    discarded_by: tuple[str, ...] = field(default=(), compare=False)
    """The reasons of the updates that discarded the episode."""
    sampling_share: float | None = field(default=None, compare=False)
    """The share of episodes like it that samplers keep, by the trace state of its root; None if unknown."""
    span_id: str = field(default="", compare=False)
    """The span id of the root, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """The start, in nanoseconds since the Unix epoch."""
    end_time: int | None = field(default=None, compare=False)
    """The end, in nanoseconds since the Unix epoch; None while unfinished."""

    def __repr__(self) -> str:
        """Return ids, status, outcome, number of steps and return as one line."""
        which = " ".join(map(_word, filter(None, (self.trace_id[:8], self.env, self.task))))
        words = [self.status, self.outcome, f"{self.step_count} step{'' if self.step_count == 1 else 's'}"]
        if self.return_ is not None:
            words.append(f"return {self.return_:.6g}")
        if self.reward.status not in ("ok", "missing"):
            words.append(f"reward {self.reward.status}")
        return f"<Episode{which and ' '}{which}: {', '.join(map(_word, words))}>"

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the reward, and the steps with their messages."""
        from mttp.model.notebook import episode_html

        return episode_html(self)

    @property
    def duration(self) -> float | None:
        """Seconds from start to end; None while unfinished."""
        if self.start_time is None or self.end_time is None:
            return None
        return (self.end_time - self.start_time) / 1e9

    def step_duration(self, step: Step) -> float | None:
        """
        Return the seconds that a step took; None if unknown.

        Steps that were recorded without times have the start and end of the episode or batch.
        """
        if step.start_time is None or step.end_time is None or self.timing == "batch":
            return None
        if len(self.steps) > 1 and (step.start_time, step.end_time) == (self.start_time, self.end_time):
            return None
        return (step.end_time - step.start_time) / 1e9

    @property
    def scores(self) -> dict[str, Reward]:
        """The current score by grader, annotations included; "" for an annotation without a grader."""
        return _scores(self.rewards, [note for note in self.annotations if not note.on_step])

    @property
    def grading_usage(self) -> GradingUsage:
        """The usage of graders' own calls, in all scorings including annotations."""
        scorings = [*self.rewards, *(reward for step in self.steps for reward in step.rewards)]
        scorings += [reward for agent in self.agents for reward in agent.rewards]
        scorings += [annotation.reward for annotation in self.annotations if annotation.reward is not None]
        return GradingUsage.total(scoring.usage for scoring in scorings)


def _word(name: str) -> str:
    """Return a name without control characters, of at most 40 characters."""
    text = str(name) if str(name).isprintable() else repr(name)
    return text if len(text) <= 40 else f"{text[:37]}..."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Group(Value):
    """A group of episodes that are compared with each other: their rewards and advantages."""

    id: Annotated[str, a.GROUP_ID] = ""
    """The group's id, unique in the run."""
    run_id: Annotated[str, a.RUN_ID] = ""
    """The id of the run."""
    episodes: Annotated[tuple[str, ...], a.GROUP_EPISODES] = ()
    """The trace ids of the members, in the trainer's order."""
    rewards: Annotated[tuple[float, ...], a.GROUP_REWARDS] = ()
    """The members' rewards in that order; NaN for a member without a valid reward."""
    advantages: Annotated[tuple[float, ...], a.GROUP_ADVANTAGES] = ()
    """The members' advantages in that order, NaN for a member without one; empty if none is known."""
    size: Annotated[int, a.GROUP_SIZE] = 0
    """The number of members; the planned number if the group never completed."""
    valid_count: Annotated[int, a.GROUP_VALID_COUNT] = 0
    """The number of finite rewards."""
    reward_mean: Annotated[float | None, a.GROUP_REWARD_MEAN] = None
    """The mean of the finite rewards; None without any."""
    reward_std: Annotated[float | None, a.GROUP_REWARD_STD] = None
    """The standard deviation of the finite rewards; None for `ddof` rewards or fewer."""
    ddof: Annotated[int | None, a.GROUP_DDOF] = None
    """The delta degrees of freedom of that standard deviation, 0 or 1."""
    scope: Annotated[str | None, a.GROUP_SCOPE] = None
    """The rewards in that standard deviation: group, batch, or none if advantages are not scaled."""
    normalization: Annotated[str | None, a.GROUP_NORMALIZATION] = None
    """The normalization of advantages: none, mean, mean_std or leave_one_out."""
    task: Annotated[str | None, a.TASK_ID] = None
    """The members' task."""
    env: Annotated[str | None, a.ENV_ID] = None
    """The members' environment."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """User-supplied numbers by name."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """User-supplied values by name."""
    faults: Annotated[tuple[str, ...], a.FAULTS] = ()
    """Faults in the recorded values, as `kind: detail`."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know."""
    trace_id: str = field(default="", compare=False)
    """The group's trace id, 32 hex digits."""
    span_id: str = field(default="", compare=False)
    """The group's span id, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """The start, in nanoseconds since the Unix epoch."""
    end_time: int | None = field(default=None, compare=False)
    """The time at which the group completed or was given up, in nanoseconds since the Unix epoch."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Update(Value):
    """An update of a policy: its metrics, which may be NaN or infinite, and the episodes it trained on."""

    index: Annotated[int | None, a.UPDATE_INDEX] = None
    """The index in the run, from 0."""
    run_id: Annotated[str, a.RUN_ID] = ""
    """The id of the run."""
    policy: Annotated[str | None, a.POLICY_ID] = None
    """The id of the updated policy."""
    loss: Annotated[float | None, a.UPDATE_LOSS] = None
    """The value of the loss."""
    kl: Annotated[float | None, a.UPDATE_KL] = None
    """The divergence from the sampling policy, or from the reference policy, in nats."""
    entropy: Annotated[float | None, a.UPDATE_ENTROPY] = None
    """The mean entropy of the policy, in nats."""
    grad_norm: Annotated[float | None, a.UPDATE_GRAD_NORM] = None
    """The norm of the gradient before clipping."""
    learning_rate: Annotated[float | None, a.UPDATE_LEARNING_RATE] = None
    """The learning rate."""
    clip_fraction: Annotated[float | None, a.UPDATE_CLIP_FRACTION] = None
    """The share of samples whose probability ratio was clipped, from 0 to 1."""
    policy_loss: Annotated[float | None, a.UPDATE_POLICY_LOSS] = None
    """The part of the loss that improves the policy."""
    value_loss: Annotated[float | None, a.UPDATE_VALUE_LOSS] = None
    """The part of the loss by which the critic learns."""
    explained_variance: Annotated[float | None, a.UPDATE_EXPLAINED_VARIANCE] = None
    """The share of the variance of the returns that the critic explains; at most 1."""
    policy_version_before: Annotated[str | None, a.UPDATE_POLICY_VERSION_BEFORE] = None
    """The version of the policy before the update."""
    policy_version_after: Annotated[str | None, a.UPDATE_POLICY_VERSION_AFTER] = None
    """The version of the policy after the update."""
    groups: tuple[str, ...] = ()
    """The ids of the groups that the update trained on."""
    episodes: tuple[str, ...] = ()
    """The trace ids of the episodes that the update trained on, without the members of `groups`."""
    consumed: Annotated[int | None, a.UPDATE_EPISODES_CONSUMED] = None
    """The number of episodes that the update trained on."""
    discarded: Mapping[str, int] = field(default_factory=dict)
    """The number of discarded episodes by reason."""
    discarded_episodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The trace ids of the discarded episodes by reason, if recorded."""
    sampled_versions: Annotated[tuple[str, str] | None, a.UPDATE_SAMPLED_VERSIONS] = None
    """The oldest and newest policy version among the samples, for a replay buffer without episode ids."""
    lag_min: Annotated[int | None, a.UPDATE_LAG_MIN] = None
    """The lowest number of updates between sampling an episode and training on it."""
    lag_mean: Annotated[float | None, a.UPDATE_LAG_MEAN] = None
    """The mean number of updates between the two."""
    lag_max: Annotated[int | None, a.UPDATE_LAG_MAX] = None
    """The highest number of updates between the two."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """User-supplied numbers by name."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """User-supplied values by name."""
    faults: Annotated[tuple[str, ...], a.FAULTS] = ()
    """Faults in the recorded values, as `kind: detail`."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know."""
    trace_id: str = field(default="", compare=False)
    """The update's trace id, 32 hex digits."""
    span_id: str = field(default="", compare=False)
    """The update's span id, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """The start, in nanoseconds since the Unix epoch."""
    end_time: int | None = field(default=None, compare=False)
    """The end, in nanoseconds since the Unix epoch."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Run(Value):
    """One process of a run: its configuration and its environment."""

    id: Annotated[str, a.RUN_ID]
    """The run's id, shared by all its processes."""
    name: Annotated[str | None, a.RUN_NAME] = None
    """The run's name."""
    kind: Annotated[str, a.RUN_KIND] = "train"
    """train, eval or replay."""
    status: Annotated[str | None, a.RUN_STATUS] = None
    """completed, aborted or error; None until the end."""
    episode_count: Annotated[int | None, a.RUN_EPISODE_COUNT] = None
    """The number of episodes that the process started; None until the end."""
    attempt: Annotated[int | None, a.RUN_ATTEMPT] = None
    """The number of the attempt at this run, from 0."""
    seed: Annotated[int | str | None, a.RUN_SEED] = None
    """The run's seed."""
    rank: Annotated[int | None, a.RUN_RANK] = None
    """The rank of this process."""
    world_size: Annotated[int | None, a.RUN_WORLD_SIZE] = None
    """The number of launched processes."""
    config: Annotated[Any, a.RUN_CONFIG_JSON] = None
    """The hyperparameters and other configuration."""
    config_sha256: Annotated[str | None, a.RUN_CONFIG_SHA256] = None
    """SHA-256 of the configuration as canonical JSON."""
    revision: Annotated[str | None, a.VCS_REF_HEAD_REVISION] = None
    """The git commit of the working directory."""
    dirty: Annotated[bool | None, a.RUN_DIRTY] = None
    """Whether the working directory had uncommitted changes."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """The versions of the imported packages by name."""
    python: str | None = None
    """The interpreter and its version, e.g. `cpython 3.11.7`."""
    host: Annotated[str | None, a.HOST_NAME] = None
    """The host's name."""
    platform: str | None = None
    """The operating system and processor architecture."""
    pid: Annotated[int | None, a.PROCESS_PID] = None
    """The process id."""
    accelerators: Annotated[tuple[str, ...], a.RUN_ACCELERATORS] = ()
    """The names of the accelerators, if known."""
    algorithm: Annotated[str | None, a.ALGORITHM] = None
    """The training algorithm."""
    trainer: Annotated[str | None, a.TRAINER_NAME] = None
    """The training library."""
    trainer_version: Annotated[str | None, a.TRAINER_VERSION] = None
    """The version of the training library."""
    spec_documents: Annotated[tuple[str, ...], a.SPEC_DOCUMENTS] = ()
    """The canonical JSON of each reward spec with recorded rewards."""
    policy_architecture: Annotated[str | None, a.POLICY_ARCHITECTURE] = None
    """The shape of the policy's network, or its class."""
    policy_parameters: Annotated[int | None, a.POLICY_PARAMETERS] = None
    """The number of trainable parameters of the policy."""
    optimizer: Annotated[str | None, a.OPTIMIZER_NAME] = None
    """The policy's optimizer."""
    faults: Annotated[tuple[str, ...], a.FAULTS] = ()
    """Values that could not be determined or recorded, as `kind: detail`."""
    omissions: Annotated[tuple[str, ...], a.OMISSIONS] = ()
    """Values that were left out, as `attribute: reason`."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know."""
    complete: bool = True
    """Whether the run's end is in the recording."""
    start_time: int | None = field(default=None, compare=False)
    """The start, in nanoseconds since the Unix epoch."""
    end_time: int | None = field(default=None, compare=False)
    """The end, in nanoseconds since the Unix epoch; None until then."""


def ordered(episodes: Sequence[Episode]) -> list[Episode]:
    """Return the episodes sorted by start, then trace id."""
    return sorted(episodes, key=lambda episode: (episode.start_time or 0, episode.trace_id))
