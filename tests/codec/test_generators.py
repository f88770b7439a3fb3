"""The state of an episode's random generator is kept until its digest is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mttp.codec.generators import GeneratorState, sha256
from mttp.integrations.gymnasium.randomness import digest


class Base:
    """What an environment is to a digest."""

    def __init__(self, bits: Any) -> None:
        self._np_random = np.random.Generator(bits)


LATE = [np.random.PCG64, np.random.PCG64DXSM]
EARLY = [np.random.MT19937, np.random.Philox, np.random.SFC64]


@pytest.mark.parametrize("kind", LATE)
def test_a_state_of_integers_is_kept_and_digested_late(kind: Any) -> None:
    """
    It stays what it was when it was looked at, whatever is drawn since.
    """
    base = Base(kind(7))
    base._np_random.integers(2, dtype=np.int32)  # which leaves half of what was drawn for the next
    expected = sha256(base._np_random.bit_generator.state)
    found = digest(base)
    base._np_random.random(1000)

    assert isinstance(found, GeneratorState)
    assert expected == str(found)
    assert expected == sha256(found.parts)


@pytest.mark.parametrize("kind", EARLY)
def test_a_state_of_arrays_is_digested_at_once(kind: Any) -> None:
    """
    The generator goes on writing to them.
    """
    base = Base(kind(7))
    expected = sha256(base._np_random.bit_generator.state)
    found = digest(base)
    base._np_random.random(1000)

    assert expected == found


@pytest.mark.parametrize("kind", LATE + EARLY)
def test_equal_states_have_equal_digests(kind: Any) -> None:
    """
    And another one has another.
    """
    first, same, other = (str(digest(Base(kind(seed)))) for seed in (1, 1, 2))

    assert first == same
    assert first != other
    assert 64 == len(first)


def test_without_a_generator_there_is_no_digest() -> None:
    """
    None is made by looking.
    """
    assert digest(object()) is None
