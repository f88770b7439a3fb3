"""
Messages as they come in: over HTTP, from files, standard input, and channels of this process.

What is received is verified: a message that may not be trusted is an error, and the rest goes on.
"""

from __future__ import annotations

from mttp.mist.receiving.receiver import Receiver, ReceiverStats, receive

__all__ = ["Receiver", "ReceiverStats", "receive"]
