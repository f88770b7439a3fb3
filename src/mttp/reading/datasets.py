"""Data sets for training from recordings: conversations (SFT), preference pairs (DPO), prompts (GRPO)."""

from __future__ import annotations

import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from mttp.errors import ConfigureError, MissingExtra
from mttp.model.chat import Message, messages, new_messages, requests
from mttp.model.draws import preferences
from mttp.model.episodes import Episode
from mttp.otlp.whole_files import replacing
from mttp.reading.jsonable import jsonable, to_json
from mttp.reading.recording import Recording, read
from mttp.reading.sources import Source

__all__ = ["DatasetFormat", "PairSource", "TrainingDataset", "training_dataset"]

DatasetFormat: TypeAlias = Literal["sft", "dpo", "grpo"]
PairSource: TypeAlias = Literal["preferences", "groups"]

_Chat: TypeAlias = list[dict[str, Any]]
_KEYS = ("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name")
"""Keys of messages that chat templates read."""
_TRUSTED = ("ok", "missing")
"""Reward statuses with a valid return; without a reward, the return may be the sum of step rewards."""
_ARGUMENTS = frozenset({"prompt", "prompts", "completion", "completions", "completion_ids", "task"})
"""Names that TRL or the data set itself gives to a reward function's arguments."""
_NOT_COMPLETED = "episodes that were not completed"
_NO_CHAT = "episodes without chat messages"
_NO_ANSWER = "episodes whose last message is not the policy's"
_REWRITTEN = "episodes whose prompt changes between steps"
_PARTS = "episodes with content other than text"
_AGENTS = "episodes of several agents"
_NO_REWARD = "episodes without a valid reward"
_LOW = "episodes below the least reward"
_LOW_PAIRS = "pairs whose chosen episode is below the least reward"
_NO_PAIR = "pairs of which an episode can't be used"
_OTHER_PROMPT = "pairs whose prompts differ"
_EQUAL_ANSWERS = "pairs whose answers are equal"
_EQUAL_REWARDS = "groups whose rewards are all equal"
_SINGLE = "groups with fewer than two usable episodes"
_REPEATED = "episodes with the prompt and inputs of another one"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDataset:
    """Rows of a data set for training; `len` is their number, and iterating yields them."""

    format: DatasetFormat
    """sft, dpo or grpo."""
    rows: tuple[Mapping[str, Any], ...]
    """A mapping of column names to JSON values for each row; messages are lists of mappings."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """The number of episodes, pairs and groups that have no row, by reason."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        reasons = "".join(f"; {text}" for text in self.reasons)
        return (
            f"<TrainingDataset for {self.format}: {len(self):,} row{'' if len(self) == 1 else 's'}{reasons}>"
        )

    @property
    def reasons(self) -> list[str]:
        """What was left out, as one text for each reason: `left out episodes without chat messages: 3`."""
        return [f"left out {reason}: {count:,}" for reason, count in self.left_out.items()]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"format": self.format, "rows": list(self.rows), "left_out": dict(self.left_out)}

    def write(self, path: str | os.PathLike[str]) -> None:
        """
        Write the rows to a `.jsonl` or `.parquet` file, replacing one that exists.

        Raises ConfigureError for another name, and if Parquet can't hold the rows: in a column of tool calls,
        each call would have the arguments of all. Raises MissingExtra for Parquet without pyarrow.
        """
        target = Path(path)
        if target.suffix not in _WRITERS:
            raise ConfigureError(f"{target}: the name of a data set ends in {' or '.join(_WRITERS)}")
        with replacing(target) as partial:
            _WRITERS[target.suffix]([jsonable(row) for row in self.rows], partial)


def training_dataset(
    source: Source | Recording,
    format: DatasetFormat,
    *,
    min_reward: float | None = None,
    pairs: PairSource | None = None,
    text: bool = False,
) -> TrainingDataset:
    """
    Return the conversational data set that TRL trains on, from recorded chats.

    `format` is
    `sft`: `prompt`, the messages before the policy's first one, and `completion`, all from that on;
    `dpo`: `prompt`, `chosen` and `rejected`;
    `grpo`: `prompt`, `task`, and a column for each of the episode's `inputs`, each different row once.

    `min_reward` leaves out episodes of sft, and pairs of dpo by their chosen episode, whose reward is lower
    or not valid. The reward is that of the episode, else its return.
    `pairs` of dpo are the recorded preferences, or the best and the worst episode of each group by reward;
    the default is preferences if the recording has any.
    `text` also takes text: an observation as a message of the user, an action as one of the assistant.

    Episodes that were not completed, or are of several agents, have no row in sft and dpo.
    To choose episodes by other facts, pass `recording.filter(...)`.
    Raises ConfigureError for a wrong argument, and ReadError if the source can't be read.
    """
    if format not in get_args(DatasetFormat):
        raise ConfigureError(f"format={format!r} is not one of {', '.join(get_args(DatasetFormat))}")
    if pairs not in (None, *get_args(PairSource)):
        raise ConfigureError(f"pairs={pairs!r} is not one of {', '.join(get_args(PairSource))}")
    if pairs is not None and format != "dpo":
        raise ConfigureError(f"pairs={pairs!r} is for dpo, not for {format}")
    if min_reward is not None and (format == "grpo" or not math.isfinite(min_reward)):
        raise ConfigureError(f"min_reward={min_reward!r}: give a number, for sft or dpo")
    recording = source if isinstance(source, Recording) else read(source)
    builder = _Rows(recording, min_reward=min_reward, text=text)
    if format == "dpo":
        has_preferences = bool(preferences(recording.annotations))
        pairs = pairs or ("preferences" if has_preferences else "groups")
        rows = builder.preferences() if pairs == "preferences" else builder.groups()
    else:
        rows = builder.conversations() if format == "sft" else builder.prompts()
    return TrainingDataset(format=format, rows=tuple(rows), left_out=dict(builder.left_out))


class _ChatParts(NamedTuple):
    """The messages of an episode."""

    prompt: _Chat
    """The messages before the policy's first one."""
    completion: _Chat


class _Refused(Exception):  # noqa: N818 - it is caught here, and counted
    """An episode, pair or group has no row; the text is the reason."""


class _Rows:
    """Makes the rows of one data set, and counts what it leaves out."""

    def __init__(self, recording: Recording, *, min_reward: float | None, text: bool) -> None:
        self.left_out: Counter[str] = Counter()
        self._recording = recording
        self._min_reward = min_reward
        self._text = text
        self._found: dict[str, _ChatParts | None] = {}

    def conversations(self) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of sft."""
        for episode in self._recording:
            try:
                prompt, completion = self._conversation(episode)
                self._check_reward(episode)
            except _Refused as reason:
                self.left_out[str(reason)] += 1
            else:
                yield {"prompt": prompt, "completion": completion}

    def prompts(self) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of grpo, which all have the same columns."""
        rows: dict[str, dict[str, Any]] = {}
        for episode in self._recording:
            try:
                row = {"prompt": self._prompt(episode), "task": episode.task, **_columns(episode.inputs)}
            except _Refused as reason:
                self.left_out[str(reason)] += 1
                continue
            self.left_out[_REPEATED] += (key := to_json(row)) in rows
            rows.setdefault(key, row)
        self.left_out = +self.left_out
        return _uniform(list(rows.values()))

    def preferences(self) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of dpo from the recorded preferences."""
        episodes = {episode.trace_id: episode for episode in self._recording}
        for preference in preferences(self._recording.annotations):
            for rejected in preference.rejected:
                yield from self._pair(episodes.get(preference.episode), episodes.get(rejected))

    def groups(self) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of dpo from the best and the worst episode of each group."""
        members: defaultdict[tuple[str, str], list[tuple[float, Episode]]] = defaultdict(list)
        for episode in self._recording:
            if episode.group is not None:
                member = members[episode.run_id, episode.group]
                if (reward := _reward(episode)) is not None and self._known(episode) is not None:
                    member.append((reward, episode))
        for ranked in members.values():
            ranked.sort(key=lambda member: member[0])
            if len(ranked) < 2:
                self.left_out[_SINGLE] += 1
            elif ranked[0][0] == ranked[-1][0]:
                self.left_out[_EQUAL_REWARDS] += 1
            else:
                yield from self._pair(ranked[-1][1], ranked[0][1])

    def _pair(self, chosen: Episode | None, rejected: Episode | None) -> Iterator[Mapping[str, Any]]:
        better = None if chosen is None else self._known(chosen)
        worse = None if rejected is None else self._known(rejected)
        if chosen is None or better is None or worse is None:
            reason = _NO_PAIR
        elif not self._is_rewarded(chosen):
            reason = _LOW_PAIRS
        elif better.prompt != worse.prompt:
            reason = _OTHER_PROMPT
        elif better.completion == worse.completion:
            reason = _EQUAL_ANSWERS
        else:
            yield {"prompt": better.prompt, "chosen": better.completion, "rejected": worse.completion}
            return
        self.left_out[reason] += 1

    def _is_rewarded(self, episode: Episode) -> bool:
        try:
            self._check_reward(episode)
        except _Refused:
            return False
        return True

    def _check_reward(self, episode: Episode) -> None:
        if self._min_reward is None:
            return
        reward = _reward(episode)
        if reward is None:
            raise _Refused(_NO_REWARD)
        if reward < self._min_reward:
            raise _Refused(_LOW)

    def _known(self, episode: Episode) -> _ChatParts | None:
        """The conversation of an episode; None if it can't be used, which is counted once."""
        if episode.trace_id not in self._found:
            try:
                self._found[episode.trace_id] = self._conversation(episode)
            except _Refused as reason:
                self.left_out[str(reason)] += 1
                self._found[episode.trace_id] = None
        return self._found[episode.trace_id]

    def _conversation(self, episode: Episode) -> _ChatParts:
        if episode.status != "completed":
            raise _Refused(_NOT_COMPLETED)
        prompt = self._prompt(episode)
        chat = list(self._messages(episode.steps[0].observation, "user"))
        recorded: list[Message] = []
        for step in episode.steps:
            if prompts := [*requests(step, recorded)]:
                chat = prompts[-1]
                if [_message(message) for message in chat[: len(prompt)]] != prompt:
                    raise _Refused(_REWRITTEN)
            else:
                chat = _continued(chat, self._messages(step.observation, "user"), fixed=len(prompt))
            chat += self._messages(step.action, "assistant", is_chat=True)
        completion = [_message(message) for message in chat[len(prompt) :]]
        if not completion or completion[-1]["role"] != "assistant":
            raise _Refused(_NO_ANSWER)
        return _ChatParts(prompt, completion)

    def _prompt(self, episode: Episode) -> _Chat:
        """The messages that the policy sees first."""
        if len({step.agent for step in episode.steps}) > 1:
            raise _Refused(_AGENTS)
        first = self._messages(episode.steps[0].observation, "user") if episode.steps else []
        if not first:
            raise _Refused(_NO_CHAT)
        return [_message(message) for message in first]

    def _messages(self, content: Any, role: str, *, is_chat: bool = False) -> list[Message]:
        """The messages in an observation or action; text is one of `role`, in a chat or if text is taken."""
        if content is None:
            return []
        if isinstance(content, str) and (is_chat or self._text):
            return [{"role": role, "content": content}]
        chat = messages(content)
        if chat is None:
            raise _Refused(_NO_CHAT)
        return chat


def _continued(before: Sequence[Message], shown: Sequence[Message], *, fixed: int) -> list[Message]:
    """
    The conversation with what the policy sees next: the whole conversation again, or only what is new.

    A whole conversation that differs is taken as it is seen, except for its first `fixed` messages.
    """
    new = new_messages(shown, before)
    if len(new) == len(shown) and not any(message["role"] == "system" for message in new):
        return [*before, *new]
    if len(shown) - len(new) < fixed:
        raise _Refused(_REWRITTEN)
    return [*before[: len(shown) - len(new)], *new]


def _message(message: Message) -> dict[str, Any]:
    """A message as chat templates read it: text of parts is joined, arguments of tool calls are mappings."""
    fields = {key: message[key] for key in _KEYS if message.get(key) is not None}
    content = message.get("content", message.get("parts"))
    if isinstance(content, (list, tuple)):
        content = "".join(part if isinstance(part, str) else _text_of(part) for part in content)
    if not isinstance(content, (str, type(None))):
        raise _Refused(_PARTS)
    fields["content"] = content or ""
    if isinstance(calls := fields.get("tool_calls"), (list, tuple)):
        fields["tool_calls"] = [_tool_call(call) for call in calls]
    return fields


def _text_of(part: Any) -> str:
    for key in ("text", "content"):
        if isinstance(part, Mapping) and isinstance(part.get(key), str):
            return str(part[key])
    raise _Refused(_PARTS)


def _tool_call(call: Any) -> Any:
    if not isinstance(call, Mapping):
        return call
    function = call.get("function", call)
    if not isinstance(function, Mapping):
        return call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = function.get("arguments")
    plain = {"name": function.get("name"), "arguments": arguments}
    named = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
    return {**named, "type": "function", "function": plain}


def _reward(episode: Episode) -> float | None:
    """The valid reward of an episode, else its return; None without either."""
    if episode.reward.status not in _TRUSTED:
        return None
    value = episode.return_ if episode.reward.value is None else episode.reward.value
    return value if value is not None and math.isfinite(value) else None


def _columns(inputs: Any) -> dict[str, Any]:
    """The columns of an episode's inputs, with other names than those that TRL uses itself."""
    if inputs is None:
        return {}
    columns = inputs if isinstance(inputs, Mapping) else {"inputs": inputs}
    named = {f"inputs_{key}" if key in _ARGUMENTS else str(key): value for key, value in columns.items()}
    plain: dict[str, Any] = jsonable(named)
    return plain


def _uniform(rows: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The rows with all columns each; a column of values of several types becomes one of JSON text."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for name, value in row.items():
            kinds[name] |= _kind(value)
    mixed = {name for name, types in kinds.items() if len(types) > 1}
    used = [name for name, types in kinds.items() if types]
    for row in rows:
        yield {name: _as_text(row.get(name)) if name in mixed else row.get(name) for name in used}


def _kind(value: Any) -> set[str]:
    if value is None:
        return set()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return {"number"}
    return {type(value).__name__}


def _as_text(value: Any) -> str | None:
    return value if isinstance(value, str) or value is None else to_json(value)


def _write_lines(rows: Sequence[Mapping[str, Any]], target: Path) -> None:
    with target.open("wb") as file:
        for row in rows:
            line = json.dumps(row, ensure_ascii=False, allow_nan=False)
            file.write(f"{line}\n".encode("utf-8", "replace"))


def _write_parquet(rows: Sequence[Mapping[str, Any]], target: Path) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra(package="pyarrow", extra="study", purpose="writing Parquet") from error
    chats = (value for row in rows for value in row.values() if isinstance(value, list))
    if any(isinstance(message, Mapping) and "tool_calls" in message for chat in chats for message in chat):
        raise ConfigureError("Parquet can't hold the arguments of tool calls; write a .jsonl file")
    try:
        parquet.write_table(pyarrow.Table.from_pylist([*rows]), target, compression="zstd")
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError) as error:
        raise ConfigureError(f"Parquet can't hold the rows: {error}; write a .jsonl file") from error


_WRITERS = {".jsonl": _write_lines, ".parquet": _write_parquet}
