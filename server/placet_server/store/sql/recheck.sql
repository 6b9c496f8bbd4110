-- Letting an action wait for people anew that was about to begin, because policies ask for something else by now.
--
-- Lock order: as approval.sql: the action, then its approvals.

-- name: move_to_waiting
-- A running action that has not begun waits again, under its lease, with its event. From here on it is stored as a submitted one is, as any server runs
-- it once people have said yes. It has had an attempt that was none, so it may have one more, which is what begins its retry budget if no other one has,
-- and, as nothing of what was tried took effect, the provider's deduplication anew.
with moved as (
    update actions as a
    set state = 'WAITING',
        cause = :kind,
        lease_id = null,
        attempts_max = a.attempts_max + 1,
        on_caller_gone = 'DETACH',
        queue = coalesce(a.queue, :queue_default),
        priority = coalesce(a.priority, :priority_default),
        budget_time = case when a.budget_time < a.start_time then a.budget_time end,
        effect_key_ttl = coalesce(a.effect_key_ttl, a.effect_key_expire_time - a.create_time),
        effect_key_expire_time = null,
        effect = case when a.effect_class <> 'READ' then 'NOT_DONE' end,
        effect_begun = false,
        approval_id = :approval_id,
        verdict_digest = :verdict_digest,
        sequence = a.sequence + 1,
        receipt_digest = receipt(a.receipt_digest, a.action_id, a.sequence + 1, 'waiting', :now::timestamptz, :event_body)
    where a.tenant = :tenant
      and a.action_id = :action_id
      and a.lease_id = :lease_id
      and (a.state || '') = 'RUNNING'
      and a.cancel_requested_time is null
      and not a.effect_unknown
    returning a.tenant, a.action_id, a.sequence, a.receipt_digest
)
insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
select tenant, action_id, sequence, 'waiting', :now::timestamptz, :event_body, receipt_digest from moved

-- name: put_approval
-- What people are asked now, and what it follows.
insert into approvals (
    tenant, approval_id, action_id, kind, state, digest, terms, capability, subject, title, summary, predecessor_id, difference,
    subjects, roles, groups, create_time, expire_time, escalate_time, next_time
)
values (
    :tenant, :approval_id, :action_id, :kind, 'PENDING', :digest, :terms, :capability, :subject, :title, :summary, :predecessor_id, :difference,
    :subjects, :roles, :groups, :now::timestamptz, :now::timestamptz + make_interval(secs => :ttl_seconds::double precision),
    :now::timestamptz + make_interval(secs => :escalate_seconds::double precision),
    :now::timestamptz + make_interval(secs => least(:ttl_seconds::double precision, :escalate_seconds::double precision))
)
