"""
ART: trajectories are recorded when they are trained on or logged, and RULER's judge with them.

Trajectories that were gathered and are neither trained on nor logged are recorded when the session closes.
"""

from __future__ import annotations

import functools
import json
import sys
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mttp.codec import rewards
from mttp.formats import art
from mttp.formats.fields import trace_id
from mttp.integrations.faults import attribute, guard
from mttp.integrations.foreign_models import as_record
from mttp.integrations.library_patches import LibraryPatches
from mttp.integrations.nesting import recording_everything
from mttp.integrations.patching import Around, PatchedFunction
from mttp.model import clock
from mttp.model.episodes import Call, Episode
from mttp.model.results import RewardResult
from mttp.otlp.spans import error_message, qualified_name
from mttp.recording import configuration
from mttp.recording.open_group import OpenGroup
from mttp.recording.training import group, update

__all__ = ["ArtPatches", "attach", "attach_all"]

_LIBRARY = "art"
_MOST_WAITING = 1_000
"""Groups that wait to be trained on or logged; beyond them the oldest is recorded."""
_BACKENDS = ("art.local.backend:LocalBackend", "art.serverless.backend:ServerlessBackend")


class ArtPatches(LibraryPatches):
    """The patches of ART's functions, each installed when its module is imported."""

    LIBRARY = _LIBRARY

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._waiting: dict[int, tuple[Any, str]] = {}
        """Gathered groups and the ids under which they are recorded, by identity."""
        self._recorded: dict[int, tuple[Any, Episode]] = {}
        """Weak references to the recorded trajectories, and their episodes without steps, by identity."""
        self._judged: dict[str, list[dict[str, Any]]] = {}
        """The facts of RULER's judge by the messages that it got, until their trajectories are recorded."""
        self._results: dict[int, tuple[Any, RewardResult]] = {}
        """The trajectories that a reward spec scored and that are not recorded yet, and its results."""
        self._sessions: weakref.WeakSet[Any] = weakref.WeakSet()

    def patch_library(self) -> None:
        """Patch each module when it is imported."""
        for name, place in self._places_by_module().items():
            self.patch_on_import(name, functools.partial(self._patch_module, place))

    def _places_by_module(self) -> dict[str, list[tuple[str, str, Around]]]:
        places: dict[str, list[tuple[str, str, Around]]] = {
            "art.gather": [
                ("", "gather_trajectory_groups", self._gather),
                ("", "gather_trajectories", self._gather),
            ],
            "art": [
                ("", "gather_trajectory_groups", self._gather),
                ("", "gather_trajectories", self._gather),
                ("Model", "log", self._log),
            ],
        }
        for module in ("art.rewards.ruler", "art.rewards"):
            places[module] = [
                ("", "ruler", self._ruler),
                ("", "ruler_score_group", self._ruler_score_group),
            ]
        for backend in _BACKENDS:
            module, _, kind = backend.partition(":")
            places[module] = [(kind, "train", self._train)]
        return places

    def _patch_module(self, places: Iterable[tuple[str, str, Around]], module: Any) -> None:
        if not _is_art(module):
            return
        self.install_existing(
            self.LIBRARY,
            [
                (f"{kind or module.__name__}.{attribute}", owner, attribute, around)
                for kind, attribute, around in places
                if not _is_patched(owner := getattr(module, kind, module) if kind else module, attribute)
            ],
        )

    def keep_results(self, group: Any, pairs: Sequence[tuple[Any, RewardResult]]) -> None:
        """Keep a reward spec's results for their trajectories; record at once those without a value."""
        _, identity = self._waiting.setdefault(id(group), (group, uuid.uuid4().hex))
        for trajectory, result in pairs:
            self._results[id(trajectory)] = trajectory, result
            if result.value is None:
                self._record(trajectory, identity, None, None, None)

    # Hooks.

    async def _gather(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        with recording_everything():
            groups = await wrapped(*args, **kwargs)
        guard(_LIBRARY, self._gathered, groups)
        return groups

    async def _log(self, wrapped: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        inputs = dict(zip(("trajectories", "split"), args, strict=False)) | kwargs
        listed = inputs.get("trajectories")
        if listed is not None and not isinstance(listed, (list, tuple)):  # it can be read only once
            listed = inputs["trajectories"] = list(listed)
            args, kwargs = (), inputs
        if listed:
            guard(_LIBRARY, self._record_all, listed, inputs.get("split", "val"), inputs.get("step"), model)
        return await wrapped(*args, **kwargs)

    async def _train(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        inputs = dict(zip(("model", "trajectory_groups"), args, strict=False)) | kwargs
        groups = inputs["trajectory_groups"] = list(inputs.get("trajectory_groups", ()))
        model = inputs.get("model")
        recorded = guard(_LIBRARY, self._record_all, groups, "train", None, model) or []
        result = await wrapped(**inputs)
        guard(_LIBRARY, self._updated, result, model, recorded)
        return result

    async def _ruler(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        start = clock.wall()
        try:
            return await wrapped(*args, **kwargs)
        finally:
            guard(_LIBRARY, self._judge_called, args, kwargs, start, sys.exc_info()[1])

    async def _ruler_score_group(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        original = args[0] if args else kwargs.get("group")
        scored = None
        try:
            scored = await wrapped(*args, **kwargs)
        finally:  # without a result the judge has failed
            guard(_LIBRARY, self._scored, original, scored)
        return scored

    # What they record.

    def _gathered(self, listed: Iterable[Any]) -> None:
        """Keep groups, or trajectories without one, until they are trained on or logged."""
        session = configuration.recording_session()
        if session is None:
            return
        if session not in self._sessions:
            self._sessions.add(session)
            session._before_close(self._flush)
        for item in listed:
            if not isinstance(item, BaseException):
                self._waiting.setdefault(id(item), (item, uuid.uuid4().hex))
        while len(self._waiting) > _MOST_WAITING:
            oldest, _ = self._waiting[next(iter(self._waiting))]
            self._record_all([oldest], None, None, None)

    def _flush(self) -> None:
        """Record what was gathered and is still waiting."""
        self._record_all([item for item, _ in self._waiting.values()], None, None, None)

    def _record_all(self, listed: Iterable[Any], split: str | None, step: Any, model: Any) -> list[OpenGroup]:
        """Record groups and trajectories that are not recorded yet, and return the groups."""
        groups = []
        for item in listed:
            _, identity = self._waiting.pop(id(item), (None, uuid.uuid4().hex))
            members = getattr(item, "trajectories", None)
            if members is None:
                self._record(item, None, split, step, model)
                continue
            values = [self._record(member, identity, split, step, model) for member in members]
            recorded = [value for value in values if value is not None]
            for failure in getattr(item, "exceptions", ()):
                self._record_failure(failure, identity, split)
            if recorded:
                groups.append(group(identity, recorded))
        return groups

    def _record(
        self, trajectory: Any, identity: str | None, split: str | None, step: Any, model: Any
    ) -> Episode | None:
        """Record a trajectory once, and return its episode without steps."""
        session = configuration.recording_session()
        known = self._recorded.get(id(trajectory))
        if known is not None and known[0]() is trajectory:
            return known[1]
        if session is None or isinstance(trajectory, BaseException):
            return None
        record = as_record(trajectory)
        started = attribute(trajectory, "start_time")
        record |= {"group": identity, "split": split, "trace_id": uuid.uuid4().hex}
        record |= {} if step is None else {"step": step}
        judged = self._judged.pop(_digest(trajectory.messages()), None)
        if judged:
            record["judged"] = judged.pop(0)
            self._judged |= {_digest(trajectory.messages()): judged} if judged else {}
        if started is not None:
            record["start_time"] = round(started.timestamp() * 1e9)
            seconds = record["metrics"].get("duration")
            record["end_time"] = None if seconds is None else record["start_time"] + round(seconds * 1e9)
        value = self._described(art.episode(record), model)
        _, result = self._results.pop(id(trajectory), (None, None))
        if result is not None:
            reward = rewards.make(result, [])
            value = replace(value, reward=reward, rewards=(reward,), return_=reward.value)
        session.record(value)
        summary = replace(value, steps=(), agents=(), metadata={})
        key = id(trajectory)
        self._recorded[key] = weakref.ref(trajectory, lambda _: self._recorded.pop(key, None)), summary
        return summary

    def _record_failure(self, failure: Any, identity: str, split: str | None) -> None:
        """Record a rollout that raised, as an episode without steps."""
        session = configuration.recording_session()
        if session is not None:
            kind = str(failure.type).removeprefix("<class '").removesuffix("'>")
            facts: dict[str, Any] = {"error_type": kind, "error_message": str(failure.message)}
            session.record(
                self._described(Episode(status="error", group=identity, split=split, **facts), None)
            )

    def _described(self, value: Episode, model: Any) -> Episode:
        """Return the episode with the model's name and the options."""
        return self._options.applied(replace(value, policy=getattr(model, "name", None)))

    def _scored(self, original: Any, scored: Any) -> None:
        """Let the scored copy of a group take its place; the group itself waits if its judge failed."""
        _, identity = self._waiting.pop(id(original), (None, uuid.uuid4().hex))
        waiting = original if scored is None else scored
        self._waiting[id(waiting)] = waiting, identity

    def _judge_called(
        self, args: Any, kwargs: Mapping[str, Any], start: int, error: BaseException | None
    ) -> None:
        """Keep the judge's model, rubric and order for each member, and its one call for the first."""
        names = ("message_lists", "judge_model", "extra_litellm_params", "rubric", "tools")
        inputs = dict(zip(names, args, strict=False)) | dict(kwargs)
        judge = str(inputs.get("judge_model", "openai/o3"))
        members = list(inputs.get("message_lists") or ())
        failed: dict[str, Any] = {}
        if error is not None:
            failed = {"error_type": qualified_name(error), "error_message": error_message(error)}
        call = Call(operation="chat", name=judge, start_time=start, end_time=clock.wall(), **failed)
        facts = {"model": judge, "rubric": inputs.get("rubric"), "order": [*range(len(members))], **failed}
        for place, messages in enumerate(members):
            judgment = {**facts, "position": place, "calls": () if place else (call,)}
            self._judged.setdefault(_digest(messages), []).append(judgment)
        while len(self._judged) > _MOST_WAITING:
            del self._judged[next(iter(self._judged))]

    def _updated(self, result: Any, model: Any, groups: Sequence[OpenGroup]) -> None:
        """Record the update that `backend.train` made."""
        metrics = {name: float(value) for name, value in dict(getattr(result, "metrics", {})).items()}
        step = getattr(result, "step", None)
        update(
            step,
            policy=getattr(model, "name", None),
            policy_version_after=None if step is None else str(step),
            groups=groups,
            loss=metrics.get("loss"),
            entropy=metrics.get("entropy"),
            grad_norm=metrics.get("grad_norm"),
            learning_rate=metrics.get("learning_rate"),
            metrics=metrics,
        )


def _digest(messages: object) -> str:
    """Return a digest of a trajectory's messages, by which the judge's facts find it again."""
    return trace_id("art", json.loads(json.dumps(messages, default=str)))


def _is_art(module: Any) -> bool:
    """Return whether a module is of OpenPipe's ART: another distribution has a package of that name."""
    package = sys.modules.get("art")
    return getattr(package, "TrajectoryGroup", None) is not None or module.__name__ != "art"


def _is_patched(owner: Any, name: str) -> bool:
    """Return whether an attribute is the patch of another module, which this one has imported."""
    return isinstance(getattr(owner, name, None), PatchedFunction)


def keep_results(group: Any, pairs: Sequence[tuple[Any, RewardResult]]) -> None:
    """Let a reward spec's results be recorded with the trajectories of a group, if ART is recorded."""
    handle = ArtPatches.active()
    if handle is not None:
        guard(_LIBRARY, handle.keep_results, group, pairs)


attach_all = ArtPatches.attach_all


def attach(target: Any, /, **options: Any) -> ArtPatches:  # noqa: ARG001 - ART's functions are not a model's
    """Record all trajectories, as `attach_all` does: ART's functions do not belong to a model."""
    return attach_all(**options)
