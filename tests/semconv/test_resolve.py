"""What a signal carries, once groups are opened and refinements are merged."""

from tool.registry import Attribute, Group, Ref, Registry, Signal
from tool.resolve import resolve

SIZE = Attribute(
    key="mttp.thing.size",
    type="int",
    brief="A size.",
    note="In general.",
    stability="development",
    annotations={"mttp": {"content": True}},
    file="model/a.yaml",
)
ERROR = Attribute(
    key="error.type",
    type="string",
    brief="An error.",
    stability="stable",
    file="upstream.yaml",
    source="core",
)


def ref(key="mttp.thing.size", **refinements):
    """A reference to an attribute."""
    return Ref(key=key, refinements=refinements)


def resolved(*refs, group=(), groups=("mttp.shared",)):
    """What a span with these references, and a group with those, carries."""
    span = Signal(
        section="spans", name="mttp.thing", refs=refs, groups=tuple(groups), facts={}, file="model/a.yaml"
    )
    registry = Registry(
        manifest={},
        attributes=(SIZE,),
        upstream=(ERROR,),
        groups=(Group(id="mttp.shared", refs=tuple(group), file="model/a.yaml"),),
        signals=(span,),
    )
    return resolve(registry)[0].attributes


def test_plain_reference_takes_everything_from_the_definition():
    """
    A reference that refines nothing carries the attribute as defined, at the level recommended.
    """
    (attribute,) = resolved(ref())
    expected = ("A size.", "In general.", "recommended", False)

    assert expected == (
        attribute.brief,
        attribute.note,
        attribute.requirement_level,
        attribute.sampling_relevant,
    )


def test_group_is_opened():
    """
    A signal carries what its groups hold.
    """
    (attribute,) = resolved(group=[ref(requirement_level="required")])
    expected = ("mttp.thing.size", "required")

    assert expected == (attribute.definition.key, attribute.requirement_level)


def test_own_reference_wins_over_group():
    """
    Where a signal and its group state the same property, the signal's own counts.
    """
    (attribute,) = resolved(
        ref(requirement_level="required", brief="Mine."),
        group=[ref(requirement_level="opt_in", brief="Ours.")],
    )
    expected = ("required", "Mine.")

    assert expected == (attribute.requirement_level, attribute.brief)


def test_group_counts_where_own_reference_is_silent():
    """
    What a signal's own reference leaves open is taken from the group, then from the definition.
    """
    (attribute,) = resolved(ref(sampling_relevant=True), group=[ref(brief="Ours.")])
    expected = (True, "Ours.", "In general.")

    assert expected == (attribute.sampling_relevant, attribute.brief, attribute.note)


def test_annotations_are_added_to():
    """
    An annotation on a reference does not remove those of the definition.
    """
    (attribute,) = resolved(ref(annotations={"code_generation": {"exclude": True}}))
    expected = {"mttp": {"content": True}, "code_generation": {"exclude": True}}

    assert expected == attribute.annotations


def test_reference_that_dangles_is_left_out():
    """
    Resolution skips what is not defined; finding it is a check's work.
    """
    attributes = resolved(ref("mttp.nothing"), groups=("mttp.nowhere",))

    assert not attributes


def test_ours_come_before_the_reused():
    """
    A signal's attributes are sorted by key, those of OpenTelemetry last.
    """
    attributes = resolved(ref("error.type"), ref())
    expected = ["mttp.thing.size", "error.type"]

    assert expected == [attribute.definition.key for attribute in attributes]
