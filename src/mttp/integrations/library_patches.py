"""The handle for everything that a library creates, of which a process has one per library."""

from __future__ import annotations

import functools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import wrapt
from typing_extensions import Self

from mttp.integrations.faults import hook_failed
from mttp.integrations.options import Options
from mttp.integrations.patching import Patches
from mttp.model.interrupts import raise_interrupt

__all__ = ["LibraryPatches"]

_handles: dict[type[LibraryPatches], LibraryPatches] = {}


class LibraryPatches(Patches, ABC):
    """
    The patches of a library's classes and functions.

    A subclass names its `LIBRARY`, a key of `integrations.LIBRARIES`, and installs its patches in
    `patch_library`, with `patch_on_import` for modules that the program may not have imported yet.
    """

    LIBRARY: ClassVar[str]

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(self._detach_made)
        self._made: weakref.WeakSet[Patches] = weakref.WeakSet()
        self.use(options)

    def use(self, options: Mapping[str, Any]) -> None:
        """Use new options from now on; raises InstrumentError for an unknown one."""
        self._options = Options.of(options)
        self._given = dict(options)

    @classmethod
    def attach_all(cls, **options: Any) -> Self:
        """
        Record everything that the library creates from now on.

        A further call returns the same handle, and new options apply.
        Detaching also detaches the objects that were created in the meantime.
        """
        Options.of(options)
        handle = cls.active()
        if handle is None:
            handle = cls(options)
            handle.patch_library()
            _handles[cls] = handle
        elif options:
            handle.use(options)
        return handle

    @classmethod
    def active(cls) -> Self | None:
        """Return the attached handle of the library; None if there is none."""
        handle = _handles.get(cls)
        return handle if isinstance(handle, cls) and handle.attached else None

    @abstractmethod
    def patch_library(self) -> None:
        """Install the patches, or have them installed on import."""

    def patch_on_import(self, module: str, patch: Callable[[Any], None], label: str = "") -> None:
        """
        Call `patch` with a module once it is imported; errors are counted, so that the import succeeds.

        Until then `status` lists the label, by default the module's name, as False.
        """
        self._missing[label or module] = False
        wrapt.register_post_import_hook(functools.partial(self._imported, patch, label or module), module)

    def _imported(self, patch: Callable[[Any], None], label: str, module: Any) -> None:
        if not self.attached:
            return
        self._missing.pop(label, None)
        try:
            patch(module)
        except Exception as error:
            raise_interrupt(error)
            self._missing[label] = False
            hook_failed(self.LIBRARY, f"{label} is not recorded", error)

    def attach_made(self, attach: Callable[..., Patches], made: Any) -> None:
        """Record an object that the library created; errors are counted."""
        if not self.attached:
            return
        try:
            self._made.add(attach(made, **self._given))
        except Exception as error:
            raise_interrupt(error)
            hook_failed(self.LIBRARY, f"{type(made).__name__} is not recorded", error)

    def _detach_made(self) -> None:
        for attachment in list(self._made):
            attachment.detach()
