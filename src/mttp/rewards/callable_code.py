"""The code and state of callables that a spec is given in Python."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path, PurePath
from types import CodeType, ModuleType
from typing import Any

from mttp.rewards.callables import original
from mttp.rewards.modules import Module, is_installed, locate
from mttp.rewards.source_files import Code, Coverage, code_of, text_of

_CACHED = type(functools.lru_cache(lambda: None))
"""The wrapper type of `functools.lru_cache` and `functools.cache`, which does not change results."""
_NO_SOURCE = "has no Python source that can be found"


def of_function(
    function: Callable[..., Any], distributions: Iterable[str] = (), depends: Iterable[str] = ()
) -> Code:
    """Return the code of a function or another callable object."""
    reader = _FunctionReader(tuple(distributions), tuple(depends))
    try:
        reader.read(function)
    except RecursionError:
        reader.opaque.append("its state is nested too deeply")
    coverage: Coverage = "opaque" if reader.opaque else "partial" if reader.gaps else "full"
    gaps = dict.fromkeys([*reader.opaque, *sorted(reader.gaps)])
    return Code(tuple(sorted(reader.parts)), coverage, tuple(gaps))


class _FunctionReader:
    """Reads the code of a callable and of the objects in its state."""

    def __init__(self, distributions: tuple[str, ...], depends: tuple[str, ...]) -> None:
        self.parts: set[tuple[str, str]] = set()
        self.gaps: set[str] = set()
        self.opaque: list[str] = []
        self._declared = distributions, depends
        self._seen: dict[int, object] = {}

    def read(self, function: Any) -> None:
        """Read a callable's code and state."""
        if id(function) in self._seen:
            return
        self._seen[id(function)] = function
        name = _name(function)
        if isinstance(function, (functools.partial, functools.partialmethod)):
            fixed: dict[Any, object] = dict(enumerate(function.args)) | function.keywords
            self._hold("a partial", "fixes", fixed)
            self.read(function.func)
        elif inspect.ismethod(function):
            if not inspect.isclass(function.__self__):
                self._hold(name, "holds", _state(function.__self__))
            self.read(function.__func__)
        elif (module := _module_of(below := original(function))) and _is_at(_name(below), below, function):
            self._take(code_of(module, _name(below), *self._declared))
        elif inspect.isfunction(function):
            self._function(function, name)
        elif inspect.isclass(function):
            self._class(function)
        elif hasattr(function, "__wrapped__"):
            if not isinstance(function, _CACHED):
                self.gaps.add(f"{name} is wrapped by a {type(function).__qualname__}")
            self.read(function.__wrapped__)
        elif inspect.isroutine(function):
            self.opaque.append(f"{name} {_NO_SOURCE}")
        else:
            self._class(type(function))
            self._hold(f"the {type(function).__name__}", "holds", _state(function))

    def _take(self, code: Code) -> None:
        self.parts |= set(code.parts)
        (self.opaque.extend if code.coverage == "opaque" else self.gaps.update)(code.gaps)

    def _class(self, kind: type) -> None:
        """Read the code of a user's class."""
        module = _module_of(kind)
        if module is None or "<" in kind.__qualname__:
            self.opaque.append(f"{kind.__qualname__} {_NO_SOURCE}")
        else:
            self._take(code_of(module, kind.__qualname__, *self._declared))

    def _function(self, function: Any, name: str) -> None:
        """Read a function that no module has under its name: its file, its place in it, and what it holds."""
        module, code = _module_of(function), function.__code__
        if module is None:
            self.opaque.append(f"{name} {_NO_SOURCE}")
            return
        if "<" not in name and not hasattr(function, "__wrapped__"):
            self._take(code_of(module, name, *self._declared))
            return
        if _line_of(code).count("lambda") > 1:
            self.opaque.append(f"{name} is on one line with other lambdas")
        arguments = ", ".join(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        self.parts.add((f"{module.name}:{name}:{code.co_firstlineno}({arguments})", ""))
        self._take(code_of(module, None, *self._declared))
        before = len(self.gaps)
        self._hold(name, "closes over", dict(_held_by(function)))
        if len(self.gaps) > before:
            self.opaque.append(f"{name} holds what can't be read")
        if hasattr(function, "__wrapped__"):
            self.read(function.__wrapped__)

    def _hold(self, holder: str, verb: str, state: Mapping[Any, object] | None) -> None:
        """Add the values that an object holds, by name."""
        if state is None:
            self.gaps.add(f"{holder} has a state that can't be read")
            return
        for name, value in state.items():
            self.parts.add((f"held {name}", self._text(f"{holder} {verb} {name}", value)))

    def _text(self, place: str, value: Any) -> str:
        """Return a value as text that is equal in every process; unreadable values are gaps."""
        kind = type(value)
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            return f"{kind.__name__}:{value!a}"
        if isinstance(value, (list, tuple, set, frozenset)):
            items = [self._text(place, item) for item in value]
            return f"{kind.__name__}{sorted(items) if isinstance(value, (set, frozenset)) else items}"
        if isinstance(value, dict):
            return f"dict{sorted((self._text(place, key), self._text(place, value[key])) for key in value)}"
        if isinstance(value, re.Pattern):
            return f"pattern:{value.pattern!a}:{value.flags}"
        if isinstance(value, (PurePath, Enum)):
            return f"{kind.__name__}:{str(value)!a}"
        if isinstance(value, ModuleType):
            return f"module:{value.__name__}"
        if getattr(getattr(value, "dtype", None), "hasobject", True) is False:
            parts = [value.data, value.mask] if hasattr(value, "mask") else [value]
            digest = hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
            return f"array:{value.dtype}:{value.shape}:{digest}"
        if inspect.isbuiltin(value):
            return f"builtin:{value.__module__}.{value.__qualname__}"
        if inspect.isroutine(value) or isinstance(value, functools.partial):
            self.read(value)
            return f"{kind.__module__}.{kind.__qualname__}:{_name(value)}"
        if inspect.isclass(value):
            kind = value
        module = _module_of(kind)
        if module is None or is_installed(module):
            self.gaps.add(f"{place}, a {kind.__module__}.{kind.__qualname__}, which can't be read")
        else:
            self.read(value)
        return f"{kind.__module__}.{kind.__qualname__}:"


def _state(value: object) -> dict[str, object] | None:
    """Return the attributes of an instance, or None if they can't be read."""
    slots: list[str] = []
    for kind in type(value).__mro__:
        names = vars(kind).get("__slots__", ())
        slots += [names] if isinstance(names, str) else names
    state = {name: getattr(value, name) for name in slots if hasattr(value, name) and name != "__dict__"}
    attributes = getattr(value, "__dict__", None)
    if attributes is None and not slots:
        return {} if type(value).__new__ is object.__new__ else None
    state |= attributes or {}
    return {name: state[name] for name in state if name != "__mttp_component__"}


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def _held_by(function: Any) -> Iterator[tuple[str, object]]:
    """Yield the closure variables and argument defaults of a function."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if name != code.co_name:
            try:
                yield name, cell.cell_contents
            except ValueError:  # not bound yet
                yield name, None
    defaults = function.__defaults__ or ()
    yield from zip(code.co_varnames[: code.co_argcount][-len(defaults) :], defaults, strict=False)
    yield from (function.__kwdefaults__ or {}).items()


def _is_at(name: str, below: Any, function: Any) -> bool:
    """Return whether the module of the function `below` all decorators has `function` under this name."""
    value: Any = sys.modules.get(str(getattr(below, "__module__", "")))
    for part in name.split("."):
        value = getattr(value, part, None)
    return value is function and inspect.isroutine(function) and hasattr(below, "__code__")


def _module_of(value: Any) -> Module | None:
    """Return the module of a function or class; None without a source file that has the function."""
    code = getattr(value, "__code__", None)
    name = str(getattr(value, "__module__", ""))
    module = sys.modules.get(name)
    file = code.co_filename if code is not None else getattr(module, "__file__", None)
    if not file or not str(file).endswith(".py") or not Path(file).is_file():
        return None
    if code is not None:
        start = r"\blambda\b" if code.co_name == "<lambda>" else rf"^\s*@|\bdef\s+{re.escape(code.co_name)}\b"
        if not re.search(start, _line_of(code)):
            return None
    spec = getattr(module, "__spec__", None) if name == "__main__" else None
    located = locate(name if spec is None else spec.name, None)  # `python -m` runs a module as `__main__`
    if located is not None and located.path is not None and located.path.resolve() == Path(file).resolve():
        return located
    return Module(Path(file).stem, Path(file), Path(file).resolve().parent)


def _line_of(code: CodeType) -> str:
    """Return the first line of a function in its file."""
    lines = (text_of(Path(code.co_filename)) or b"").decode(errors="replace").split("\n")
    return lines[code.co_firstlineno - 1] if code.co_firstlineno <= len(lines) else ""
