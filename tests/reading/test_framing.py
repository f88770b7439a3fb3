"""Tables as pandas data frames."""

from __future__ import annotations

import sys

import pytest
from reading.traces import episode, write

import mttp
from mttp.errors import MissingExtra, ReadError

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")


def recording() -> mttp.Recording:
    """Three episodes, of which the last one has no component `format`."""
    components = [{"correct": 0.5, "format": 1.0}, {"correct": 1.0, "format": 0.0}, {"correct": 0.25}]
    made = [episode(number, components=scores) for number, scores in enumerate(components)]
    return mttp.read(write("a.jsonl", [span for one in made for span in one]))


def test_a_frame_has_the_rows_and_columns_of_its_table():
    """
    The default is the table of episodes.
    """
    found = recording()
    frames = [found.to_pandas(), found.to_pandas("steps"), found.to_pandas("components")]

    assert [3, 6, 5] == list(map(len, frames))
    assert found.tables.episodes.column_names == list(frames[0].columns)


def test_component_maps_become_columns_on_request():
    """
    Each key becomes a column with missing values; other maps stay maps.
    """
    frame = recording().to_pandas(expand=["reward_components"])

    assert [0.5, 1.0, 0.25] == frame["reward_components.correct"].tolist()
    assert [False, False, True] == frame["reward_components.format"].isna().tolist()
    assert ("reward_components" in frame, {}) == (False, frame["metrics"][0])


def test_one_map_may_be_named_by_itself():
    """
    A single string is one name.
    """
    assert "weights.correct" not in recording().to_pandas("rewards", expand="components")
    assert "components.correct" in recording().to_pandas("rewards", expand="components")


def test_whole_numbers_beside_missing_ones_stay_exact():
    """
    As floats, nanoseconds since 1970 would be rounded.
    """
    with mttp.configure(transport="memory://") as session:
        with mttp.episode() as first:
            pass
        mttp.score(first, 1.0, grader="a", revision=2**62 + 1)
        mttp.annotate(first, "comment", "none")
    frame = mttp.read(session).to_pandas("annotations")

    assert 2**62 + 1 in frame["revision"].tolist()
    assert frame["step"].isna().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"table": "episode"}, "there is no table 'episode'; the tables are episodes, agents, steps"),
        (
            {"expand": ["component"]},
            "'episodes' has no map 'component'; its maps are metrics, reward_components, scores",
        ),
        ({"table": "preferences", "expand": ["by"]}, "'preferences' has no map 'by'; it has no maps"),
    ],
)
def test_what_there_is_not_is_an_error_that_says_what_there_is(
    arguments: dict[str, object], message: str
) -> None:
    """
    The error lists the tables or the maps.
    """
    with pytest.raises(ReadError, match=message):
        recording().to_pandas(**arguments)  # type: ignore[arg-type]


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    """
    pandas is not a dependency of mttp or its extras.
    """
    found = recording()
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(MissingExtra, match=r"recording.to_pandas needs pandas: pip install pandas$"):
        found.to_pandas()
