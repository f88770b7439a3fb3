"""Recording the batches that a trainer generates and scores."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as otel_context

from mttp.codec.plain import plain
from mttp.integrations.faults import guard
from mttp.integrations.nesting import is_suppressed
from mttp.integrations.options import Options
from mttp.integrations.trl import facts, groups, trainers
from mttp.integrations.trl.batch import CompletionBatch, RewardFunctionResult, ToolUse
from mttp.integrations.trl.completions import Completions
from mttp.integrations.trl.launch import Launch
from mttp.integrations.trl.scoring import returned_rewards
from mttp.model import clock
from mttp.model.batch_errors import raised_at
from mttp.model.call_log import CallLog
from mttp.model.episodes import Episode, Reward
from mttp.recording import configuration
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.session import Session

__all__ = ["ROWS", "TrainerRecorder"]

ROWS = "mttp_rows"
"""The key of a tensor in TRL's batch that numbers its rows, to follow TRL's shuffling and splitting."""

_Call = Callable[..., Any]


class TrainerRecorder:
    """
    Wraps the methods in which a trainer generates and scores.

    `version` returns the number of updates so far; `on_recorded` is called with each batch for training.
    """

    def __init__(
        self,
        trainer: Any,
        options: Options,
        *,
        version: Callable[[], int],
        on_recorded: Callable[[groups.RecordedBatch], None],
    ) -> None:
        self._trainer = trainer
        self._options = options
        self._version = version
        self._on_recorded = on_recorded
        self._launch: Launch | None = None
        self._batch: CompletionBatch | None = None
        self._batches = 0

    def use(self, options: Options) -> None:
        """Use new options from now on."""
        self._options = options

    # Wrappers of the trainer's methods.

    def generate_and_score(self, wrapped: _Call, _: Any, args: Any, kwargs: Any) -> Any:
        """Wrap the generation and scoring of a batch, and record the batch, also after an error."""
        self._batch = guard("trl", self._start_batch)
        try:
            result = wrapped(*args, **kwargs)
        except BaseException as error:
            guard("trl", self._finish, {}, error)
            raise
        guard("trl", self._finish, result)
        return result

    def calculate_rewards(self, wrapped: _Call, _: Any, args: Any, kwargs: Any) -> Any:
        """Wrap the scoring of a batch, which gets the generated completions."""
        is_outermost = self._batch is None  # a version of TRL without `_generate_and_score_completions`
        if is_outermost:
            self._batch = guard("trl", self._start_batch)
        guard("trl", self._take_completions, *args, **kwargs)
        rewards = wrapped(*args, **kwargs)
        guard("trl", self._take_rewards, rewards)
        if is_outermost:
            guard("trl", self._finish, {})
        return rewards

    def tool_call_loop(self, wrapped: _Call, _: Any, args: Any, kwargs: Any) -> Any:
        """Wrap the turns with tools, whose tables of tools per completion exist by now."""
        guard("trl", self._observe_tools)
        result = wrapped(*args, **kwargs)
        guard("trl", self._take_tool_mask, result)
        return result

    def token_logprobs(self, wrapped: _Call, _: Any, args: Any, kwargs: Any) -> Any:
        """Wrap the computation of log probabilities, under the policy first, then under the reference."""
        result = wrapped(*args, **kwargs)
        guard("trl", self._take_logprobs, result)
        return result

    def reward(self, position: int, wrapped: _Call, _: Any, args: Any, kwargs: Any) -> Any:
        """Wrap one reward function; the result of an async function is awaited on another thread."""
        batch = self._batch
        if batch is None:
            return wrapped(*args, **kwargs)
        recorded = batch.function_results[position] = RewardFunctionResult()
        if batch.scoring is None:  # a version of TRL without `_calculate_rewards`
            guard("trl", self._take_arguments, **kwargs)
        with _scoring(recorded, kwargs):
            result = wrapped(*args, **(guard("trl", _with_log_extra, batch, kwargs) or kwargs))
        if inspect.isawaitable(result):
            return _awaited(result, batch, recorded, kwargs)
        return _taken(result, recorded)

    # Recording.

    def _start_batch(self) -> CompletionBatch | None:
        number, self._batches = self._batches, self._batches + 1
        if is_suppressed() or not configuration.may_record():
            return None
        return CompletionBatch(
            number=number,
            version=self._version(),
            is_training=trainers.is_training(self._trainer),
            began=clock.wall(),
            context=otel_context.get_current(),
        )

    def _take_completions(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> None:
        batch = self._batch
        if batch is not None:
            batch.scoring = clock.wall()
            batch.inputs, batch.prompts, batch.completions = inputs, prompts, completions
            batch.completion_ids = completion_ids_list

    def _take_arguments(self, *, prompts: Any, completions: Any, completion_ids: Any, **columns: Any) -> None:
        """Take the batch from a reward function's arguments; other lists are columns of the dataset."""
        columns.pop("environments", None)
        lists = {name: column for name, column in columns.items() if isinstance(column, list)}
        inputs = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        self._take_completions(inputs, prompts, completions, completion_ids)

    def _take_rewards(self, rewards: Any) -> None:
        if self._batch is not None:
            self._batch.rewards = trainers.matrix(rewards)

    def _take_tool_mask(self, result: Any) -> None:
        if self._batch is not None:
            self._batch.tool_mask = result[0]

    def _take_logprobs(self, result: Any) -> None:
        if self._batch is not None:
            self._batch.logprobs.append(result[0])

    def _observe_tools(self) -> None:
        batch = self._batch
        if batch is None:
            return
        for tables in (self._trainer._sync_tool_dicts, self._trainer._async_tool_dicts):
            for row, table in enumerate(tables):
                for name, tool in table.items():
                    table[name] = _observed(tool, name, batch.uses.setdefault(row, []))

    def _finish(self, result: Any, error: BaseException | None = None) -> None:
        batch, self._batch = self._batch, None
        session = configuration.recording_session() if batch is not None else None
        if batch is None or session is None or not batch.completion_ids:
            return
        end = clock.wall()
        if batch.rewards is None and error is None:
            batch.rewards = returned_rewards(batch, len(self._trainer.reward_funcs))
        for document in batch.documents:
            session._recorder.keep_spec_document(document)
        completions = Completions(
            self._trainer,
            batch,
            result,
            launch=self._launched(session),
            options=self._options,
            end=end,
        )
        episodes = [
            _reduced(session.record(episode, start_time=batch.began, end_time=end, timing="batch"), episode)
            for episode in completions.episodes(error)
        ]
        if error is not None:
            return
        recorded = groups.record(self._trainer, completions, episodes)
        if batch.is_training and result:
            result[ROWS] = result["completion_ids"].new_tensor(list(range(completions.count)))
            self._on_recorded(recorded)

    def _launched(self, session: Session) -> Launch:
        if self._launch is None:
            process, processes = trainers.processes(self._trainer)
            self._launch = Launch(session.run_id, process=process, processes=processes)
            guard("trl", lambda: session.describe(**facts.of(self._trainer)))
        return self._launch


def _reduced(opened: OpenEpisode, episode: Episode) -> Episode:
    """Return an episode's identity and reward, without its steps, for groups and updates."""
    return Episode(
        trace_id=episode.trace_id,
        span_id=opened.span_id,
        group=episode.group,
        env=episode.env,
        task=episode.task,
        policy_update_index=episode.policy_update_index,
        reward=Reward(value=episode.reward.value, status=episode.reward.status),
    )


def _with_log_extra(batch: CompletionBatch, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reward function's arguments with a `log_extra` that also records."""
    log = kwargs.get("log_extra")
    if log is None:
        return dict(kwargs)

    def log_extra(column: str, values: list[Any]) -> None:
        log(column, values)
        guard("trl", lambda: batch.extras.setdefault(str(column), []).extend(values))

    return {**kwargs, "log_extra": log_extra}


def _taken(result: Any, recorded: RewardFunctionResult) -> Any:
    """Record a function's result, and return it; an iterator is returned as a list."""
    if hasattr(result, "__next__"):
        result = list(result)
    recorded.values = guard("trl", _values, result)
    recorded.results = getattr(result, "results", ()) if isinstance(result, list) else ()
    return result


def _values(result: Any) -> list[Any] | None:
    result = result.tolist() if hasattr(result, "tolist") else result
    return list(result) if hasattr(result, "__iter__") else None


@contextmanager
def _scoring(recorded: RewardFunctionResult, arguments: Mapping[str, Any]) -> Iterator[None]:
    """The block of a reward function's call: its model calls and its error are part of the result."""
    try:
        with CallLog() as log:
            yield
    except Exception as error:
        recorded.error = error
        recorded.raised = raised_at(error, arguments.values())
        raise
    finally:
        recorded.calls = (*recorded.calls, *log.calls)


async def _awaited(
    awaitable: Awaitable[Any],
    batch: CompletionBatch,
    recorded: RewardFunctionResult,
    arguments: Mapping[str, Any],
) -> Any:
    """Await an async function's result in the OpenTelemetry context of the trainer's thread."""
    token = otel_context.attach(batch.context)
    try:
        with _scoring(recorded, arguments):
            result = await awaitable
    finally:
        otel_context.detach(token)
    return _taken(result, recorded)


def _observed(tool: _Call, name: str, uses: list[ToolUse]) -> _Call:
    """Return a tool that records its calls, with the signature and docstring that the model reads."""

    @functools.wraps(tool)
    def called(**arguments: Any) -> Any:
        use = ToolUse(name, arguments, clock.wall())
        uses.append(use)
        try:
            result = tool(**arguments)
        except BaseException as error:
            use.error = error
            raise
        finally:
            use.end = clock.wall()
        if inspect.isawaitable(result):
            return _observed_async(result, use)
        use.result = guard("trl", _copied, result)
        return result

    return called


async def _observed_async(awaitable: Awaitable[Any], use: ToolUse) -> Any:
    try:
        result = await awaitable
    except BaseException as error:
        use.error = error
        raise
    finally:
        use.end = clock.wall()
    use.result = guard("trl", _copied, result)
    return result


def _copied(result: Any) -> Any:
    """Return a copy of a list or dict, which the tool may change later; other values unchanged."""
    return plain(result, []) if isinstance(result, (list, dict)) else result
