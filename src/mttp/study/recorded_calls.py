"""Serves the recorded answers of tools to a second run of an agent loop."""

from __future__ import annotations

import builtins
import functools
import inspect
import json
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeVar

from mttp.errors import StudyError
from mttp.model.calls import Call
from mttp.model.chat import from_text
from mttp.model.episodes import Episode
from mttp.study.differing import is_close

_F = TypeVar("_F", bound=Callable[..., Any])
_TOOL = "execute_tool"


class RecordedCalls:
    """
    The tool calls of an episode, each of which is answered once, in the recorded order.

        calls = RecordedCalls(episode)
        search = calls.tool(search)
        answer = search(query="2+2")  # the recorded result; the function is not called

    A call is found by its name and its arguments.
    """

    def __init__(self, episode: Episode) -> None:
        self._left = [call for step in episode.steps for call in step.calls if call.operation == _TOOL]
        self._episode = episode.trace_id

    @property
    def left(self) -> tuple[Call, ...]:
        """The calls that were not asked for so far."""
        return tuple(self._left)

    def tool(self, function: _F) -> _F:
        """Return a function with the name and signature of `function` that gives the recorded results."""
        signature = inspect.signature(function)

        @functools.wraps(function)
        def served(*args: Any, **kwargs: Any) -> Any:
            return self.serve(function.__name__, **signature.bind(*args, **kwargs).arguments)

        return served  # type: ignore[return-value]  # of the same signature

    def serve(self, name: str, /, **arguments: Any) -> Any:
        """
        The recorded result of the next call of that tool with these arguments.

        A recorded exception is raised again, as the built-in exception of its name, else as RuntimeError.
        Raises StudyError for a call that was not recorded, with the nearest one.
        """
        for place, call in enumerate(self._left):
            if call.name == name and is_close(_given(call), arguments, 0.0):
                del self._left[place]
                return _answer(call)
        raise StudyError(self._not_recorded(name, arguments))

    def _not_recorded(self, name: str, arguments: dict[str, Any]) -> str:
        asked = f"{name}({_shown(arguments)})"
        same = [call for call in self._left if call.name == name]
        if same:
            near = f"the next recorded call is {name}({_shown(_given(same[0]))})"
        else:
            names = sorted({str(call.name) for call in self._left})
            matches = get_close_matches(name, names, n=1) or names[:1]
            near = f"the nearest recorded tool is {matches[0]!r}" if matches else "no recorded call is left"
        return f"the call {asked} was not recorded in episode {self._episode[:8]}: {near}"


def _given(call: Call) -> Any:
    return {} if call.arguments is None else from_text(call.arguments)


def _answer(call: Call) -> Any:
    if call.error_type is None:
        return call.result
    kind = getattr(builtins, call.error_type.rpartition(".")[2], RuntimeError)
    is_exception = isinstance(kind, type) and issubclass(kind, Exception)
    raise (kind if is_exception else RuntimeError)(call.error_message or call.error_type)


def _shown(arguments: Any) -> str:
    return json.dumps(arguments, default=str, ensure_ascii=False)[:200]
