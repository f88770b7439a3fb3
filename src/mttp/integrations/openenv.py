"""
OpenEnv: clients send the current episode with each action, and rubrics record their scores in its steps.

An action's metadata carries the W3C's `traceparent` and `baggage` to the server of the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any

from mttp.errors import InstrumentError
from mttp.formats.fields import number
from mttp.integrations.faults import guard
from mttp.integrations.library_patches import LibraryPatches
from mttp.integrations.nesting import is_suppressed
from mttp.integrations.options import Options
from mttp.integrations.patching import Patches, handle_in
from mttp.model.episodes import Grade, Reward
from mttp.recording.current import current_step
from mttp.recording.propagation import extract, inject

__all__ = ["EnvClientPatches", "RubricHooks", "attach", "attach_all"]

_LIBRARY = "openenv"
_MODULE = "openenv.core.env_client"
_SEND = "_send_and_receive"
_scores: ContextVar[dict[int, object] | None] = ContextVar("mttp-openenv-scores", default=None)
"""The scores of the current call of an instrumented rubric, by the identity of the rubric below it."""


class EnvClientPatches(LibraryPatches):
    """The patch of one client, or of all."""

    LIBRARY = _LIBRARY

    def patch(self, owner: Any) -> None:
        """Patch a client or the class of all."""
        self.install_existing(self.LIBRARY, [(_SEND, owner, _SEND, self._send)])

    def patch_library(self) -> None:
        """Patch the class of all clients when its module is imported; rubrics are instrumented one by one."""
        self.patch_on_import(_MODULE, lambda module: self.patch(module.EnvClient))

    def _send(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        message = args[0] if args else kwargs.get("message")
        sent = guard(_LIBRARY, _with_context, message)
        return wrapped(*args, **kwargs) if sent is None else wrapped(sent)


class RubricHooks(Patches):
    """The forward hooks of a rubric and of those below it."""

    def __init__(self, rubric: Any) -> None:
        super().__init__(self._remove)
        self._rubric = rubric
        self._hooks: list[tuple[str, list[Any], Callable[..., None]]] = [
            ("forward_pre", rubric._forward_pre_hooks, self._before),
            *((f"{name}.forward", part._forward_hooks, self._after) for name, part in rubric.named_rubrics()),
            ("forward", rubric._forward_hooks, self._scored),
        ]
        for _, hooks, hook in self._hooks:
            hooks.append(hook)

    def status(self) -> dict[str, bool]:
        """Return each hook by name, and whether the rubric still calls it."""
        return {name: self.attached and hook in hooks for name, hooks, hook in self._hooks}

    def _remove(self) -> None:
        for _, hooks, hook in self._hooks:
            if hook in hooks:
                hooks.remove(hook)

    def _before(self, *_: Any) -> None:
        _scores.set({})

    def _after(self, rubric: Any, _: Any, __: Any, result: object) -> None:
        scores = _scores.get()
        if scores is not None:
            scores[id(rubric)] = result

    def _scored(self, rubric: Any, action: Any, _: Any, result: object) -> None:
        scores = _scores.get() or {}
        _scores.set(None)
        guard(_LIBRARY, self._record, rubric, action, scores, result)

    def _record(self, rubric: Any, action: Any, scores: Mapping[int, object], result: Any) -> None:
        """Record the score in the current step, else in the step that the action's metadata names."""
        if is_suppressed():
            return
        carrier = getattr(action, "metadata", None)
        is_remote = not current_step() and isinstance(carrier, Mapping) and "traceparent" in carrier
        grades = _grades(rubric, scores)
        reward = Reward(
            value=result,
            components={grade.name: grade.value for grade in grades if grade.value is not None},
            component_statuses={grade.name: grade.status for grade in grades if grade.value is None},
            weights={grade.name: grade.weight for grade in grades if grade.weight is not None},
            grades=grades,
            grader=type(rubric).__name__,
            grader_kind=_kind(rubric),
        )
        with extract(carrier) if is_remote else nullcontext():
            current_step().reward(reward)


def _grades(rubric: Any, scores: Mapping[int, object]) -> tuple[Grade, ...]:
    """Return the grades of the rubrics below one that were called, as a tree."""
    weights = getattr(rubric, "weights", None)
    listed = list(getattr(rubric, "_rubric_list", ())) if isinstance(weights, (list, tuple)) else []
    weighed = {id(child): float(weight) for child, weight in zip(listed, weights or (), strict=False)}
    return tuple(
        Grade(
            name=name,
            kind=_kind(child),
            value=(value := number(scores[id(child)])),
            status="error" if value is None else "ok",
            weight=weighed.get(id(child)),
            parts=_grades(child, scores),
        )
        for name, child in rubric.named_children()
        if id(child) in scores
    )


def _kind(rubric: Any) -> str:
    """Return the kind of grader: a model of language judges, any other rubric is one."""
    return "judge" if any(base.__name__ == "LLMJudge" for base in type(rubric).__mro__) else "rubric"


def _with_context(message: Any) -> dict[str, Any] | None:
    """Return a copy of the message of a step with the current episode in its metadata; None for others."""
    data = message.get("data") if isinstance(message, Mapping) else None
    if not isinstance(data, Mapping) or message.get("type") != "step" or is_suppressed():
        return None
    carrier, metadata = inject(), data.get("metadata") or {}
    if not carrier or not isinstance(metadata, Mapping):
        return None
    return {**message, "data": {**data, "metadata": {**metadata, **carrier}}}


attach_all = EnvClientPatches.attach_all


def attach(target: Any, /, **options: Any) -> EnvClientPatches | RubricHooks:
    """
    Let a client send the current episode, or a rubric record its scores.

    An environment's rubric is `environment.rubric`, and a synchronous client's is its `async_client`; options
    do not apply. Raises InstrumentError for another object of the library.
    """
    Options.of(options)
    owner = getattr(target, "async_client", target)
    rubric: Any = owner if hasattr(owner, "register_forward_hook") else getattr(owner, "rubric", None)
    if hasattr(rubric, "register_forward_hook"):
        return _hooks_of(rubric)
    if not hasattr(owner, _SEND):
        kind = f"{type(target).__module__}.{type(target).__qualname__}"
        raise InstrumentError(f"{kind} can't be recorded; give a client, a rubric or an environment with one")
    known = handle_in(owner, EnvClientPatches)
    if known is not None:
        return known.claim()
    handle = EnvClientPatches(options)
    handle.patch(owner)
    return handle


def _hooks_of(rubric: Any) -> RubricHooks:
    """Return the attached handle for this rubric, or a new one; handles of rubrics above it do not count."""
    for hook in rubric._forward_hooks:
        handle = getattr(hook, "__self__", None)
        if isinstance(handle, RubricHooks) and handle._rubric is rubric:
            return handle.claim()
    return RubricHooks(rubric)
