"""The code of functions and objects that were given in Python, with what they hold beside their source."""

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

from mttp.rewards.bindings import names_in
from mttp.rewards.callables import original
from mttp.rewards.modules import Module, is_installed, locate
from mttp.rewards.runtime_changes import changes
from mttp.rewards.static_analysis import Code, Coverage, Reach, code_of, tree_of
from mttp.rewards.syntax import normal

__all__ = ["of_function"]

_MOST_HELD = 1_000_000
_CACHED = type(functools.lru_cache(lambda: None))
"""What `functools.lru_cache` and `functools.cache` make of a function: it answers as before."""
_FOREIGN = "has no Python source that can be found"


def of_function(
    function: Callable[..., Any], distributions: Iterable[str] = (), depends: Iterable[str] = ()
) -> Code:
    """The code of a function, or of an object that can be called, that was given in Python."""
    reader = _FunctionReader(tuple(distributions), tuple(depends))
    try:
        reader.read(function)
    except RecursionError:
        reader.opaque.append("what it holds is nested too deeply")
    coverage: Coverage = "opaque" if reader.opaque else "partial" if reader.gaps else "full"
    gaps = dict.fromkeys([*reader.opaque, *sorted(reader.gaps)])
    return Code(tuple(sorted(reader.parts)), coverage, tuple(gaps))


class _FunctionReader:
    """What was read of a function, and of the objects that it holds."""

    def __init__(self, distributions: tuple[str, ...], depends: tuple[str, ...]) -> None:
        self.parts: set[tuple[str, str]] = set()
        self.gaps: set[str] = set()
        self.opaque: list[str] = []
        self._distributions = distributions
        self._depends = depends
        self._seen: dict[int, object] = {}

    def read(self, function: Any) -> None:
        """The code of what can be called, with its state."""
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
            self._take(code_of(module, _name(original(function)).partition(".")[0], *self._declared))
        elif inspect.isfunction(function):
            self._function(function)
        elif inspect.isclass(function):
            self._class(function)
        elif hasattr(function, "__wrapped__"):
            if not isinstance(function, _CACHED):
                self.gaps.add(f"{_name(function)} is wrapped by a {type(function).__qualname__}")
            self.read(function.__wrapped__)
        elif inspect.isroutine(function):
            self.opaque.append(f"{_name(function)} {_FOREIGN}")
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
        """The code of a class of the user's own."""
        module = _module_of(kind)
        if module is None or "<" in kind.__qualname__:
            self.opaque.append(f"{kind.__qualname__} {_FOREIGN}")
        else:
            self._take(code_of(module, kind.__qualname__.partition(".")[0], *self._declared))

    def _function(self, function: Any) -> None:
        """A function of Python: where it stands in its module by its name, else by its line."""
        name, code = _name(function), function.__code__
        module = _module_of(function)
        found = _nodes(module, code) if module is not None else []
        if module is None or len(found) != 1:
            self.opaque.append(f"{name} {'stands on one line with others like it' if found else _FOREIGN}")
        elif "<" not in name and not hasattr(function, "__wrapped__"):
            self._take(code_of(module, name.partition(".")[0], *self._declared))
        else:
            self._local(function, name, module, found[0])

    def _local(self, function: Any, name: str, module: Module, node: ast.AST) -> None:
        """A function that was made as the program ran: its own code, what that uses, and what it holds."""
        reach = Reach(module, *self._declared)
        self.parts.add(("function", normal(node)))
        chains, imported = names_in(node)
        for chain in sorted(chains):
            if chain[0] not in function.__code__.co_freevars:
                reach.use(module.name, chain, imported)
        reach.gaps |= set(changes(reach))
        self._take(Code(tuple(reach.parts.items()), "partial" if reach.gaps else "full", tuple(reach.gaps)))
        before = len(self.gaps)
        self._hold(name, "closes over", dict(_held_by(function)))
        if len(self.gaps) > before:
            self.opaque.append(f"{name} is a {_kind(name)} that holds what can't be read")
        if hasattr(function, "__wrapped__"):
            self.read(function.__wrapped__)

    def _hold(self, holder: str, verb: str, held: Mapping[Any, object] | None) -> None:
        """What an object holds, by name."""
        if held is None:
            self.gaps.add(f"{holder} has a state that can't be read")
            return
        for name, value in held.items():
            self.parts.add((f"held {name}", self._said(f"{holder} {verb} {name}", value)))

    def _said(self, place: str, value: Any) -> str:
        """A value as text that is the same in every process; what has none is noted."""
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            return f"{type(value).__name__}:{value!a}"
        if isinstance(value, (list, tuple, set, frozenset)) and len(value) <= _MOST_HELD:
            said = [self._said(place, item) for item in value]
            return f"{type(value).__name__}{sorted(said) if isinstance(value, (set, frozenset)) else said}"
        if isinstance(value, dict) and len(value) <= _MOST_HELD:
            pairs = [(self._said(place, key), self._said(place, item)) for key, item in value.items()]
            return f"dict{sorted(pairs)}"
        if isinstance(value, re.Pattern):
            return f"pattern:{value.pattern!a}:{value.flags}"
        if isinstance(value, (PurePath, Enum)):
            return f"{type(value).__name__}:{str(value)!a}"
        if isinstance(value, ModuleType):
            return f"module:{value.__name__}"
        if getattr(getattr(value, "dtype", None), "hasobject", True) is False:
            return f"array:{value.dtype}:{value.shape}:{_array_digest(value)}"
        return self._said_of_object(place, value)

    def _said_of_object(self, place: str, value: Any) -> str:
        """A class, a function or an instance of the user's own: its code counts."""
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
        return f"{kind.__module__}.{kind.__qualname__}"


def vars_of(value: object) -> dict[str, object] | None:
    """The attributes of an instance; None where it does not show them."""
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
    """What a function closes over, and the defaults of its arguments."""
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
    """Whether the module of a function has that very function under its name, so that its source shows it."""
    found: Any = sys.modules.get(str(getattr(original(function), "__module__", "")))
    for part in _name(original(function)).split("."):
        found = getattr(found, part, None)
    return found is function and inspect.isroutine(found) and _stands_there(original(function))


def _stands_there(function: Any) -> bool:
    """Whether a function stands in its file where it says."""
    code, module = getattr(function, "__code__", None), _module_of(function)
    return code is not None and module is not None and len(_nodes(module, code)) == 1


def _is_own(kind: type) -> bool:
    """Whether a class is of the user's own code, and not of an installed library."""
    module = _module_of(kind)
    return module is not None and not is_installed(module)


def _module_of(found: Any) -> Module | None:
    code = getattr(found, "__code__", None)
    module = sys.modules.get(str(getattr(found, "__module__", "")))
    file = code.co_filename if code is not None else getattr(module, "__file__", None)
    if not file or not str(file).endswith(".py") or not Path(file).is_file():
        return None
    located = locate(str(getattr(found, "__module__", "")), None)
    if located is not None and located.path is not None and located.path.resolve() == Path(file).resolve():
        return located
    return Module(Path(file).stem, Path(file), Path(file).resolve().parent)


def _nodes(module: Module, code: CodeType) -> list[ast.AST]:
    """The functions in a module's source that may have been compiled to this code, one of each kind."""
    tree = tree_of(module.path)
    found = {
        normal(node): node
        for node in ast.walk(tree or ast.Module([], []))
        if _starts(node, code.co_name) == code.co_firstlineno and _takes(node, code)
    }
    return list(found.values())


def _starts(node: ast.AST, name: str) -> int | None:
    """The first line of a function of this name."""
    if isinstance(node, ast.Lambda) and name == "<lambda>":
        return node.lineno
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
        return min([node.lineno, *(part.lineno for part in node.decorator_list)])
    return None


def _takes(node: Any, code: CodeType) -> bool:
    """Whether a function in source has the arguments of compiled code."""
    arguments = [part.arg for part in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return arguments == list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _array_digest(value: Any) -> str:
    """SHA-256 of an array's bytes, and of numpy's mask where it has one."""
    parts = [value.data, value.mask] if hasattr(value, "mask") else [value]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
