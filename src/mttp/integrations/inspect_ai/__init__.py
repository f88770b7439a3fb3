"""
Inspect AI: each sample is recorded as an episode when it ends, and each task as an evaluation.

Inspect loads `hooks` by its entry point, where mttp is installed. They record while a session is open and
where the variable MTTP_TRANSPORT names a transport; `mttp.instrument()` sets options, and `detach` ends it.
"""

from __future__ import annotations

from mttp.integrations.inspect_ai.library import attach, attach_all
from mttp.integrations.inspect_ai.suite import InspectSuite

__all__ = ["InspectSuite", "attach", "attach_all"]
