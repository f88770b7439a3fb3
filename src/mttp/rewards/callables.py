"""Callables that a spec names under `use`: import, trust and signature checks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

from mttp.errors import SpecError
from mttp.rewards.decorators import mark_of
from mttp.rewards.document import ComponentEntry, SpecDocument
from mttp.rewards.folder import Folder
from mttp.rewards.loading import nearest
from mttp.rewards.modules import locate
from mttp.rewards.trust import VARIABLE, Trust

Fail: TypeAlias = Callable[[str], SpecError]
"""Returns the error for a message, at the place of the target."""


@dataclass(frozen=True)
class Policy:
    """The rules for which code a spec may import and call."""

    folder: Path | None
    """The spec's directory; None without one."""
    trust: Trust
    """The code that the user trusts."""

    @cached_property
    def beside(self) -> Folder | None:
        """The modules in the spec's directory."""
        return None if self.folder is None else Folder.at(self.folder)

    def has_beside(self, name: str) -> bool:
        """Return whether the spec's directory has a module of this name."""
        return self.beside is not None and self.beside.has(name)

    def may_import(self, name: str) -> bool:
        """Return whether the module is in a trusted directory or is trusted by name."""
        if self.has_beside(name):
            return self.folder is not None and self.trust.has_directory(self.folder)
        return self.trust.has_module(name)

    def owns(self, found: object) -> bool:
        """Return whether an object's code belongs to a module that may be imported."""
        if self.trust.everything:
            return True
        owner = _owner(found)
        if self.beside is not None and owner.startswith(f"{self.beside.package}."):
            return True
        return self.trust.has_module(owner)


def resolve(use: str, policy: Policy, fail: Fail) -> Callable[..., Any]:
    """
    Import and return the function that `use` names; raises SpecError if it is missing or not trusted.

    Every object on the path must belong to a trusted module, since an attribute lookup may run code. The
    function itself may belong to another module if a decorator of mttp marks it.
    """
    module_name, _, name = use.partition(":")
    target: Any = _module(module_name, policy, fail)
    way = module_name
    for part in name.split("."):
        if not policy.owns(target):
            raise fail(_foreign(use, way, target))
        try:
            target = getattr(target, part)
        except AttributeError:
            names = [known for known in dir(target) if not known.startswith("_")]
            raise fail(f"{way} has no {part}{nearest(part, names)}") from None
        except (Exception, SystemExit) as error:
            raise fail(f"reading the attribute {part} of {way} raised {_described(error)}") from error
        way = f"{way}{':' if way == module_name else '.'}{part}"
    if inspect.isclass(target) or not callable(target):
        raise fail(f"{use} is {_kind(target)}; name a function or another callable object")
    if mark_of(target) is None and not policy.owns(target):
        raise fail(_foreign(use, way, target))
    return target  # type: ignore[no-any-return] # it is callable


def original(function: Any) -> Any:
    """Return the function below all decorators, partials and bound methods."""
    visited: set[int] = set()
    while id(function) not in visited:
        visited.add(id(function))
        if isinstance(function, (functools.partial, functools.partialmethod)):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        else:
            function = getattr(function, "__wrapped__", function)
    return function


def _module(name: str, policy: Policy, fail: Fail) -> Any:
    beside = policy.beside if policy.has_beside(name) else None
    if beside is None and locate(name, None) is None:
        raise fail(_missing(name, policy))
    if not policy.may_import(name):
        raise fail(_untrusted(name) if beside is None else _elsewhere(beside.path, policy.trust.package))
    try:
        return import_module(name) if beside is None else beside.load(name)
    except ModuleNotFoundError as error:
        missing = error.name if error.name and not name.startswith(error.name) else None
        raise fail(
            f"importing {name} needs {missing}, which is not installed" if missing else str(error)
        ) from error
    except (Exception, SystemExit) as error:
        raise fail(f"importing {name} raised {_described(error)}") from error


def _missing(name: str, policy: Policy) -> str:
    if policy.folder is None:
        return f"no module {name} is installed, and the spec has no folder to look in; pass `folder`"
    known = [path.stem for path in policy.folder.glob("*.py")]
    return f"no module {name} is in {policy.folder} or installed{nearest(name, known)}"


def _untrusted(name: str) -> str:
    return (
        f"the module {name} is not trusted: it is not in the spec's directory, and a spec can't trust "
        f"modules itself. If you trust it, {_advice(name)}"
    )


def _elsewhere(folder: Path, package: str | None) -> str:
    advice = "pass --trust or trust=True, which trusts all code" if package is None else _advice(package)
    return (
        f"the modules in {folder} are not trusted: it is not in or below the directory of the spec that "
        f"you load. If you trust them, {advice}"
    )


def _foreign(use: str, way: str, target: object) -> str:
    """Return the message for an object of a module that is not trusted."""
    problem = f"{use} is not trusted" if way == use else f"{use} is not trusted because {way} is not"
    owner = _owner(target)
    if owner in _NO_OWNER:
        return f"{problem}: the module that defines it is unknown. Call it in a function beside the spec"
    return (
        f"{problem}: it belongs to the module {owner}, which is not in the spec's directory. "
        f"Call it in a function beside the spec; or, if you trust that module, {_advice(owner)}"
    )


def _advice(module: str) -> str:
    return f"pass --trust-module {module} or trust={[module]!r}, or set {VARIABLE}={module}"


_NO_OWNER: Final = ("", "builtins", "__main__")
"""The `__module__` of objects that no module name identifies."""


def _owner(target: object) -> str:
    """Return the name of the module that defines an object, or an empty string if it is unknown."""
    if inspect.ismodule(target):
        return target.__name__
    function = original(target)
    names = getattr(function, "__globals__", None)
    if inspect.isfunction(function) and isinstance(names, dict):
        return str(names.get("__name__", ""))
    kind = function if inspect.isclass(function) or inspect.isroutine(function) else type(function)
    return str(getattr(kind, "__module__", None) or "")


def _kind(target: object) -> str:
    return f"the class {target.__name__}" if inspect.isclass(target) else f"a {type(target).__name__}"


def _described(error: BaseException) -> str:
    """Return an exception as one line, with the file and line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})" if trace is not None else ""
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}:{error.lineno})"
    return f"{type(error).__name__}: {error}{place}"


def optional_names(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's arguments that have a default."""
    return [part.name for part in _parameters(function) if part.default is not part.empty]


def takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function has an argument of this name."""
    return any(part.name == name for part in _parameters(function))


def _parameters(function: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    """Return a function's parameters, or an empty list for a C function without a signature."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def check_signature(
    function: Callable[..., Any], entry: ComponentEntry, document: SpecDocument, fail: Fail
) -> None:
    """Raise SpecError when a function needs an unknown input, or does not take the component's `params`."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a C function may have no signature
        return
    named = [part for part in parameters if part.kind not in (part.VAR_POSITIONAL, part.VAR_KEYWORD)]
    takes_any = any(part.kind is part.VAR_KEYWORD for part in parameters)
    known = [part.name for part in named]
    for name in entry.params:
        if name not in known and not takes_any:
            raise fail(f"{_signature(function)} does not take the parameter {name!r}{nearest(name, known)}")
    if entry.arity == "output-truth":
        _check_positions(function, parameters, fail)
        return
    if not document.inputs:
        return
    available = {*_names(entry, document), *entry.params}
    for part in named:
        if part.name not in available and part.default is part.empty:
            raise fail(
                f"{_signature(function)} needs {part.name!r}, which is neither an input of the spec "
                f"nor one of the component's params{nearest(part.name, available)}"
            )


def _names(entry: ComponentEntry, document: SpecDocument) -> Sequence[str]:
    """Return the argument names that samples provide: the inputs, and their plurals for batches."""
    names = list(document.inputs)
    return [*names, *(f"{name}s" for name in names)] if entry.arity == "batch" or entry.relative else names


def _check_positions(
    function: Callable[..., Any], parameters: Sequence[inspect.Parameter], fail: Fail
) -> None:
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(part.kind is part.VAR_POSITIONAL for part in parameters):
        return
    if len([part for part in parameters if part.kind in by_position]) < 2:
        raise fail(f"{_signature(function)} needs two positional arguments, (output, truth)")


def _signature(function: Callable[..., Any]) -> str:
    name = getattr(original(function), "__name__", type(function).__name__)
    return f"{name}{inspect.signature(function)}"
