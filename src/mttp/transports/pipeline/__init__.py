"""
From ended spans to a transport: a queue for each, and the thread that empties it.

    thread      the queue, and the thread that writes what has gathered several times a second
    gate        holds back the episodes that sampling did not choose
    veil        takes out what the transport may not have
    backlog     what waits, in order, to be taken by segments
    delivery    offers a segment to the transport, and again where that may help
    losses      counts by cause what can't be delivered, and says so
"""

from __future__ import annotations

from mttp.transports.pipeline.pipeline import Pipeline, PipelineOwner

__all__ = ["PipelineOwner", "Pipeline"]
