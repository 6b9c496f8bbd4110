-- What composed parents do, and whoever else calls others: the entries of runs, as 0031_runs.sql describes them, and children, as 0012_lineage.sql does.
-- The writer's. What a model has answered and the calls that it makes are one statement where they come together, as a statement costs more than its rows.
--
-- Lock order: the instance, places in line, actions (a parent before its children), a run's row, lineage, wakes.

-- part: entered
-- Entries that come next, each under its lease, with its event, what the run has spent and just said, and without the wakes of steps seen to have ended.
asked as materialized (
    select r.*, c.at
    from json_to_recordset(:advances::json) as r(
        tenant text, action_id uuid, lease_id uuid, ordinal integer, type text, turn integer, body text, model text, budget text, turns integer,
        requests integer, calls integer, input_tokens bigint, output_tokens bigint, cached_tokens bigint, cost_micros bigint, unpriced integer,
        active_ms bigint, reserved_tokens bigint, reserved_micros bigint, seen json, said json, event_type text, event_body text)
    cross join (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
    where num_nonnulls(r.tenant, r.action_id, r.lease_id) = 3
),
held as (
    update actions as a
    set sequence = a.sequence + 1,
        receipt_digest = receipt(a.receipt_digest, a.action_id, a.sequence + 1, r.event_type, r.at, r.event_body)
    from asked as r
    -- As `advanced` says.
    where num_nonnulls(r.tenant, r.action_id, r.lease_id) = 3
      and a.tenant = r.tenant
      and a.action_id = r.action_id
      and a.lease_id = r.lease_id
      and (a.state || '') = 'RUNNING'
      and a.effect_class = 'COMPOSED'
      and r.ordinal = 1 + coalesce((select u.ordinal from runs as u where u.tenant = r.tenant and u.action_id = r.action_id), 0)
    returning a.tenant, a.action_id, a.sequence, a.receipt_digest, a.attempt, a.lease_id, a.parent_id, a.step_path, a.root_id, a.generation, a.ready_time,
        a.create_time, a.cancel_requested_time, r.ordinal
),
entry as materialized (
    select r.*, h.sequence, h.receipt_digest, h.attempt
    from held as h
    join asked as r on r.tenant = h.tenant and r.action_id = h.action_id
),
appended as (
    insert into run_entries (tenant, action_id, ordinal, type, turn, attempt, create_time, body, digest)
    select tenant, action_id, ordinal, type, turn, attempt, at, body, sha256(convert_to(body, 'UTF8')) from entry
),
counted as (
    insert into runs as u (
        tenant, action_id, ordinal, model, budget, turns, requests, calls, input_tokens, output_tokens, cached_tokens, cost_micros, unpriced, active_ms,
        reserved_tokens, reserved_micros)
    select
        tenant, action_id, ordinal, model, budget, turns, requests, calls, input_tokens, output_tokens, cached_tokens, cost_micros, unpriced, active_ms,
        reserved_tokens, reserved_micros
    from entry
    where ordinal = 1
),
counted_on as (
    update runs as u
    set ordinal = r.ordinal,
        compacted_ordinal = case when r.type = 'compacted' then r.ordinal else u.compacted_ordinal end,
        said_time = coalesce(u.said_time, case when r.type = 'answered' then r.at end),
        turns = r.turns,
        requests = r.requests,
        calls = r.calls,
        input_tokens = r.input_tokens,
        output_tokens = r.output_tokens,
        cached_tokens = r.cached_tokens,
        cost_micros = r.cost_micros,
        unpriced = r.unpriced,
        active_ms = r.active_ms,
        reserved_tokens = r.reserved_tokens,
        reserved_micros = r.reserved_micros
    from entry as r
    where r.ordinal > 1 and num_nonnulls(r.tenant, r.action_id) = 2 and u.tenant = r.tenant and u.action_id = r.action_id
),
seen as (
    delete from wakes as w
    using entry as r, json_array_elements_text(r.seen) as s
    where num_nonnulls(r.tenant, r.action_id) = 2 and w.tenant = r.tenant and w.parent_id = r.action_id and w.child_id = s::uuid
),
said as (
    insert into lane_items (tenant, action_id, attempt, number, lease_id, type, create_time, body)
    select r.tenant, r.action_id, r.attempt, s.number, r.lease_id, s.type, r.at, s.body
    from entry as r cross join json_to_recordset(r.said) as s(number bigint, type text, body text)
    on conflict do nothing
),
told as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select tenant, action_id, sequence, event_type, at, event_body, receipt_digest from entry
)

-- part: asked_for
-- Children, as long as their server is alive.
child as materialized (
    select r.*
    from json_to_recordset(:admissions::json) as r(
        tenant text, action_id uuid, capability text, version text, contract_digest text, effect_class text, subject text, caller text,
        key_ttl_seconds double precision, input text, input_digest text, labels text,
        on_caller_gone text, durability text, effect_marked boolean, effect_key_ttl_seconds double precision,
        attempts_max integer, queue text, priority smallint, attempt_timeout_seconds double precision, queue_delay_seconds double precision,
        retry text, parent_id uuid, parent_lease_id uuid, step text, number smallint, step_path text, verdict_digest text,
        entry_ordinal integer, lease_id uuid, timeout_seconds double precision, approval_id uuid, kind text, digest text, terms text, title text, summary text, subjects text[], roles text[], groups text[],
        ttl_seconds double precision, escalate_seconds double precision, waiting_body text, deliveries json)
    where num_nonnulls(r.tenant, r.action_id, r.parent_id, r.parent_lease_id) = 4
      and exists (select from instances where boot_id = :boot_id and state = 'ALIVE')
)

-- part: born
-- Children whose parents are in `parent`, each with its events, its place in line and its place in the family.
-- A place is as old as the parent's, so that what was begun is ended before more is begun. One that comes with a lease has no place but runs here, as if it
-- had been claimed at once, unless its queue is paused. One that people have to say yes to has an approval instead of a place, which others are told of.
-- One that an entry makes is not there before that is.
family as materialized (
    select r.*, p.root_id, p.generation, p.attempt, p.line_time, coalesce(f.depth, 0) + 1 as depth, c.at,
        child_body(submitted_body(admitted_body(
            r.capability, r.version, decode(r.contract_digest, 'hex'), r.subject, decode(r.input_digest, 'hex'), r.durability), r.queue, c.at),
            r.parent_id, r.step_path) as body,
        case when r.approval_id is not null then 'WAITING' when r.lease_id is not null and not exists (
            select from queue_pauses as q where q.queue = r.queue and q.tenant in (r.tenant, '-')) then 'RUNNING' else 'QUEUED' end as state,
        case when r.approval_id is not null then r.waiting_body else '{"attempt":1}' end as second_body,
        case when r.approval_id is not null then 'waiting' else 'attempt_started' end as second_type
    from child as r
    cross join (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
    join parent as p on p.tenant = r.tenant and p.action_id = r.parent_id and p.lease_id = r.parent_lease_id
    left join lineage as f
        on f.tenant = p.tenant and f.parent_id = p.parent_id
        and f.step = split_part(p.step_path, '#', 1) and f.number = coalesce(nullif(split_part(p.step_path, '#', 2), '')::smallint, 1)
    where coalesce(f.depth, 0) < :depth_max
      and (r.entry_ordinal is null or r.entry_ordinal <= coalesce(
          p.ordinal, (select u.ordinal from runs as u where u.tenant = p.tenant and u.action_id = p.action_id)))
),
placed as (
    insert into actions (
        tenant, action_id, capability, version, contract_digest, effect_class, subject, caller, key_ttl, input, input_digest, labels,
        on_caller_gone, durability, create_time, effect_marked, attempts_max, state, cause, attempt, ready_time, effect, effect_begun, sequence,
        receipt_digest, queue, priority, attempt_timeout, effect_key_ttl, queue_delay, retry, parent_id, root_id, step_path, verdict_digest, approval_id,
        lease_id, instance_id, start_time, deadline, effect_key_expire_time, budget_time
    )
    select
        r.tenant, r.action_id, r.capability, r.version, decode(r.contract_digest, 'hex'), r.effect_class, r.subject, r.caller,
        make_interval(secs => r.key_ttl_seconds), r.input, decode(r.input_digest, 'hex'), r.labels,
        r.on_caller_gone, r.durability, r.at, r.effect_marked, r.attempts_max, r.state, r.kind, (r.state = 'RUNNING')::integer,
        r.at, case when r.effect_class <> 'READ' then 'NOT_DONE' end,
        r.state = 'RUNNING' and r.effect_class not in ('READ', 'COMPOSED') and not r.effect_marked, case when r.state = 'QUEUED' then 1 else 2 end,
        case when r.state = 'QUEUED' then receipt('', r.action_id, 1, 'admitted', r.at, r.body)
            else receipt(receipt('', r.action_id, 1, 'admitted', r.at, r.body), r.action_id, 2, r.second_type, r.at, r.second_body) end,
        r.queue, r.priority, make_interval(secs => r.attempt_timeout_seconds), make_interval(secs => r.effect_key_ttl_seconds),
        make_interval(secs => r.queue_delay_seconds), r.retry, r.parent_id, r.root_id, r.step_path, decode(r.verdict_digest, 'hex'), r.approval_id,
        case when r.state = 'RUNNING' then r.lease_id end, case when r.state = 'RUNNING' then :boot_id::uuid end, case when r.state = 'RUNNING' then r.at end,
        case when r.state = 'RUNNING' then r.at + make_interval(secs => r.timeout_seconds) end,
        case when r.state = 'RUNNING' then r.at + make_interval(secs => r.effect_key_ttl_seconds) end, case when r.state = 'RUNNING' then r.at end
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
    select p.tenant, p.action_id, 2, r.second_type, r.at, r.second_body, p.receipt_digest
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

-- name: append
-- One entry of each run. None for an entry that is not the next one: it is there already, or the lease is another's.
with {entered}
select action_id, sequence, encode(receipt_digest, 'hex') as receipt, (extract(epoch from at) * 1000000)::bigint as time_us from entry

-- name: admit_child
-- Admit children under their parents' leases.
with {asked_for},
-- Shared, so that siblings do not wait for each other. A settle, a cancel or a rescue of the parent comes before this or after it, never between.
parent as materialized (
    select a.tenant, a.action_id, a.lease_id, a.parent_id, a.step_path, coalesce(a.root_id, a.action_id) as root_id, coalesce(a.generation, 1) as generation,
        a.attempt, coalesce(a.ready_time, a.create_time) as line_time, null::integer as ordinal
    from (select distinct tenant, parent_id, parent_lease_id from child where num_nonnulls(tenant, parent_id, parent_lease_id) = 3) as r
    join actions as a on a.tenant = r.tenant and a.action_id = r.parent_id
    where a.lease_id = r.parent_lease_id
      and (a.state || '') = 'RUNNING'
      and a.cancel_requested_time is null
    order by a.action_id
    for share of a
),
{born}
select action_id, sequence, encode(receipt_digest, 'hex') as receipt, (extract(epoch from create_time) * 1000000)::bigint as time_us,
    (extract(epoch from ready_time) * 1000000)::bigint as ready_time_us, false as wakes, false as woken, state = 'RUNNING' as begun
from placed

-- name: append_and_admit_child
-- Both in one, of children whose parents have an entry here, by which they are locked: more of them would be locked behind these, whatever their ids.
with {entered},
{asked_for},
parent as materialized (
    select tenant, action_id, lease_id, parent_id, step_path, coalesce(root_id, action_id) as root_id, coalesce(generation, 1) as generation, attempt,
        coalesce(ready_time, create_time) as line_time, ordinal
    from held
    where cancel_requested_time is null
),
{born}
select action_id, sequence, encode(receipt_digest, 'hex') as receipt, (extract(epoch from at) * 1000000)::bigint as time_us, 0::bigint as ready_time_us,
    false as wakes, false as woken, false as begun
from entry
union all
select action_id, sequence, encode(receipt_digest, 'hex') as receipt, (extract(epoch from create_time) * 1000000)::bigint as time_us,
    (extract(epoch from ready_time) * 1000000)::bigint as ready_time_us, false as wakes, false as woken, state = 'RUNNING' as begun
from placed
