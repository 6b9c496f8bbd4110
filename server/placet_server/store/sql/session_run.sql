-- The order of the runs of sessions, and what was said in them: 0034_sessions.sql.
--
-- Lock order: the session, a run's place in line, which is new, then the action.

-- name: is_over
-- Whether an action has ended, or is not kept any more; if so, that holds until the tx ends. One that has not is not locked, as its writes would wait.
with ended as materialized (
    select 1 from actions where tenant = :tenant and action_id = :action_id::uuid and settle_time is not null for share
)
select exists (select from ended) or not exists (select from actions where tenant = :tenant and action_id = :action_id::uuid)

-- name: count_waiting
-- How many runs of a session wait for their turn.
select count(*) from session_runs where session_id = :session_id::uuid and waits and tenant = :tenant

-- name: add_run
-- The next run of a session, which is locked: its number. Unless it waits, the turn is its.
with counted as (
    update sessions
    set run_count = run_count + 1,
        active_action_id = case when :waits::boolean then active_action_id else :action_id::uuid end,
        update_time = c.at,
        expire_time = c.at + idle
    from (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
    where tenant = :tenant and session_id = :session_id::uuid
    returning run_count
)
insert into session_runs (tenant, session_id, number, action_id, waits)
select :tenant, :session_id::uuid, run_count, :action_id::uuid, :waits::boolean from counted
returning number

-- name: hold
-- A run that was just stored waits for its turn instead of for a server, with its event.
with gone as (
    delete from queue_ready where tenant = :tenant and action_id = :action_id::uuid
),
gone_later as (
    delete from queue_delayed where tenant = :tenant and action_id = :action_id::uuid
),
held as (
    update actions as a
    set state = 'WAITING',
        cause = 'SESSION',
        sequence = a.sequence + 1,
        receipt_digest = receipt(a.receipt_digest, a.action_id, a.sequence + 1, 'parked', c.at, :event_body)
    from (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
    where a.tenant = :tenant and a.action_id = :action_id::uuid and (a.state || '') = 'QUEUED'
    returning a.tenant, a.action_id, a.sequence, a.receipt_digest, c.at
)
insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
select tenant, action_id, sequence, 'parked', at, :event_body, receipt_digest from held
returning sequence, encode(receipt_digest, 'hex') as receipt

-- name: next_waiting
-- The first run of a session that waits for its turn.
select number, action_id::text from session_runs
where session_id = :session_id::uuid and waits and tenant = :tenant
order by number
limit 1

-- name: release
-- It has its turn, or it does not want it any more. It gets its place in line, with its event; one that is to be cancelled gets a place that has expired,
-- to be closed by the sweep if nobody else does. In a closed session nobody gets the turn of another.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
released as (
    update actions as a
    set state = 'QUEUED',
        cause = 'SESSION',
        ready_time = c.at,
        sequence = a.sequence + 1,
        receipt_digest = receipt(a.receipt_digest, a.action_id, a.sequence + 1, 'requeued', c.at, :event_body)
    from clock as c
    where a.tenant = :tenant and a.action_id = :action_id::uuid and (a.state || '') = 'WAITING' and a.cause = 'SESSION'
    returning a.tenant, a.action_id, a.sequence, a.receipt_digest, c.at, a.queue, a.priority, a.capability, a.version,
        case when a.cancel_requested_time is not null then c.at else c.at + a.queue_delay end as expire_time
),
told as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select tenant, action_id, sequence, 'requeued', at, :event_body, receipt_digest from released
),
ready as (
    insert into queue_ready (tenant, action_id, queue, capability, version, priority, ready_time, expire_time)
    select tenant, action_id, queue, capability, version, priority, at, expire_time from released
    on conflict do nothing
),
turned as (
    update session_runs set waits = false where tenant = :tenant and session_id = :session_id::uuid and number = :number::integer
),
active as (
    update sessions as s
    set active_action_id = r.action_id
    from released as r
    where s.tenant = :tenant and s.session_id = :session_id::uuid and (s.state || '') = 'OPEN'
)
select queue, capability, version from released

-- name: find_passed
-- The session in which a run waits, if this one is the one before it.
select s.tenant, s.session_id::text
from session_runs as r
join sessions as s on s.tenant = r.tenant and s.session_id = r.session_id
where r.action_id = :action_id::uuid
  and r.tenant = :tenant
  and num_nonnulls(r.tenant, r.session_id) = 2
  and s.active_action_id = r.action_id
  and exists (select from session_runs as w where w.session_id = s.session_id and w.waits and w.tenant = s.tenant)

-- name: list_passed
-- Sessions in which runs wait though the one before them is over, or the session is. Cross-tenant: the sweep's.
select distinct s.tenant, s.session_id::text
from session_runs as r
join sessions as s on s.tenant = r.tenant and s.session_id = r.session_id
left join actions as a on a.tenant = s.tenant and a.action_id = s.active_action_id
where r.waits
  and num_nonnulls(r.tenant, r.session_id) = 2
  and (s.state <> 'OPEN' or a.action_id is null or a.settle_time is not null)
limit :count_max

-- name: list_open
-- Runs of a session before some number that are not over, oldest first. Each is looked up: a join may read all actions of the tenant.
select r.action_id::text
from session_runs as r
where r.tenant = :tenant and r.session_id = :session_id::uuid and r.number < :before::integer
  and (select a.settle_time is null from actions as a where a.tenant = r.tenant and a.action_id = r.action_id)
  and (r.waits or r.number >= coalesce((
      select x.number from sessions as s join session_runs as x on x.tenant = s.tenant and x.action_id = s.active_action_id
      where s.tenant = :tenant and s.session_id = :session_id::uuid
  ), 1))
order by r.number

-- name: list_places
-- Which runs of sessions these actions are: none of others.
select r.action_id::text, r.session_id::text, r.number
from session_runs as r
where r.tenant = :tenant and r.action_id = any (:action_ids::uuid[])

-- name: list_remembered
-- What runs of a session remember, the newest run first, of each its entries in order, after some place: bounded in number, and in bytes but for the last one.
select number, action_id, is_compacted, is_last, ordinal, type, turn, attempt, body
from (
    select *, sum(octet_length(body)) over (order by number desc, ordinal) as bytes
    from (
        select
            r.number, r.action_id::text, u.compacted_ordinal > 1 as is_compacted, e.ordinal = u.ordinal as is_last, e.ordinal, e.type, e.turn, e.attempt,
            e.body
        from session_runs as r
        join runs as u on u.tenant = r.tenant and u.action_id = r.action_id
        join run_entries as e on e.tenant = r.tenant and e.action_id = r.action_id
        where r.tenant = :tenant
          and r.session_id = :session_id::uuid
          and r.number <= :after_number::integer
          and (r.number < :after_number::integer or e.ordinal > :after_ordinal::integer)
          and (e.ordinal = 1 or e.ordinal >= u.compacted_ordinal)
        order by r.number desc, e.ordinal
        limit :count_max
    ) as page
) as measured
where bytes - octet_length(body) < :bytes_max
order by number desc, ordinal

-- name: list_said
-- What was said in a session, in order, after some place: the entries in which an agent was asked, with what it was asked, and those in which its model has
-- answered, but for answers that stand for what was before them. Bounded in number, and in bytes but for the last one.
select number, action_id, ordinal, type, turn, body, input, create_time_us
from (
    select *, sum(octet_length(body) + coalesce(octet_length(input), 0)) over (order by number, ordinal) as bytes
    from (
        select
            r.number, r.action_id::text, e.ordinal, e.type, e.turn, e.body, (extract(epoch from e.create_time) * 1000000)::bigint as create_time_us,
            case when e.type = 'requested' then (select a.input from actions as a where a.tenant = r.tenant and a.action_id = r.action_id) end as input
        from session_runs as r
        join run_entries as e on e.tenant = r.tenant and e.action_id = r.action_id
        where r.tenant = :tenant
          and r.session_id = :session_id::uuid
          and (r.number, e.ordinal) > (:after_number::integer, :after_ordinal::integer)
          and r.number >= :after_number::integer
          and (
              (e.type = 'requested' and e.turn = 1 and not exists (
                  select from run_entries as f
                  where f.tenant = e.tenant and f.action_id = e.action_id and f.type = 'requested' and f.ordinal < e.ordinal
              ))
              or (e.type = 'answered' and not exists (
                  select from run_entries as f
                  where f.tenant = e.tenant and f.action_id = e.action_id and f.type = 'compacted' and f.turn = e.turn and f.ordinal > e.ordinal
              ))
          )
        order by r.number, e.ordinal
        limit :count_max
    ) as page
) as measured
where bytes - octet_length(body) - coalesce(octet_length(input), 0) < :bytes_max
order by number, ordinal
