-- Lock order: the instance row, places in line (ready, then delayed), action rows, messages; within a statement actions are inserted in the order of
-- their keys, and all else is taken in the order of its ids, or passed over if somebody holds it.
--
-- What is written at every call, a flush, is there in four statements made of the same parts, as an executor that starts costs more than the row
-- it writes: a caller alone makes batches of one admission or one advance, and seldom does a key change hands. For the same reason every node
-- is spared that can be: nothing is materialized that is read once, rows are sorted by who sends them, and one insert takes all events.

-- part: freed
-- A key changes hands in one step: it leaves a settled action whose contract lets it go, released by its ending or past its time, only for the
-- action that takes it over. The row estimate is kept low as in `advanced`.
freed as (
    update actions as p
    set key_digest = null
    from json_to_recordset(:admissions::json) as r(tenant text, predecessor_id uuid, key_digest text)
    where num_nonnulls(r.tenant, r.predecessor_id, r.key_digest) = 3
      and p.tenant = r.tenant
      and p.action_id = r.predecessor_id
      and p.key_digest = decode(r.key_digest, 'hex')
      and p.settle_time is not null
      and (p.key_released or p.settle_time + p.key_ttl <= coalesce(:now::timestamptz, statement_timestamp()))
      and exists (select from instances where boot_id = :boot_id and state = 'ALIVE')
    returning p.action_id
)

-- part: admitted
-- One row for each admission whose key is free, and none unless there is a row in `alive`.
admitted as (
    insert into actions (
        tenant, action_id, capability, version, contract_digest, effect_class, subject, caller,
        idempotency_key, key_digest, key_ttl, input, input_digest, labels,
        on_caller_gone, durability, predecessor_id, create_time, effect_marked, effect_key_expire_time,
        attempts_max, state, attempt, lease_id, instance_id, start_time, deadline,
        effect, effect_begun, sequence, receipt_digest, verdict_digest
    )
    select
        r.tenant, r.action_id, r.capability, r.version, decode(r.contract_digest, 'hex'), r.effect_class, r.subject, r.caller,
        r.idempotency_key, decode(r.key_digest, 'hex'), make_interval(secs => r.key_ttl_seconds), r.input, decode(r.input_digest, 'hex'), r.labels,
        r.on_caller_gone, r.durability, r.predecessor_id, c.at, r.effect_marked, c.at + make_interval(secs => r.effect_key_ttl_seconds),
        r.attempts_max, 'RUNNING', 1, r.lease_id, :boot_id, c.at, c.at + make_interval(secs => r.timeout_seconds),
        case when r.effect_class <> 'READ' then 'NOT_DONE' end, r.effect_class <> 'READ' and not r.effect_marked, 1,
        receipt('', r.action_id, 1, 'admitted', c.at, admitted_body(
            r.capability, r.version, decode(r.contract_digest, 'hex'), r.subject, decode(r.input_digest, 'hex'), r.durability)),
        decode(r.verdict_digest, 'hex')
    from json_to_recordset(:admissions::json) as r(
        tenant text, action_id uuid, capability text, version text, contract_digest text, effect_class text, subject text, caller text,
        idempotency_key text, key_digest text, key_ttl_seconds double precision, input text, input_digest text, labels text,
        on_caller_gone text, durability text, predecessor_id uuid, effect_marked boolean, effect_key_ttl_seconds double precision,
        attempts_max integer, lease_id uuid, timeout_seconds double precision, verdict_digest text
    )
    cross join (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
    where exists (select from alive)
    on conflict do nothing
    returning tenant, action_id, sequence, 'admitted' as type, create_time,
        admitted_body(capability, version, contract_digest, subject, input_digest, durability) as body, receipt_digest
)

-- part: advanced
-- The fence: the lease must be the row's, and for who does not hold it the row must not have moved since it was read. A given-up row takes
-- only a definite answer; that nothing was done, so that it may be tried again or is given up, only from who has read it as it is and found that
-- out, never from the attempt that was given up. A cancel that came meanwhile forbids to try again.
-- `state || ''` keeps the planner off the partial index on state, which it would read whole.
advanced as (
    update actions as a
    set state = r.state,
        effect = coalesce(r.effect, a.effect),
        effect_begun = coalesce(r.effect_begun, a.effect_begun),
        effect_unknown = coalesce(r.effect_unknown, a.effect_unknown),
        reason = r.reason,
        cause = r.cause,
        message = r.message,
        failure_code = r.failure_code,
        failure_category = r.failure_category,
        retry_delay = make_interval(secs => r.retry_delay_seconds),
        key_released = coalesce(r.key_released, false),
        output = r.output,
        provider_operation = coalesce(r.provider_operation, a.provider_operation),
        provider_cursor = coalesce(r.provider_cursor, a.provider_cursor),
        lease_id = case when r.state not in ('QUEUED', 'WAITING') then a.lease_id end,
        ready_time = case when r.state in ('QUEUED', 'WAITING') then c.at + make_interval(secs => coalesce(r.ready_delay_seconds, 0)) else a.ready_time end,
        settle_time = case when r.state in ('SUCCEEDED', 'FAILED', 'CANCELLED', 'EXHAUSTED', 'DENIED', 'REFUSED') then c.at end,
        sequence = a.sequence + 1,
        receipt_digest = receipt(a.receipt_digest, a.action_id, a.sequence + 1, r.event_type, c.at, r.event_body)
    from json_to_recordset(:advances::json) as r(
        tenant text, action_id uuid, lease_id uuid, state text, effect text, effect_begun boolean, effect_unknown boolean,
        reason text, cause text, message text, failure_code text, failure_category text, retry_delay_seconds double precision,
        key_released boolean, output text, provider_operation text, provider_cursor text, ready_delay_seconds double precision,
        sequence bigint, event_type text, event_body text
    )
    cross join (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
    -- Always true, and estimated at one row in two hundred: so the planner takes the advances for a single row, and finds each action by its
    -- primary key even when the table looks empty to it. Without it the plan made then reads the whole table at every flush.
    where num_nonnulls(r.tenant, r.action_id, r.lease_id) = 3
      and a.tenant = r.tenant
      and a.action_id = r.action_id
      and a.lease_id = r.lease_id
      and (r.sequence is null or a.sequence = r.sequence)
      and ((a.state || '') = 'RUNNING' or ((a.state || '') = 'AMBIGUOUS' and (
          r.state in ('SUCCEEDED', 'FAILED', 'CANCELLED') or (r.sequence is not null and r.state in ('QUEUED', 'EXHAUSTED')))))
      and not (r.state in ('QUEUED', 'WAITING') and a.cancel_requested_time is not null)
    returning a.tenant, a.action_id, a.sequence, r.event_type as type, c.at as create_time, r.event_body as body, a.receipt_digest
)

-- part: written
-- What the writer hears of each event.
returning action_id, sequence, encode(receipt_digest, 'hex') as receipt, (extract(epoch from create_time) * 1000000)::bigint as time_us

-- name: admit
-- Admit actions that take no key over, each with its event.
with alive as (select from instances where boot_id = :boot_id and state = 'ALIVE'),
{admitted}
insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
select * from admitted
{written}

-- name: advance
-- Advance running actions, each with its event.
with {advanced}
insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
select * from advanced
{written}

-- name: admit_and_advance
-- Both in one.
with alive as (select from instances where boot_id = :boot_id and state = 'ALIVE'),
{admitted},
{advanced}
insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
select * from admitted union all select * from advanced
{written}

-- name: take_over_and_advance
-- Both in one, where an admission may take over the key of the action that it follows.
with {freed},
-- The count is always at least zero; asking for it makes the keys free before they are taken.
alive as (select from instances where boot_id = :boot_id and state = 'ALIVE' and (select count(*) from freed) >= 0),
{admitted},
{advanced}
insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
select * from admitted union all select * from advanced
{written}

-- part: claimed
-- The messages that make them, each taken once: one that was taken before fails the statement, and nothing of it is done.
claimed as (
    insert into message_claims (tenant, subject, message_id, action_id, digest, expire_time)
    select r.tenant, r.subject, r.message_id, r.action_id, decode(r.message_digest, 'hex'), 'epoch'::timestamptz + r.message_expire_time_us * interval '1 microsecond'
    from json_to_recordset(:admissions::json) as r(
        tenant text, subject text, message_id text, action_id uuid, message_digest text, message_expire_time_us bigint
    )
    where exists (select from made as m where m.tenant = r.tenant and m.action_id = r.action_id)
    -- Two writers may be given the same messages, under other keys or none.
    order by r.tenant, r.subject, r.message_id
)

-- name: admit_message
-- Admit actions that are made by messages with ids, each with its event. They may take keys over.
with {freed},
alive as (select from instances where boot_id = :boot_id and state = 'ALIVE' and (select count(*) from freed) >= 0),
{admitted},
made as (select tenant, action_id from admitted),
{claimed}
insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
select * from admitted
{written}

-- part: placed
-- One row for each submission whose key is free, and none unless there is a row in `alive`.
placed as (
    insert into actions (
        tenant, action_id, capability, version, contract_digest, effect_class, subject, caller,
        idempotency_key, key_digest, key_ttl, input, input_digest, labels,
        on_caller_gone, durability, predecessor_id, create_time, effect_marked,
        attempts_max, state, attempt, ready_time, effect, effect_begun, sequence, receipt_digest,
        queue, priority, attempt_timeout, effect_key_ttl, queue_delay, retry, verdict_digest
    )
    select
        r.tenant, r.action_id, r.capability, r.version, decode(r.contract_digest, 'hex'), r.effect_class, r.subject, r.caller,
        r.idempotency_key, decode(r.key_digest, 'hex'), make_interval(secs => r.key_ttl_seconds), r.input, decode(r.input_digest, 'hex'), r.labels,
        r.on_caller_gone, r.durability, r.predecessor_id, c.at, r.effect_marked,
        r.attempts_max, 'QUEUED', 0, t.ready_time, case when r.effect_class <> 'READ' then 'NOT_DONE' end, false, 1,
        receipt('', r.action_id, 1, 'admitted', c.at, submitted_body(admitted_body(
            r.capability, r.version, decode(r.contract_digest, 'hex'), r.subject, decode(r.input_digest, 'hex'), r.durability), r.queue, t.ready_time)),
        r.queue, r.priority, make_interval(secs => r.attempt_timeout_seconds), make_interval(secs => r.effect_key_ttl_seconds),
        make_interval(secs => r.queue_delay_seconds), r.retry, decode(r.verdict_digest, 'hex')
    from json_to_recordset(:admissions::json) as r(
        tenant text, action_id uuid, capability text, version text, contract_digest text, effect_class text, subject text, caller text,
        idempotency_key text, key_digest text, key_ttl_seconds double precision, input text, input_digest text, labels text,
        on_caller_gone text, durability text, predecessor_id uuid, effect_marked boolean, effect_key_ttl_seconds double precision,
        attempts_max integer, queue text, priority smallint, attempt_timeout_seconds double precision, queue_delay_seconds double precision,
        retry text, ready_time_us bigint, delay_seconds double precision, verdict_digest text
    )
    cross join (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
    cross join lateral (
        select greatest(c.at, coalesce(
            'epoch'::timestamptz + r.ready_time_us * interval '1 microsecond', c.at + make_interval(secs => coalesce(r.delay_seconds, 0)))) as ready_time
    ) as t
    where exists (select from alive)
    on conflict do nothing
    returning tenant, action_id, sequence, create_time, receipt_digest, queue, capability, version, priority, ready_time,
        ready_time + queue_delay as expire_time,
        submitted_body(admitted_body(capability, version, contract_digest, subject, input_digest, durability), queue, ready_time) as body
)

-- part: lined
-- Their events and their places in line.
placed_event as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select tenant, action_id, sequence, 'admitted', create_time, body, receipt_digest from placed
),
ready as (
    insert into queue_ready (tenant, action_id, queue, capability, version, priority, ready_time, expire_time)
    select tenant, action_id, queue, capability, version, priority, ready_time, expire_time from placed where ready_time <= create_time
),
delayed as (
    insert into queue_delayed (tenant, action_id, queue, capability, version, priority, ready_time, expire_time)
    select tenant, action_id, queue, capability, version, priority, ready_time, expire_time from placed where ready_time > create_time
)

-- part: told
-- What the writer hears of each.
select action_id, sequence, encode(receipt_digest, 'hex') as receipt, (extract(epoch from create_time) * 1000000)::bigint as time_us,
    (extract(epoch from ready_time) * 1000000)::bigint as ready_time_us
from placed

-- name: submit
-- Admit actions that wait for a server and take no key over, each with its event and its place in line.
with alive as (select from instances where boot_id = :boot_id and state = 'ALIVE'),
{placed},
{lined}
{told}

-- name: take_over_and_submit
-- The same, where one may take over the key of the action that it follows.
with {freed},
alive as (select from instances where boot_id = :boot_id and state = 'ALIVE' and (select count(*) from freed) >= 0),
{placed},
{lined}
{told}

-- name: submit_message
-- The same, made by messages with ids.
with {freed},
alive as (select from instances where boot_id = :boot_id and state = 'ALIVE' and (select count(*) from freed) >= 0),
{placed},
{lined},
made as (select tenant, action_id from placed),
{claimed}
{told}

-- name: submit_begun
-- The same, but they run here, as if they had been claimed at once, and so have no place in line yet. None of a queue that is paused, and none takes
-- a key over.
with alive as (select from instances where boot_id = :boot_id and state = 'ALIVE'),
asked as materialized (
    select r.*, c.at, submitted_body(admitted_body(
        r.capability, r.version, decode(r.contract_digest, 'hex'), r.subject, decode(r.input_digest, 'hex'), r.durability), r.queue, c.at) as body
    from json_to_recordset(:admissions::json) as r(
        tenant text, action_id uuid, capability text, version text, contract_digest text, effect_class text, subject text, caller text,
        idempotency_key text, key_digest text, key_ttl_seconds double precision, input text, input_digest text, labels text,
        on_caller_gone text, durability text, effect_marked boolean, effect_key_ttl_seconds double precision,
        attempts_max integer, queue text, priority smallint, attempt_timeout_seconds double precision, queue_delay_seconds double precision,
        retry text, verdict_digest text, lease_id uuid, timeout_seconds double precision
    )
    cross join (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
    where exists (select from alive)
      and not exists (select from queue_pauses as q where q.queue = r.queue and q.tenant in (r.tenant, '-'))
),
placed as (
    insert into actions (
        tenant, action_id, capability, version, contract_digest, effect_class, subject, caller,
        idempotency_key, key_digest, key_ttl, input, input_digest, labels,
        on_caller_gone, durability, create_time, effect_marked,
        attempts_max, state, attempt, ready_time, effect, effect_begun, sequence, receipt_digest,
        queue, priority, attempt_timeout, effect_key_ttl, queue_delay, retry, verdict_digest,
        lease_id, instance_id, start_time, deadline, effect_key_expire_time, budget_time
    )
    select
        r.tenant, r.action_id, r.capability, r.version, decode(r.contract_digest, 'hex'), r.effect_class, r.subject, r.caller,
        r.idempotency_key, decode(r.key_digest, 'hex'), make_interval(secs => r.key_ttl_seconds), r.input, decode(r.input_digest, 'hex'), r.labels,
        r.on_caller_gone, r.durability, r.at, r.effect_marked,
        r.attempts_max, 'RUNNING', 1, r.at, case when r.effect_class <> 'READ' then 'NOT_DONE' end,
        r.effect_class not in ('READ', 'COMPOSED') and not r.effect_marked, 2,
        receipt(receipt('', r.action_id, 1, 'admitted', r.at, r.body), r.action_id, 2, 'attempt_started', r.at, '{"attempt":1}'),
        r.queue, r.priority, make_interval(secs => r.attempt_timeout_seconds), make_interval(secs => r.effect_key_ttl_seconds),
        make_interval(secs => r.queue_delay_seconds), r.retry, decode(r.verdict_digest, 'hex'),
        r.lease_id, :boot_id, r.at, r.at + make_interval(secs => r.timeout_seconds), r.at + make_interval(secs => r.effect_key_ttl_seconds), r.at
    from asked as r
    on conflict do nothing
    returning tenant, action_id, sequence, create_time, receipt_digest, ready_time
),
placed_event as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select p.tenant, p.action_id, 1, 'admitted', r.at, r.body, receipt('', p.action_id, 1, 'admitted', r.at, r.body)
    from placed as p join asked as r on r.tenant = p.tenant and r.action_id = p.action_id
    union all
    select p.tenant, p.action_id, 2, 'attempt_started', r.at, '{"attempt":1}', p.receipt_digest
    from placed as p join asked as r on r.tenant = p.tenant and r.action_id = p.action_id
)
{told}

-- name: submit_waiting
-- Admit actions that people have to say yes to first, each with its events, its approval, and whom that is told to. They may take keys over.
with {freed},
alive as (select from instances where boot_id = :boot_id and state = 'ALIVE' and (select count(*) from freed) >= 0),
asked as materialized (
    select r.*, c.at, t.ready_time, submitted_body(admitted_body(
        r.capability, r.version, decode(r.contract_digest, 'hex'), r.subject, decode(r.input_digest, 'hex'), r.durability), r.queue, t.ready_time) as body
    from json_to_recordset(:admissions::json) as r(
        tenant text, action_id uuid, capability text, version text, contract_digest text, effect_class text, subject text, caller text,
        idempotency_key text, key_digest text, key_ttl_seconds double precision, input text, input_digest text, labels text,
        on_caller_gone text, durability text, predecessor_id uuid, effect_marked boolean, effect_key_ttl_seconds double precision,
        attempts_max integer, queue text, priority smallint, attempt_timeout_seconds double precision, queue_delay_seconds double precision,
        retry text, ready_time_us bigint, delay_seconds double precision,
        approval_id uuid, kind text, digest text, terms text, title text, summary text, subjects text[], roles text[], groups text[],
        ttl_seconds double precision, escalate_seconds double precision, waiting_body text, verdict_digest text, message_id text,
        deliveries json
    )
    cross join (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
    cross join lateral (
        select greatest(c.at, coalesce(
            'epoch'::timestamptz + r.ready_time_us * interval '1 microsecond', c.at + make_interval(secs => coalesce(r.delay_seconds, 0)))) as ready_time
    ) as t
    where exists (select from alive)
),
placed as (
    insert into actions (
        tenant, action_id, capability, version, contract_digest, effect_class, subject, caller,
        idempotency_key, key_digest, key_ttl, input, input_digest, labels,
        on_caller_gone, durability, predecessor_id, create_time, effect_marked,
        attempts_max, state, cause, attempt, ready_time, effect, effect_begun, sequence, receipt_digest,
        queue, priority, attempt_timeout, effect_key_ttl, queue_delay, retry, approval_id, verdict_digest
    )
    select
        r.tenant, r.action_id, r.capability, r.version, decode(r.contract_digest, 'hex'), r.effect_class, r.subject, r.caller,
        r.idempotency_key, decode(r.key_digest, 'hex'), make_interval(secs => r.key_ttl_seconds), r.input, decode(r.input_digest, 'hex'), r.labels,
        r.on_caller_gone, r.durability, r.predecessor_id, r.at, r.effect_marked,
        r.attempts_max, 'WAITING', r.kind, 0, r.ready_time, case when r.effect_class <> 'READ' then 'NOT_DONE' end, false, 2,
        receipt(receipt('', r.action_id, 1, 'admitted', r.at, r.body), r.action_id, 2, 'waiting', r.at, r.waiting_body),
        r.queue, r.priority, make_interval(secs => r.attempt_timeout_seconds), make_interval(secs => r.effect_key_ttl_seconds),
        make_interval(secs => r.queue_delay_seconds), r.retry, r.approval_id, decode(r.verdict_digest, 'hex')
    from asked as r
    on conflict do nothing
    returning tenant, action_id, sequence, create_time, receipt_digest, ready_time
),
placed_event as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select p.tenant, p.action_id, 1, 'admitted', r.at, r.body, receipt('', p.action_id, 1, 'admitted', r.at, r.body)
    from placed as p join asked as r on r.tenant = p.tenant and r.action_id = p.action_id
    union all
    select p.tenant, p.action_id, 2, 'waiting', r.at, r.waiting_body, p.receipt_digest
    from placed as p join asked as r on r.tenant = p.tenant and r.action_id = p.action_id
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
    from placed as p join asked as r on r.tenant = p.tenant and r.action_id = p.action_id
),
others as (
    insert into deliveries (tenant, create_time, delivery_id, target, type, subject, event_id, action_id, data, attempts_max, next_time)
    select
        r.tenant, r.at, d.delivery_id, d.target, d.type, d.subject, d.event_id, r.action_id,
        left(d.data, -1) || ',"expire_time":"'
            || to_char((r.at + make_interval(secs => r.ttl_seconds)) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || '"}',
        d.attempts_max, r.at
    from placed as p
    join asked as r on r.tenant = p.tenant and r.action_id = p.action_id
    cross join json_to_recordset(r.deliveries) as d(
        delivery_id uuid, target text, type text, subject text, event_id uuid, data text, attempts_max integer
    )
    on conflict (delivery_id) do nothing
),
made as (
    select p.tenant, p.action_id
    from placed as p join asked as r on r.tenant = p.tenant and r.action_id = p.action_id
    where r.message_id is not null
),
{claimed}
{told}

-- part: family
-- Of steps among what has moved, their composed parents, who may wait for them, and a row in `wakes` for each. Whoever sends the parent has found out
-- that the step is not asked about any more. A parent that runs here need not be looked at: it parks by this very writer, and then sees what is
-- written here.
step as materialized (
    select v.tenant, v.action_id, r.parent_id, v.create_time as at
    from advanced as v
    join json_to_recordset(:advances::json) as r(tenant text, action_id uuid, parent_id uuid) on r.tenant = v.tenant and r.action_id = v.action_id
),
family as materialized (
    select s.*, p.settle_time is null and not ((p.state || '') = 'RUNNING' and p.instance_id = :boot_id) as may_wait
    from step as s
    join actions as p on p.tenant = s.tenant and p.action_id = s.parent_id
    where num_nonnulls(s.tenant, s.parent_id) = 2 and p.effect_class = 'COMPOSED'
),
wake as (
    insert into wakes (tenant, parent_id, child_id, create_time) select tenant, parent_id, action_id, at from family
    on conflict do nothing
)

-- part: heard
-- What the writer hears of each that has moved.
select a.action_id, a.sequence, encode(a.receipt_digest, 'hex') as receipt, (extract(epoch from a.create_time) * 1000000)::bigint as time_us,
    0::bigint as ready_time_us, coalesce(f.may_wait, false) as wakes
from advanced as a left join family as f on f.tenant = a.tenant and f.action_id = a.action_id

-- name: advance_step
-- Move leased steps to an end, each with its event, as `advance` does other actions; their parents may wait for them.
with {advanced},
moved_event as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select * from advanced
),
{family}
{heard}

-- name: advance_queued
-- Move leased actions back into line, to an end that is a dead letter, or into doubt and out of it, each with its event: what `advance` does for all
-- other moves. Which line, and until when, is told by who settles, who knows the row: nothing of it changes
-- under a lease. Of what is in doubt somebody is asked a second later, so that an answer on its way may come first.
with {advanced},
moved as (
    select
        v.tenant, v.action_id, v.create_time as at, r.state, r.priority, r.capability, r.version, r.queue, r.reason, r.dead_letter,
        v.create_time + make_interval(secs => coalesce(r.claim_delay_seconds, 0)) as claim_time,
        case when r.expire_time_us is not null then 'epoch'::timestamptz + r.expire_time_us * interval '1 microsecond' end as expire_time
    from advanced as v
    join json_to_recordset(:advances::json) as r(
        tenant text, action_id uuid, state text, priority smallint, capability text, version text, queue text, reason text,
        dead_letter boolean, claim_delay_seconds double precision, expire_time_us bigint
    ) on r.tenant = v.tenant and r.action_id = v.action_id
),
moved_event as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select * from advanced
),
ready as (
    insert into queue_ready (tenant, action_id, queue, capability, version, priority, ready_time, expire_time)
    select tenant, action_id, queue, capability, version, priority, claim_time, case when expire_time is not null then greatest(expire_time, claim_time) end
    from moved
    where state = 'QUEUED' and claim_time <= at
    on conflict do nothing
),
delayed as (
    insert into queue_delayed (tenant, action_id, queue, capability, version, priority, ready_time, expire_time)
    select tenant, action_id, queue, capability, version, priority, claim_time, case when expire_time is not null then greatest(expire_time, claim_time) end
    from moved
    where state = 'QUEUED' and claim_time > at
    on conflict do nothing
),
doubted as (
    insert into reconciles (tenant, action_id, capability, version, since_time, next_time)
    select tenant, action_id, capability, version, at, at + interval '1 second' from moved where state = 'AMBIGUOUS'
    on conflict (tenant, action_id) do update
    set since_time = excluded.since_time, asked = 0, next_time = excluded.next_time, wanted = false, give_up_time = null, finding = null
),
certain as (
    delete from reconciles as q
    using moved as m
    where num_nonnulls(m.tenant, m.action_id) = 2 and m.state <> 'AMBIGUOUS' and q.tenant = m.tenant and q.action_id = m.action_id
),
dead as (
    insert into dead_letters (tenant, action_id, queue, capability, reason, dead_time)
    select tenant, action_id, queue, capability, reason, at from moved where dead_letter
    on conflict do nothing
),
{family}
{heard}

-- name: park
-- Leave leased actions to wait for some of their steps, with nobody running them, each with its event; or, if one of these has ended already, make it
-- ready to go on. Of the wakes they leave those of the steps that they wait for: what others came to they have seen. Whoever has asked to cancel one
-- keeps it from waiting.
with asked as materialized (
    select r.*, c.at, exists (
        select from wakes as w
        where w.tenant = r.tenant and w.parent_id = r.action_id and w.child_id in (select e::uuid from json_array_elements_text(r.awaited) as e)
    ) as woken
    from json_to_recordset(:advances::json) as r(tenant text, action_id uuid, lease_id uuid, awaited json, event_body text, woken_body text)
    cross join (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
),
parked as (
    update actions as a
    set state = case when r.woken then 'QUEUED' else 'WAITING' end,
        cause = case when r.woken then 'WOKEN' else 'CHILD' end,
        message = null,
        failure_code = null,
        failure_category = null,
        retry_delay = null,
        lease_id = null,
        ready_time = r.at,
        sequence = a.sequence + 1,
        receipt_digest = receipt(a.receipt_digest, a.action_id, a.sequence + 1, case when r.woken then 'requeued' else 'parked' end, r.at,
            case when r.woken then r.woken_body else r.event_body end)
    from asked as r
    -- As `advanced` says.
    where num_nonnulls(r.tenant, r.action_id, r.lease_id) = 3
      and a.tenant = r.tenant
      and a.action_id = r.action_id
      and a.lease_id = r.lease_id
      and (a.state || '') = 'RUNNING'
      and a.effect_class = 'COMPOSED'
      and a.cancel_requested_time is null
    returning a.tenant, a.action_id, a.sequence, a.receipt_digest, a.queue, a.capability, a.version, a.priority, a.create_time, r.at, r.woken, r.awaited,
        case when r.woken then r.woken_body else r.event_body end as body
),
parked_event as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select tenant, action_id, sequence, case when woken then 'requeued' else 'parked' end, at, body, receipt_digest from parked
),
lined as (
    insert into queue_ready (tenant, action_id, queue, capability, version, priority, ready_time)
    select tenant, action_id, queue, capability, version, priority, least(create_time, at) from parked where woken
    on conflict do nothing
),
seen as (
    delete from wakes as w
    using parked as p
    where num_nonnulls(p.tenant, p.action_id) = 2
      and w.tenant = p.tenant
      and w.parent_id = p.action_id
      and (p.woken or w.child_id not in (select e::uuid from json_array_elements_text(p.awaited) as e))
)
select action_id, sequence, encode(receipt_digest, 'hex') as receipt, (extract(epoch from at) * 1000000)::bigint as time_us, 0::bigint as ready_time_us,
    false as wakes, woken
from parked

-- part: line
-- An action's places in line, locked before the action is; whoever reads their count has them locked.
line as materialized (
    select 1 from queue_ready where tenant = :tenant and action_id = :action_id for update
),
later as materialized (
    select 1 from queue_delayed where tenant = :tenant and action_id = :action_id for update
)

-- name: get
-- One action with its payloads.
select * from action_records where tenant = :tenant and action_id = :action_id

-- name: get_summary
-- One action without its payloads.
select * from action_summaries where tenant = :tenant and action_id = :action_id

-- name: list_by_ids
-- Some of a tenant's actions, without their payloads.
select * from action_summaries where tenant = :tenant and action_id = any (:action_ids::uuid[])

-- name: get_by_keys
-- The actions that hold these keys, with their payloads; the digest of a key has the tenant in it.
select * from action_records where key_digest = any (:key_digests::bytea[])

-- part: matching
-- Empty filters match all.
where (cardinality(:capabilities::text[]) = 0 or capability = any (:capabilities::text[]))
  and (cardinality(:states::text[]) = 0 or state = any (:states::text[]))
  and (:requester::text is null or subject = :requester)
  and (:queue::text is null or queue = :queue)
  and labels::jsonb @> :labels::jsonb
  and (:create_time_min_us::bigint is null or create_time_us >= :create_time_min_us)
  and (:create_time_max_us::bigint is null or create_time_us < :create_time_max_us)
  and (
      not :agent_runs::boolean
      or capability = any (:built_in_agents::text[])
      or exists (
          select from capabilities as k
          where k.tenant in ('-', :tenant) and k.name = scanned.capability and k.version = scanned.version and k.kind = 'AGENT'
      )
  )

-- name: list
-- A page of a tenant's actions, newest first: at most scan_max rows are looked at, the last of them is told even if it does not match.
with scanned as materialized (
    select *
    from action_summaries
    where tenant = :tenant
      and action_id < :before
      and action_id between :floor and :ceiling
    order by action_id desc
    limit :scan_max
),
matching as (
    select *
    from scanned
    {matching}
    order by action_id desc
    limit :page_size
)
select m.*, s.scanned_count, s.last_scanned
from (select count(*) as scanned_count, min(action_id::text) as last_scanned from scanned) as s
left join matching as m on true
order by m.action_id desc

-- name: list_family
-- The same of the children of one parent, or of the descendants of one root, as an action has many children at most, and few compared with a tenant.
with member as materialized (
    (
        select tenant, action_id
        from lineage
        where tenant = :tenant and parent_id = :parent_id::uuid and action_id < :before and action_id between :floor and :ceiling
        order by action_id desc
        limit :scan_max
    )
    union all
    (
        select tenant, action_id
        from lineage
        where :parent_id::uuid is null and root_id = :root_id::uuid and tenant = :tenant and action_id < :before and action_id between :floor and :ceiling
        order by action_id desc
        limit :scan_max
    )
),
scanned as materialized (
    select s.*
    from member as l join action_summaries as s on s.tenant = l.tenant and s.action_id = l.action_id
    where num_nonnulls(l.tenant, l.action_id) = 2
      and (:root_id::uuid is null or s.root_id = :root_id)
),
matching as (
    select *
    from scanned
    {matching}
    order by action_id desc
    limit :page_size
)
select m.*, s.scanned_count, s.last_scanned
from (select count(*) as scanned_count, min(action_id::text) as last_scanned from member) as s
left join matching as m on true
order by m.action_id desc

-- name: list_composed
-- The same of what is COMPOSED, as runs of agents are.
with member as materialized (
    select tenant, action_id
    from actions
    where effect_class || '' = 'COMPOSED' and tenant || '' = :tenant and action_id < :before and action_id between :floor and :ceiling
    order by action_id desc
    limit :scan_max
),
scanned as materialized (
    select s.*
    from member as l join action_summaries as s on s.tenant = l.tenant and s.action_id = l.action_id
    where s.tenant = :tenant
),
matching as (
    select *
    from scanned
    {matching}
    order by action_id desc
    limit :page_size
)
select m.*, s.scanned_count, s.last_scanned
from (select count(*) as scanned_count, min(action_id::text) as last_scanned from member) as s
left join matching as m on true
order by m.action_id desc

-- name: claim
-- Acquire a ready action, as it was read, for a further attempt, with its event. One without a place in line is acquired all the same; a submitted one
-- not while its queue is paused.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
{line},
claimed as (
    update actions as a
    set state = 'RUNNING',
        -- Woken, or put off by itself, it is the same attempt going on.
        attempt = a.attempt + case when coalesce(a.cause, '') not in ('WOKEN', 'POSTPONED') then 1 else 0 end,
        -- A blameless loss costs no attempt: what was made ready by one may have one more. Attempts keep their numbers, as events name them.
        attempts_max = a.attempts_max + case when a.cause in ('SHUTDOWN', 'NEVER_STARTED') then 1 else 0 end,
        lease_id = :lease_id,
        instance_id = :boot_id,
        start_time = c.at,
        deadline = c.at + make_interval(secs => :timeout_seconds::double precision),
        -- What is COMPOSED has begun it with the first step that may have one, in whichever attempt.
        effect_begun = case when a.effect_class = 'COMPOSED' then a.effect_begun else a.effect_class <> 'READ' and not a.effect_marked end,
        effect_key_expire_time = coalesce(a.effect_key_expire_time, c.at + a.effect_key_ttl),
        budget_time = coalesce(a.budget_time, c.at),
        sequence = a.sequence + 1,
        receipt_digest = case when coalesce(a.cause, '') not in ('WOKEN', 'POSTPONED')
            then receipt(a.receipt_digest, a.action_id, a.sequence + 1, 'attempt_started', c.at, '{"attempt":' || a.attempt + 1 || '}')
            else receipt(a.receipt_digest, a.action_id, a.sequence + 1, 'resumed', c.at, '{"attempt":' || a.attempt || '}') end
    from clock as c
    where (select count(*) from line) + (select count(*) from later) >= 0
      and a.tenant = :tenant
      and a.action_id = :action_id
      and (a.state || '') = 'QUEUED'
      and a.sequence = :sequence
      and a.ready_time <= c.at
      and a.cancel_requested_time is null
      and not (a.effect_unknown and a.effect_key_expire_time <= c.at)
      and exists (select from instances where boot_id = :boot_id and state = 'ALIVE')
      and (a.queue is null or not exists (select from queue_pauses as p where p.queue = a.queue and p.tenant in (a.tenant, '-')))
    returning a.*, c.at
),
claimed_event as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select tenant, action_id, sequence, case when coalesce(cause, '') not in ('WOKEN', 'POSTPONED') then 'attempt_started' else 'resumed' end, at,
        '{"attempt":' || attempt || '}', receipt_digest
    from claimed
),
gone as (
    delete from queue_ready as q using claimed as x where q.tenant = x.tenant and q.action_id = x.action_id
),
gone_later as (
    delete from queue_delayed as q using claimed as x where q.tenant = x.tenant and q.action_id = x.action_id
)
select (extract(epoch from at) * 1000000)::bigint as time_us, attempt, attempts_max, effect_begun, sequence, encode(receipt_digest, 'hex') as receipt,
    provider_operation, provider_cursor, (extract(epoch from deadline) * 1000000)::bigint as deadline_us,
    (extract(epoch from effect_key_expire_time) * 1000000)::bigint as effect_key_expire_time_us,
    (extract(epoch from budget_time) * 1000000)::bigint as budget_time_us
from claimed

-- part: parked_marked
-- What is parked wakes itself, for the same reason: 0029_wakes.sql.
wake as (
    insert into wakes (tenant, parent_id, child_id, create_time)
    select tenant, action_id, action_id, at from marked where state = 'WAITING' and cause = 'CHILD'
    on conflict do nothing
)

-- name: request_cancel
-- Mark an open action as to be cancelled, once, with its event. A place in line expires with it, and its approval is looked at again, so that what nobody
-- else closes is closed by a loop.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
noted as (
    update queue_ready as q set expire_time = c.at from clock as c where q.tenant = :tenant and q.action_id = :action_id returning 1
),
noted_later as (
    update queue_delayed as q set expire_time = c.at from clock as c where q.tenant = :tenant and q.action_id = :action_id returning 1
),
marked as (
    update actions as a
    set cancel_requested_time = c.at,
        sequence = a.sequence + 1,
        receipt_digest = receipt(a.receipt_digest, a.action_id, a.sequence + 1, 'cancel_requested', c.at, :event_body)
    from clock as c
    where (select count(*) from noted) + (select count(*) from noted_later) >= 0
      and a.tenant = :tenant
      and a.action_id = :action_id
      and a.cancel_requested_time is null
      and (a.state || '') in ('QUEUED', 'RUNNING', 'WAITING', 'AMBIGUOUS')
    returning a.tenant, a.action_id, a.sequence, a.receipt_digest, c.at, a.approval_id, a.state, a.cause
),
hurried as (
    update approvals as p
    set next_time = m.at
    from marked as m
    where num_nonnulls(m.tenant, m.approval_id) = 2 and p.tenant = m.tenant and p.approval_id = m.approval_id and p.next_time is not null
),
{parked_marked}
insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
select tenant, action_id, sequence, 'cancel_requested', at, :event_body, receipt_digest from marked

-- part: places
-- Places in line of the actions in `item`, locked; those that somebody holds are passed over.
ready_place as materialized (
    select q.tenant, q.action_id
    from item as r
    join queue_ready as q on q.tenant = r.tenant and q.action_id = r.action_id
    where num_nonnulls(r.tenant, r.action_id) = 2
    order by q.action_id
    for update of q skip locked
),
later_place as materialized (
    select q.tenant, q.action_id
    from item as r
    join queue_delayed as q on q.tenant = r.tenant and q.action_id = r.action_id
    where num_nonnulls(r.tenant, r.action_id) = 2
    order by q.action_id
    for update of q skip locked
)

-- part: marked
-- The actions in `target`, whose rows and places in line are locked, are to be cancelled, with their events.
noted as (
    update queue_ready as q
    set expire_time = c.at
    from target as t join ready_place as p using (tenant, action_id) cross join clock as c
    where num_nonnulls(t.tenant, t.action_id) = 2 and q.tenant = t.tenant and q.action_id = t.action_id
),
noted_later as (
    update queue_delayed as q
    set expire_time = c.at
    from target as t join later_place as p using (tenant, action_id) cross join clock as c
    where num_nonnulls(t.tenant, t.action_id) = 2 and q.tenant = t.tenant and q.action_id = t.action_id
),
marked as (
    update actions as a
    set cancel_requested_time = c.at,
        sequence = a.sequence + 1,
        receipt_digest = receipt(a.receipt_digest, a.action_id, a.sequence + 1, 'cancel_requested', c.at, :event_body)
    from target as t cross join clock as c
    where num_nonnulls(t.tenant, t.action_id) = 2 and a.tenant = t.tenant and a.action_id = t.action_id
    returning a.tenant, a.action_id, a.sequence, a.receipt_digest, a.state, a.cause, c.at, a.approval_id
),
hurried as (
    update approvals as p
    set next_time = m.at
    from marked as m
    where num_nonnulls(m.tenant, m.approval_id) = 2 and p.tenant = m.tenant and p.approval_id = m.approval_id and p.next_time is not null
),
marked_event as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select tenant, action_id, sequence, 'cancel_requested', at, :event_body, receipt_digest from marked
)

-- name: request_cancel_many
-- Mark of a tenant's actions these, if they are open, as to be cancelled, once each, with their events, and let their places in line expire. What
-- somebody holds right now is passed over.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
item as materialized (
    select :tenant::text as tenant, r.action_id from unnest(:action_ids::uuid[]) as r(action_id) where num_nonnulls(r.action_id) = 1
),
{places},
target as materialized (
    select a.tenant, a.action_id
    from item as r
    join actions as a on a.tenant = r.tenant and a.action_id = r.action_id
    where (select count(*) from ready_place) + (select count(*) from later_place) >= 0
      and num_nonnulls(r.tenant, r.action_id) = 2
      and a.cancel_requested_time is null
      and (a.state || '') in ('QUEUED', 'RUNNING', 'WAITING', 'AMBIGUOUS')
    order by a.action_id
    for update of a skip locked
),
{marked},
{parked_marked}
select action_id, sequence, state, (extract(epoch from at) * 1000000)::bigint as time_us from marked

-- name: request_cancel_all
-- The same, waiting for whoever holds one. For who has begun a tx with nothing of them: all their places in line are locked, then all of them, each in
-- the order of their ids.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
item as materialized (
    select :tenant::text as tenant, r.action_id from unnest(:action_ids::uuid[]) as r(action_id) where num_nonnulls(r.action_id) = 1
),
ready_place as materialized (
    select q.tenant, q.action_id
    from item as r
    join queue_ready as q on q.tenant = r.tenant and q.action_id = r.action_id
    where num_nonnulls(r.tenant, r.action_id) = 2
    order by q.action_id
    for update of q
),
later_place as materialized (
    select q.tenant, q.action_id
    from item as r
    join queue_delayed as q on q.tenant = r.tenant and q.action_id = r.action_id
    where num_nonnulls(r.tenant, r.action_id) = 2 and (select count(*) from ready_place) >= 0
    order by q.action_id
    for update of q
),
target as materialized (
    select a.tenant, a.action_id
    from item as r
    join actions as a on a.tenant = r.tenant and a.action_id = r.action_id
    where (select count(*) from later_place) >= 0
      and num_nonnulls(r.tenant, r.action_id) = 2
      and a.cancel_requested_time is null
      and (a.state || '') in ('QUEUED', 'RUNNING', 'WAITING', 'AMBIGUOUS')
    order by a.action_id
    for update of a
),
{marked},
{parked_marked}
select action_id from marked

-- part: woken
-- That steps of composed parents have ended, or are in doubt and nobody is asked about them.
wake as (
    insert into wakes (tenant, parent_id, child_id, create_time)
    select x.tenant, x.parent_id, x.action_id, x.at
    from closed as x
    join actions as p on p.tenant = x.tenant and p.action_id = x.parent_id
    where num_nonnulls(x.tenant, x.parent_id) = 2
      and (x.state <> 'AMBIGUOUS' or x.effect_class <> 'RECONCILABLE')
      and p.effect_class = 'COMPOSED'
    on conflict do nothing
)

-- name: close_many
-- End of a tenant's ready actions these, as they were read, each with its event, because a cancel was asked for. What somebody holds right now is
-- passed over.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
item as materialized (
    select :tenant::text as tenant, r.*
    from json_to_recordset(:items::json) as r(
        action_id uuid, sequence bigint, lease_id uuid, state text, reason text, cause text, event_type text, event_body text)
    where num_nonnulls(r.action_id, r.sequence) = 2
),
{places},
target as materialized (
    select a.tenant, a.action_id
    from item as r
    join actions as a on a.tenant = r.tenant and a.action_id = r.action_id
    where (select count(*) from ready_place) + (select count(*) from later_place) >= 0
      and num_nonnulls(r.tenant, r.action_id) = 2
      and (a.state || '') = 'QUEUED'
      and a.sequence = r.sequence
    order by a.action_id
    for update of a skip locked
),
closed as (
    update actions as a
    set state = r.state,
        lease_id = r.lease_id,
        reason = r.reason,
        cause = r.cause,
        message = null,
        failure_code = null,
        failure_category = null,
        settle_time = case when r.state <> 'AMBIGUOUS' then c.at end,
        sequence = a.sequence + 1,
        receipt_digest = receipt(a.receipt_digest, a.action_id, a.sequence + 1, r.event_type, c.at, r.event_body)
    from target as t join item as r using (tenant, action_id) cross join clock as c
    where num_nonnulls(t.tenant, t.action_id) = 2 and a.tenant = t.tenant and a.action_id = t.action_id
    returning a.tenant, a.action_id, a.sequence, a.receipt_digest, c.at, r.event_type, r.event_body, a.parent_id, a.state, a.effect_class
),
gone as (
    delete from queue_ready as q
    using closed as x join ready_place as p using (tenant, action_id)
    where num_nonnulls(x.tenant, x.action_id) = 2 and q.tenant = x.tenant and q.action_id = x.action_id
),
gone_later as (
    delete from queue_delayed as q
    using closed as x join later_place as p using (tenant, action_id)
    where num_nonnulls(x.tenant, x.action_id) = 2 and q.tenant = x.tenant and q.action_id = x.action_id
),
closed_event as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select tenant, action_id, sequence, event_type, at, event_body, receipt_digest from closed
),
{woken}
select action_id from closed

-- name: close_queued
-- End an action that is ready, or waits for people, and that nobody may run any more, with its event: a cancel was asked for, repeating is not safe any
-- longer, nobody began it, or people said no.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
{line},
closed as (
    update actions as a
    set state = :state,
        effect = coalesce(:effect, a.effect),
        lease_id = :lease_id,
        reason = :reason,
        cause = :cause,
        message = :message,
        failure_code = :failure_code,
        failure_category = :failure_category,
        settle_time = case when :state::text <> 'AMBIGUOUS' then c.at end,
        sequence = a.sequence + 1,
        receipt_digest = receipt(a.receipt_digest, a.action_id, a.sequence + 1, :event_type, c.at, :event_body)
    from clock as c
    where (select count(*) from line) + (select count(*) from later) >= 0
      and a.tenant = :tenant
      and a.action_id = :action_id
      and (a.state || '') in ('QUEUED', 'WAITING')
      and a.sequence = :sequence
    returning a.tenant, a.action_id, a.sequence, a.receipt_digest, c.at, a.queue, a.capability, a.version, a.reason, a.state, a.parent_id,
        a.effect_class
),
gone as (
    delete from queue_ready as q using closed as x where q.tenant = x.tenant and q.action_id = x.action_id
),
gone_later as (
    delete from queue_delayed as q using closed as x where q.tenant = x.tenant and q.action_id = x.action_id
),
dead as (
    insert into dead_letters (tenant, action_id, queue, capability, reason, dead_time)
    select tenant, action_id, queue, capability, reason, at from closed where :dead_letter::boolean
    on conflict do nothing
),
doubted as (
    insert into reconciles (tenant, action_id, capability, version, since_time, next_time)
    select tenant, action_id, capability, version, at, at from closed where state = 'AMBIGUOUS'
    on conflict (tenant, action_id) do update
    set since_time = excluded.since_time, asked = 0, next_time = excluded.next_time, wanted = false, give_up_time = null, finding = null
),
{woken}
insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
select tenant, action_id, sequence, :event_type, at, :event_body, receipt_digest from closed

-- name: list_lost
-- Running actions of dead boots, oldest first. Cross-tenant: the rescuer's.
select s.*
from instances as i
join action_summaries as s on s.instance_id = i.boot_id and s.state = 'RUNNING'
where i.state = 'DEAD'
order by s.action_id
limit :count_max

-- name: list_ownerless
-- Running actions whose boot has no row: somebody has taken it away, and no lease will run out. Oldest first. Cross-tenant: the rescuer's.
select s.*
from action_summaries as s
where s.state = 'RUNNING' and not exists (select from instances as i where i.boot_id = s.instance_id)
order by s.action_id
limit :count_max

-- name: list_owned
-- What a boot holds beside the actions it knows of: those running since before a time, with their leases. Cross-tenant: the boot's own.
select s.*
from action_summaries as s
where s.instance_id = :boot_id
  and s.state = 'RUNNING'
  and s.action_id <> all (:known_ids::uuid[])
  and s.start_time_us <= (extract(epoch from coalesce(:now::timestamptz, statement_timestamp())) * 1000000)::bigint - :age_us::bigint
order by s.action_id
limit :count_max

-- name: list_cancelled
-- Running actions of a boot that somebody asked to cancel, beside those it has been told of. Cross-tenant: the boot's own.
select action_id
from actions
where instance_id = :boot_id
  and state = 'RUNNING'
  and cancel_requested_time is not null
  and action_id <> all (:told_ids::uuid[])
limit :count_max

-- name: store_time
-- The store's clock.
select (extract(epoch from coalesce(:now::timestamptz, statement_timestamp())) * 1000000)::bigint
