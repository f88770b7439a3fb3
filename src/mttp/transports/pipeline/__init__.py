"""
The queue, sampling, filtering and retries between ended spans and one transport.

    pipeline        the inbox, and the background thread that drains it every 200 ms
    tail_sampler    holds unsampled episodes until they end
    content_filter  removes the attributes that the transport must not receive
    export_retry    queues ended spans, exports a segment, and again after a failure that may pass
    losses          counts and logs lost spans by cause
"""

from __future__ import annotations

from mttp.transports.pipeline.pipeline import Pipeline, PipelineOwner

__all__ = ["Pipeline", "PipelineOwner"]
