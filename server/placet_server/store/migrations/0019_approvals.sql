-- expand
--
-- What people have to say yes to before it may begin. The action's row stays the one record: WAITING says that nobody may run it, and whoever moves it
-- on has locked it first. An approval is bound to one action, and to the exact bytes of it, by its digest; a vote is a row, and is never changed but to
-- say that it was taken back. An approval that is granted is consumed by the action's start, and covers all its attempts.
--
-- Lock order: the instance, places in line, the action, its approval.
alter table actions add column approval_id uuid; -- the newest that it needed

-- As before, with what waits for people, and the two ways to end without a yes.
create or replace function action_is_possible(
    state text, effect_class text, on_caller_gone text, attempt integer, attempts_max integer, effect text, effect_begun boolean, effect_unknown boolean,
    lease_id uuid, ready_time timestamptz, settle_time timestamptz, output text, reason text
) returns boolean
    language plpgsql immutable parallel safe as $$
begin
    if attempts_max < 1 or on_caller_gone not in ('CANCEL', 'DETACH')
        or (attempt < 1 and (attempt < 0 or effect_begun or effect_unknown
            or state not in ('QUEUED', 'WAITING', 'CANCELLED', 'EXHAUSTED', 'DENIED', 'REFUSED')))
    then
        return false;
    end if;

    if effect_class = 'READ' then
        if effect is not null or effect_begun or effect_unknown then
            return false;
        end if;
    elsif effect is null or effect not in ('NOT_DONE', 'DONE', 'UNKNOWN') or effect_class not in ('IDEMPOTENT', 'RECONCILABLE', 'UNSAFE') then
        return false;
    end if;

    -- The most frequent first.
    if state = 'RUNNING' then
        return lease_id is not null and num_nonnulls(settle_time, output, reason) = 0;
    elsif state = 'SUCCEEDED' then
        return num_nulls(lease_id, settle_time, output) = 0 and reason is null and not effect_unknown and (effect is null or effect = 'DONE');
    elsif state = 'FAILED' then
        return num_nulls(lease_id, settle_time, reason) = 0 and output is null and not effect_unknown and effect is distinct from 'UNKNOWN';
    elsif state in ('CANCELLED', 'EXHAUSTED', 'DENIED', 'REFUSED') then
        return num_nulls(lease_id, settle_time, reason) = 0 and output is null and not effect_unknown and (effect is null or effect = 'NOT_DONE');
    elsif state = 'AMBIGUOUS' then
        return num_nulls(lease_id, reason) = 0 and num_nonnulls(settle_time, output) = 0 and effect_unknown and effect = 'UNKNOWN';
    elsif state = 'QUEUED' then
        return num_nonnulls(lease_id, settle_time, output, reason) = 0 and ready_time is not null and (not effect_unknown or effect = 'UNKNOWN');
    elsif state = 'WAITING' then
        return num_nonnulls(lease_id, settle_time, output, reason) = 0 and ready_time is not null and not effect_unknown
            and (effect is null or effect = 'NOT_DONE');
    end if;
    return false;
end
$$;

create table approvals (
    tenant         text        not null,
    approval_id    uuid        not null,
    action_id      uuid        not null,
    kind           text        not null check (kind in ('APPROVAL')),
    state          text        not null check (state in ('PENDING', 'GRANTED', 'DENIED', 'REVOKED', 'EXPIRED', 'WITHDRAWN')),
    digest         bytea       not null check (length(digest) = 32), -- what a decision is bound to
    terms          text        not null,                             -- as model/approval_text.py writes them
    capability     text        not null,
    subject        text        not null,                             -- of the requester
    title          text        not null,
    summary        text        not null,
    predecessor_id uuid,
    difference     text        not null default '',
    subjects       text[]      not null,                             -- all whom the terms name, for lists
    roles          text[]      not null,
    groups         text[]      not null,
    create_time    timestamptz not null,
    expire_time    timestamptz not null,
    escalate_time  timestamptz,
    escalated      boolean     not null default false,
    next_time      timestamptz,                                      -- when somebody has to look at it; NULL: never again
    consume_time   timestamptz,
    end_time       timestamptz,                                      -- granted, or ended otherwise
    revision       bigint      not null default 1,
    constraint approvals_pkey primary key (tenant, approval_id),
    constraint approvals_possible check (
        (state = 'PENDING') = (end_time is null)
        and (consume_time is null or state = 'GRANTED')
        and (next_time is null or (state in ('PENDING', 'GRANTED') and consume_time is null))
    )
) with (fillfactor = 80);
create unique index approvals_open on approvals (action_id) where state in ('PENDING', 'GRANTED') and consume_time is null;
create index approvals_action on approvals (action_id, approval_id);
create index approvals_next on approvals (next_time) where next_time is not null;
-- The tenant is written so that nothing but a list is found by it, as 0002 says.
create index approvals_pending on approvals ((tenant || ''), expire_time, approval_id) where state = 'PENDING';
create index approvals_all on approvals ((tenant || ''), expire_time, approval_id);

create table approval_decisions (
    tenant          text        not null,
    approval_id     uuid        not null,
    decision_id     text        not null,
    voter           text        not null,
    verdict         text        not null check (verdict in ('APPROVE', 'DENY')),
    reason          text        not null,
    ticket          text        not null,
    attachments     text[]      not null,
    suggested_input text,
    roles           text[]      not null, -- with which authority
    groups          text[]      not null,
    create_time     timestamptz not null,
    revoke_time     timestamptz,          -- taken back
    constraint approval_decisions_pkey primary key (tenant, approval_id, decision_id)
);
create unique index approval_decisions_voter on approval_decisions (approval_id, voter);

drop view action_records;
create or replace view action_summaries as
select
    tenant, action_id, capability, version, encode(contract_digest, 'hex') as contract_digest, effect_class, subject, caller,
    coalesce(idempotency_key, '') as idempotency_key, encode(input_digest, 'hex') as input_digest, labels, on_caller_gone, durability,
    predecessor_id, (extract(epoch from create_time) * 1000000)::bigint as create_time_us, effect_marked,
    (extract(epoch from effect_key_expire_time) * 1000000)::bigint as effect_key_expire_time_us, attempts_max,
    state, attempt, lease_id, instance_id, (extract(epoch from ready_time) * 1000000)::bigint as ready_time_us,
    (extract(epoch from start_time) * 1000000)::bigint as start_time_us, (extract(epoch from deadline) * 1000000)::bigint as deadline_us,
    (extract(epoch from cancel_requested_time) * 1000000)::bigint as cancel_requested_time_us,
    (extract(epoch from settle_time) * 1000000)::bigint as settle_time_us,
    (extract(epoch from settle_time + key_ttl) * 1000000)::bigint as key_expire_time_us,
    effect, effect_begun, effect_unknown, reason, cause, message, failure_code, failure_category,
    extract(epoch from retry_delay)::double precision as retry_delay_seconds, key_released, provider_operation, provider_cursor,
    sequence, encode(receipt_digest, 'hex') as receipt_digest, key_digest,
    coalesce(queue, '') as queue, coalesce(priority, 0::smallint) as priority,
    extract(epoch from attempt_timeout)::double precision as attempt_timeout_seconds,
    extract(epoch from queue_delay)::double precision as queue_delay_seconds, retry,
    (extract(epoch from budget_time) * 1000000)::bigint as budget_time_us, coalesce(generation, 1) as generation,
    parent_id, root_id, coalesce(step_path, '') as step_path, encode(verdict_digest, 'hex') as verdict_digest, approval_id
from actions;
create view action_records as
select s.*, a.input, a.output
from action_summaries as s join actions as a on a.tenant = s.tenant and a.action_id = s.action_id;
