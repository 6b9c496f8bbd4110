-- Children: actions that a handler calls as steps of its own work, as 0012_lineage.sql describes them.
--
-- Lock order: the instance, places in line, actions (a parent before its children), lineage.

-- name: admit_child
-- Admit children under their parents' leases, each with its event, its place in line and its place in the family: the writer's. A place is as old as
-- the parent's, so that what was begun is ended before more is begun. One that people have to say yes to has an approval instead of a place, which others are told of.
with child as materialized (
    select r.*
    from json_to_recordset(:admissions::json) as r(
        tenant text, action_id uuid, capability text, version text, contract_digest text, effect_class text, subject text, caller text,
        key_ttl_seconds double precision, input text, input_digest text, labels text,
        on_caller_gone text, durability text, effect_marked boolean, effect_key_ttl_seconds double precision,
        attempts_max integer, queue text, priority smallint, attempt_timeout_seconds double precision, queue_delay_seconds double precision,
        retry text, parent_id uuid, parent_lease_id uuid, step text, number smallint, step_path text, verdict_digest text,
        approval_id uuid, kind text, digest text, terms text, title text, summary text, subjects text[], roles text[], groups text[],
        ttl_seconds double precision, escalate_seconds double precision, waiting_body text, deliveries json)
    where num_nonnulls(r.tenant, r.action_id, r.parent_id, r.parent_lease_id) = 4
      and exists (select from instances where boot_id = :boot_id and state = 'ALIVE')
),
-- Shared, so that siblings do not wait for each other. A settle, a cancel or a rescue of the parent comes before this or after it, never between.
parent as materialized (
    select a.tenant, a.action_id, a.parent_id, a.step_path, coalesce(a.root_id, a.action_id) as root_id, coalesce(a.generation, 1) as generation, a.attempt,
        coalesce(a.ready_time, a.create_time) as line_time
    from (select distinct tenant, parent_id, parent_lease_id from child where num_nonnulls(tenant, parent_id, parent_lease_id) = 3) as r
    join actions as a on a.tenant = r.tenant and a.action_id = r.parent_id
    where a.lease_id = r.parent_lease_id
      and (a.state || '') = 'RUNNING'
      and a.cancel_requested_time is null
    order by a.action_id
    for share of a
),
family as materialized (
    select r.*, p.root_id, p.generation, p.attempt, p.line_time, coalesce(f.depth, 0) + 1 as depth, c.at,
        child_body(submitted_body(admitted_body(
            r.capability, r.version, decode(r.contract_digest, 'hex'), r.subject, decode(r.input_digest, 'hex'), r.durability), r.queue, c.at),
            r.parent_id, r.step_path) as body
    from child as r
    cross join (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
    join parent as p on p.tenant = r.tenant and p.action_id = r.parent_id
    left join lineage as f
        on f.tenant = p.tenant and f.parent_id = p.parent_id
        and f.step = split_part(p.step_path, '#', 1) and f.number = coalesce(nullif(split_part(p.step_path, '#', 2), '')::smallint, 1)
    where coalesce(f.depth, 0) < :depth_max
),
placed as (
    insert into actions (
        tenant, action_id, capability, version, contract_digest, effect_class, subject, caller, key_ttl, input, input_digest, labels,
        on_caller_gone, durability, create_time, effect_marked, attempts_max, state, cause, attempt, ready_time, effect, effect_begun, sequence,
        receipt_digest, queue, priority, attempt_timeout, effect_key_ttl, queue_delay, retry, parent_id, root_id, step_path, verdict_digest, approval_id
    )
    select
        r.tenant, r.action_id, r.capability, r.version, decode(r.contract_digest, 'hex'), r.effect_class, r.subject, r.caller,
        make_interval(secs => r.key_ttl_seconds), r.input, decode(r.input_digest, 'hex'), r.labels,
        r.on_caller_gone, r.durability, r.at, r.effect_marked, r.attempts_max, case when r.approval_id is null then 'QUEUED' else 'WAITING' end, r.kind, 0,
        r.at, case when r.effect_class <> 'READ' then 'NOT_DONE' end, false, case when r.approval_id is null then 1 else 2 end,
        case when r.approval_id is null then receipt('', r.action_id, 1, 'admitted', r.at, r.body)
            else receipt(receipt('', r.action_id, 1, 'admitted', r.at, r.body), r.action_id, 2, 'waiting', r.at, r.waiting_body) end,
        r.queue, r.priority, make_interval(secs => r.attempt_timeout_seconds), make_interval(secs => r.effect_key_ttl_seconds),
        make_interval(secs => r.queue_delay_seconds), r.retry, r.parent_id, r.root_id, r.step_path, decode(r.verdict_digest, 'hex'), r.approval_id
    from family as r
    order by r.action_id
    on conflict do nothing
    returning tenant, action_id, sequence, create_time, receipt_digest, queue, capability, version, priority, ready_time,
        ready_time + queue_delay as expire_time, state
),
placed_event as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select p.tenant, p.action_id, 1, 'admitted', r.at, r.body,
        case when p.sequence = 1 then p.receipt_digest else receipt('', p.action_id, 1, 'admitted', r.at, r.body) end
    from placed as p join family as r on r.tenant = p.tenant and r.action_id = p.action_id
    union all
    select p.tenant, p.action_id, 2, 'waiting', r.at, r.waiting_body, p.receipt_digest
    from placed as p join family as r on r.tenant = p.tenant and r.action_id = p.action_id
    where p.sequence = 2
),
requested as (
    insert into approvals (
        tenant, approval_id, action_id, kind, state, digest, terms, capability, subject, title, summary, subjects, roles, groups,
        create_time, expire_time, escalate_time, next_time
    )
    select
        r.tenant, r.approval_id, r.action_id, r.kind, 'PENDING', decode(r.digest, 'hex'), r.terms, r.capability, r.subject, r.title, r.summary,
        r.subjects, r.roles, r.groups, r.at, r.at + make_interval(secs => r.ttl_seconds), r.at + make_interval(secs => r.escalate_seconds),
        r.at + make_interval(secs => least(r.ttl_seconds, r.escalate_seconds))
    from placed as p join family as r on r.tenant = p.tenant and r.action_id = p.action_id
    where p.state = 'WAITING'
),
others as (
    insert into deliveries (tenant, create_time, delivery_id, target, type, subject, event_id, action_id, data, attempts_max, next_time)
    select
        r.tenant, r.at, d.delivery_id, d.target, d.type, d.subject, d.event_id, r.action_id,
        left(d.data, -1) || ',"expire_time":"'
            || to_char((r.at + make_interval(secs => r.ttl_seconds)) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || '"}',
        d.attempts_max, r.at
    from placed as p
    join family as r on r.tenant = p.tenant and r.action_id = p.action_id
    cross join json_to_recordset(r.deliveries) as d(
        delivery_id uuid, target text, type text, subject text, event_id uuid, data text, attempts_max integer
    )
    where p.state = 'WAITING'
    on conflict (delivery_id) do nothing
),
ready as (
    insert into queue_ready (tenant, action_id, queue, capability, version, priority, ready_time, expire_time)
    select p.tenant, p.action_id, p.queue, p.capability, p.version, p.priority, least(r.line_time, p.ready_time), p.expire_time
    from placed as p join family as r on r.tenant = p.tenant and r.action_id = p.action_id
    where p.state = 'QUEUED'
),
born as (
    insert into lineage (tenant, parent_id, step, number, action_id, root_id, depth, generation, attempt)
    select r.tenant, r.parent_id, r.step, r.number, r.action_id, r.root_id, r.depth, r.generation, r.attempt
    from placed as p join family as r on r.tenant = p.tenant and r.action_id = p.action_id
)
select action_id, sequence, encode(receipt_digest, 'hex') as receipt, (extract(epoch from create_time) * 1000000)::bigint as time_us,
    (extract(epoch from ready_time) * 1000000)::bigint as ready_time_us
from placed

-- name: find_step
-- The newest try of a step, without payloads, and when its parent called it.
select s.*, l.number, l.generation as parent_generation, l.attempt as parent_attempt
from (
    select * from lineage where tenant = :tenant and parent_id = :parent_id and step = :step order by number desc limit 1
) as l
join action_summaries as s on s.tenant = l.tenant and s.action_id = l.action_id

-- name: effect_of_steps
-- What is known of what an action's steps have done: nothing; something; or that nobody knows, be it that one is in doubt or may do something yet.
select case when bool_or(unknown) then 'UNKNOWN' when bool_or(done) then 'DONE' else 'NOT_DONE' end
from (
    select
        a.effect = 'DONE' as done,
        case when a.settle_time is not null then a.effect = 'UNKNOWN'
            else a.effect_begun or a.effect_unknown
                -- What nobody has begun is never begun once it is to be cancelled, nor under a yes that comes after its parent's end.
                or (a.cancel_requested_time is null and not (a.state = 'WAITING' and a.attempt = 0))
        end as unknown
    from lineage as l join actions as a on a.tenant = l.tenant and a.action_id = l.action_id
    where l.tenant = :tenant and l.parent_id = :parent_id and a.effect_class <> 'READ'
) as step

-- name: depth
-- How many ancestors a child has.
select depth from lineage where tenant = :tenant and parent_id = :parent_id and action_id = :action_id

-- name: list_open_below
-- Open descendants of an action that nobody has asked to cancel, parents before their children.
with recursive below as (
    select l.tenant, l.action_id, l.depth from lineage as l where l.tenant = :tenant and l.parent_id = :action_id
    union all
    select l.tenant, l.action_id, l.depth from below as b join lineage as l on l.tenant = b.tenant and l.parent_id = b.action_id
)
select a.action_id
from below as b join actions as a on a.tenant = b.tenant and a.action_id = b.action_id
where num_nonnulls(b.tenant, b.action_id) = 2
  and (a.state || '') in ('QUEUED', 'RUNNING', 'WAITING', 'AMBIGUOUS')
  and a.cancel_requested_time is null
order by b.depth, a.action_id
limit :count_max
