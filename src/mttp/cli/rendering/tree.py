"""One episode as a tree: observations, actions and rewards, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from rich.text import Text
from rich.tree import Tree

from mttp.model.chat import Message, frame_message, message_lines, messages, seen, speaker
from mttp.model.episodes import Agent, Annotation, Call, Episode, Grade, Reward, Step, Tokens
from mttp.model.evaluations import TaskResult
from mttp.pages.episode import EMPTY, error_of, identity, stated
from mttp.pages.words import count, duration, moment, number, printed, shortened
from mttp.reading.jsonable import to_json

__all__ = ["tree"]

_TEXT_LIMIT = 400


def tree(episode: Episode, *, limit: int | None = None, full: bool = False) -> Tree:
    """Return the tree of an episode with its first `limit` steps; with `full`, texts are not shortened."""
    return _Drawing(text_limit=None if full else _TEXT_LIMIT).episode(episode, limit)


class _Drawing:
    """Builds the tree of one episode."""

    def __init__(self, *, text_limit: int | None) -> None:
        self._text_limit = text_limit
        self._conversations: dict[str | None, list[Message]] = {}
        """The messages of the steps before, by agent."""

    def episode(self, episode: Episode, limit: int | None) -> Tree:
        """Return the tree."""
        root = Tree(_headline(episode))
        root.add(_pairs({"started": moment(episode.start_time)} | self._briefly(identity(episode))))
        self._add_content(root, "inputs", episode.inputs)
        self._add_own(root, episode)
        has_step_rewards = any(step.reward_status != "missing" for step in episode.steps)
        for step in episode.steps[:limit]:
            self._add_step(root, step, seconds=episode.step_duration(step), has_step_rewards=has_step_rewards)
        more = len(episode.steps) - len(episode.steps[:limit])
        if more:
            root.add(printed(f"… and {count(more, 'more step')}; --limit 0 shows all"))
        self._add_content(root, "final observation", episode.final_observation)
        for reward in episode.rewards:
            self._add_reward(root, reward)
        for agent in episode.agents:
            self._add_agent(root, agent)
        for annotation in episode.annotations:
            self._add_annotation(root, annotation, episode)
        for result in episode.results:
            self._add_result(root, result)
        return root

    def _briefly(self, facts: Mapping[str, Any]) -> dict[str, str]:
        return {name: fact if isinstance(fact, str) else self._brief(fact) for name, fact in facts.items()}

    def _add_agent(self, root: Tree, agent: Agent) -> None:
        words = [name for name in ("terminated", "truncated") if getattr(agent, name)]
        words += [f"return {number(agent.return_)}", count(agent.length, "step")]
        branch = root.add(_titled(f"agent {agent.id}", words))
        if known := self._briefly(stated(agent)):
            branch.add(_pairs(known))
        for reward in agent.rewards:
            self._add_reward(branch, reward)
        self._add_own(branch, agent)

    def _add_step(self, root: Tree, step: Step, *, seconds: float | None, has_step_rewards: bool) -> None:
        before = self._conversations.setdefault(step.agent, [])
        shown, sent = seen(step, before), messages(step.action)
        words = _step_reward(step) if has_step_rewards else []
        words += [] if seconds is None else [duration(seconds)]
        words += [name for name in ("terminated", "truncated") if getattr(step, name)]
        if shown and shown.earlier:
            others = "" if shown.is_whole else ", without others"
            words.append(f"after {count(shown.earlier, 'earlier message')}{others}")
        of_agent = "" if step.agent is None else f" of {step.agent}"
        branch = root.add(_titled(f"step {step.index}{of_agent}", words))
        if shown is None:
            self._add_content(branch, "observation", step.observation)
        for message in shown.new if shown else ():
            self._add_message(branch, message)
        if step.frame is not None:
            self._add_message(branch, frame_message(step.frame))
        if sent is None:
            self._add_content(branch, "assistant" if shown else "action", step.action)
        for message in sent or []:
            self._add_message(branch, message)
        self._conversations[step.agent] = [*(messages(step.observation) or before), *(sent or [])]
        if known := self._briefly(stated(step)):
            branch.add(_pairs(known))
        if step.tokens is not None:
            branch.add(printed("tokens  " + ", ".join(_token_words(step.tokens))))
        for reward in step.rewards:
            self._add_reward(branch, reward)
        for annotation in step.annotations:
            self._add_annotation(branch, annotation)
        for call in step.calls:
            self._add_call(branch, call, step)
        self._add_own(branch, step)

    def _add_message(self, parent: Tree, message: Message) -> None:
        """Add a message: its role, then its content."""
        self._add_text(parent, speaker(message), "\n".join(message_lines(message)) or EMPTY)

    def _add_text(self, parent: Tree, name: str, text: str) -> None:
        """Add a text under its name; several lines start on a new line."""
        gap = "\n" if "\n" in text else "  "
        shown = printed(gap + self._short(text), style="not bold", lines=True)
        parent.add(printed(name, style="bold").append_text(shown))

    def _add_result(self, root: Tree, result: TaskResult) -> None:
        """Add the result of the episode in an evaluation."""
        facts = {name: getattr(result, name) for name in ("score", "baseline_score", "delta")}
        words = [
            f"{name.replace('_', ' ')} {number(fact)}" for name, fact in facts.items() if fact is not None
        ]
        words += [] if result.passed is None else ["passed" if result.passed else "failed"]
        words += [] if result.error is None else [self._short(result.error)]
        sample = f", sample {result.sample}" if result.sample else ""
        root.add(_titled(f"result of task {result.task}{sample}", [result.outcome.replace("_", " "), *words]))

    def _add_annotation(self, parent: Tree, annotation: Annotation, episode: Episode | None = None) -> None:
        """Add an annotation: its value, author and time."""
        if annotation.reward is not None:
            value = _reward_value(annotation.reward)
        elif annotation.rejected:
            is_chosen = episode is None or annotation.episode == episode.trace_id
            others = annotation.rejected if is_chosen else (annotation.episode,)
            value = ("to " if is_chosen else "of ") + ", ".join(other[:8] for other in others)
        else:
            value = self._brief(annotation.value)
        by = "" if annotation.by is None else f" by {annotation.by}"
        words = [value + by, *([annotation.explanation] if annotation.explanation else [])]
        if annotation.reward is not None and annotation.reward.label:
            words.insert(1, annotation.reward.label)
        text = f"{annotation.key}  {', '.join(map(self._short, words))}  {moment(annotation.start_time)}"
        parent.add(printed(text, style="magenta"))

    def _add_reward(self, parent: Tree, reward: Reward) -> None:
        words = [_reward_value(reward)]
        if reward.spec is not None:
            words.append(f"by {reward.spec.name} {reward.spec.version or ''}".rstrip())
        words += [text for text in (reward.grader, reward.verdict, reward.label) if text]
        if reward.mismatch:
            words.append("differs from the weighted sum")
        branch = parent.add(printed("reward  " + ", ".join(words), style="cyan"))
        for grade in reward.all_grades:
            self._add_grade(branch, grade)
        for name, text in (("error", reward.error), ("why", reward.explanation)):
            if text:
                branch.add(printed(f"{name}  {self._short(text)}"))
        if reward.failed_checks:
            branch.add(printed("failed checks  " + ", ".join(reward.failed_checks), style="yellow"))
        for call in reward.calls:
            self._add_call(branch, call)

    def _add_grade(self, parent: Tree, grade: Grade) -> None:
        """Add the grade of a component, and its parts."""
        words = [grade.status if grade.value is None else number(grade.value)]
        if grade.weight is not None and grade.value is not None:
            words[0] += f" x {number(grade.weight)}"
        words += [word for word in (grade.verdict, grade.label, "late" if grade.late else "") if word]
        if grade.clipped:
            words.append("clipped")
        style = "" if grade.status == "ok" else "yellow"
        branch = parent.add(printed(f"{grade.name}  {', '.join(words)}", style=style))
        for name, text in (("error", grade.error), ("why", grade.explanation)):
            if text:
                branch.add(printed(f"{name}  {self._short(text)}"))
        for part in grade.scaled_parts:
            self._add_grade(branch, part)
        for call in grade.calls:
            self._add_call(branch, call)

    def _add_call(self, parent: Tree, call: Call, step: Step | None = None) -> None:
        """Add a call; what it has in common with its step is shown there."""
        words = [duration(_seconds(call))]
        if call.input_tokens is not None or call.output_tokens is not None:
            words.append(f"{number(call.input_tokens)} tokens in, {number(call.output_tokens)} out")
        words += list(call.finish_reasons)
        branch = parent.add(printed(f"{call.operation} {call.name or ''}".rstrip() + "  " + ", ".join(words)))
        if call.parameters:
            branch.add(_pairs({name: self._brief(value) for name, value in call.parameters.items()}))
        if step is None or call.arguments is not step.observation:
            self._add_content(branch, "arguments", call.arguments)
        if step is None or call.result is not step.action:
            self._add_content(branch, "result", call.result)
        self._add_error(branch, call)

    def _add_own(self, parent: Tree, value: Episode | Agent | Step) -> None:
        """Add metrics, metadata and unknown attributes, then errors, faults and omissions."""
        for name in ("metrics", "metadata", "extra"):
            if items := getattr(value, name):
                parent.add(_pairs({name: ""} | {key: self._brief(item) for key, item in items.items()}))
        self._add_error(parent, value)
        for name in ("faults", "omissions"):
            for text in getattr(value, name, ()):
                parent.add(printed(f"{name.removesuffix('s')}  {self._short(text)}", style="yellow"))

    def _add_error(self, parent: Tree, value: Episode | Agent | Step | Call) -> None:
        if error := error_of(value):
            parent.add(printed(self._short(f"error  {error}"), style="red"))

    def _add_content(self, parent: Tree, name: str, content: Any) -> None:
        if (chat := messages(content)) is not None:
            for message in chat:
                self._add_message(parent, message)
        elif isinstance(content, str) and "\n" in content:
            self._add_text(parent, name, content)
        elif content is not None:
            parent.add(printed(f"{name}  {self._brief(content)}"))

    def _brief(self, content: Any) -> str:
        """Return content on one line: an array with its shape, text unchanged, other values as JSON."""
        if isinstance(content, np.ndarray):
            values = np.array2string(
                content.ravel(), threshold=8, edgeitems=3, precision=4, max_line_width=10**6
            )
            return (
                values
                if content.ndim == 1 and content.size <= 8
                else f"{values} {content.dtype} {content.shape}"
            )
        if isinstance(content, float):
            return number(content)
        return self._short((content if isinstance(content, str) else to_json(content)) or EMPTY)

    def _short(self, text: str) -> str:
        return shortened(text, self._text_limit, hint="--full shows all")


def _headline(episode: Episode) -> Text:
    flags = [name for name in ("terminated", "truncated") if getattr(episode, name)]
    words = [episode.status, episode.outcome, *flags, f"return {number(episode.return_)}"]
    words += [count(episode.length, "step"), duration(episode.duration)]
    return _titled(f"episode {episode.trace_id} {episode.env}".rstrip(), words)


def _titled(title: str, words: Iterable[str]) -> Text:
    return printed(title, style="bold").append_text(printed("  " + ", ".join(words), style="not bold"))


def _token_words(tokens: Tokens) -> Iterator[str]:
    if tokens.count is not None:
        yield f"{tokens.count:,} sampled"
    if tokens.prompt_count is not None:
        yield f"{tokens.prompt_count:,} prompt"
    if tokens.parent is not None:
        yield f"after {tokens.parent[1]:,} of step {tokens.parent[0]}"
    if tokens.logprobs is not None and len(tokens.logprobs):
        yield f"mean logprob {number(float(np.mean(tokens.logprobs, dtype=np.float64)))}"
    if arrays := tokens.arrays():
        yield "arrays " + " ".join(arrays)
    if tokens.tokenizer is not None:
        yield tokens.tokenizer
    if tokens.omitted_reason is not None:
        yield f"omitted: {tokens.omitted_reason}"


def _step_reward(step: Step) -> list[str]:
    """Return the reward of a step, or its status."""
    if step.reward_status == "missing":
        return ["no reward"]
    return [f"reward {number(step.reward) if step.reward_status == 'ok' else step.reward_status}"]


def _reward_value(reward: Reward) -> str:
    if reward.status == "ok":
        return number(reward.value)
    if reward.value is not None:
        return f"{number(reward.value)} ({reward.status})"
    return f"{reward.status} {reward.raw or ''}".rstrip()


def _pairs(pairs: dict[str, str]) -> Text:
    return Text("  ").join(
        printed(name, style="dim").append_text(printed(f" {value}" if value else "", style="not dim"))
        for name, value in pairs.items()
    )


def _seconds(value: Call) -> float | None:
    if value.start_time is None or value.end_time is None:
        return None
    return (value.end_time - value.start_time) / 1e9
