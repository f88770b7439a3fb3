"""Which models are recorded: those that were named, or all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, ref

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import CallbackList
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from mttp.errors import InstrumentError
from mttp.integrations.faults import guard
from mttp.integrations.nesting import is_suppressed
from mttp.integrations.options import Options
from mttp.integrations.patching import Patches
from mttp.integrations.stable_baselines3.callback import RecordingCallback
from mttp.integrations.stable_baselines3.player import LIBRARY, ModelRecorder

__all__ = ["attach", "attach_all"]

_library: StableBaselines3Library | None = None


class StableBaselines3Library(Patches):
    """
    Where every `learn` makes its callback, surrounded: ours is put ahead of the user's.

    `learn` is surrounded, too, since callbacks are not told of a training that an exception ends.
    The seams are over classes, since whatever stands in a model is saved with it.
    """

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self._models: WeakKeyDictionary[Any, ModelAttachment] = WeakKeyDictionary()
        self._players: WeakKeyDictionary[Any, ModelRecorder] = WeakKeyDictionary()
        self._everything: Options | None = None
        self.expect(
            LIBRARY,
            [
                ("BaseAlgorithm._init_callback", BaseAlgorithm, "_init_callback", self._init_callback),
                ("OnPolicyAlgorithm.learn", OnPolicyAlgorithm, "learn", self._learn),
                ("OffPolicyAlgorithm.learn", OffPolicyAlgorithm, "learn", self._learn),
            ],
        )

    def attach(self, model: Any, options: Options | None) -> ModelAttachment:
        """Record this model; without options those that it has stay."""
        found = self._models.get(model)
        if found is None:
            found = self._models[model] = ModelAttachment(self, model)
        else:
            found.claim()
        self._use(model, options or found.options)
        found.options = options or found.options
        return found

    def attach_all(self, options: Options | None) -> None:
        """Record every model; without options those that there are stay."""
        self._everything = options or self._everything or Options()

    def release(self, model: Any) -> None:
        """Record this model no more, unless all are; one that is None is gone."""
        if model is not None:
            self._models.pop(model, None)
        if self._everything is None:
            self.detach()

    def detach(self) -> None:
        """Record no more but the models that were named; without such, take the seam off."""
        self._everything = None
        for model, player in list(self._players.items()):
            if model not in self._models:
                del self._players[model]
                player.stop()
        if not self._models:
            super().detach()

    def _use(self, model: Any, options: Options) -> None:
        player = self._players.get(model)
        if player is not None:
            player.use(options)

    def _options(self, model: Any) -> Options | None:
        found = self._models.get(model)
        return self._everything if found is None else found.options

    def _init_callback(self, wrapped: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        callback = wrapped(*args, **kwargs)
        return guard(LIBRARY, self._watched, model, callback) or callback

    def _learn(self, wrapped: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        try:
            return wrapped(*args, **kwargs)
        except BaseException:
            guard(LIBRARY, self._broke_off, model)
            raise

    def _broke_off(self, model: Any) -> None:
        """A training ended without a word."""
        player = self._players.get(model)
        if player is not None:
            player.ends(model)

    def _watched(self, model: Any, callback: Any) -> Any:
        """The user's callback with ours ahead of it; None where the model is not recorded."""
        options = self._options(model)
        if options is None or not self.attached or is_suppressed():
            return None
        player = self._players.get(model)
        if player is None:
            player = self._players[model] = ModelRecorder(options)
        watch = RecordingCallback(player)
        watch.init_callback(model)
        both = CallbackList([watch, callback])
        both.model = model  # and not `init_callback`, which the user's has seen
        return both


class ModelAttachment(Patches):
    """A model that is recorded."""

    def __init__(self, library: StableBaselines3Library, model: Any) -> None:
        mine = ref(model)
        super().__init__(lambda: library.release(mine()))
        self._library = library
        self.options = Options()

    def status(self) -> dict[str, bool]:
        """Each seam by name, and whether it holds: whether calls pass through it."""
        return {label: held and self.attached for label, held in self._library.status().items()}


def attach(target: Any, /, **options: Any) -> ModelAttachment:
    """
    Record what a model learns from here on; the options are those of `Options`.

    A model that is recorded already keeps its handle, and takes the options that are given.
    """
    if not isinstance(target, BaseAlgorithm):
        kind = f"{type(target).__module__}.{type(target).__qualname__}"
        raise InstrumentError(
            f"{kind} is no algorithm of Stable-Baselines3; instrument the model that learns"
        )
    chosen = Options.of(options)
    return _current().attach(target, chosen if options else None)


def attach_all(**options: Any) -> StableBaselines3Library:
    """Record what every model learns from here on; called again, it gives the same handle back."""
    chosen = Options.of(options)
    library = _current()
    library.attach_all(chosen if options else None)
    return library


def _current() -> StableBaselines3Library:
    global _library
    if _library is None or not _library.attached:
        _library = StableBaselines3Library()
    return _library
