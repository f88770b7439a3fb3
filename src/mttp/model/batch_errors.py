"""Errors of functions that score a batch at once: which sample made the function raise."""

from __future__ import annotations

import dis
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any

from mttp.model.interrupts import raise_interrupt

__all__ = ["about", "raised_at"]

_LOCAL = re.compile("(LOAD|STORE)_(?:FAST|DEREF)")


def raised_at(error: BaseException, columns: Iterable[object]) -> int | None:
    """
    Return the row of the batch that made a function raise; None if its frames do not tell.

    `columns` are the function's arguments; lists have a value per row. The row is the one whose values are
    the variables of a loop that was running, or else the variables on the line that raised.
    """
    try:
        return _raised_at(error, [column for column in columns if isinstance(column, (list, tuple))])
    except Exception as failure:  # whatever the values or the code of the function do when they are read
        raise_interrupt(failure)
        return None


def _raised_at(error: BaseException, lists: Sequence[Any]) -> int | None:
    rows: defaultdict[int, set[int]] = defaultdict(set)
    for column in lists:
        for row, value in enumerate(column):
            for identity in _identities(value):
                rows[identity].add(row)
    place = error.__traceback__
    while place is not None:
        for names in _variables(place):
            row_sets = [*_rows_of(names, place, rows, lists)]
            if common := set.intersection(*row_sets) if row_sets else set():
                return min(common)
        place = place.tb_next
    return None


def about(row: int, raised: int | None, size: int) -> dict[str, Any]:
    """Return explanation and evidence of a row's error; empty if it is not known which row raised."""
    if raised is None or size < 2:
        return {}
    whose = "this one" if row == raised else "another one"
    return {
        "explanation": f"raised for row {raised} of a batch of {size}, {whose}",
        "evidence": {"batch": {"row": row, "raised": raised, "size": size}},
    }


def _identities(value: object) -> Iterator[int]:
    """Yield the identities of a value: of a chat also those of its messages and their contents."""
    if isinstance(value, (bool, int, float)) or value is None:
        return  # small numbers are one object wherever they occur
    yield id(value)
    for message in value if isinstance(value, (list, tuple)) else ():
        if isinstance(message, Mapping):
            yield id(message)
            yield id(message.get("content"))


def _rows_of(
    names: Iterable[str], place: TracebackType, rows: Mapping[int, set[int]], lists: Sequence[Any]
) -> Iterator[set[int]]:
    """Yield the rows that each of these variables stands for: by its value, or as an index of a list."""
    local, code = place.tb_frame.f_locals, place.tb_frame.f_code
    subscripts = {
        index
        for column, index in pairwise(_names(dis.get_instructions(code), "LOAD"))
        if any(local.get(column) is values for values in lists)
    }
    for name in names:
        value = local.get(name)
        if id(value) in rows:
            yield rows[id(value)]
        elif type(value) is int and name in subscripts:
            yield {value}


def _variables(place: TracebackType) -> Iterator[Sequence[str]]:
    """Yield the variables of each loop that was running, outermost first, then those on the line."""
    instructions = [*dis.get_instructions(place.tb_frame.f_code)]
    for at, instruction in enumerate(instructions):
        if instruction.opname == "FOR_ITER" and instruction.offset < place.tb_lasti < instruction.argval:
            names = [*_names(_leading_stores(instructions[at + 1 :]), "STORE")]
            yield names
            if not any(name in place.tb_frame.f_locals for name in names):
                return  # a comprehension of Python 3.12, whose variables are gone
    lines = place.tb_frame.f_code.co_lines()
    spans = [(start, end) for start, end, line in lines if line == place.tb_lineno]
    used = (op for op in instructions if any(start <= op.offset < end for start, end in spans))
    yield [*_names(used, "LOAD")]


def _leading_stores(instructions: Iterable[dis.Instruction]) -> Iterator[dis.Instruction]:
    """Yield the instructions that assign a loop's variables."""
    for instruction in instructions:
        if not instruction.opname.startswith(("STORE", "UNPACK", "CACHE", "NOP", "NOT_TAKEN")):
            return
        yield instruction


def _names(instructions: Iterable[dis.Instruction], kind: str) -> Iterator[str]:
    """Yield the local variables that instructions load or store; one of Python 3.13 may do both."""
    for instruction in instructions:
        kinds = _LOCAL.findall(instruction.opname)
        names = (instruction.argval,) if isinstance(instruction.argval, str) else instruction.argval
        yield from (name for which, name in zip(kinds, names, strict=False) if which == kind) if kinds else ()
