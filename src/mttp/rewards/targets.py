"""What a spec names under `use`: found, trusted, and fit for the sample."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from mttp.errors import SpecError
from mttp.rewards.components import mark_of
from mttp.rewards.document import Document, Entry
from mttp.rewards.folder import Folder, is_within
from mttp.rewards.loading import nearest
from mttp.rewards.modules import belongs, locate

__all__ = ["Policy", "check_signature", "original", "resolve"]

Fail: TypeAlias = Callable[[str], SpecError]
"""Makes the error for what is wrong with a target, at its place."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Whose code may be called."""

    folder: Path | None
    """The spec's folder; None where it has none."""
    distributions: tuple[str, ...] = ()
    """Installed distributions that the spec declares."""
    trust: bool = False
    """Whether any code may be."""

    def allows(self, file: Path | None) -> bool:
        """Whether the code in a file may be called, decorated or not."""
        if self.trust:
            return True
        if file is None:
            return False
        if self.folder is not None and is_within(file, self.folder):
            return True
        return any(belongs(file, name) for name in self.distributions)


def resolve(use: str, policy: Policy, fail: Fail) -> Callable[..., Any]:
    """The function that `use` names; raises SpecError where there is none, or it may not be called."""
    module_name, _, name = use.partition(":")
    module = _module(module_name, policy, fail)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = [known for known in vars(found) if not known.startswith("_")]
            raise fail(f"{module_name} has no {name}{nearest(part, names)}")
        found = getattr(found, part)
    if inspect.isclass(found) or not callable(found):
        raise fail(f"{use} is {_kind(found)}, not a function")
    if mark_of(found) is None and not policy.allows(_home(found)):
        raise fail(_refusal(use, policy))
    return found  # type: ignore[no-any-return] # it is callable


def original(function: Any) -> Any:
    """What a function wraps, at the bottom of decorators, partials and methods."""
    seen: set[int] = set()
    while id(function) not in seen:
        seen.add(id(function))
        if isinstance(function, (functools.partial, functools.partialmethod)):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        else:
            function = getattr(function, "__wrapped__", function)
    return function


def _module(name: str, policy: Policy, fail: Fail) -> Any:
    beside = Folder.at(policy.folder) if policy.folder is not None else None
    try:
        if beside is not None and beside.has(name):
            return beside.load(name)
        found = locate(name, None)
        if found is None:
            raise fail(_missing(name, policy))
        if not policy.allows(found.path) and name not in sys.modules and not _may_be_decorated(found.path):
            raise fail(_refusal(name, policy))
        return __import__(name, fromlist=["_"])
    except SpecError:
        raise
    except ModuleNotFoundError as error:
        missing = error.name if error.name and not name.startswith(error.name) else None
        raise fail(
            f"importing {name} needs {missing}, which is not installed" if missing else str(error)
        ) from error
    except (Exception, SystemExit) as error:
        raise fail(f"importing {name} raised {_said(error)}") from error


def _missing(name: str, policy: Policy) -> str:
    if policy.folder is None:
        return f"there is no module {name}: the spec has no file, so it must be installed"
    known = [path.stem for path in policy.folder.glob("*.py")]
    return f"there is no module {name}, neither in {policy.folder} nor installed{nearest(name, known)}"


def _may_be_decorated(path: Path | None) -> bool:
    """Whether a module that was not imported yet may hold decorated functions: only then is it."""
    return path is not None and "mttp" in path.read_text(errors="replace")


def _refusal(what: str, policy: Policy) -> str:
    where = f" in {policy.folder}" if policy.folder is not None else " in the spec's folder"
    return (
        f"{what} is not called: it is neither decorated with mttp's decorators, nor{where}, nor of a "
        "distribution that the spec lists under `distributions`; --trust (trust=True) allows any"
    )


def _home(function: Any) -> Path | None:
    """The file that a function's own code is in."""
    found = original(function)
    code = getattr(found, "__code__", None)
    if code is not None:
        return Path(code.co_filename)
    module = sys.modules.get(str(getattr(type(found), "__module__", "")))
    file = getattr(module, "__file__", None)
    return Path(file) if file else None


def _kind(found: object) -> str:
    return f"the class {found.__name__}" if inspect.isclass(found) else f"a {type(found).__name__}"


def _said(error: BaseException) -> str:
    """An exception in a line, with the place in the code where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})" if trace is not None else ""
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}:{error.lineno})"
    return f"{type(error).__name__}: {error}{place}"


def optional_names(function: Callable[..., Any]) -> list[str]:
    """The arguments of a function that have a default."""
    return [part.name for part in _parameters(function) if part.default is not part.empty]


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has an argument of this name."""
    return any(part.name == name for part in _parameters(function))


def _parameters(function: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    """The arguments of a function; what is written in C may not say."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def check_signature(function: Callable[..., Any], entry: Entry, document: Document, fail: Fail) -> None:
    """Raise SpecError where a function asks for what no sample has, or does not take its parameters."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # what is written in C may not say
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
    given = {*_names(entry, document), *entry.params}
    for part in named:
        if part.name not in given and part.default is part.empty:
            raise fail(
                f"{_signature(function)} needs {part.name!r}, which is no input of the spec "
                f"and no parameter{nearest(part.name, given)}"
            )


def _names(entry: Entry, document: Document) -> Sequence[str]:
    """What a function may name: the inputs, and where it takes many samples their plurals."""
    names = list(document.inputs)
    return [*names, *(f"{name}s" for name in names)] if entry.arity == "batch" or entry.relative else names


def _check_positions(
    function: Callable[..., Any], parameters: Sequence[inspect.Parameter], fail: Fail
) -> None:
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(part.kind is part.VAR_POSITIONAL for part in parameters):
        return
    if len([part for part in parameters if part.kind in by_position]) < 2:
        raise fail(f"{_signature(function)} can't be called as (output, truth)")


def _signature(function: Callable[..., Any]) -> str:
    name = getattr(original(function), "__name__", type(function).__name__)
    return f"{name}{inspect.signature(function)}"
