"""Another tenant's action, key, page, cursor and manifest: as if they did not exist, in the very same words."""

from __future__ import annotations

import uuid
from typing import Any

import grpc
import pytest

from placet.v1 import action_pb2, decision_pb2, event_pb2, operations_service_pb2
from placet.v1 import approval_service_pb2 as approvals
from placet.v1 import catalog_service_pb2 as catalog
from placet.v1 import policy_service_pb2 as policy
from placet.v1 import recovery_service_pb2 as recovery
from placet.v1 import runtime_service_pb2 as pb
from placet_server.rpc.page import page_token
from tests.hostile.served import Client, Served
from tests.rpc.support import Refusal, refusal

SET = policy.PolicySet(name="theirs")
LINES = '{"lines":[{"item":"a","amount":1}]}'


@pytest.fixture
async def action(client: Client) -> action_pb2.Action:
    """Of acme, settled."""
    return (await client.execute("hostile.order", LINES, key=str(uuid.uuid4()))).action


def by_id(action_id: str) -> dict[str, Any]:
    return {
        "GetAction": pb.GetActionRequest(action_id=action_id),
        "WaitAction": pb.WaitActionRequest(action_id=action_id),
        "WatchAction": pb.WatchActionRequest(action_id=action_id),
        "ResumeAction": pb.ResumeActionRequest(action_id=action_id),
        "ResumeActionStream": pb.ResumeActionStreamRequest(action_id=action_id),
        "CancelAction": pb.CancelActionRequest(action_id=action_id, reason="mine now"),
        "ResolveAmbiguous": recovery.ResolveAmbiguousRequest(
            action_id=action_id, verdict=recovery.VERDICT_NOT_DONE, reason="mine now", evidence="mine"
        ),
    }


def told(refused: Refusal, name: str) -> tuple[object, ...]:
    """All that a caller learns, with the name it asked for left out."""
    return (
        refused.code,
        refused.reason,
        refused.message.replace(name, "?"),
        {k: v.replace(name, "?") for k, v in refused.infos[0].metadata.items()},
        sorted(refused.trailers),
        len(refused.status.details),
    )


@pytest.mark.parametrize("rpc", by_id(""))
async def test_an_action_of_another_tenant_is_told_apart_from_none_by_nothing(
    server: Served, stranger: Client, action: action_pb2.Action, rpc: str
) -> None:
    nowhere = str(uuid.uuid4())
    async with server.unharmed():
        theirs = await refusal(stranger.call(rpc, by_id(action.action_id)[rpc]))
        none = await refusal(stranger.call(rpc, by_id(nowhere)[rpc]))
    assert (grpc.StatusCode.NOT_FOUND, "NOT_FOUND") == (theirs.code, theirs.reason)
    assert told(none, nowhere) == told(theirs, action.action_id)
    assert "acme" not in str(theirs.status)


async def test_an_approval_of_another_tenant_is_told_apart_from_none_by_nothing(
    server: Served, client: Client, stranger: Client
) -> None:
    options = action_pb2.InvocationOptions(on_wait=action_pb2.ON_WAIT_RETURN)
    invocation = action_pb2.Invocation(
        capability="hostile.approved", input_json='{"text":"secret"}', options=options
    )
    waiting = (await client.call("Execute", pb.ExecuteRequest(invocation=invocation))).action
    seen = await client.call("GetApproval", approvals.GetApprovalRequest(approval_id=waiting.approval_id))
    nowhere = str(uuid.uuid4())

    def asked(approval_id: str) -> dict[str, Any]:
        return {
            "GetApproval": approvals.GetApprovalRequest(approval_id=approval_id),
            "RevokeDecision": approvals.RevokeDecisionRequest(approval_id=approval_id, decision_id="mine"),
            "ProvideInput": approvals.ProvideInputRequest(
                approval_id=approval_id,
                digest=seen.approval.digest,
                answer_json="1",
                decision_id="mine",
            ),
            "ClaimApproval": approvals.ClaimApprovalRequest(approval_id=approval_id),
            "ReleaseApproval": approvals.ReleaseApprovalRequest(approval_id=approval_id),
            "DecideApproval": approvals.DecideApprovalRequest(
                approval_id=approval_id,
                digest=seen.approval.digest,
                verdict=decision_pb2.VOTE_VERDICT_APPROVE,
                decision_id="mine",
            ),
        }

    async with server.unharmed():
        for rpc in asked(""):
            theirs = await refusal(stranger.call(rpc, asked(waiting.approval_id)[rpc]))
            none = await refusal(stranger.call(rpc, asked(nowhere)[rpc]))
            assert (grpc.StatusCode.NOT_FOUND, "NOT_FOUND") == (theirs.code, theirs.reason)
            assert told(none, nowhere) == told(theirs, waiting.approval_id)
        for filter_ in (
            approvals.ApprovalFilter(),
            approvals.ApprovalFilter(action_id=waiting.action_id),
            approvals.ApprovalFilter(states=[decision_pb2.APPROVAL_STATE_PENDING], requester="alice"),
        ):
            page = await stranger.call("ListApprovals", approvals.ListApprovalsRequest(filter=filter_))
            assert [] == list(page.approvals)
    await client.call("CancelAction", pb.CancelActionRequest(action_id=waiting.action_id))


async def test_a_running_action_of_another_tenant_is_not_cancelled(
    server: Served, client: Client, stranger: Client
) -> None:
    key = str(uuid.uuid4())
    options = action_pb2.InvocationOptions(idempotency_key=key)
    request = pb.ExecuteStreamRequest(
        invocation=action_pb2.Invocation(capability="hostile.wait", input_json="{}", options=options)
    )
    running = client.runtime.ExecuteStream(request, metadata=client.metadata, timeout=60)
    action_id = (await running.read()).event.action_id
    refused = await refusal(stranger.call("CancelAction", by_id(action_id)["CancelAction"]))
    assert "NOT_FOUND" == refused.reason
    all_of_it = pb.ActionFilter(capabilities=["hostile.wait"])
    none = await stranger.call("CancelActions", pb.CancelActionsRequest(filter=all_of_it))
    assert (0, 0, 0) == (none.matched, none.marked, none.ended)
    seen = (await client.call("GetAction", pb.GetActionRequest(action_id=action_id))).action
    assert (action_pb2.ACTION_STATE_RUNNING, False) == (seen.state, seen.HasField("cancel_requested_time"))
    await client.call("CancelAction", pb.CancelActionRequest(action_id=action_id))
    settled = (await client.call("WaitAction", pb.WaitActionRequest(action_id=action_id))).action
    assert action_pb2.ACTION_STATE_CANCELLED == settled.state
    running.cancel()


async def test_a_key_belongs_to_its_tenant_and_its_principal(
    server: Served, stranger: Client, action: action_pb2.Action
) -> None:
    request = pb.GetActionRequest(
        key=pb.KeyRef(capability="hostile.order", idempotency_key=action.idempotency_key)
    )
    async with server.client("acme", "mallory") as colleague, server.unharmed():
        assert "NOT_FOUND" == (await refusal(stranger.call("GetAction", request))).reason
        assert "NOT_FOUND" == (await refusal(colleague.call("GetAction", request))).reason


async def test_the_same_key_in_another_tenant_is_another_action(
    stranger: Client, action: action_pb2.Action
) -> None:
    own = await stranger.execute("hostile.order", LINES, key=action.idempotency_key)
    assert (False, True) == (own.attached, own.action.action_id != action.action_id)
    assert "globex" == own.action.requester.tenant


async def test_a_list_shows_the_own_tenant_alone(
    server: Served, client: Client, stranger: Client, action: action_pb2.Action
) -> None:
    for filter_ in (
        pb.ActionFilter(),
        pb.ActionFilter(requester="alice"),
        pb.ActionFilter(action_id_prefix=action.action_id),
        pb.ActionFilter(capabilities=["hostile.order"]),
    ):
        page = await stranger.call("ListActions", pb.ListActionsRequest(filter=filter_, page_size=1000))
        assert action.action_id not in [each.action_id for each in page.actions]
        assert {"globex"} >= {each.requester.tenant for each in page.actions}


async def test_a_page_token_serves_its_own_request_and_tenant_alone(
    server: Served, client: Client, stranger: Client, action: action_pb2.Action
) -> None:
    for _ in range(2):
        await client.execute("hostile.order", LINES, key=str(uuid.uuid4()))
    page = await client.call("ListActions", pb.ListActionsRequest(page_size=1))
    token = page.next_page_token
    assert token
    other_filter = pb.ListActionsRequest(page_token=token, filter=pb.ActionFilter(requester="bob"))
    async with server.unharmed():
        for caller, rpc, request in (
            (stranger, "ListActions", pb.ListActionsRequest(page_token=token)),
            (client, "ListActions", other_filter),
            (client, "ListManifests", catalog.ListManifestsRequest(page_token=token)),
            (client, "ListCapabilities", catalog.ListCapabilitiesRequest(page_token=token)),
            (client, "ListDeadLetters", recovery.ListDeadLettersRequest(page_token=token)),
            (client, "ListAmbiguous", recovery.ListAmbiguousRequest(page_token=token)),
            (client, "ListReports", recovery.ListReportsRequest(page_token=token)),
            (client, "ListPolicySets", policy.ListPolicySetsRequest(page_token=token)),
            (client, "DryRunPolicySet", policy.DryRunPolicySetRequest(policy_set=SET, page_token=token)),
            (client, "ListApprovals", approvals.ListApprovalsRequest(page_token=token)),
            (client, "ListDeliveries", operations_service_pb2.ListDeliveriesRequest(page_token=token)),
            (client, "ListActions", pb.ListActionsRequest(page_token=token[:-2])),
            (client, "ListActions", pb.ListActionsRequest(page_token=token + "A")),
            (client, "ListActions", pb.ListActionsRequest(page_token="A" * 512)),
        ):
            refused = await refusal(caller.call(rpc, request))
            assert (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST") == (refused.code, refused.reason)
    more = await client.call("ListActions", pb.ListActionsRequest(page_size=1, page_token=token))
    assert 1 == len(more.actions)


async def test_a_page_token_made_by_hand_gets_no_further_than_its_check(
    server: Served, client: Client
) -> None:
    """The algorithm is no secret, so a token may be right in form and lead nowhere."""
    async with server.unharmed():
        for rpc, request, position in (
            ("ListActions", pb.ListActionsRequest(), "nonsense"),
            ("ListActions", pb.ListActionsRequest(), "\x00"),
            ("ListActions", pb.ListActionsRequest(), "%"),
            ("ListDeadLetters", recovery.ListDeadLettersRequest(), "nonsense"),
            ("ListDeadLetters", recovery.ListDeadLettersRequest(), "\x00"),
            ("ListAmbiguous", recovery.ListAmbiguousRequest(), "nonsense"),
            ("ListReports", recovery.ListReportsRequest(), "nonsense"),
            ("ListPolicySets", policy.ListPolicySetsRequest(), "nonsense"),
            ("DryRunPolicySet", policy.DryRunPolicySetRequest(policy_set=SET), "nonsense"),
            ("ListApprovals", approvals.ListApprovalsRequest(), "nonsense"),
            ("ListApprovals", approvals.ListApprovalsRequest(), "1:nonsense"),
            ("ListApprovals", approvals.ListApprovalsRequest(), f"-1:{uuid.uuid4()}"),
            ("ListApprovals", approvals.ListApprovalsRequest(), f"{10**30}:{uuid.uuid4()}"),
            ("ListDeliveries", operations_service_pb2.ListDeliveriesRequest(), "nonsense"),
            ("ListManifests", catalog.ListManifestsRequest(), "a\x00"),
            ("ListCapabilities", catalog.ListCapabilitiesRequest(), "a\n\x00"),
        ):
            request.page_token = page_token(request, "acme", position)
            refused = await refusal(client.call(rpc, request))
            assert (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST") == (refused.code, refused.reason)
        for rpc, request, position in (
            ("ListManifests", catalog.ListManifestsRequest(), "zzz"),
            ("ListCapabilities", catalog.ListCapabilitiesRequest(), "zzz"),
            ("ListCapabilities", catalog.ListCapabilitiesRequest(), "z\nz\nz"),
        ):
            request.page_token = page_token(request, "acme", position)
            assert b"" == (await client.call(rpc, request)).SerializeToString()


async def test_a_page_of_dead_letters_is_turned_by_its_own_tenant_alone(
    server: Served, client: Client, stranger: Client, action: action_pb2.Action
) -> None:
    for named in ("", "acme", "-"):
        request = recovery.ListDeadLettersRequest(tenant=named)
        request.page_token = page_token(request, "acme", action.action_id)
        async with server.unharmed():
            reason = (await refusal(stranger.call("ListDeadLetters", request))).reason
        assert ("SCOPE_MISSING" if named else "MALFORMED_REQUEST") == reason
    # Whoever continues after an action of somebody else stays within its own.
    request = recovery.ListDeadLettersRequest()
    request.page_token = page_token(request, "globex", action.action_id)
    page = await stranger.call("ListDeadLetters", request)
    assert {"globex"} >= {each.requester.tenant for each in page.actions}


async def test_a_cursor_of_another_action_or_of_nowhere_is_refused(
    server: Served, client: Client, stranger: Client, action: action_pb2.Action
) -> None:
    own = (await stranger.execute("hostile.order", LINES, key=str(uuid.uuid4()))).action
    second = (await client.execute("hostile.order", LINES, key=str(uuid.uuid4()))).action
    async with server.unharmed():
        for caller, action_id, cursor in (
            (stranger, own.action_id, action.cursor),
            (client, action.action_id, second.cursor),
            (client, action.action_id, "x"),
            (client, action.action_id, "√"),
            (client, action.action_id, "A" * 256),
            (client, action.action_id, action.cursor[:-1]),
        ):
            request = pb.WatchActionRequest(action_id=action_id, after_cursor=cursor)
            refused = await refusal(caller.call("WatchAction", request))
            assert refused.reason in ("MALFORMED_REQUEST", "CURSOR_EXPIRED"), cursor


async def test_a_feed_shows_the_own_tenant_alone_and_its_cursor_serves_nobody_else(
    server: Served, client: Client, stranger: Client, action: action_pb2.Action
) -> None:
    async def told(caller: Client, request: pb.WatchEventsRequest) -> list[event_pb2.ActionEvent]:
        """To the checkpoint at the end of the past."""
        found = []
        call = caller.runtime.WatchEvents(request, metadata=caller.metadata, timeout=30)
        async for response in call:
            found.append(response.event)
            if not response.event.type:
                break
        call.cancel()
        return found

    await stranger.execute("hostile.order", LINES, key=str(uuid.uuid4()))
    theirs = await told(stranger, pb.WatchEventsRequest())
    own = await told(client, pb.WatchEventsRequest(filter=pb.EventFilter(types=["placet.action.settled"])))
    assert action.action_id in {event.action_id for event in own}
    assert not {event.action_id for event in own[:-1]} & {event.action_id for event in theirs[:-1]}
    async with server.unharmed():
        for caller, cursor in (
            (stranger, own[0].cursor),
            (client, theirs[0].cursor),
            (client, own[0].cursor),
        ):
            refused = await refusal(caller.call("WatchEvents", pb.WatchEventsRequest(after_cursor=cursor)))
            assert "MALFORMED_REQUEST" == refused.reason
        chunks = pb.WatchEventsRequest(filter=pb.EventFilter(types=["placet.action.chunk"]))
        assert "MALFORMED_REQUEST" == (await refusal(client.call("WatchEvents", chunks))).reason


def submission(key: str, delay_seconds: int = 3600) -> pb.SubmitRequest:
    """Of what waits long enough for nobody to begin it meanwhile."""
    options = action_pb2.InvocationOptions(idempotency_key=key)
    request = pb.SubmitRequest(
        invocation=action_pb2.Invocation(capability="hostile.order", input_json=LINES, options=options),
        queue="acme_secret",
    )
    request.delay.seconds = delay_seconds
    return request


def selected(*action_ids: str, **members: Any) -> recovery.RedriveRequest:
    return recovery.RedriveRequest(selection=recovery.EndedSelection(action_ids=action_ids), **members)


EVERYTHING = recovery.EndedSelection(filter=recovery.DeadLetterFilter())


@pytest.fixture
async def cancelled(client: Client) -> action_pb2.Action:
    """Of acme, ended without effect, so that it may be redriven."""
    waiting = (await client.call("Submit", submission(str(uuid.uuid4())))).action
    await client.call("CancelAction", pb.CancelActionRequest(action_id=waiting.action_id))
    asked = pb.WaitActionRequest(action_id=waiting.action_id)
    ended: action_pb2.Action = (await client.call("WaitAction", asked)).action
    assert action_pb2.ACTION_STATE_CANCELLED == ended.state
    return ended


async def test_what_waits_is_of_the_own_tenant_alone(
    server: Served, client: Client, stranger: Client
) -> None:
    own = (await client.call("Submit", submission(str(uuid.uuid4())))).action
    async with server.unharmed():
        theirs = await stranger.call("ListQueues", operations_service_pb2.ListQueuesRequest())
        assert "acme_secret" not in [queue.name for queue in theirs.queues]
        for rpc, request in by_id(own.action_id).items():
            assert "NOT_FOUND" == (await refusal(stranger.call(rpc, request))).reason
        ours = await client.call("ListQueues", operations_service_pb2.ListQueuesRequest(tenant="acme"))
        assert "acme_secret" in [queue.name for queue in ours.queues]


async def test_a_key_in_a_batch_is_of_the_own_tenant_alone(client: Client, stranger: Client) -> None:
    request = pb.SubmitBatchRequest(items=[submission(str(uuid.uuid4()))])
    ours, again, theirs = [
        (await caller.call("SubmitBatch", request)).results[0].submitted
        for caller in (client, client, stranger)
    ]
    assert (ours.action_id, True) == (again.action_id, again.attached)
    assert (False, False) == (ours.action_id == theirs.action_id, theirs.attached)


async def test_a_pause_is_of_the_own_tenant_alone(server: Served, client: Client, stranger: Client) -> None:
    await client.call("Submit", submission(str(uuid.uuid4())))
    pause = operations_service_pb2.PauseQueueRequest(queue="acme_secret", reason="theirs")
    async with server.unharmed():
        theirs = (await stranger.call("PauseQueue", pause)).queue
        assert (True, 0) == (theirs.paused, theirs.ready)
        listed = await client.call("ListQueues", operations_service_pb2.ListQueuesRequest())
        assert [False] == [queue.paused for queue in listed.queues if queue.name == "acme_secret"]
        await stranger.call("ResumeQueue", operations_service_pb2.ResumeQueueRequest(queue="acme_secret"))


def delivery_of(tenant: str) -> operations_service_pb2.GetDeliveryRequest:
    return operations_service_pb2.GetDeliveryRequest(tenant=tenant, delivery_id=str(uuid.uuid4()))


@pytest.mark.parametrize("tenant", ["-", "acme", "nobody"])
async def test_another_tenant_is_named_by_operators_alone(
    server: Served, stranger: Client, tenant: str
) -> None:
    async with server.unharmed():
        for rpc, request in (
            ("ListQueues", operations_service_pb2.ListQueuesRequest(tenant=tenant)),
            ("PauseQueue", operations_service_pb2.PauseQueueRequest(tenant=tenant, queue="acme_secret")),
            ("ResumeQueue", operations_service_pb2.ResumeQueueRequest(tenant=tenant, queue="acme_secret")),
            ("ListDeadLetters", recovery.ListDeadLettersRequest(tenant=tenant)),
            ("ListDeadLetters", recovery.ListDeadLettersRequest(tenant=tenant, page_token="AAAA")),
            ("ListAmbiguous", recovery.ListAmbiguousRequest(tenant=tenant)),
            ("ListServers", operations_service_pb2.ListServersRequest()),
            ("ListDeliveries", operations_service_pb2.ListDeliveriesRequest(tenant=tenant)),
            ("GetDelivery", delivery_of(tenant)),
            ("Recover", recovery.RecoverRequest(tenant=tenant)),
            ("GetReport", recovery.GetReportRequest(tenant=tenant, report_id=str(uuid.uuid4()))),
            ("ListReports", recovery.ListReportsRequest(tenant=tenant)),
            *(
                (
                    ("GetPolicySet", policy.GetPolicySetRequest(tenant=tenant)),
                    ("ListPolicySets", policy.ListPolicySetsRequest(tenant=tenant)),
                    ("ValidatePolicySet", policy.ValidatePolicySetRequest(tenant=tenant, policy_set=SET)),
                    ("AdmitPolicySet", policy.AdmitPolicySetRequest(tenant=tenant, policy_set=SET)),
                    ("RollBackPolicySet", policy.RollBackPolicySetRequest(tenant=tenant)),
                )
                if tenant == "-"
                else ()
            ),
        ):
            refused = await refusal(stranger.call(rpc, request))
            assert (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING") == (refused.code, refused.reason)
            assert "operator" == refused.infos[0].metadata["scope"]


async def test_another_tenants_effect_and_report_are_nobody_elses(
    server: Served, client: Client, stranger: Client, action: action_pb2.Action
) -> None:
    report = (await client.call("Recover", recovery.RecoverRequest(validate_only=True))).report
    async with server.unharmed():
        asked = recovery.ReconcileRequest(action_ids=[action.action_id, str(uuid.uuid4())])
        theirs, none = (await stranger.call("Reconcile", asked)).results
        assert ("not_found", "not_found", 0) == (theirs.refused_rule, none.refused_rule, theirs.state)
        get = recovery.GetReportRequest(report_id=report.report_id)
        assert "NOT_FOUND" == (await refusal(stranger.call("GetReport", get))).reason
        assert [] == list((await stranger.call("ListReports", recovery.ListReportsRequest())).reports)


async def test_another_tenants_policies_and_decisions_are_nobody_elses(
    server: Served, client: Client, stranger: Client, action: action_pb2.Action
) -> None:
    secret = policy.PolicySet(name="secret", cedar='@id("hidden") permit (principal, action, resource);')
    await client.call("AdmitPolicySet", policy.AdmitPolicySetRequest(policy_set=secret))
    async with server.unharmed():
        theirs = await stranger.call("GetPolicySet", policy.GetPolicySetRequest())
        assert ("default", 0) == (theirs.policy_set.name, theirs.revision.revision)
        assert [] == list((await stranger.call("ListPolicySets", policy.ListPolicySetsRequest())).revisions)
        for rpc, request in (
            ("GetPolicySet", policy.GetPolicySetRequest(revision=1)),
            ("RollBackPolicySet", policy.RollBackPolicySetRequest(revision=1)),
            ("ExplainDecision", policy.ExplainDecisionRequest(id=action.action_id)),
        ):
            assert "NOT_FOUND" == (await refusal(stranger.call(rpc, request))).reason
        run = policy.DryRunPolicySetRequest(policy_set=policy.PolicySet(name="nothing"), page_size=1000)
        changed = {change.action_id for change in (await stranger.call("DryRunPolicySet", run)).changes}
        assert action.action_id not in changed
    await client.call("RollBackPolicySet", policy.RollBackPolicySetRequest(revision=0))


async def test_another_tenants_action_is_redriven_by_nobody_else(
    server: Served, stranger: Client, cancelled: action_pb2.Action
) -> None:
    nowhere = str(uuid.uuid4())
    async with server.unharmed():
        for attempts in (0, 100):
            asked = selected(cancelled.action_id, nowhere, attempts=attempts, idempotency_key="mine")
            theirs, none = (await stranger.call("Redrive", asked)).results
            assert (cancelled.action_id, nowhere) == (theirs.action_id, none.action_id)
            theirs.action_id = none.action_id = ""
            assert (none, "not_found") == (theirs, theirs.refused_rule)
        assert [] == list(
            (await stranger.call("Redrive", recovery.RedriveRequest(selection=EVERYTHING))).results
        )


async def test_an_operator_looks_everywhere_and_redrives_at_home(
    server: Served, cancelled: action_pb2.Action
) -> None:
    scopes = "actions.execute actions.read operations.read recovery.read recovery.write operator"
    async with grpc.aio.insecure_channel(server.target) as channel, server.unharmed():
        operator = Client(channel, server.token("globex", "olga", scope=scopes))
        for rpc, request in (
            ("ListQueues", operations_service_pb2.ListQueuesRequest(tenant="-")),
            ("ListDeadLetters", recovery.ListDeadLettersRequest(tenant="acme")),
            ("ListServers", operations_service_pb2.ListServersRequest()),
        ):
            await operator.call(rpc, request)
        (told,) = (await operator.call("Redrive", selected(cancelled.action_id))).results
        assert "not_found" == told.refused_rule


async def test_a_key_of_a_redrive_is_the_callers_own(
    client: Client, server: Served, cancelled: action_pb2.Action
) -> None:
    """Under the same key a colleague's redrive is one more, and meets the action as it stands by then."""
    request = selected(cancelled.action_id, idempotency_key="again")
    (done,) = (await client.call("Redrive", request)).results
    assert (True, "") == (done.changed, done.refused_rule)
    async with server.client("acme", "mallory") as colleague:
        (told,) = (await colleague.call("Redrive", request)).results
    assert not told.changed
    assert told.refused_rule in ("not_terminal", "effect_done")
