"""Calls of a component's function: arguments, time limits and conversion of return values."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from mttp.model import batch_errors
from mttp.model.call_log import CallLog
from mttp.model.clock import seconds
from mttp.model.interrupts import raise_interrupt
from mttp.model.scorings import INVALID_VALUE, MISSING_INPUT, OUT_OF_RANGE
from mttp.rewards.component_results import (
    ComponentResult,
    failed,
    read,
    read_criteria,
    read_label,
    shown,
    without_cost,
)
from mttp.rewards.document import ComponentEntry
from mttp.rewards.event_loop import TimeLimitError, limited, wait
from mttp.rewards.isolation import Workers
from mttp.rewards.plan import Component, ScoringPlan

Sample: TypeAlias = Mapping[str, Any]
"""The inputs of one sample by name."""

_Arguments: TypeAlias = tuple[tuple[Any, ...], Mapping[str, Any]]
_PLAIN = (float, bool, int, tuple, dict)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class _CallError(Exception):
    """A sample lacks an input of the function, or the function returned an invalid value."""

    def __init__(self, message: str, error_type: str) -> None:
        super().__init__(message)
        self.error_type = error_type


class Caller:
    """
    Calls one component's function and converts what it returns or raises to results.

    No exception of the function propagates, except those that end the program.
    """

    def __init__(self, component: Component, plan: ScoringPlan) -> None:
        self._entry = entry = component.entry
        self._function: Callable[..., Any] = component.function or _nothing
        self._workers = Workers.of(plan) if entry.isolation == "process" else None
        self._read = _reader(entry)
        self._columns = entry.arity == "batch" or bool(entry.relative)
        self._inputs = tuple(plan.inputs)
        self._params = dict(entry.params)
        is_asynchronous = inspect.iscoroutinefunction(self._function)
        self._blocks = self._workers is not None or (entry.kind == "judge" and not is_asynchronous)
        self._leading, self._names, self._required, self._takes_rest = _signature(self._function)

    @property
    def is_batch(self) -> bool:
        """Whether one call takes many samples."""
        return self._columns

    def lacking(self, names: Collection[str]) -> list[str]:
        """Return the inputs that the function needs, and that are not among these names."""
        if self._entry.arity == "output-truth":
            return [name for name in self._inputs[:2] if name not in names]
        plurals = {f"{name}s" for name in names} if self._columns else set()
        rest = sorted(self._required - {*names, *plurals, *self._params})
        return [name.removesuffix("s") for name in rest] if self._columns else rest

    # One sample.

    def one(self, sample: Sample) -> ComponentResult:
        """Call the function for one sample."""
        if self._columns:
            return self.many([sample])[0]
        if self._workers is not None:
            return self._in_worker([sample])[0]
        if self._entry.timeout is None:
            return self._here(sample)
        started = seconds()
        return self._marked([self._here(sample)], started)[0]

    async def one_async(self, sample: Sample) -> ComponentResult:
        """Call the function for one sample without blocking the event loop."""
        if self._blocks:
            return await asyncio.to_thread(self.one, sample)
        started = seconds()
        answers = await self._awaited_many([sample]) if self._columns else [await self._awaited(sample)]
        return self._marked(answers, started)[0]

    def _here(self, sample: Sample) -> ComponentResult:
        with CallLog() as log:
            answer = self._answer(sample)
        return _logged([answer], log)[0]

    def _answer(self, sample: Sample) -> ComponentResult:
        try:
            args, kwargs = self._arguments(sample)
            returned = self._function(*args, **kwargs)
            if type(returned) not in _PLAIN and inspect.isawaitable(returned):
                returned = wait(returned, self._entry.timeout)
            return self._read(returned)
        except (Exception, SystemExit) as error:
            raise_interrupt(error, installed=True)
            return _failed(error)

    async def _awaited(self, sample: Sample) -> ComponentResult:
        with CallLog() as log:
            answer = await self._awaited_answer(sample)
        return _logged([answer], log)[0]

    async def _awaited_answer(self, sample: Sample) -> ComponentResult:
        try:
            args, kwargs = self._arguments(sample)
            returned = self._function(*args, **kwargs)
            if inspect.isawaitable(returned):
                returned = await limited(returned, self._entry.timeout)
            return self._read(returned)
        except (Exception, SystemExit) as error:
            raise_interrupt(error, installed=True)
            return _failed(error)

    # Many samples at once.

    def many(self, samples: Sequence[Sample]) -> list[ComponentResult]:
        """Call the function for many samples, once for all if it takes batches."""
        if not self._columns:
            return [self.one(sample) for sample in samples]
        if self._workers is not None:
            return self._in_worker(samples)
        started = seconds()
        with CallLog() as log:
            answers = self._answers(samples)
        return self._marked(_logged(answers, log), started)

    def _answers(self, samples: Sequence[Sample]) -> list[ComponentResult]:
        arguments: _Arguments = (), {}
        try:
            arguments = args, kwargs = self._column_arguments(samples)
            returned = self._function(*args, **kwargs)
            if inspect.isawaitable(returned):
                returned = wait(returned, self._entry.timeout)
            return self._listed(returned, len(samples))
        except (Exception, SystemExit) as error:
            raise_interrupt(error, installed=True)
            return _failed_batch(error, (*arguments[0], *arguments[1].values()), len(samples))

    async def _awaited_many(self, samples: Sequence[Sample]) -> list[ComponentResult]:
        with CallLog() as log:
            answers = await self._awaited_answers(samples)
        return _logged(answers, log)

    async def _awaited_answers(self, samples: Sequence[Sample]) -> list[ComponentResult]:
        arguments: _Arguments = (), {}
        try:
            arguments = args, kwargs = self._column_arguments(samples)
            returned = self._function(*args, **kwargs)
            if inspect.isawaitable(returned):
                returned = await limited(returned, self._entry.timeout)
            return self._listed(returned, len(samples))
        except (Exception, SystemExit) as error:
            raise_interrupt(error, installed=True)
            return _failed_batch(error, (*arguments[0], *arguments[1].values()), len(samples))

    def _in_worker(self, samples: Sequence[Sample]) -> list[ComponentResult]:
        """Call the function in a worker process, which is killed at the time limit."""
        assert self._workers is not None
        return self._workers.ask(self._entry.name, samples, self._entry.timeout)

    def _listed(self, returned: Any, expected: int) -> list[ComponentResult]:
        """Return one result for each sample; for a pair, the preference of each over the other."""
        if self._entry.relative != "pairwise":
            return _listed(returned, expected, self._read)
        first = self._read(returned)
        if first.value is None:
            return [first, without_cost(first)]
        if not 0.0 <= first.value <= 1.0:
            raise _CallError(
                f"returned {first.value!r}, expected 0 to 1 for how much the first is better", OUT_OF_RANGE
            )
        return [first, without_cost(first._replace(value=1.0 - first.value))]

    # Arguments.

    def _arguments(self, sample: Sample) -> _Arguments:
        if self._entry.arity == "output-truth":
            lacking = [name for name in self._inputs[:2] if name not in sample]
            if lacking:
                raise _CallError(f"the sample lacks {' and '.join(lacking)}", MISSING_INPUT)
            return tuple([sample[name] for name in self._inputs[:2]]), self._params
        return self._chosen({**sample, **self._params} if self._params else sample)

    def _column_arguments(self, samples: Sequence[Sample]) -> _Arguments:
        """Return each input as a list, under its plural if the function names that, as TRL's `prompts`."""
        names = dict.fromkeys(name for sample in samples for name in sample)
        columns: dict[str, Any] = {name: [sample.get(name) for sample in samples] for name in names}
        for name in names:
            if f"{name}s" in self._names and f"{name}s" not in columns:
                columns[f"{name}s"] = columns.pop(name) if name not in self._names else columns[name]
        return self._chosen({**columns, **self._params})

    def _chosen(self, inputs: Mapping[str, Any]) -> _Arguments:
        if not inputs.keys() >= self._required:
            lacking = sorted(self._required - inputs.keys())
            raise _CallError(f"the sample lacks {' and '.join(lacking)}", MISSING_INPUT)
        leading = tuple([inputs[name] for name in self._leading if name in inputs])
        if self._takes_rest:
            return leading, {name: value for name, value in inputs.items() if name not in self._leading}
        return leading, {name: inputs[name] for name in self._names if name in inputs}

    # Results.

    def _marked(self, answers: list[ComponentResult], started: float) -> list[ComponentResult]:
        """Mark the results as late if the call exceeded its time limit."""
        limit = self._entry.timeout
        if limit is None or seconds() - started <= limit:
            return answers
        return [answer._replace(late=answer.status != "error") for answer in answers]


def _logged(answers: list[ComponentResult], log: CallLog) -> list[ComponentResult]:
    """Add the logged model calls to the first result."""
    if not log.calls or not answers:
        return answers
    return [answers[0]._replace(calls=tuple(log.calls)), *answers[1:]]


def _failed(error: BaseException) -> ComponentResult:
    if isinstance(error, _CallError):
        return failed(str(error), error.error_type)
    return failed(str(error), "TimeoutError") if isinstance(error, TimeLimitError) else failed(error)


def _failed_batch(error: BaseException, columns: Iterable[object], size: int) -> list[ComponentResult]:
    raised = batch_errors.raised_at(error, columns)
    return [_failed(error)._replace(**batch_errors.about(row, raised, size)) for row in range(size)]


def _reader(entry: ComponentEntry) -> Callable[[object], ComponentResult]:
    """Return the function that converts a component's return values to results."""
    values, criteria = entry.values, entry.criteria
    reader = (lambda label: read_label(label, values)) if values else read
    return (lambda returned: read_criteria(returned, criteria, reader)) if criteria else reader


def _nothing() -> None:
    """Stand in for the function of an included spec."""


def _signature(
    function: Callable[..., Any],
) -> tuple[tuple[str, ...], tuple[str, ...], frozenset[str], bool]:
    """Return positional-only names, other names, required names, and whether it has `**kwargs`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a C function without a signature
        return (), (), frozenset(), True
    leading = tuple(part.name for part in parameters if part.kind is part.POSITIONAL_ONLY)
    names = tuple(part.name for part in parameters if part.kind in _NAMED)
    open_ended = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    required = frozenset(
        part.name for part in parameters if part.default is part.empty and part.kind not in open_ended
    )
    return leading, names, required, any(part.kind is part.VAR_KEYWORD for part in parameters)


def _listed(returned: Any, expected: int, read: Callable[[object], ComponentResult]) -> list[ComponentResult]:
    """Convert the return value of a batch, a list or a dict with `scores` and shared evidence, to results."""
    facts = None
    if isinstance(returned, Mapping) and "scores" in returned:
        facts = {name: fact for name, fact in returned.items() if name != "scores"}
        returned = returned["scores"]
    if hasattr(returned, "tolist"):
        returned = list(returned) if hasattr(returned, "mask") else returned.tolist()
    if isinstance(returned, (str, bytes, Mapping)) or not isinstance(returned, Sequence):
        raise _CallError(f"returned {shown(returned)}, expected a list of {expected}", INVALID_VALUE)
    if len(returned) != expected:
        raise _CallError(f"returned {len(returned)} values for {expected} samples", INVALID_VALUE)
    results = [
        answer if answer.evidence is not None else answer._replace(evidence=facts or None)
        for answer in map(read, returned)
    ]
    return [*results[:1], *map(without_cost, results[1:])] if facts else results
