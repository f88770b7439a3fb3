"""Names of earlier versions become current ones, and back, as the schema file states."""

import pytest
from semconv.invented import EARLIER, FIRST, SECOND, forget, install

from mttp.semconv import SCHEMA_URL, VERSION
from mttp.semconv import attributes as a
from mttp.semconv.translation import SCHEMA_PREFIX, age, earlier_names, lacking, translation
from mttp.semconv.versions import ADDED, CHANGES


@pytest.fixture(autouse=True)
def earlier(monkeypatch):
    """Two versions before the current one."""
    install(monkeypatch, EARLIER)
    yield
    forget()


def up(version, name="step", **attributes):
    """The attributes of a span after translation to the current version."""
    given = {key.replace("__", "."): value for key, value in attributes.items()}
    return dict(translation(SCHEMA_PREFIX + version).span(name, given))


def test_names_are_changed_along_the_versions():
    """
    A name that changed twice is followed from the version that the span states.
    """
    expected = {"mttp.episode.outcome": "success"}

    assert expected == up(FIRST, mttp__verdict="success")
    assert expected == up(SECOND, mttp__result="success")


def test_a_later_version_knows_no_older_names():
    """
    A name that a version had already changed is a stranger there, and stays.
    """
    assert {"mttp.verdict": "success"} == up(SECOND, mttp__verdict="success")


def test_the_current_version_needs_no_translation():
    """
    Nothing is done for spans that follow the current version.
    """
    assert translation(SCHEMA_URL) is None


def test_parts_of_a_template_are_renamed():
    """
    An attribute whose last part is the user's follows its prefix, and other names do not.
    """
    expected = {"mttp.metadata.teacher": "x", "mttp.username": "y"}

    assert expected == up(SECOND, mttp__user__teacher="x", mttp__username="y")


def test_columns_of_steps_follow_their_attribute():
    """
    A column of packed steps has the name of what it holds, and changes with it.
    """
    assert {"mttp.steps.column.mttp.faults": []} == up(SECOND, mttp__steps__column__mttp__problems=[])


def test_names_in_values_are_renamed():
    """
    An annotation says what it is of, and an omission what is missing, by the name of the attribute.
    """
    given = {
        a.ANNOTATION_KEY: "mttp.user.teacher",
        a.OMISSIONS: ["mttp.result: too large", "b", 1],
        a.STEPS_LAYOUT: '[["mttp.problems","a",[4],null],["x",null,null,"same"]]',
    }
    expected = {
        a.ANNOTATION_KEY: "mttp.metadata.teacher",
        a.OMISSIONS: ["mttp.episode.outcome: too large", "b", 1],
        a.STEPS_LAYOUT: '[["mttp.faults","a",[4],null],["x",null,null,"same"]]',
    }

    assert expected == dict(translation(SCHEMA_PREFIX + SECOND).span("steps", given))


@pytest.mark.parametrize("value", ["{", "[1]", "[[1]]", "[[]]", "null", 5, None])
def test_a_value_that_makes_no_sense_stays(value):
    """
    Attributes that should name others are left as they are where they don't.
    """
    given = {a.ANNOTATION_KEY: 5, a.OMISSIONS: value, a.STEPS_LAYOUT: value}

    assert given == dict(translation(SCHEMA_PREFIX + SECOND).span("steps", given))


def test_a_change_may_be_limited_to_spans():
    """
    `apply_to_spans` leaves the same attribute of other spans alone.
    """
    assert {"mttp.step.index": 1} == up(SECOND, mttp__position=1)
    assert {"mttp.position": 1} == up(SECOND, "reward", mttp__position=1)


def test_events_and_their_attributes_are_renamed():
    """
    The name of an event changes before its attributes, whose change may be limited to events of a name.
    """
    found = translation(SCHEMA_PREFIX + SECOND)

    assert ("exception", {"exception.message": "no"}) == found.event("step", "mttp.oops", {"mttp.what": "no"})
    assert ("other", {"mttp.what": "no"}) == found.event("step", "other", {"mttp.what": "no"})


def test_a_resource_gets_what_applies_to_all():
    """
    Attributes of a resource change with those of all signals, and not with those of spans.
    """
    found = translation(SCHEMA_PREFIX + FIRST)

    assert {"mttp.run.id": "r", "mttp.position": 1} == dict(
        found.resource({"mttp.job.id": "r", "mttp.position": 1})
    )


def test_a_taken_name_is_not_overwritten():
    """
    A span that has both names keeps both values.
    """
    both = {"mttp.problems": ["old"], "mttp.faults": ["new"]}

    assert both == dict(translation(SCHEMA_PREFIX + SECOND).span("step", both))


@pytest.mark.parametrize("version", [FIRST, SECOND])
def test_the_way_back_restores_the_names(version):
    """
    What was translated to the current version and back is what it was.
    """
    names = {FIRST: "mttp.verdict", SECOND: "mttp.result"}
    written = {names[version]: "success", "mttp.problems": [], "mttp.user.a": 1, "mttp.position": 2}
    back = translation(SCHEMA_URL, to=version)

    assert written == dict(back.span("step", translation(SCHEMA_PREFIX + version).span("step", written)))


def test_events_get_their_names_back():
    """
    Going back, attributes of events change before the names that limit them.
    """
    back = translation(SCHEMA_URL, to=FIRST)

    assert ("mttp.oops", {"mttp.what": "no"}) == back.event("step", "exception", {"exception.message": "no"})


def test_names_that_became_one_are_not_told_apart(monkeypatch):
    """
    Two names that became one can't be told apart, so the attribute keeps the new name.
    """
    both = {"rename_attributes": {"attribute_map": {"mttp.a": "mttp.faults", "mttp.b": "mttp.faults"}}}
    install(monkeypatch, {FIRST: {}, VERSION: {"all": {"changes": [both]}}})

    assert {"mttp.faults": []} == dict(translation(SCHEMA_URL, to=FIRST).span("step", {"mttp.faults": []}))


def test_spans_of_other_conventions_are_translated_from_the_first_version():
    """
    mttp's attributes on a span of another library state no version; an old name can only mean one thing.
    """
    found = translation("https://opentelemetry.io/schemas/1.44.0").span("chat", {"mttp.verdict": "x"})

    assert {"mttp.episode.outcome": "x"} == dict(found)


def test_a_newer_version_is_left_alone():
    """
    What a later version renamed is not known here.
    """
    assert translation(SCHEMA_PREFIX + "9.0.0") is None


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (SCHEMA_URL, "known"),
        (SCHEMA_PREFIX + FIRST, "known"),
        (SCHEMA_PREFIX + "0.10.0", "newer"),
        (SCHEMA_PREFIX + "0.2.0-dev", "newer"),
        (SCHEMA_PREFIX + "0.1.0-dev", "unknown"),
        (SCHEMA_PREFIX + "0.0.3", "unknown"),
        (SCHEMA_PREFIX + "latest", "unknown"),
        (SCHEMA_PREFIX + "1.0", "unknown"),
        (SCHEMA_PREFIX + "1.0.²", "unknown"),
        ("https://opentelemetry.io/schemas/1.44.0", "foreign"),
        ("", "foreign"),
    ],
)
def test_age_of_a_schema_url(url, expected):
    """
    A version is compared by its numbers, and what is no version is unknown.
    """
    assert expected == age(url)


def test_earlier_names_of_an_attribute():
    """
    All names that an attribute ever had, also as a column of steps.
    """
    expected = {
        "mttp.verdict",
        "mttp.result",
        "mttp.problems",
        "mttp.steps.column.mttp.verdict",
        "mttp.steps.column.mttp.result",
        "mttp.steps.column.mttp.problems",
    }

    assert expected == earlier_names({"mttp.episode.outcome", "mttp.faults"})


def test_a_version_lacks_what_came_later(monkeypatch):
    """
    By its current name, also where that changed after it was added.
    """
    install(monkeypatch, EARLIER, {SECOND: ["mttp.problems"], VERSION: ["mttp.run.rank"]})

    assert {"mttp.faults", "mttp.run.rank"} == lacking(FIRST)
    assert {"mttp.run.rank"} == lacking(SECOND)
    assert frozenset() == lacking(VERSION)


def test_generated_versions_end_with_the_current_one():
    """
    The package knows its own version last, and the first one added nothing.
    """
    assert VERSION == list(CHANGES)[-1]
    assert CHANGES.keys() == ADDED.keys()
    assert [] == next(iter(ADDED.values()))
