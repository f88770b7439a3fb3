"""The share of a sampler in the trace state of an episode's root."""

from __future__ import annotations

import pytest

from mttp.codec import shares

HALF = 1 << (shares.BITS - 1)


@pytest.mark.parametrize(
    ("trace_state", "share"),
    [
        ("", None),
        ("ot=th:0", 1.0),
        ("ot=th:8", 0.5),
        ("ot=th:c", 0.25),
        ("ot=rv:80657db695903e;th:fd70a3d70a3d7", pytest.approx(0.01)),
        ("vendor=th:8, ot=th:c;p:1", 0.25),
        ("ot=p:8", None),
        ("vendor=th:8", None),
        ("ot=th:", None),
        ("ot=th:8000000000000000", None),
        ("ot=th:xyz", None),
        ("ot=xth:8", None),
    ],
)
def test_a_trace_state_states_a_share(trace_state: str, share: float | None):
    """
    As OpenTelemetry writes the threshold: hexadecimal digits without zeros at the end.
    """
    assert share == shares.of_state(trace_state)


@pytest.mark.parametrize(
    ("threshold", "randomness", "expected"),
    [(0, None, "th:0"), (HALF, None, "th:8"), (1, 2, "rv:00000000000002;th:00000000000001")],
)
def test_a_threshold_is_written_as_opentelemetry_writes_it(
    threshold: int, randomness: int | None, expected: str
):
    """
    The randomness has all of its digits.
    """
    actual = shares.state(threshold, randomness)

    assert expected == actual
    assert 1 - threshold / (1 << shares.BITS) == shares.of_state(f"ot={actual}")
