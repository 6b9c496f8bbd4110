"""What is let past protovalidate as plain must break no rule of the contract."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from protovalidate import Validator

from placet.v1 import action_pb2
from placet.v1 import runtime_service_pb2 as pb
from placet_server.rpc.plain_request import is_plain, is_plain_submission
from tests.examples import examples

VALIDATOR = Validator()

EDGES = [
    "",
    " ",
    "a",
    " a",
    "a ",
    "a b",
    "\t",
    "a\x7f",
    "a\x00",
    "é",
    "~",
    "a" * 128,
    "a" * 129,
    "a" * 256,
    "a" * 257,
]
TEXTS = st.one_of(st.sampled_from(EDGES), st.text(max_size=300))
NUMBERS = st.integers(min_value=-(2**31), max_value=2**31 - 1) | st.integers(min_value=-2, max_value=5)


@st.composite
def requests(draw: st.DrawFn) -> pb.ExecuteRequest:
    request = pb.ExecuteRequest()
    if draw(st.booleans()) or draw(st.booleans()):
        request.invocation.SetInParent()
    else:
        return request
    invocation = request.invocation
    invocation.capability = draw(TEXTS)
    invocation.version = draw(st.one_of(st.just(""), TEXTS))
    invocation.input_json = draw(st.text(max_size=20))
    if draw(st.booleans()):
        options = invocation.options
        options.idempotency_key = draw(TEXTS)
        options.on_caller_gone = draw(NUMBERS)  # type: ignore[assignment]
        options.on_duplicate = draw(NUMBERS)  # type: ignore[assignment]
        options.require_durability = draw(NUMBERS)  # type: ignore[assignment]
        for label in draw(st.lists(TEXTS, max_size=2)):
            options.labels[label] = label
        if draw(st.booleans()):
            options.timeout.seconds = draw(st.integers(min_value=-5, max_value=100_000))
    return request


QUEUES = ["", "default", "a", "a-b_9", "9a", "A", "a b", "a\n", "é", "-", "a" * 64, "a" * 65]


@st.composite
def submissions(draw: st.DrawFn) -> pb.SubmitRequest:
    request = pb.SubmitRequest(invocation=draw(requests()).invocation, queue=draw(st.sampled_from(QUEUES)))
    if draw(st.booleans()):
        request.priority = draw(st.integers(min_value=-1, max_value=10) | NUMBERS)
    match draw(st.integers(min_value=0, max_value=3)):
        case 0:
            request.delay.seconds = draw(st.integers(min_value=-1, max_value=31536001))
        case 1:
            request.ready_time.seconds = draw(st.sampled_from([0, 253402300799, 253402300800]))
    return request


@examples(250, long=5000)
@given(requests())
def test_a_plain_request_breaks_no_rule(request: pb.ExecuteRequest) -> None:
    if is_plain(request):
        assert [] == VALIDATOR.collect_violations(request)


@examples(250, long=5000)
@given(submissions())
def test_a_plain_submission_breaks_no_rule(request: pb.SubmitRequest) -> None:
    if is_plain_submission(request):
        assert [] == VALIDATOR.collect_violations(request)


def test_an_ordinary_request_is_plain() -> None:
    options = action_pb2.InvocationOptions(idempotency_key="order-17 refund")
    invocation = action_pb2.Invocation(capability="orders.refund", input_json="{}", options=options)
    assert is_plain(pb.ExecuteRequest(invocation=invocation))
    assert is_plain_submission(pb.SubmitRequest(invocation=invocation, queue="nightly", priority=9))


def test_a_request_without_invocation_is_not_plain() -> None:
    assert not is_plain(pb.ExecuteRequest())
    assert not is_plain_submission(pb.SubmitRequest())
