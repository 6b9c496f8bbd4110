-- What runs remember and have spent: the rows of 0031_runs.sql. What appends to it is in batch.sql.

-- name: read_entries
-- What a run goes on from: the entry that opened it, and all from the newest compaction on; how long it has run, with the ends of stretches that no
-- entry tells of, by their events: a park, a crash, a limit; and whether people have asked for more since its newest entry.
with since as materialized (
    select sequence, type, create_time
    from events
    where tenant = :tenant
      and action_id = :action_id
      and sequence >= (
          select coalesce(max(sequence), 0)
          from events
          where tenant = :tenant
            and action_id = :action_id
            and type in ('run_opened', 'turn_requested', 'turn_answered', 'turn_failed', 'compacted'))
      and type in (
          'run_opened', 'turn_requested', 'turn_answered', 'turn_failed', 'compacted', 'attempt_started', 'resumed', 'parked', 'requeued', 'ambiguous',
          'settled', 'redriven')
),
stood as (
    select
        type in ('parked', 'requeued', 'ambiguous', 'settled', 'redriven') as is_over,
        lag(type not in ('parked', 'requeued', 'ambiguous', 'settled', 'redriven')) over by_sequence as ran,
        extract(epoch from create_time - lag(create_time) over by_sequence) * 1000 as ms
    from since
    window by_sequence as (order by sequence)
),
unsaid as materialized (
    select
        coalesce((select sum(greatest(ms, 0)) from stood where is_over and ran), 0)::bigint as ms,
        exists (select from since where type = 'redriven') as is_redriven
)
select e.ordinal, e.type, e.turn, e.attempt, e.body, u.active_ms + n.ms as active_ms, n.is_redriven
from runs as u
cross join unsaid as n
join run_entries as e on e.tenant = u.tenant and e.action_id = u.action_id
where u.tenant = :tenant and u.action_id = :action_id and (e.ordinal = 1 or e.ordinal >= u.compacted_ordinal)
order by e.ordinal

-- name: set_active
-- How long a run has run, without an entry; said by nobody but who holds its lease.
update runs as u
set active_ms = greatest(u.active_ms, :active_ms)
from actions as a
where u.tenant = :tenant
  and u.action_id = :action_id
  and a.tenant = u.tenant
  and a.action_id = u.action_id
  and a.lease_id = :lease_id
  and (a.state || '') = 'RUNNING'

-- name: find_written
-- Whose lease the action runs under, and the digest of one of its entries: what there is of either.
select
    (select lease_id from actions where tenant = :tenant and action_id = :action_id and (state || '') = 'RUNNING') as lease_id,
    (select encode(digest, 'hex') from run_entries where tenant = :tenant and action_id = :action_id and ordinal = :ordinal) as digest

-- name: list_entries
-- A page of what a run remembers, in order, with when it was written: bounded in number, and in bytes but for the last one.
select ordinal, type, turn, attempt, body, (extract(epoch from create_time) * 1000000)::bigint as create_time_us
from (
    select *, sum(octet_length(body)) over (order by ordinal rows between unbounded preceding and current row) as bytes
    from (
        select ordinal, type, turn, attempt, create_time, body
        from run_entries
        where tenant = :tenant and action_id = :action_id and ordinal > :after_ordinal
        order by ordinal
        limit :count_max
    ) as page
) as measured
where bytes - octet_length(body) < :bytes_max
order by ordinal

-- name: list_by_ids
-- What some runs have spent, and may spend; and whether each may have called what none of its entries tells of yet, which who has succeeded has not.
select
    u.action_id::text, u.ordinal, u.model, u.budget, u.turns, u.requests, u.calls, u.input_tokens, u.output_tokens, u.cached_tokens, u.cost_micros, u.unpriced,
    u.active_ms, u.reserved_tokens, u.reserved_micros,
    (select (a.state || '') <> 'SUCCEEDED' from actions as a where a.tenant = u.tenant and a.action_id = u.action_id)
    and (select e.type = 'answered' from run_entries as e where e.tenant = u.tenant and e.action_id = u.action_id and e.ordinal = u.ordinal) as is_calling
from runs as u
where u.tenant = :tenant and u.action_id = any (:action_ids::uuid[])

-- name: list_untold
-- Of runs whose newest entry is an answer: whether they are over; all tries of the calls that it makes, with whether they are; and the answer, once, where
-- anything is held for them.
select
    u.action_id::text,
    (select a.settle_time is not null from actions as a where a.tenant = u.tenant and a.action_id = u.action_id) as is_over,
    l.step,
    l.action_id::text as child_id,
    (select a.settle_time is not null from actions as a where a.tenant = l.tenant and a.action_id = l.action_id) as child_is_over,
    case when u.reserved_tokens + u.reserved_micros > 0 and coalesce(l.place, 1) = 1 then e.body end as body
from runs as u
cross join lateral (
    select turn, body
    from run_entries
    where tenant = u.tenant and action_id = u.action_id and ordinal = u.ordinal and type = 'answered'
    limit 1
) as e
left join lateral (
    select tenant, step, action_id, row_number() over () as place
    from lineage
    where tenant = u.tenant
      and parent_id = u.action_id
      and step = any (array(select 'turn/' || e.turn || '/call/' || number from generate_series(1, :calls_max::integer) as number))
) as l on true
where u.tenant = :tenant and u.action_id = any (:action_ids::uuid[])

-- name: list_by_steps
-- All tries of steps of an action.
select step, action_id::text
from lineage
where tenant = :tenant and parent_id = :parent_id and step = any (:steps::text[])

-- name: find_trace
-- Where the spans of a run belong; no row, or null: nowhere.
select trace from runs where tenant = :tenant and action_id = :action_id

-- name: set_trace
-- Where the spans of a run belong, as its newest stretch says, which is the one that holds its lease.
update runs as u
set trace = :trace
from actions as a
where u.tenant = :tenant
  and u.action_id = :action_id
  and a.tenant = u.tenant
  and a.action_id = u.action_id
  and a.lease_id = :lease_id
  and (a.state || '') = 'RUNNING'
