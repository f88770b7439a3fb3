"""
The queue, sampling, filtering and retries between ended spans and one transport.

    pipeline        the inbox, and the background thread that drains it every 200 ms
    owner           the interface of a pipeline to its session
    flush_requests  requests to export at once
    span_preparer   filters spans and packs steps for the transport
    tail_sampler    holds unsampled episodes until they end
    content_filter  removes the attributes that the transport must not receive
    frame_queue     ended spans, counted in bytes
    export_retry    exports a segment, and again after a failure that may pass
    losses          counts and logs lost spans by cause
"""

from __future__ import annotations

from mttp.transports.pipeline.owner import PipelineOwner
from mttp.transports.pipeline.pipeline import Pipeline

__all__ = ["PipelineOwner", "Pipeline"]
