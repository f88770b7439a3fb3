"""The code and state of callables that a spec is given in Python."""

from __future__ import annotations

import ast
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
from mttp.rewards.source_files import Code, Coverage, code_of, tree_of

__all__ = ["of_function"]

_MAX_ITEMS = 1_000_000
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
        self._distributions = distributions
        self._depends = depends
        self._seen: dict[int, object] = {}

    def read(self, function: Any) -> None:
        """Read a callable's code and state."""
        if id(function) in self._seen:
            return
        self._seen[id(function)] = function
        if isinstance(function, (functools.partial, functools.partialmethod)):
            fixed: dict[Any, object] = dict(enumerate(function.args)) | function.keywords
            self._hold("a partial", "fixes", fixed)
            self.read(function.func)
        elif inspect.ismethod(function):
            if not inspect.isclass(function.__self__):
                self._hold(_name(function), "holds", vars_of(function.__self__))
            self.read(function.__func__)
        elif _is_named(function) and (module := _module_of(original(function))) is not None:
            self._take(code_of(module, _name(original(function)), *self._declared))
        elif inspect.isfunction(function):
            self._function(function)
        elif inspect.isclass(function):
            self._class(function)
        elif hasattr(function, "__wrapped__"):
            if not isinstance(function, _CACHED):
                self.gaps.add(f"{_name(function)} is wrapped by a {type(function).__qualname__}")
            self.read(function.__wrapped__)
        elif inspect.isroutine(function):
            self.opaque.append(f"{_name(function)} {_NO_SOURCE}")
        else:
            self._class(type(function))
            self._hold(f"the {type(function).__name__}", "holds", vars_of(function))

    @property
    def _declared(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self._distributions, self._depends

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

    def _function(self, function: Any) -> None:
        """Read a Python function, found in its module by name or by line."""
        name, code = _name(function), function.__code__
        module = _module_of(function)
        nodes = _nodes(module, code) if module is not None else 0
        if module is None or nodes != 1:
            reason = "is on one line with functions of the same form" if nodes else _NO_SOURCE
            self.opaque.append(f"{name} {reason}")
        elif "<" not in name and not hasattr(function, "__wrapped__"):
            self._take(code_of(module, name, *self._declared))
        else:
            self._local(function, name, module)

    def _local(self, function: Any, name: str, module: Module) -> None:
        """Read a lambda or a nested function: its file, its place in it, and its closure."""
        place = f"{function.__code__.co_firstlineno}({', '.join(_arguments(function.__code__))})"
        self.parts.add((f"{module.name}:{name}:{place}", ""))
        self._take(code_of(module, None, *self._declared))
        before = len(self.gaps)
        self._hold(name, "closes over", dict(_held_by(function)))
        if len(self.gaps) > before:
            self.opaque.append(f"{name} is a {_kind(name)} whose closure can't be read")
        if hasattr(function, "__wrapped__"):
            self.read(function.__wrapped__)

    def _hold(self, holder: str, verb: str, held: Mapping[Any, object] | None) -> None:
        """Add the values that an object holds, by name."""
        if held is None:
            self.gaps.add(f"{holder} has a state that can't be read")
            return
        for name, value in held.items():
            self.parts.add((f"held {name}", self._text(f"{holder} {verb} {name}", value)))

    def _text(self, place: str, value: Any) -> str:
        """Return a value as text that is equal in every process; unreadable values are gaps."""
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            return f"{type(value).__name__}:{value!a}"
        if isinstance(value, (list, tuple, set, frozenset)) and len(value) <= _MAX_ITEMS:
            items = [self._text(place, item) for item in value]
            return f"{type(value).__name__}{sorted(items) if isinstance(value, (set, frozenset)) else items}"
        if isinstance(value, dict) and len(value) <= _MAX_ITEMS:
            pairs = [(self._text(place, key), self._text(place, item)) for key, item in value.items()]
            return f"dict{sorted(pairs)}"
        if isinstance(value, re.Pattern):
            return f"pattern:{value.pattern!a}:{value.flags}"
        if isinstance(value, (PurePath, Enum)):
            return f"{type(value).__name__}:{str(value)!a}"
        if isinstance(value, ModuleType):
            return f"module:{value.__name__}"
        if getattr(getattr(value, "dtype", None), "hasobject", True) is False:
            return f"array:{value.dtype}:{value.shape}:{_array_digest(value)}"
        return self._object_text(place, value)

    def _object_text(self, place: str, value: Any) -> str:
        """Return the name of a class, a function or an instance, and read its code if it is the user's."""
        kind = value if inspect.isclass(value) else type(value)
        if inspect.isbuiltin(value):
            return f"builtin:{value.__module__}.{value.__qualname__}"
        is_function = inspect.isroutine(value) or isinstance(value, functools.partial)
        if not is_function and not _is_own(kind):
            self.gaps.add(f"{place}, a {kind.__module__}.{kind.__qualname__}, which can't be read")
            return f"{kind.__module__}.{kind.__qualname__}"
        if inspect.isclass(value):
            self._class(value)
        else:
            self.read(value)
        return f"{kind.__module__}.{kind.__qualname__}:{_name(value) if is_function else ''}"


def vars_of(value: object) -> dict[str, object] | None:
    """Return the attributes of an instance, or None if they can't be read."""
    slots = [name for kind in type(value).__mro__ for name in _listed(vars(kind).get("__slots__", ()))]
    found = {name: getattr(value, name) for name in slots if hasattr(value, name) and name != "__dict__"}
    shown = getattr(value, "__dict__", None)
    if shown is None and not slots:
        return {} if type(value).__new__ is object.__new__ else None
    return {name: one for name, one in {**found, **(shown or {})}.items() if name != "__mttp_component__"}


def _listed(slots: Any) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else slots


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def _kind(name: str) -> str:
    return "lambda" if name.endswith("<lambda>") else "closure"


def _held_by(function: Any) -> Iterator[tuple[str, object]]:
    """Yield the closure variables and argument defaults of a function."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name != function.__code__.co_name:
            try:
                yield name, cell.cell_contents
            except ValueError:  # not bound yet
                yield name, None
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    yield from zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _is_named(function: Any) -> bool:
    """Return whether a function is the one that its module has under its name."""
    found: Any = sys.modules.get(str(getattr(original(function), "__module__", "")))
    for part in _name(original(function)).split("."):
        found = getattr(found, part, None)
    return found is function and inspect.isroutine(found) and _is_in_source(original(function))


def _is_in_source(function: Any) -> bool:
    """Return whether a function's source file has it at its line."""
    code, module = getattr(function, "__code__", None), _module_of(function)
    return code is not None and module is not None and _nodes(module, code) == 1


def _is_own(kind: type) -> bool:
    """Return whether a class belongs to the user's code, not to an installed library."""
    module = _module_of(kind)
    return module is not None and not is_installed(module)


def _module_of(found: Any) -> Module | None:
    code = getattr(found, "__code__", None)
    module = sys.modules.get(str(getattr(found, "__module__", "")))
    file = code.co_filename if code is not None else getattr(module, "__file__", None)
    if not file or not str(file).endswith(".py") or not Path(file).is_file():
        return None
    name = str(getattr(found, "__module__", ""))
    spec = getattr(module, "__spec__", None) if name == "__main__" else None
    located = locate(name if spec is None else spec.name, None)  # `python -m` runs a module as `__main__`
    if located is not None and located.path is not None and located.path.resolve() == Path(file).resolve():
        return located
    return Module(Path(file).stem, Path(file), Path(file).resolve().parent)


def _nodes(module: Module, code: CodeType) -> int:
    """Return the number of distinct functions in a module's source that may be compiled to this code."""
    nodes = ast.walk(tree_of(module.path) or ast.Module([], []))
    return len(
        {
            ast.dump(node)
            for node in nodes
            if _first_line(node, code.co_name) == code.co_firstlineno and _takes(node, code)
        }
    )


def _first_line(node: ast.AST, name: str) -> int | None:
    """Return the first line of a function of this name, or None for other nodes."""
    if isinstance(node, ast.Lambda) and name == "<lambda>":
        return node.lineno
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
        return min([node.lineno, *(part.lineno for part in node.decorator_list)])
    return None


def _takes(node: Any, code: CodeType) -> bool:
    """Return whether a function in source has the arguments of compiled code."""
    arguments = [part.arg for part in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return arguments == _arguments(code)


def _arguments(code: CodeType) -> list[str]:
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _array_digest(value: Any) -> str:
    """Return the SHA-256 of an array's bytes and of its mask, if any."""
    parts = [value.data, value.mask] if hasattr(value, "mask") else [value]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
