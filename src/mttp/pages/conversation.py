"""The steps of an episode as blocks: in a chat, each message once, with the calls where they were made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from mttp.model.chat import Message, frame_message, from_text, messages, seen
from mttp.model.episodes import Call, Episode, Step
from mttp.pages.blocks import Block, fact, facts, note
from mttp.pages.messages import add_call, call_block, contents, message_block, parts, result_block
from mttp.pages.recorded_facts import annotation_words, recorded_facts, troubles
from mttp.pages.rewards import reward_block
from mttp.pages.tokens import Pieces, token_block
from mttp.pages.words import count, duration, number
from mttp.reading.jsonable import jsonable

__all__ = ["Transcript"]

_TOOL: Final = "execute_tool"


class _OpenCall(NamedTuple):
    """A call of a tool whose message with the result may follow."""

    agent: str | None
    id: str
    name: str
    block: Block


class Transcript:
    """Builds the steps of an episode; in a chat, each has only its new messages."""

    def __init__(self, episode: Episode, pieces: Pieces | None) -> None:
        self._episode, self._pieces = episode, pieces
        self._has_rewards = any(step.reward_status != "missing" for step in episode.steps)
        self._before: dict[str | None, list[Message]] = {}
        """The messages of the steps before, by agent."""
        self._open: list[_OpenCall] = []

    def step(self, step: Step, place: int) -> Block:
        """Return a step: what was seen, done and called, its rewards, tokens and facts."""
        before, sent = self._before.setdefault(step.agent, []), messages(step.action)
        shown = seen(step, before)
        words = self._words(step)
        if shown is None:
            blocks = contents("observation", step.observation)
        else:
            blocks = [*self._messages(shown.new, step.agent, "observation", [])]
            others = "" if shown.is_whole else ", without others"
            words += [f"after {count(shown.earlier, 'earlier message')}{others}"] if shown.earlier else []
            if sent is None and isinstance(step.action, str):
                sent = [{"role": "assistant", "content": step.action}]
        if step.frame is not None:
            blocks += contents("frame", frame_message(step.frame))
        self._before[step.agent] = [*(messages(step.observation) or before), *(sent or ())]
        blocks += self._done(step, sent)
        blocks += [note(text, state) for state, text in troubles(step)]
        blocks += [reward_block(reward) for reward in step.rewards]
        blocks += [note(annotation_words(annotation)) for annotation in step.annotations]
        blocks += [token_block(step.tokens, self._pieces)] if step.tokens is not None else []
        known = facts([fact(name, value) for name, value in recorded_facts(step, maps=True).items()])
        return {
            "type": "step",
            "index": step.index,
            "place": place,
            "agent": step.agent or "",
            "title": f"step {step.index}{f' of {step.agent}' if step.agent else ''}",
            "words": ", ".join(words),
            "reward": jsonable(step.reward),
            "reward_status": step.reward_status,
            "blocks": [*blocks, *([known] if known else [])],
        }

    def _words(self, step: Step) -> list[str]:
        seconds, status = self._episode.step_duration(step), step.reward_status
        value = number(step.reward) if status == "ok" else status
        rewarded = ["no reward" if status == "missing" else f"reward {value}"] if self._has_rewards else []
        ends = (name for name in ("terminated", "truncated") if getattr(step, name))
        return [*rewarded, *([] if seconds is None else [duration(seconds)]), *ends]

    def _answered(self, message: Message, agent: str | None) -> Block | None:
        """Return the call that a message of a tool answers, which is then no longer open."""
        id, name = str(message.get("tool_call_id") or ""), str(message.get("name") or "")
        for call in self._open:
            if call.agent == agent and (id == call.id if id else name in ("", call.name)):
                self._open.remove(call)
                return call.block
        return None

    def _done(self, step: Step, sent: list[Message] | None) -> Iterator[Block]:
        """Yield calls and action; a model's call is the header of its answer, tools' are where it asked."""
        headers = [call for call in step.calls if _is_header(call, step)]
        others = [call for call in step.calls if not _is_header(call, step)]
        tools = [call for call in others if call.operation == _TOOL]
        action = [*self._messages(sent, step.agent, "action", tools)] if sent is not None else []
        if sent is None:
            action = contents("action", step.action)
        if action and headers:
            add_call(action[0], headers[-1])
        asked = {id(call) for call in others if call.operation == _TOOL} - {*map(id, tools)}
        yield from (call_block(call, step) for call in (*headers[:-1], *others) if id(call) not in asked)
        yield from action

    def _messages(
        self, chat: Iterable[Message], agent: str | None, part: str, tools: list[Call]
    ) -> Iterator[Block]:
        """Yield messages; results of tools go to their calls, and recorded calls leave `tools`."""
        for message in chat:
            call = self._answered(message, agent) if message["role"] == "tool" else None
            if call is not None and _takes(call, message):
                continue
            block = message_block(message, part)
            for asked, call in zip(message.get("tool_calls") or (), block["blocks"], strict=False):
                self._open.append(_OpenCall(agent, _id(asked), call["title"].removeprefix("calls "), call))
                if (tool_call := _made(tools, self._open[-1])) is not None:
                    tools[:] = [tool for tool in tools if tool is not tool_call]
                    call["blocks"] += contents("result", tool_call.result)
                    add_call(call, tool_call)
            yield block


def _is_header(call: Call, step: Step) -> bool:
    """Return whether the step shows what a model was asked and answered, so that the call is its header."""
    is_shown = (call.arguments is None or call.arguments is step.observation) and (
        call.result is None or call.result is step.action
    )
    return call.operation != _TOOL and is_shown and step.action is not None and not troubles(call)


def _made(tools: Sequence[Call], asked: _OpenCall) -> Call | None:
    """Return the recorded call of a tool that a message asked for: by its id, else by name and arguments."""
    arguments = [part for block in asked.block["blocks"] for part in block["parts"]]
    named = [call for call in tools if call.name == asked.name]
    by_id = [call for call in named if asked.id and call.id == asked.id]
    equal = [call for call in named if parts(call.arguments) == arguments]
    return next(iter([*by_id, *equal, *named]), None)


def _id(tool_call: object) -> str:
    return str(tool_call.get("id") or "") if isinstance(tool_call, dict) else ""


def _takes(call: Block, message: Message) -> bool:
    """Return whether a call shows the message of its tool as its result, since it has none or the same."""
    result = result_block(message)
    shown = [part for block in call["blocks"] if block["role"] == "result" for part in block["parts"]]
    if not shown and not call["error"]:
        call["blocks"].append(result)
        return True
    return [from_text(part["text"]) for part in shown] == [
        from_text(part["text"]) for part in result["parts"]
    ]
