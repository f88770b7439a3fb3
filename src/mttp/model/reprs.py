"""
A `repr` that ends for every object: it is bounded before it is made, and an object that raises is named.

The `repr` of a few lists that share each other, or of objects that do, can be longer than all memory.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from itertools import islice
from logging import Logger
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from mttp.model.interrupts import raise_interrupt

__all__ = ["bounded_repr", "exception_text", "is_tangled", "type_name"]

_MAX_LENGTH: Final = 4096
_MAX_MESSAGE: Final = 2000
_MAX_DEPTH: Final = 40
_MAX_VISITS: Final = 4096
_BRACKETS: dict[Any, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
    dict: ("{", "}"),
}
_TEXTS = frozenset({str, bytes, bytearray})
_ATOMS = frozenset({*_TEXTS, int, float, complex, bool, type(None), type(...)})
_NOT_PRINTED = (
    *(type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, CodeType, FrameType),
    Logger,
)
"""What an object holds and does not print."""
_name_of = type.__dict__["__name__"].__get__
_END: Any = object()


def exception_text(error: BaseException) -> str:
    """Return class and message of an exception, at most 2,000 characters; never raises."""
    try:
        return f"{type(error).__name__}: {error}"[:_MAX_MESSAGE].rstrip(": ")
    except Exception as failure:  # whatever its `str` raises
        raise_interrupt(failure)
        return type(error).__name__


def bounded_repr(value: object) -> str:
    """Return the first 4,096 characters of an object's `repr`; never raises."""
    parts, length = [], 0
    for part in _parts(value, set()):
        parts.append(part)
        length += len(part)
        if length >= _MAX_LENGTH:
            break
    return "".join(parts)[:_MAX_LENGTH]


def type_name(value: object) -> str:
    """Return the name of an object's class, without asking the object."""
    return str(_name_of(type(value)))


def is_tangled(value: object) -> bool:
    """
    Return whether printing an object could never end, because it holds most objects many times.

    What it holds is visited as `repr` would, without calling a method of an object.
    """
    if type(value) in _ATOMS:
        return False
    visited, around, repeated = {id(value)}, [id(value)], 0
    members = [iter(_held(value))]
    for _ in range(_MAX_VISITS):
        member = next(members[-1], _END)
        if member is _END:
            members.pop()
            around.pop()
            if not members:
                return False
        elif id(member) not in around:
            repeated += id(member) in visited
            visited.add(id(member))
            around.append(id(member))
            members.append(iter(_held(member)))
    return 4 * repeated > _MAX_VISITS


def _held(value: Any) -> list[Any]:
    """Return what an object holds, except numbers and texts."""
    kind = type(value)
    if issubclass(kind, _NOT_PRINTED):
        return []
    members = _elements(value) if _is_array(kind) else gc.get_referents(value)
    return [member for member in members if type(member) not in _ATOMS]


def _is_array(kind: type) -> bool:
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.ndarray)


def _elements(array: Any) -> list[Any]:
    """Return the first objects of an array of objects, which the garbage collector does not traverse."""
    ndarray = sys.modules["numpy"].ndarray
    if not ndarray.dtype.__get__(array).hasobject:
        return []
    return list(ndarray.ravel(array)[:_MAX_VISITS])


def _parts(value: Any, around: set[int]) -> Iterator[str]:
    kind = type(value)
    if kind in _TEXTS:
        yield repr(value[:_MAX_LENGTH])
    elif kind not in _BRACKETS:
        if _is_array(kind) and (elements := _elements(value)):
            yield from _parts_of_array(value, elements, around)
        else:
            yield _own_repr(value)
    elif not value:
        yield repr(value)
    elif id(value) in around or len(around) == _MAX_DEPTH:
        yield "...".join(_BRACKETS[kind])
    else:
        around.add(id(value))
        start, end = _BRACKETS[kind]
        yield start
        separator = ""
        for member in list(islice(value.items() if kind is dict else value, _MAX_LENGTH)):
            yield separator
            separator = ", "
            if kind is dict:
                yield from _parts(member[0], around)
                yield ": "
                yield from _parts(member[1], around)
            else:
                yield from _parts(member, around)
        yield "," if kind is tuple and len(value) == 1 else ""
        yield end
        around.discard(id(value))


def _parts_of_array(array: Any, elements: list[Any], around: set[int]) -> Iterator[str]:
    """Print an array of objects: numpy's own `repr` formats each element twice, at each level of nesting."""
    if id(array) in around or len(around) == _MAX_DEPTH:
        yield "array(...)"
        return
    around.add(id(array))
    yield "array("
    yield from _parts(elements, around)
    yield f", dtype={array.dtype})" + ("" if array.ndim == 1 else f".reshape({array.shape})")
    around.discard(id(array))


def _own_repr(value: Any) -> str:
    try:
        if type(value) is int and value.bit_length() > _MAX_LENGTH:  # Python does not print so many digits
            return hex(value)
        if is_tangled(value):
            return f"<{type_name(value)} that holds too many objects more than once>"
        return str.__str__(repr(value))
    except Exception as error:  # objects of other libraries may raise any exception
        raise_interrupt(error)
        return f"<{type_name(value)} whose repr raised {type_name(error)}>"
