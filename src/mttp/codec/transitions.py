"""Environment steps as the columns of a block: observation, action, reward and end of each step."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mttp.codec import blocks, content, steps
from mttp.codec.blocks import SAME, Column, columns
from mttp.codec.plain import Faults, Plain, flag, scalar_text
from mttp.codec.rewards import assess
from mttp.codec.structures import Flattened
from mttp.model.interrupts import raise_interrupt
from mttp.semconv import attributes as a

__all__ = ["RowSchema", "Row", "PolicyOutput", "attributes", "encode", "finite_rewards", "scalars"]

_Notes = defaultdict[int, dict[str, Plain]]
"""Faults and omissions of steps, by position."""


Row: TypeAlias = tuple[Any, ...]
"""
A step of an environment: observation, action, reward, terminated, truncated, `PolicyOutput`, scores and end.

The scores are the result of `rewards.scores`, or None; the end is in nanoseconds since the Unix epoch.
"""
PolicyOutput: TypeAlias = tuple[float, float] | None
"""The value estimate and the action's log probability (nats); None if the policy returns neither."""


class RowSchema(NamedTuple):
    """The schema of one environment's rows."""

    dtype: Any
    """The dtype of observations that are kept as bytes; None for observations that are kept as given."""
    shape: tuple[int, ...]
    """The shape of observations that are kept as bytes."""
    max_bytes: int | None
    """The maximum size of an observation or action; of larger ones only dtype and shape are kept."""

    @property
    def parts(self) -> tuple[str | None, tuple[int, ...], int | None]:
        """The schema as plain data, for a worker process."""
        return self.dtype and self.dtype.str, self.shape, self.max_bytes

    def columns(self, *fields: Sequence[Any]) -> dict[str, Column]:
        """
        Return the columns of a block from the rows' fields without the end, one sequence each.

        If a value raises, the rows are encoded one by one, and it costs only itself, with a fault.
        """
        try:
            return self._columns(*fields)
        except Exception as error:  # a recorded object may raise anything
            raise_interrupt(error)
            return columns([self._attributes(*row) for row in zip(*fields, strict=True)])

    def _columns(self, *fields: Sequence[Any]) -> dict[str, Column]:
        observations, *others, outputs, scores = fields
        if self.dtype is not None:
            joined: Any = np.frombuffer(b"".join(observations), self.dtype)
            observations = joined.reshape(len(observations), *self.shape)
        by_key = encode(observations, *others, max_bytes=self.max_bytes)
        if outputs[0] is not None:
            values, logprobs = np.array(outputs, np.float64).T
            by_key |= {a.STEP_VALUE_ESTIMATE: Column(values), a.STEP_LOGPROB: Column(logprobs)}
        return by_key | columns([row or {} for row in scores]) if any(scores) else by_key

    def _attributes(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        output: PolicyOutput,
        scores: Mapping[str, Plain] | None,
    ) -> dict[str, Plain]:
        """Return the attributes of one row, each of which costs only itself if it raises."""
        faults: Faults = []
        omissions: list[str] = []

        def attempt(name: str, encode: Callable[[], dict[str, Plain]]) -> dict[str, Plain]:
            try:
                return encode()
            except Exception as error:  # a recorded object may raise anything
                raise_interrupt(error)
                faults.append(f"{name}_invalid: {scalar_text(error)}")
                return {}

        def content_of(keys: content.ContentKeys, value: Any) -> dict[str, Plain]:
            if keys is content.OBSERVATION and self.dtype is not None:
                value = np.frombuffer(value, self.dtype).reshape(self.shape)
            return content.encode(keys, value, faults, omissions, max_bytes=self.max_bytes)

        def reward_of() -> dict[str, Plain]:
            number, status, raw = assess(reward)
            faults.extend([f"reward_invalid: {raw}"] if status == "error" else [])
            return steps.reward(number, status, raw)

        value, logprob = output or (None, None)
        row = {
            **attempt("observation", lambda: content_of(content.OBSERVATION, observation)),
            **attempt("action", lambda: content_of(content.ACTION, action)),
            **(attempt("reward", reward_of) or {a.STEP_REWARD_STATUS: "error"}),
            **attempt(
                "flags",
                lambda: steps.facts(
                    faults,
                    terminated=flag("terminated", terminated, faults) or False,
                    truncated=flag("truncated", truncated, faults) or False,
                    value_estimate=value,
                    logprob=logprob,
                ),
            ),
        }
        notes = {a.FAULTS: faults, a.OMISSIONS: omissions}
        row |= scores or {}
        return row | {key: list(dict.fromkeys(messages)) for key, messages in notes.items() if messages}

    def serialize(self, rows: Sequence[Row], rewards: Sequence[float]) -> tuple[Any, ...] | None:
        """Return schema and rows as plain data for `attributes`; None if a value needs a conversion."""
        if self.dtype is None:
            return None
        observations, actions, _, *others, ends = zip(*rows, strict=True)
        plain_actions = scalars(actions)
        if plain_actions is None:
            return None
        return self.parts, (observations, plain_actions, rewards, *others), ends


def scalars(values: Sequence[Any]) -> Sequence[Any] | None:
    """Return values as Python numbers of one type, or all None; None for any other values."""
    kinds = set(map(type, values))
    if len(kinds) == 1 and kinds <= _NUMPY_SCALARS:
        return list(np.array(values).tolist())
    if len(kinds) > 1 or (kinds == {int} and max(map(abs, values)) > _INT64_MAX):
        return None
    return values if kinds <= _PYTHON_SCALARS else None


def finite_rewards(rewards: Sequence[Any]) -> list[float] | None:
    """Return rewards of one numeric type as floats; None if any is not a finite number."""
    kinds = set(map(type, rewards))
    if len(kinds) != 1 or not kinds <= _REWARD_TYPES:
        return None
    try:
        numbers = list(map(float, rewards))
    except OverflowError:  # an integer beyond floats
        return None
    is_finite = math.isfinite(sum(numbers)) or all(map(math.isfinite, numbers))  # the sum can overflow
    return numbers if is_finite else None


def attributes(
    first_index: int,
    start_time: int,
    schema: tuple[str | None, tuple[int, ...], int | None],
    fields: Sequence[Sequence[Any]],
    end_times: Sequence[int],
) -> dict[str, Plain]:
    """Return a block's attributes from serialized rows; each step starts at the end of the one before."""
    dtype, shape, max_bytes = schema
    columns = RowSchema(dtype and np.dtype(dtype), shape, max_bytes).columns(*fields)
    starts = (start_time, *end_times[:-1])
    return blocks.encode(columns, first_index=first_index, start_times=starts, end_times=end_times)


_REWARD_TYPES = frozenset({float, int, np.float64, np.float32})
_NUMPY_SCALARS = frozenset({np.int64, np.float64, np.bool_})
"""numpy scalars that are recorded like Python's numbers."""
_PYTHON_SCALARS = frozenset({int, float, bool, type(None)})
_INT64_MAX = 2**63 - 1


def encode(
    observations: Sequence[object] | np.ndarray[Any, Any],
    actions: Sequence[object] | np.ndarray[Any, Any],
    rewards: Sequence[object],
    terminated: Sequence[object],
    truncated: Sequence[object],
    *,
    max_bytes: int | None = None,
) -> dict[str, Column]:
    """
    Return the columns of steps, from sequences with an entry per step or arrays of shape [steps, ...].

    None stands for a missing observation, action or reward.
    Of an observation or action beyond `max_bytes` only dtype and shape are kept.
    Problems of an entry are added to its step's faults.
    """
    by_key: dict[str, Column] = {}
    notes: _Notes = defaultdict(dict)
    for keys, values in ((content.OBSERVATION, observations), (content.ACTION, actions)):
        by_key |= _contents(keys, values, notes, max_bytes)
    by_key |= _rewards(rewards, notes)
    for key, flags in ((a.STEP_TERMINATED, terminated), (a.STEP_TRUNCATED, truncated)):
        by_key[key] = Column(np.fromiter(map(bool, flags), np.bool_, len(flags)))
    return by_key | columns([notes[position] for position in range(len(rewards))]) if notes else by_key


def _contents(
    keys: content.ContentKeys, values: Any, notes: _Notes, max_bytes: int | None
) -> dict[str, Column]:
    flat = _flat(values)
    array = _array(values if flat is None else [each.numbers for each in flat])
    if array is not None and (max_bytes is None or max(array[0].nbytes, content.NUMBER_BYTES) <= max_bytes):
        structure = {} if flat is None else {keys.structure: Column([flat[0].structure], SAME)}
        return {keys.value: Column(array), **structure}

    rows: list[dict[str, Plain]] = []
    for position, value in enumerate(values):
        faults: Faults = []
        omissions: list[str] = []
        rows.append(content.encode(keys, value, faults, omissions, max_bytes=max_bytes))
        _note(notes, position, a.FAULTS, faults)
        _note(notes, position, a.OMISSIONS, omissions)
    return columns(rows)


def _flat(values: Sequence[Any]) -> Sequence[Flattened] | None:
    """Return the values if they are flat arrays of one structure, else None."""
    if type(values[0]) is not Flattened:
        return None
    structure = values[0].structure
    are_alike = all(type(value) is Flattened and value.structure == structure for value in values)
    return values if are_alike else None


def _rewards(values: Sequence[object], notes: _Notes) -> dict[str, Column]:
    array = _array(values)
    if array is not None and array.ndim == 1 and np.isfinite(array).all():
        return {
            a.STEP_REWARD: Column(array.astype(np.float64)),
            a.STEP_REWARD_STATUS: Column(["ok"], SAME),
        }
    rows: list[dict[str, Plain]] = []
    for position, value in enumerate(values):
        number, status, raw = assess(value)
        rows.append(steps.reward(number, status, raw))
        _note(notes, position, a.FAULTS, [f"reward_invalid: {raw}"] if status == "error" else [])
    return columns(rows)


def _note(notes: _Notes, position: int, key: str, messages: list[str]) -> None:
    if messages:
        notes[position][key] = list(dict.fromkeys([*notes[position].get(key, ()), *messages]))


def _array(values: Sequence[Any]) -> Any:
    """Return numbers, or arrays of one dtype and shape, as one array; None for other values."""
    if isinstance(values, np.ndarray):
        return values
    kinds = set(map(type, values))
    kind = kinds.pop() if len(kinds) == 1 else object
    if kind is np.ndarray:
        array = _stacked(values)
    elif kind in (int, float, bool) or issubclass(kind, (np.bool_, np.integer, np.floating)):
        array = np.array(values)  # integers beyond int64 become objects or floats
        array = array if kind is not int or array.dtype.kind == "i" else None
    else:
        return None
    return array if array is not None and _is_plain(array) else None


def _stacked(values: Sequence[Any]) -> Any:
    first = values[0]
    kinds, shapes = {value.dtype for value in values}, {value.shape for value in values}
    if len(kinds) > 1 or len(shapes) > 1 or not first.ndim:
        return None
    return np.concatenate(values).reshape(len(values), *first.shape)


def _is_plain(array: Any) -> bool:
    """Return whether an attribute can hold the elements without conversion."""
    fits = array.dtype.kind in "bif" or (array.dtype.kind == "u" and (array.ndim > 1 or array.itemsize < 8))
    return bool(fits and array.itemsize <= 8 and array.dtype.isnative)
