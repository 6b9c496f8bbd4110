"""Whatever the server refuses, its status has exactly one ErrorInfo, of our domain."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import placet.testing
from placet.v1 import outcome_pb2
from tests.conformance.conftest import Dial
from tests.conformance.program import Program

NOBODY = str(uuid.UUID(int=1))
WRITING_READ = {"effect": "EFFECT_CLASS_READ", "hazards": ["HAZARD_WRITE"]}
ADMIT = {
    "manifest": {
        "name": "m",
        "version": "1",
        "capabilities": [
            {"name": "a.b", "version": "1", "kind": "CAPABILITY_KIND_TOOL", "contract": WRITING_READ}
        ],
    }
}


SELECTED = {"selection": {"action_ids": [NOBODY]}}
DECISION = {"approval_id": NOBODY, "digest": "0" * 64, "verdict": "VOTE_VERDICT_APPROVE", "decision_id": "d"}
VERDICT = {"action_id": NOBODY, "verdict": "VERDICT_NOT_DONE", "reason": "r", "evidence": "e"}


def invoke(capability: str = "desk.echo", input_json: str = '{"text": "a"}', **more: Any) -> dict[str, Any]:
    return {"invocation": {"capability": capability, "input_json": input_json, **more}}


REFUSALS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "no capability named": ("Execute", {"invocation": {}}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "no invocation": ("Execute", {}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "no JSON": ("Execute", invoke(input_json="{"), "INVALID_ARGUMENT", "MALFORMED_JSON"),
    "a member twice": (
        "Execute",
        invoke(input_json='{"text":"a","text":"b"}'),
        "INVALID_ARGUMENT",
        "JSON_NOT_INTEROPERABLE",
    ),
    "too large": (
        "Execute",
        invoke(input_json='{"text":"' + "a" * 1_100_000 + '"}'),
        "INVALID_ARGUMENT",
        "PAYLOAD_TOO_LARGE",
    ),
    "against the schema": (
        "Execute",
        invoke(input_json='{"text":1}'),
        "INVALID_ARGUMENT",
        "INPUT_SCHEMA_VIOLATION",
    ),
    "unknown capability": ("Execute", invoke("desk.none"), "NOT_FOUND", "CAPABILITY_NOT_FOUND"),
    "unknown version": ("ExecuteStream", invoke(version="9"), "NOT_FOUND", "CAPABILITY_NOT_FOUND"),
    "no key": (
        "Execute",
        invoke("desk.pay", '{"amount":"1"}'),
        "INVALID_ARGUMENT",
        "IDEMPOTENCY_KEY_REQUIRED",
    ),
    "a key where none is kept": (
        "Execute",
        invoke("desk.keyless", "{}", options={"idempotency_key": "k"}),
        "INVALID_ARGUMENT",
        "CONTRACT_VIOLATION",
    ),
    "unknown approval": ("GetApproval", {"approval_id": NOBODY}, "NOT_FOUND", "NOT_FOUND"),
    "unknown approval, decided": ("DecideApproval", DECISION, "NOT_FOUND", "NOT_FOUND"),
    "unknown approval, revoked": (
        "RevokeDecision",
        {"approval_id": NOBODY, "decision_id": "d"},
        "NOT_FOUND",
        "NOT_FOUND",
    ),
    "unknown question": (
        "ProvideInput",
        {"approval_id": NOBODY, "digest": "0" * 64, "answer_json": "1", "decision_id": "d"},
        "NOT_FOUND",
        "NOT_FOUND",
    ),
    "unknown approval, claimed": ("ClaimApproval", {"approval_id": NOBODY}, "NOT_FOUND", "NOT_FOUND"),
    "unknown approval, released": ("ReleaseApproval", {"approval_id": NOBODY}, "NOT_FOUND", "NOT_FOUND"),
    "somebody's watch of approvals": (
        "WatchApprovals",
        {"after_cursor": "AAAA"},
        "INVALID_ARGUMENT",
        "MALFORMED_REQUEST",
    ),
    "no page of approvals": (
        "ListApprovals",
        {"page_token": "AAAA"},
        "INVALID_ARGUMENT",
        "MALFORMED_REQUEST",
    ),
    "unknown action": ("GetAction", {"action_id": NOBODY}, "NOT_FOUND", "NOT_FOUND"),
    "unknown action, waited for": ("WaitAction", {"action_id": NOBODY}, "NOT_FOUND", "NOT_FOUND"),
    "unknown action, watched": ("WatchAction", {"action_id": NOBODY}, "NOT_FOUND", "NOT_FOUND"),
    "unknown action, resumed": ("ResumeAction", {"action_id": NOBODY}, "NOT_FOUND", "NOT_FOUND"),
    "unknown action, resumed with events": (
        "ResumeActionStream",
        {"action_id": NOBODY},
        "NOT_FOUND",
        "NOT_FOUND",
    ),
    "unknown action, cancelled": ("CancelAction", {"action_id": NOBODY}, "NOT_FOUND", "NOT_FOUND"),
    "unknown key": (
        "GetAction",
        {"key": {"capability": "desk.pay", "idempotency_key": "none"}},
        "NOT_FOUND",
        "NOT_FOUND",
    ),
    "somebody's page": ("ListActions", {"page_token": "AAAA"}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "somebody's feed": ("WatchEvents", {"after_cursor": "AAAA"}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "all cancelled, without a filter": ("CancelActions", {}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "manifest with problems": ("AdmitManifest", ADMIT, "INVALID_ARGUMENT", "MANIFEST_REFUSED"),
    "unknown capability, withdrawn": (
        "WithdrawCapability",
        {"name": "desk.none"},
        "NOT_FOUND",
        "CAPABILITY_NOT_FOUND",
    ),
    "unknown capability, read": (
        "GetCapability",
        {"name": "desk.none"},
        "NOT_FOUND",
        "CAPABILITY_NOT_FOUND",
    ),
}

REFUSALS |= {
    "submitted against the schema": (
        "Submit",
        invoke(input_json='{"text":1}'),
        "INVALID_ARGUMENT",
        "INPUT_SCHEMA_VIOLATION",
    ),
    "submitted to nobody": ("Submit", invoke("desk.none"), "NOT_FOUND", "CAPABILITY_NOT_FOUND"),
    "submitted without key": (
        "Submit",
        invoke("desk.pay", '{"amount":"1"}'),
        "INVALID_ARGUMENT",
        "IDEMPOTENCY_KEY_REQUIRED",
    ),
    "queue of no shape": ("Submit", invoke() | {"queue": "Q"}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "priority of nowhere": ("Submit", invoke() | {"priority": 10}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "delay into the past": ("Submit", invoke() | {"delay": "-1s"}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "tenant of no shape": ("ListQueues", {"tenant": "--"}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "pause of no shape": ("PauseQueue", {"queue": "Q"}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "too many servers": ("ListServers", {"page_size": 1001}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "too many deliveries": (
        "ListDeliveries",
        {"page_size": 1001},
        "INVALID_ARGUMENT",
        "MALFORMED_REQUEST",
    ),
    "delivery of nobody": ("GetDelivery", {"delivery_id": str(uuid.uuid4())}, "NOT_FOUND", "NOT_FOUND"),
    "redelivery of nothing": (
        "RedeliverCallback",
        {"delivery_id": str(uuid.uuid4())},
        "NOT_FOUND",
        "NOT_FOUND",
    ),
    "resume of nothing": ("ResumeQueue", {}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "empty batch": ("SubmitBatch", {}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "batch too large": ("SubmitBatch", {"items": [invoke()] * 501}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "somebody's dead letters": (
        "ListDeadLetters",
        {"page_token": "AAAA"},
        "INVALID_ARGUMENT",
        "MALFORMED_REQUEST",
    ),
    "verdict without evidence": (
        "ResolveAmbiguous",
        VERDICT | {"evidence": ""},
        "INVALID_ARGUMENT",
        "MALFORMED_REQUEST",
    ),
    "output of what was not done": (
        "ResolveAmbiguous",
        VERDICT | {"output_json": "1"},
        "INVALID_ARGUMENT",
        "MALFORMED_REQUEST",
    ),
    "verdict on nobody": ("ResolveAmbiguous", VERDICT, "NOT_FOUND", "NOT_FOUND"),
    "somebody's ambiguous effects": (
        "ListAmbiguous",
        {"page_token": "AAAA"},
        "INVALID_ARGUMENT",
        "MALFORMED_REQUEST",
    ),
    "ids and others to reconcile": (
        "Reconcile",
        {"action_ids": [NOBODY], "count_max": 1},
        "INVALID_ARGUMENT",
        "MALFORMED_REQUEST",
    ),
    "family of nothing": (
        "Recover",
        {"families": ["REPORT_FAMILY_UNSPECIFIED"]},
        "INVALID_ARGUMENT",
        "MALFORMED_REQUEST",
    ),
    "report of nobody": ("GetReport", {"report_id": NOBODY}, "NOT_FOUND", "NOT_FOUND"),
    "somebody's reports": ("ListReports", {"page_token": "AAAA"}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "policies that are none": (
        "AdmitPolicySet",
        {"policy_set": {"name": "p", "cedar": "permit"}},
        "INVALID_ARGUMENT",
        "POLICY_SET_REFUSED",
    ),
    "policies that are not those": (
        "RollBackPolicySet",
        {"revision": "0", "expected_digest": "0" * 64},
        "FAILED_PRECONDITION",
        "STALE_DIGEST",
    ),
    "revision of nobody": ("GetPolicySet", {"revision": "77"}, "NOT_FOUND", "NOT_FOUND"),
    "somebody's policies": (
        "ListPolicySets",
        {"page_token": "AAAA"},
        "INVALID_ARGUMENT",
        "MALFORMED_REQUEST",
    ),
    "policies of nothing": ("DryRunPolicySet", {}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "policies without an end": (
        "ValidatePolicySet",
        {"policy_set": {"name": "p", "cedar": "/" * 262145}},
        "INVALID_ARGUMENT",
        "MALFORMED_REQUEST",
    ),
    "decision about nobody": ("ExplainDecision", {"id": NOBODY}, "NOT_FOUND", "NOT_FOUND"),
    "nothing to redrive": ("Redrive", {}, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "too much to redrive": (
        "Redrive",
        SELECTED | {"attempts": 101},
        "INVALID_ARGUMENT",
        "MALFORMED_REQUEST",
    ),
}

INVOKING = ("Execute", "ExecuteStream", "Submit", "WithdrawCapability")
REFUSED = outcome_pb2.OUTCOME_KIND_REFUSED


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_has_one_reason(program: Program, case: str) -> None:
    rpc, request, code, reason = REFUSALS[case]
    answer = program.call(rpc, request)
    assert (code, reason, reason) == (answer.code, answer.reason, answer.trailers["placet-reason"])
    # A gate says what became of the invocation: refused, and nothing stored. Nobody else had one.
    is_gates = rpc in INVOKING and reason != "MALFORMED_REQUEST"
    assert ([REFUSED] if is_gates else []) == [outcome.kind for outcome in answer.outcomes]
    assert [] == [outcome.action_id for outcome in answer.outcomes if outcome.action_id]
    assert [] == [r for r in answer.responses if r]


@pytest.mark.parametrize(
    ("path", "raw", "code", "reason"),
    [
        ("/placet.v1.RuntimeService/Undo", b"", "UNIMPLEMENTED", "UNKNOWN_METHOD"),
        ("/placet.v1.NoService/Execute", b"", "UNIMPLEMENTED", "UNKNOWN_METHOD"),
        ("/x/y", b"\xff" * 100, "UNIMPLEMENTED", "UNKNOWN_METHOD"),
        ("/placet.v1.RuntimeService/Execute", b"\xff\xff\xff", "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
        ("/placet.v1.RuntimeService/GetAction", b"\x0a\x02\xc3\x28", "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    ],
    ids=["method", "service", "nonsense", "garbage", "no UTF-8"],
)
def test_what_no_stub_would_send_is_refused_with_one_reason(
    program: Program, path: str, raw: bytes, code: str, reason: str
) -> None:
    answer = program.call_path(path, raw)
    assert (code, reason) == (answer.code, answer.reason)


@pytest.mark.parametrize(
    "rpc",
    [
        "Execute",
        "ExecuteStream",
        "Submit",
        "SubmitBatch",
        "GetCaller",
        "WatchAction",
        "WatchEvents",
        "ResumeAction",
        "GetCapability",
        "ListQueues",
        "PauseQueue",
        "ResumeQueue",
        "ListServers",
        "ListDeliveries",
        "GetDelivery",
        "RedeliverCallback",
        "Redrive",
    ],
)
@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer wrong", "Basic eA==", "Bearer " + "x" * 7000]
)
def test_who_is_not_known_is_told_so_on_every_rpc(
    dial: Dial, server: placet.testing.Server, rpc: str, authorization: str
) -> None:
    metadata = {"authorization": authorization} if authorization else {}
    answer = dial(server.target).call(rpc, metadata=metadata)
    assert ("UNAUTHENTICATED", "UNAUTHENTICATED") == (answer.code, answer.reason)


def test_another_input_under_a_key_and_an_unwanted_duplicate_have_reasons_of_their_own(
    program: Program,
) -> None:
    key = {"idempotency_key": str(uuid.uuid4())}
    first = program.call("Execute", invoke("desk.pay", '{"amount":"1"}', options=key))
    assert "OK" == first.code
    other = program.call("Execute", invoke("desk.pay", '{"amount":"2"}', options=key))
    assert ("ALREADY_EXISTS", "IDEMPOTENCY_CONFLICT") == (other.code, other.reason)
    refused = key | {"on_duplicate": "ON_DUPLICATE_REFUSE"}
    again = program.call("Execute", invoke("desk.pay", '{"amount":"1"}', options=refused))
    assert ("ALREADY_EXISTS", "DUPLICATE_REFUSED") == (again.code, again.reason)
    assert first.action.action_id == again.variables["action_id"]
