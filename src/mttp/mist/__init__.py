"""
The MTTP messages of the MIST stack, and their transports.

`transport="mttp+http://..."` sends a session's spans as messages; `dial` sends and `receive` receives
single messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mttp.model.exports import exports

if TYPE_CHECKING:
    from mttp.mist import messages
    from mttp.mist.receiving import Receiver, receive
    from mttp.mist.sending import Sender, dial

__all__ = ["Receiver", "Sender", "dial", "messages", "receive"]

__getattr__, __dir__ = exports(
    __name__,
    {
        "Receiver": "receiving",
        "Sender": "sending",
        "dial": "sending",
        "messages": "messages",
        "receive": "receiving",
    },
)
