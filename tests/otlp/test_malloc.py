"""What the C library keeps of what is freed: copies of long arrays are had from that."""

from __future__ import annotations

import os
import platform
import sys

import pytest
from programs import told

RECORDS = """
    import json, resource
    import numpy as np
    import mttp

    def faults():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    def play(steps):
        with mttp.episode() as episode:
            for _ in range(steps):
                with episode.step() as step:
                    step.tokens(ids=IDS, logprobs=LOGPROBS)

    IDS, LOGPROBS = np.arange(8192), np.zeros(8192, np.float32)
    PAGES = (IDS.nbytes + LOGPROBS.nbytes) // resource.getpagesize()
    STEPS, found = 200, []
    with mttp.configure("file://a.jsonl") as session:
        for _ in range(4):
            before = faults()
            play(STEPS)
            found.append((faults() - before) / STEPS / PAGES)
            session.flush()
    print(json.dumps(min(found)))
    """


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is known to learn")
def test_long_arrays_are_copied_to_memory_that_was_there_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Once there has been as much; else each page of each copy would be a page fault.
    """
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_"))]:
        monkeypatch.delenv(name)

    assert told(RECORDS) < 0.2


@pytest.mark.skipif(sys.platform != "linux", reason="what a process may have is not limited everywhere")
def test_a_process_that_may_have_no_more_memory_goes_on() -> None:
    """
    It only keeps less.
    """
    assert [] == told(
        """
        import json, resource
        from mttp.otlp import malloc

        limit = 8 * 2**20 + resource.getpagesize() * int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        malloc.keep_freed()
        print(json.dumps([]))
        """
    )
