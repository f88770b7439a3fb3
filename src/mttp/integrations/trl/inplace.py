"""Recording a trainer in place, by patching its methods and reward functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from mttp.errors import InstrumentError
from mttp.integrations.faults import guard
from mttp.integrations.options import Options
from mttp.integrations.patching import Around, Patches, handle_in
from mttp.integrations.trl import trainers
from mttp.integrations.trl.functions import RewardFunctions
from mttp.integrations.trl.recorder import TrainerRecorder
from mttp.integrations.trl.updates import TrainerUpdates

__all__ = ["TrainerAttachment", "attach"]

_EVENTS = (
    "on_train_begin",
    "on_step_begin",
    "on_pre_optimizer_step",
    "on_step_end",
    "on_log",
    "on_train_end",
)


class TrainerAttachment(Patches):
    """The handle of a trainer that is recorded in place."""

    def __init__(self, trainer: Any, options: Options) -> None:
        super().__init__(self._stop)
        self._trainer = trainer
        self._updates = TrainerUpdates(trainer, options)
        self._recorder = TrainerRecorder(
            trainer, options, version=self._updates.version, on_recorded=self._updates.on_recorded
        )
        self._functions = RewardFunctions(trainer, self, self._recorder.reward)
        self._callback = _callback(self._updates)
        self.install_existing("trl", self._patches())
        self._functions.patch()
        trainer.add_callback(self._callback)

    def _patches(self) -> Iterator[tuple[str, Any, str, Around]]:
        trainer, recorder, updates = self._trainer, self._recorder, self._updates
        around: dict[str, Around] = {
            "_generate_and_score_completions": recorder.generate_and_score,
            "_calculate_rewards": self._calculate_rewards,
            "_prepare_inputs": updates.prepare_inputs,
            "training_step": updates.training_step,
        }
        if trainers.family(trainer) == "rloo":
            around["_get_per_token_logps_and_entropies"] = recorder.token_logprobs
        else:
            around["_tool_call_loop"] = recorder.tool_call_loop
        yield from ((name, trainer, name, hook) for name, hook in around.items())
        yield "clip_grad_norm_", trainer.accelerator, "clip_grad_norm_", updates.clip_grad_norm

    def _calculate_rewards(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        guard("trl", self._functions.patch)
        return self._recorder.calculate_rewards(wrapped, instance, args, kwargs)

    def use(self, options: Options) -> None:
        """Use new options from now on."""
        self._recorder.use(options)
        self._updates.use(options)

    def status(self) -> dict[str, bool]:
        """Return each patch by name, and whether calls still pass through it."""
        has_callback = self._callback in self._trainer.callback_handler.callbacks
        others = {"reward_funcs": self._functions.held, "callback": has_callback}
        return super().status() | others

    def _stop(self) -> None:
        guard("trl", self._updates.on_train_end)
        self._functions.restore()
        self._trainer.remove_callback(self._callback)


def attach(target: Any, /, **options: Any) -> TrainerAttachment:
    """
    Record a trainer in place.

    A trainer that is already recorded keeps its handle and gets the new options.
    Raises InstrumentError for trainers other than GRPOTrainer, RLOOTrainer and their subclasses.
    """
    chosen = Options.of(options)
    if trainers.family(target) is None:
        kind = f"{type(target).__module__}.{type(target).__qualname__}"
        known = ", ".join(trainers.FAMILIES)
        raise InstrumentError(
            f"{kind} can't be recorded; the supported trainers of TRL are {known} and their subclasses"
        )
    attachment = handle_in(target, TrainerAttachment)
    if attachment is None:
        return TrainerAttachment(target, chosen)
    if options:
        attachment.use(chosen)
    return attachment.claim()


def _callback(updates: TrainerUpdates) -> Any:
    """Return a callback that passes the trainer's events to `updates`."""

    def handler(event: str) -> Callable[..., None]:
        def handle(_: Any, *args: Any, **kwargs: Any) -> None:
            guard("trl", getattr(updates, event), *args, **kwargs)

        return handle

    base = getattr(sys.modules.get("transformers"), "TrainerCallback", object)
    return type("RecordUpdates", (base,), {event: handler(event) for event in _EVENTS})()
