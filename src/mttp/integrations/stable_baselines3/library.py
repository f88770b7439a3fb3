"""Instrumenting single models, or all models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, ref

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import SubprocVecEnv

from mttp.errors import InstrumentError
from mttp.integrations.faults import guard, hook_failed
from mttp.integrations.nesting import is_suppressed
from mttp.integrations.options import Options
from mttp.integrations.patching import Patches
from mttp.integrations.stable_baselines3 import environments
from mttp.integrations.stable_baselines3.recorder import LIBRARY, ModelRecorder
from mttp.model.interrupts import raise_interrupt

__all__ = ["attach", "attach_all"]

_library: StableBaselines3Library | None = None


class StableBaselines3Library(Patches):
    """
    The patches of Stable-Baselines3's classes.

    `_init_callback` is patched to put the recording callback before the user's.
    `learn` is patched because callbacks are not called when an exception ends a training.
    The reset of workers is patched to tell them of evaluations, which begin in the parent.
    Classes are patched, not models, because a model's attributes are saved with it.
    """

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self._models: WeakKeyDictionary[Any, ModelAttachment] = WeakKeyDictionary()
        self._recorders: WeakKeyDictionary[Any, ModelRecorder] = WeakKeyDictionary()
        self._default_options: Options | None = None
        self.install_existing(
            LIBRARY,
            [
                ("BaseAlgorithm._init_callback", BaseAlgorithm, "_init_callback", self._init_callback),
                ("OnPolicyAlgorithm.learn", OnPolicyAlgorithm, "learn", self._learn),
                ("OffPolicyAlgorithm.learn", OffPolicyAlgorithm, "learn", self._learn),
                ("SubprocVecEnv.reset", SubprocVecEnv, "reset", self._reset_workers),
            ],
        )

    def attach(self, model: Any, options: Options | None) -> ModelAttachment:
        """Record one model; without options, its earlier options stay."""
        attachment = self._models.get(model)
        if attachment is None:
            attachment = self._models[model] = ModelAttachment(self, model)
        else:
            attachment.claim()
        self._use(model, options or attachment.options)
        attachment.options = options or attachment.options
        return attachment

    def attach_all(self, options: Options | None) -> None:
        """Record every model; without options, the earlier options stay."""
        self._default_options = options or self._default_options or Options()

    def release(self, model: Any) -> None:
        """Stop recording one model, unless all are recorded; None stands for a model that was freed."""
        if model is not None:
            self._models.pop(model, None)
        if self._default_options is None:
            self.detach()

    def detach(self) -> None:
        """Stop recording all but the individually instrumented models; without those, remove the patches."""
        self._default_options = None
        for model, recorder in list(self._recorders.items()):
            if model not in self._models:
                del self._recorders[model]
                recorder.stop()
        if not self._models:
            super().detach()

    def _use(self, model: Any, options: Options) -> None:
        recorder = self._recorders.get(model)
        if recorder is not None:
            recorder.use(options)

    def _init_callback(self, wrapped: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        callback = wrapped(*args, **kwargs)
        return guard(LIBRARY, self._with_recording, model, callback) or callback

    def _learn(self, wrapped: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        try:
            return wrapped(*args, **kwargs)
        except BaseException:
            guard(LIBRARY, self._on_exception, model)
            raise

    def _reset_workers(self, wrapped: Callable[..., Any], vector: Any, args: Any, kwargs: Any) -> Any:
        guard(LIBRARY, environments.mark_workers, vector)
        return wrapped(*args, **kwargs)

    def _on_exception(self, model: Any) -> None:
        """End a training for which the library calls no callback."""
        recorder = self._recorders.get(model)
        if recorder is not None:
            recorder.on_training_end(model)

    def _with_recording(self, model: Any, callback: Any) -> Any:
        """Return the recording callback followed by the user's; None if the model is not recorded."""
        attachment = self._models.get(model)
        options = self._default_options if attachment is None else attachment.options
        if options is None or not self.attached or is_suppressed():
            return None
        recorder = self._recorders.get(model)
        if recorder is None:
            recorder = self._recorders[model] = ModelRecorder(options)
        recording = RecordingCallback(recorder)
        recording.init_callback(model)
        both = CallbackList([recording, callback])
        both.model = model  # not `init_callback`, which was already called on the user's callback
        return both


class ModelAttachment(Patches):
    """The handle of a recorded model."""

    def __init__(self, library: StableBaselines3Library, model: Any) -> None:
        reference = ref(model)
        super().__init__(lambda: library.release(reference()))
        self._library = library
        self.options = Options()

    def status(self) -> dict[str, bool]:
        """Return each patch by name, and whether calls still pass through it."""
        return {label: live and self.attached for label, live in self._library.status().items()}


def attach(target: Any, /, **options: Any) -> ModelAttachment:
    """
    Record a model from its next `learn` on; the options are those of `Options`.

    A model that is already recorded keeps its handle and gets the new options.
    Raises InstrumentError if the target is not a Stable-Baselines3 algorithm.
    """
    if not isinstance(target, BaseAlgorithm):
        kind = f"{type(target).__module__}.{type(target).__qualname__}"
        raise InstrumentError(
            f"{kind} is not an algorithm of Stable-Baselines3; instrument the model whose `learn` is called"
        )
    chosen = Options.of(options)
    return _current().attach(target, chosen if options else None)


def attach_all(**options: Any) -> StableBaselines3Library:
    """Record every model from its next `learn` on; further calls return the same handle."""
    chosen = Options.of(options)
    library = _current()
    library.attach_all(chosen if options else None)
    return library


def _current() -> StableBaselines3Library:
    global _library
    if _library is None or not _library.attached:
        _library = StableBaselines3Library()
    return _library


class RecordingCallback(BaseCallback):  # type: ignore[misc]  # untyped where it is not installed
    """Calls a recorder's hooks; an error in a hook aborts the recorded episodes, not the training."""

    def __init__(self, recorder: ModelRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def _on_training_start(self) -> None:
        self._call("on_training_start")

    def _on_rollout_start(self) -> None:
        self._call("on_rollout_start")

    def _on_step(self) -> bool:
        self._call("on_step", self.locals)
        return True

    def _on_rollout_end(self) -> None:
        self._call("on_rollout_end")

    def _on_training_end(self) -> None:
        self._call("on_training_end")
        self.locals: dict[str, Any] = {}
        self.globals: dict[str, Any] = {}

    def _call(self, hook: str, *arguments: Any) -> None:
        try:
            getattr(self._recorder, hook)(self.model, *arguments)
        except Exception as error:
            raise_interrupt(error)
            hook_failed(LIBRARY, hook, error)
            self._recorder.abort_after_error()
