"""The data set and the scorers of an Inspect task, for `mttp.evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mttp.errors import ConfigureError, MissingExtra
from mttp.formats import inspect_ai
from mttp.integrations.faults import guard
from mttp.integrations.foreign_models import as_record
from mttp.model.interrupts import raise_interrupt
from mttp.recording.current import current_episode

__all__ = ["InspectSuite"]


class InspectSuite:
    """
    The data set and the scorers of an Inspect task.

        suite = InspectSuite(task)
        with mttp.evaluate(suite.name, tasks=suite.tasks) as run:
            asyncio.run(run.amap(solve))

    where `solve` is `async def solve(task): return await suite.score(task, await answer(task["input"]))`.
    Raises ConfigureError for a task without scorers or without samples, and MissingExtra without Inspect.
    """

    def __init__(self, task: Any) -> None:
        try:
            from inspect_ai.scorer import Target
            from inspect_ai.solver import TaskState
        except ImportError as error:
            raise MissingExtra(package="inspect-ai", extra="inspect", purpose="Inspect's scorers") from error
        self._target, self._state = Target, TaskState
        self.name = str(task.name)
        """The name of the suite."""
        self._scorers = list(task.scorer or ())
        samples = list(task.dataset)
        if not self._scorers or not samples:
            lacking = "samples" if self._scorers else "scorers"
            raise ConfigureError(f"the task {self.name} of Inspect has no {lacking}")
        self._samples = {
            str(number if sample.id is None else sample.id): sample
            for number, sample in enumerate(samples, 1)
        }

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """Each sample as `id`, `input` (a text or messages), `target`, `choices` and `metadata`."""
        return [
            {
                "id": name,
                "input": sample.input
                if isinstance(sample.input, str)
                else [as_record(message) for message in sample.input],
                "target": sample.target,
                "choices": sample.choices,
                "metadata": dict(sample.metadata or {}),
            }
            for name, sample in self._samples.items()
        ]

    async def score(self, task: Mapping[str, Any], answer: str | Sequence[Any]) -> dict[str, Any]:
        """
        Return the result of an answer by the first scorer: `score` and `passed`, or `error`.

        `answer` is the text of the answer, or the messages of the conversation, of Inspect's types.
        All scores are recorded in the current episode, if there is one; a scorer that raises is an error.
        """
        sample = self._samples[str(task["id"])]
        state, target = self._state_of(task, sample, answer), self._target(sample.target)
        rewards = []
        for scorer in self._scorers:
            name = _name(scorer)
            try:
                score = await scorer(state, target)
                document = {} if score is None else as_record(score)
                rewards.append(inspect_ai.scoring(name, document))
            except Exception as error:
                raise_interrupt(error, installed=True)
                rewards.append(inspect_ai.failed_scoring(name, error))
        episode = current_episode()
        for reward in rewards[::-1]:  # the first scorer's is the episode's reward
            guard("inspect_ai", episode.reward, reward)
        first = rewards[0]
        if first.status == "error":
            return {"error": first.error}
        return {
            "score": first.value,
            "passed": None if first.verdict is None else first.verdict == "pass",
        }

    def _state_of(self, task: Mapping[str, Any], sample: Any, answer: str | Sequence[Any]) -> Any:
        from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ModelOutput

        prompt = sample.input
        question = [ChatMessageUser(content=prompt)] if isinstance(prompt, str) else list(prompt)
        text = answer if isinstance(answer, str) else str(getattr(answer[-1], "text", answer[-1]))
        reply = [ChatMessageAssistant(content=answer)] if isinstance(answer, str) else list(answer)
        return self._state(
            model="mttp/answer",
            sample_id=task["id"] if sample.id is None else sample.id,
            epoch=1,
            input=prompt,
            messages=[*question, *reply],
            target=self._target(sample.target),
            choices=sample.choices,
            output=ModelOutput.from_content("mttp/answer", text),
            completed=True,
            metadata=dict(sample.metadata or {}),
        )


def _name(scorer: Any) -> str:
    from inspect_ai._util.registry import registry_info

    return str(registry_info(scorer).name).rpartition("/")[2]
