"""What messages say, from the bytes of their payloads and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from pydantic import ValidationError
from vectors import ZEROS, payloads

from mttp.errors import PayloadError
from mttp.mist.messages import (
    PAYLOADS,
    ChatMessage,
    DataEntities,
    DataSchema,
    EvalResult,
    EvalRun,
    HealthPong,
    InferRequest,
    InferResponse,
    Message,
    Payload,
    TraceSpan,
)


def decoded(payload: type[Payload], raw: str | bytes) -> Payload:
    """What a payload's bytes say."""
    raw = raw.encode() if isinstance(raw, str) else raw
    return Message(id="i", source="s", type=payload.TYPE, payload=raw).decode()


def rewritten(payload: Payload) -> str:
    """The bytes of a payload."""
    return Message.new("s", payload).payload.decode()


@pytest.mark.parametrize("name", ZEROS)
def test_what_nobody_filled_in_is_written_as_the_reference_does(name: str):
    """
    Some fields always, others not; and it is what an empty object and null say.
    """
    payload = PAYLOADS[name]

    assert ZEROS[name] == rewritten(payload())
    assert payload() == decoded(payload, "{}") == decoded(payload, "null") == decoded(payload, ZEROS[name])


def test_there_are_ten():
    """
    Those of the reference, and an example of each.
    """
    assert ZEROS.keys() == PAYLOADS.keys()


@given(payloads)
def test_a_payload_is_what_it_was(payload: Payload):
    """
    Through its bytes, integers of any size included; a whole float is an integer then, and equal.
    """
    again = Message.new("s", payload).decode()

    assert payload == again
    assert rewritten(payload) == rewritten(again)


@given(payloads)
def test_what_stands_beside_a_field_does_not_change_it(payload: Payload):
    """
    An unusual payload is read field by field, and says the same.
    """
    raw = rewritten(payload)
    unusual = decoded(type(payload), f'{{"unusual":1,{raw[1:]}')

    assert {"unusual": 1} == unusual.model_extra
    assert decoded(type(payload), raw).model_dump() | {"unusual": 1} == unusual.model_dump()


def test_every_payload_as_a_client_writes_it():
    """
    Fields in the order of the wire, empty ones left out, maps in the order in which they were filled.
    """
    request = InferRequest(
        model="auto",
        messages=[ChatMessage(role="user", content="2 < 3 & 4 > 3?\u2028")],
        params={"temperature": 1.0, "max_tokens": 16, "stop": ["\n"], "top_p": 1e-7},
    )
    expected = (
        r'{"model":"auto","messages":[{"role":"user","content":"2 \u003c 3 \u0026 4 \u003e 3?\u2028"}],'
        r'"params":{"temperature":1,"max_tokens":16,"stop":["\n"],"top_p":1e-7}}'
    )

    assert expected == rewritten(request)
    assert '{"name":"x","fields":[]}' == rewritten(DataSchema(name="x", fields=[]))
    assert '{"from":"b","version":"1.2","uptime_s":3}' == rewritten(
        HealthPong(from_="b", version="1.2", uptime_s=3)
    )
    assert "episode-v1" == json.loads(rewritten(DataEntities(schema_="episode-v1")))["schema"]


# As the reference reads


@pytest.mark.parametrize(
    ("payload", "raw", "expected"),
    [
        (EvalRun, '{"SUITE":"a","Tags":{"A":"b"}}', EvalRun(suite="a", tags={"A": "b"})),
        (EvalRun, '{"ta\u017fks":["x"]}', EvalRun(tasks=["x"])),
        (EvalRun, '{"suite":null,"tasks":null,"tags":null,"baseline":null}', EvalRun()),
        (EvalRun, '{"tasks":["a",null],"tags":{"b":null}}', EvalRun(tasks=["a", ""], tags={"b": ""})),
        (EvalRun, '{"suite":"a","Suite":"b","suite":null}', EvalRun(suite="b")),
        (EvalRun, '{"tags":{"a":"1","b":"2"},"tags":{"b":"3"}}', EvalRun(tags={"a": "1", "b": "3"})),
        (EvalRun, '{"tasks":["a","b"],"tasks":["c"]}', EvalRun(tasks=["c"])),
        (EvalRun, '{"tags":{"a":"1"},"tags":null}', EvalRun()),
        (EvalRun, ' {\r\n\t"suite" : "a" } ', EvalRun(suite="a")),
        (EvalResult, '{"score":1,"passed":true,"duration_ms":-0}', EvalResult(score=1.0, passed=True)),
        (EvalResult, '{"score":1e-400}', EvalResult()),
        (EvalResult, '{"score":-0}', EvalResult(score=-0.0)),
        (InferRequest, '{"messages":[null,{"ROLE":"r"}]}', InferRequest(messages=[{}, {"role": "r"}])),
        (InferRequest, '{"messages":[{"role":"a"}],"messages":null}', InferRequest()),
        (TraceSpan, '{"attrs":{"a":1,"a":{"b":[null,2]}}}', TraceSpan(attrs={"a": {"b": [None, 2]}})),
        (TraceSpan, '{"attrs":{"big":9007199254740993}}', TraceSpan(attrs={"big": 2**53 + 1})),
        (EvalRun, r'{"suite":"\ud83d\ude00\ud83d\u0041\udc00"}', EvalRun(suite="😀\ufffdA\ufffd")),
        (TraceSpan, r'{"attrs":{"\ud800":["\udc00"]}}', TraceSpan(attrs={"\ufffd": ["\ufffd"]})),
        (EvalRun, b'{"suite":"\xff\xe2\x82\xed\xa0\x80\xc3\xbc"}', EvalRun(suite="\ufffd" * 6 + "ü")),
    ],
)
def test_reading_is_as_lenient_as_the_reference(payload: type[Payload], raw: str | bytes, expected: Payload):
    """
    Names in either case, null as the zero value, the last of two, maps merged, text made whole.
    """
    assert expected == decoded(payload, raw)
    assert rewritten(expected) == rewritten(decoded(payload, raw))


@pytest.mark.parametrize(
    ("payload", "raw", "message"),
    [
        (EvalResult, '{"duration_ms":1.0}', "byte 15: eval.result: duration_ms: expected an integer"),
        (EvalResult, '{"duration_ms":-0.0}', "byte 15: eval.result: duration_ms: expected an integer"),
        (EvalResult, '{"duration_ms":1e3}', "byte 15: eval.result: duration_ms: expected an integer"),
        (EvalResult, '{"duration_ms":9223372036854775808}', "byte 15: .* expected an integer of 64 bits"),
        (EvalResult, '{"duration_ms":true}', "byte 15: .* expected an integer"),
        (EvalResult, '{"score":"1"}', "byte 9: eval.result: score: expected a number"),
        (EvalResult, '{"score":1e400}', "byte 9: .* a number"),
        (EvalResult, '{"score":true}', "byte 9: .* expected a number"),
        (EvalResult, '{"score":"x","score":1}', "byte 9: .* expected a number"),
        (EvalResult, '{"passed":1}', "byte 10: .* expected true or false"),
        (EvalRun, '{"suite":"ü","tasks":"x"}', "byte 22: eval.run: tasks: expected an array"),
        (EvalRun, '{"tasks":["a",1]}', "byte 9: eval.run: tasks.1: expected a string"),
        (EvalRun, '{"tags":{"a":1}}', "byte 8: eval.run: tags.a: expected a string"),
        (EvalRun, '{"tags":[]}', "byte 8: eval.run: tags: expected an object"),
        (EvalRun, '"x"', "byte 0: eval.run: a string, expected an object"),
        (EvalRun, "", "byte 0: eval.run: the end where a value should begin"),
        (
            InferRequest,
            '{"messages":[{},{"content":5}]}',
            "byte 12: .* messages.1.content: expected a str",
        ),
        (InferRequest, '{"messages":[{"role":1,"role":"x"}]}', "byte 21: .* role: expected a string"),
        (InferRequest, '{"messages":[5]}', "byte 13: infer.request: a number, expected an object"),
        (InferRequest, '{"messages":{}}', "byte 12: .* messages: expected an array"),
        (TraceSpan, '{"attrs":{"x":[1,[-1e400]]}}', "byte 9: .* a number beyond float64"),
        (TraceSpan, '{"attrs":{"x":1' + "0" * 400 + "}}", "byte 9: .* a number beyond float64"),
        (TraceSpan, '{"attrs":{"x":1' + "0" * 5_000 + "}}", "byte 9: .* a number with too many digits"),
    ],
)
def test_reading_is_as_strict_as_the_reference(payload: type[Payload], raw: str, message: str):
    """
    Each refusal names the byte at which the value begins, and the field.
    """
    with pytest.raises(PayloadError, match=f"^{message}"):
        decoded(payload, raw)


def test_fields_that_the_protocol_does_not_know_stay():
    """
    After the others, when the payload goes on in another message; those that can't be held are left out.
    """
    raw = '{"suite":"a","x_spec":{"v":[1,null]},"SCORES":1e999,"deep":1' + "0" * 5_000 + "}"
    payload = decoded(EvalRun, raw)

    assert '{"suite":"a","baseline":false,"x_spec":{"v":[1,null]}}' == rewritten(payload)


def test_a_field_of_the_wire_is_not_set_by_its_name_in_python():
    """
    `from_` is no name of the wire.
    """
    assert HealthPong() == decoded(HealthPong, '{"from_":"x"}')


# In Python


def test_payloads_are_values():
    """
    Equal where their fields are, and not to be changed.
    """
    assert EvalRun(suite="a", tasks=["b"]) == EvalRun(suite="a", tasks=("b",))
    with pytest.raises(ValidationError):
        EvalRun().suite = "x"


@pytest.mark.parametrize(
    ("payload", "values"),
    [
        (EvalResult, {"score": float("nan")}),
        (EvalResult, {"duration_ms": 1.5}),
        (EvalResult, {"duration_ms": 2**63}),
        (EvalRun, {"suite": 5}),
        (EvalRun, {"tasks": "abc"}),
        (InferResponse, {"tokens_in": "3"}),
    ],
)
def test_a_value_of_another_type_is_refused_at_once(payload: type[Payload], values: dict[str, object]):
    """
    Nothing is turned into something else.
    """
    with pytest.raises(ValidationError):
        payload(**values)
