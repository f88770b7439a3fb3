"""What a trainer generates and scores, batch by batch: once it is scored, each completion is an episode."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from opentelemetry import context as otel_context

from mttp.codec.plain import plain
from mttp.integrations.faults import guard
from mttp.integrations.nesting import is_suppressed
from mttp.integrations.options import Options
from mttp.integrations.trl import facts, groups, trainers
from mttp.integrations.trl.batch import CompletionBatch, RewardFunctionResult, Use
from mttp.integrations.trl.completions import Completions
from mttp.integrations.trl.launch import Launch
from mttp.integrations.trl.scoring import answered
from mttp.model.episodes import Episode, Reward
from mttp.recording import configuration
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.session import Session
from mttp.rewards.call_log import CallLog

__all__ = ["ROWS", "TrainerRecorder"]

ROWS = "mttp_rows"
"""Under this name a batch says which completion each of its rows is, until TRL has shuffled and split it."""

_Call = Callable[..., Any]


class TrainerRecorder:
    """
    What surrounds the methods in which a trainer generates and scores.

    `version` tells how many updates the policy has had; `recorded` is called with each batch that can be
    learned from.
    """

    def __init__(
        self,
        trainer: Any,
        options: Options,
        *,
        version: Callable[[], int],
        recorded: Callable[[groups.RecordedBatch], None],
    ) -> None:
        self._trainer = trainer
        self._options = options
        self._version = version
        self._recorded = recorded
        self._launch: Launch | None = None
        self._batch: CompletionBatch | None = None
        self._batches = 0

    def use(self, options: Options) -> None:
        """Take other options from here on."""
        self._options = options

    # What surrounds the trainer's methods.

    def generate_and_score(self, wrapped: _Call, _: Any, args: Any, kwargs: Any) -> Any:
        """The whole of a batch: afterwards it is recorded, whether or not scoring went well."""
        self._batch = guard("trl", self._begin)
        try:
            result = wrapped(*args, **kwargs)
        except BaseException as error:
            guard("trl", self._finish, {}, error)
            raise
        guard("trl", self._finish, result)
        return result

    def calculate_rewards(self, wrapped: _Call, _: Any, args: Any, kwargs: Any) -> Any:
        """Scoring: all that was generated is known, and by the end what the functions pay."""
        alone = self._batch is None  # what TRL does around it goes by another name
        if alone:
            self._batch = guard("trl", self._begin)
        guard("trl", self._generated, *args, **kwargs)
        rewards = wrapped(*args, **kwargs)
        guard("trl", self._scored, rewards)
        if alone:
            guard("trl", self._finish, {})
        return rewards

    def tool_call_loop(self, wrapped: _Call, _: Any, args: Any, kwargs: Any) -> Any:
        """Turns in which tools are called: TRL has made a table of them for each completion by now."""
        guard("trl", self._surround_tools)
        found = wrapped(*args, **kwargs)
        guard("trl", self._turned, found)
        return found

    def token_logprobs(self, wrapped: _Call, _: Any, args: Any, kwargs: Any) -> Any:
        """Log probabilities of a batch's tokens: of the policy first, then of the reference."""
        found = wrapped(*args, **kwargs)
        guard("trl", self._computed, found)
        return found

    def reward(self, position: int, wrapped: _Call, _: Any, args: Any, kwargs: Any) -> Any:
        """One reward function, whose answer may have to be awaited, on a thread of the trainer's."""
        batch = self._batch
        if batch is None:
            return wrapped(*args, **kwargs)
        answer = batch.answers[position] = RewardFunctionResult()
        if batch.scoring is None:  # what TRL does around it goes by another name
            guard("trl", self._asked, **kwargs)
        try:
            with CallLog():  # what a function asks a model is no step of whichever episode goes on around it
                found = wrapped(*args, **(guard("trl", _listening, batch, kwargs) or kwargs))
        except Exception as error:
            answer.error = error
            raise
        if inspect.isawaitable(found):
            return _awaited(found, batch, answer)
        return _taken(found, answer)

    # What is done then.

    def _begin(self) -> CompletionBatch | None:
        number, self._batches = self._batches, self._batches + 1
        if is_suppressed() or not configuration.may_record():
            return None
        return CompletionBatch(
            number=number,
            version=self._version(),
            is_training=trainers.is_training(self._trainer),
            began=time.time_ns(),
            context=otel_context.get_current(),
        )

    def _generated(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> None:
        batch = self._batch
        if batch is not None:
            batch.scoring = time.time_ns()
            batch.inputs, batch.prompts, batch.completions = inputs, prompts, completions
            batch.completion_ids = completion_ids_list

    def _asked(self, *, prompts: Any, completions: Any, completion_ids: Any, **columns: Any) -> None:
        """A reward function was given the batch: lists beside it are columns of the dataset."""
        columns.pop("environments", None)
        lists = {name: column for name, column in columns.items() if isinstance(column, list)}
        inputs = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        self._generated(inputs, prompts, completions, completion_ids)

    def _scored(self, rewards: Any) -> None:
        if self._batch is not None:
            self._batch.rewards = trainers.matrix(rewards)

    def _turned(self, found: Any) -> None:
        if self._batch is not None:
            self._batch.tool_mask = found[0]

    def _computed(self, found: Any) -> None:
        if self._batch is not None:
            self._batch.logprobs.append(found[0])

    def _surround_tools(self) -> None:
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
        end = time.time_ns()
        if batch.rewards is None and error is None:
            batch.rewards = answered(batch, len(self._trainer.reward_funcs))
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
            _identity(session.record(episode, start_time=batch.began, end_time=end, timing="batch"), episode)
            for episode in completions.episodes(error)
        ]
        if error is not None:
            return
        recorded = groups.record(self._trainer, completions, episodes)
        if batch.is_training and result:
            result[ROWS] = result["completion_ids"].new_tensor(list(range(completions.count)))
            self._recorded(recorded)

    def _launched(self, session: Session) -> Launch:
        if self._launch is None:
            process, processes = trainers.processes(self._trainer)
            self._launch = Launch(session.run_id, process=process, processes=processes)
            guard("trl", lambda: session.describe(**facts.of(self._trainer)))
        return self._launch


def _identity(opened: OpenEpisode, episode: Episode) -> Episode:
    """Who an episode is and what it was paid, without what it holds, for what refers to it."""
    return Episode(
        trace_id=episode.trace_id,
        span_id=opened.span_id,
        group=episode.group,
        env=episode.env,
        task=episode.task,
        policy_update_index=episode.policy_update_index,
        reward=Reward(value=episode.reward.value, status=episode.reward.status),
    )


def _listening(batch: CompletionBatch, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """A reward function's arguments, with a `log_extra` that is heard here too."""
    log = kwargs.get("log_extra")
    if log is None:
        return dict(kwargs)

    def log_extra(column: str, values: list[Any]) -> None:
        log(column, values)
        guard("trl", lambda: batch.extras.setdefault(str(column), []).extend(values))

    return {**kwargs, "log_extra": log_extra}


def _taken(found: Any, answer: RewardFunctionResult) -> Any:
    """What a function answered, which can be gone through once more."""
    if hasattr(found, "__next__"):
        found = list(found)
    answer.values = guard("trl", _values, found)
    answer.results = getattr(found, "results", ()) if isinstance(found, list) else ()
    return found


def _values(found: Any) -> list[Any] | None:
    found = found.tolist() if hasattr(found, "tolist") else found
    return list(found) if hasattr(found, "__iter__") else None


async def _awaited(found: Awaitable[Any], batch: CompletionBatch, answer: RewardFunctionResult) -> Any:
    """The answer of an async function: its thread knows nothing of the trainer's context, and is told it."""
    token = otel_context.attach(batch.context)
    try:
        with CallLog():
            taken = await found
    except Exception as error:
        answer.error = error
        raise
    finally:
        otel_context.detach(token)
    return _taken(taken, answer)


def _observed(tool: _Call, name: str, uses: list[Use]) -> _Call:
    """A tool whose calls are written down; what Python says of it, which the model reads, stays the same."""

    @functools.wraps(tool)
    def called(**arguments: Any) -> Any:
        use = Use(name, arguments, time.time_ns())
        uses.append(use)
        try:
            found = tool(**arguments)
        except BaseException as error:
            use.error = error
            raise
        finally:
            use.end = time.time_ns()
        if inspect.isawaitable(found):
            return _finished(found, use)
        use.result = guard("trl", _settled, found)
        return found

    return called


async def _finished(found: Awaitable[Any], use: Use) -> Any:
    try:
        answer = await found
    except BaseException as error:
        use.error = error
        raise
    finally:
        use.end = time.time_ns()
    use.result = guard("trl", _settled, answer)
    return answer


def _settled(answer: Any) -> Any:
    """An answer that stays what it is, whatever the tool does next with its lists."""
    return plain(answer, []) if isinstance(answer, (list, dict)) else answer
