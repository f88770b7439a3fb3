"""
Receives messages over HTTP, from files, standard input and channels of this process.

Messages are verified; an invalid one is reported as an error, and receiving continues.
"""

from __future__ import annotations

from mttp.mist.receiving.receiver import Receiver, ReceiverStats, receive

__all__ = ["Receiver", "ReceiverStats", "receive"]
