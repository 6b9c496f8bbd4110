-- What waits for a server: the places in line that 0005_queue.sql describes. They find actions; whether one may run is decided by the update of its
-- row in `actions`. What puts an action in line, with its row, is in action.sql: submit, advance_queued; and in dead_letter.sql: redrive.
--
-- Lock order: the instance, the place in line (ready, then delayed), the action.

-- part: lines
-- Every line that has ready work, after a given one, each with its first in line: the index is read once per line, however long each is.
line as (
    (
        select queue, capability, version, tenant, priority, ready_time
        from queue_ready
        where (queue, capability, version, tenant) > (:queue::text, :capability::text, :version::text, :tenant::text)
        order by queue, capability, version, tenant, priority, ready_time
        limit 1
    )
    union all
    select n.*
    from line as l
    cross join lateral (
        select q.queue, q.capability, q.version, q.tenant, q.priority, q.ready_time
        from queue_ready as q
        where (q.queue, q.capability, q.version, q.tenant) > (l.queue, l.capability, l.version, l.tenant)
        order by q.queue, q.capability, q.version, q.tenant, q.priority, q.ready_time
        limit 1
    ) as n
)

-- name: list_lines
-- What has ready work and is not paused: one row per queue, capability, version and tenant, after a given one, with its first in line. Cross-tenant:
-- the dispatcher's.
with recursive {lines}
select queue, capability, version, tenant, priority, (extract(epoch from ready_time) * 1000000)::bigint as ready_time_us
from line as l
where not exists (select from queue_pauses as p where p.queue = l.queue and p.tenant in (l.tenant, '-'))
limit :count_max

-- part: claimed
-- What was picked, acquired under the lease that it was picked with, with its event, and taken out of line.
claimed as (
    update actions as a
    set state = 'RUNNING',
        -- Woken, or put off by itself, it is the same attempt going on.
        attempt = a.attempt + case when coalesce(a.cause, '') not in ('WOKEN', 'POSTPONED') then 1 else 0 end,
        -- A blameless loss costs no attempt: the same as in action.sql's claim.
        attempts_max = a.attempts_max + case when a.cause in ('SHUTDOWN', 'NEVER_STARTED') then 1 else 0 end,
        lease_id = p.lease_id,
        instance_id = :boot_id,
        start_time = c.at,
        deadline = c.at + make_interval(secs => least(
            coalesce(extract(epoch from a.attempt_timeout)::double precision, p.timeout_default_seconds), p.timeout_max_seconds)),
        -- What is COMPOSED has begun it with the first step that may have one, in whichever attempt.
        effect_begun = case when a.effect_class = 'COMPOSED' then a.effect_begun else a.effect_class <> 'READ' and not a.effect_marked end,
        effect_key_expire_time = coalesce(a.effect_key_expire_time, c.at + a.effect_key_ttl),
        budget_time = coalesce(a.budget_time, c.at),
        sequence = a.sequence + 1,
        receipt_digest = case when coalesce(a.cause, '') not in ('WOKEN', 'POSTPONED')
            then receipt(a.receipt_digest, a.action_id, a.sequence + 1, 'attempt_started', c.at, '{"attempt":' || a.attempt + 1 || '}')
            else receipt(a.receipt_digest, a.action_id, a.sequence + 1, 'resumed', c.at, '{"attempt":' || a.attempt || '}') end
    -- In the order of their ids, whatever the order of their places is: of what an old place tells of, others may hold several.
    from (select * from picked order by action_id) as p cross join clock as c
    -- Always true, and taken for one row in two hundred: so each action is found by its key, as action.sql says of its advances.
    where num_nonnulls(p.tenant, p.action_id) = 2
      and a.tenant = p.tenant
      and a.action_id = p.action_id
      and (a.state || '') = 'QUEUED'
      and a.ready_time <= c.at
      and a.cancel_requested_time is null
      and (p.expire_time is null or p.expire_time > c.at)
      and not (a.effect_unknown and a.effect_key_expire_time <= c.at)
      and not (a.queue is null and a.on_caller_gone = 'CANCEL' and not a.effect_unknown and a.deadline <= c.at)
      and not (a.budget_time is null and a.queue_delay is not null and a.ready_time + a.queue_delay <= c.at)
    returning a.*, c.at
),
claimed_event as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select tenant, action_id, sequence, case when coalesce(cause, '') not in ('WOKEN', 'POSTPONED') then 'attempt_started' else 'resumed' end, at,
        '{"attempt":' || attempt || '}',
        receipt_digest
    from claimed
),
gone as (
    delete from queue_ready as q
    using claimed as x
    where num_nonnulls(x.tenant, x.action_id) = 2 and q.tenant = x.tenant and q.action_id = x.action_id
)

-- part: claims
-- What was picked, and what of it runs here now.
select
    p.tenant as picked_tenant, p.action_id as picked_id,
    x.tenant, x.action_id, x.capability, x.version, encode(x.contract_digest, 'hex') as contract_digest, x.effect_class, x.subject, x.caller,
    coalesce(x.idempotency_key, '') as idempotency_key, encode(x.input_digest, 'hex') as input_digest, x.labels, x.on_caller_gone, x.durability,
    x.predecessor_id, (extract(epoch from x.create_time) * 1000000)::bigint as create_time_us, x.effect_marked,
    (extract(epoch from x.effect_key_expire_time) * 1000000)::bigint as effect_key_expire_time_us, x.attempts_max,
    x.state, x.attempt, x.lease_id, x.instance_id, (extract(epoch from x.ready_time) * 1000000)::bigint as ready_time_us,
    (extract(epoch from x.start_time) * 1000000)::bigint as start_time_us, (extract(epoch from x.deadline) * 1000000)::bigint as deadline_us,
    null::bigint as cancel_requested_time_us, null::bigint as settle_time_us, null::bigint as key_expire_time_us,
    x.effect, x.effect_begun, x.effect_unknown, x.reason, x.cause, x.message, x.failure_code, x.failure_category,
    extract(epoch from x.retry_delay)::double precision as retry_delay_seconds, x.key_released, x.provider_operation, x.provider_cursor,
    x.sequence, encode(x.receipt_digest, 'hex') as receipt_digest,
    coalesce(x.queue, '') as queue, coalesce(x.priority, 0::smallint) as priority,
    extract(epoch from x.attempt_timeout)::double precision as attempt_timeout_seconds,
    extract(epoch from x.queue_delay)::double precision as queue_delay_seconds, x.retry,
    (extract(epoch from x.budget_time) * 1000000)::bigint as budget_time_us, coalesce(x.generation, 1) as generation,
    x.parent_id, x.root_id, coalesce(x.step_path, '') as step_path, encode(x.verdict_digest, 'hex') as verdict_digest, x.approval_id,
    case when octet_length(x.input) <= :input_bytes_max::integer then x.input end as input
from picked as p
left join claimed as x on x.tenant = p.tenant and x.action_id = p.action_id

-- name: claim_batch
-- Acquire ready actions of several lines, each with its event; those that may not run are told and left in line. Cross-tenant: the dispatcher's.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
line as materialized (
    select r.*
    from json_to_recordset(:lines::json) as r(
        queue text, capability text, version text, tenant text, count_max integer, after_priority smallint, after_time_us bigint, priority_last smallint,
        children_only boolean, timeout_default_seconds double precision, timeout_max_seconds double precision)
    where num_nonnulls(r.queue, r.capability, r.version, r.tenant) = 4
      and exists (select from instances where boot_id = :boot_id and state = 'ALIVE')
      and not exists (select from queue_pauses as p where p.queue = r.queue and p.tenant in (r.tenant, '-'))
),
-- What another server claims right now is passed over.
picked as materialized (
    select p.tenant, p.action_id, p.expire_time, gen_random_uuid() as lease_id, l.timeout_default_seconds, l.timeout_max_seconds
    from line as l
    cross join lateral (
        select q.tenant, q.action_id, q.expire_time
        from queue_ready as q
        where q.queue = l.queue
          and q.capability = l.capability
          and q.version = l.version
          and q.tenant = l.tenant
          and q.priority <= l.priority_last
          -- Children have ids of version 8.
          and (not l.children_only or substr(q.action_id::text, 15, 1) = '8')
          and (q.priority, q.ready_time) >= (l.after_priority, 'epoch'::timestamptz + l.after_time_us * interval '1 microsecond')
        order by q.priority, q.ready_time, q.action_id
        limit l.count_max
        for update skip locked
    ) as p
),
{claimed}
{claims}

-- name: peek
-- The first of a line whose queue is not paused, locked until the tx ends.
select q.action_id
from queue_ready as q
where q.queue = :queue
  and q.capability = :capability
  and q.version = :version
  and q.tenant = :tenant
  and q.priority <= :priority_last::smallint
  and (not :children_only::boolean or substr(q.action_id::text, 15, 1) = '8')
  and not exists (select from queue_pauses as p where p.queue = q.queue and p.tenant in (q.tenant, '-'))
order by q.priority, q.ready_time, q.action_id
limit :count_max
for update skip locked

-- name: claim_given
-- Acquire of a tenant's ready actions these, under these leases, each with its event; those that may not run are told and left in line. Their places
-- are locked by this very tx.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
picked as materialized (
    select q.tenant, q.action_id, q.expire_time, r.lease_id,
        :timeout_default_seconds::double precision as timeout_default_seconds, :timeout_max_seconds::double precision as timeout_max_seconds
    from json_to_recordset(:items::json) as r(action_id uuid, lease_id uuid)
    join queue_ready as q on q.tenant = :tenant and q.action_id = r.action_id
    where num_nonnulls(r.action_id, r.lease_id) = 2 and exists (select from instances where boot_id = :boot_id and state = 'ALIVE')
),
{claimed}
{claims}

-- name: promote
-- Move what is due into line, soonest first, and say into which lines. Cross-tenant: the sweep's.
with due as (
    delete from queue_delayed as d
    using (
        select tenant, action_id
        from queue_delayed
        where ready_time <= coalesce(:now::timestamptz, statement_timestamp())
        order by ready_time
        limit :count_max
        for update skip locked
    ) as p
    where num_nonnulls(p.tenant, p.action_id) = 2 and d.tenant = p.tenant and d.action_id = p.action_id
    returning d.*
),
moved as (
    insert into queue_ready (tenant, action_id, queue, capability, version, priority, ready_time, expire_time)
    select tenant, action_id, queue, capability, version, priority, ready_time, expire_time from due
    on conflict do nothing
)
select queue, capability, version, tenant, count(*) as moved from due group by queue, capability, version, tenant

-- name: next_due
-- In how many seconds the first delayed action is due; NULL when nothing is delayed. Cross-tenant: the sweep's.
select extract(epoch from min(ready_time) - coalesce(:now::timestamptz, statement_timestamp()))::double precision from queue_delayed

-- name: list_expired
-- What must not be begun any more, as its action stands. Cross-tenant: the sweep's.
select s.*
from (
    (
        select tenant, action_id
        from queue_ready
        where expire_time <= coalesce(:now::timestamptz, statement_timestamp())
        order by expire_time
        limit :count_max
    )
    union all
    (
        select tenant, action_id
        from queue_delayed
        where expire_time <= coalesce(:now::timestamptz, statement_timestamp())
        order by expire_time
        limit :count_max
    )
) as e
join action_summaries as s on s.tenant = e.tenant and s.action_id = e.action_id
where num_nonnulls(e.tenant, e.action_id) = 2

-- name: set_expiry
-- Correct until when an action may be begun, NULL for ever: a cancel touched its place in line and then found nothing to cancel. Not if it has moved
-- since it was read: a cancel that came meanwhile lets its place expire, and may have nobody else to close it.
with ready_place as materialized (
    select 1 from queue_ready where tenant = :tenant and action_id = :action_id for update
),
delayed_place as materialized (
    select 1 from queue_delayed where tenant = :tenant and action_id = :action_id for update
),
as_read as materialized (
    select a.action_id
    from actions as a
    where (select count(*) from ready_place) + (select count(*) from delayed_place) >= 0
      and a.tenant = :tenant
      and a.action_id = :action_id
      and a.sequence = :sequence
    for share of a
),
ready as (
    update queue_ready
    set expire_time = 'epoch'::timestamptz + :expire_time_us::bigint * interval '1 microsecond'
    where tenant = :tenant and action_id = :action_id and exists (select from as_read)
)
update queue_delayed
set expire_time = 'epoch'::timestamptz + :expire_time_us::bigint * interval '1 microsecond'
where tenant = :tenant and action_id = :action_id and exists (select from as_read)

-- name: drop_orphans
-- Forget places in line of actions that do not wait any more. Cross-tenant: for those that a claim or the sweep found and could not use.
--
-- There are some: a statement that takes an action out of line does not see its place in the table into which a sweep moves it at that moment. Then
-- the action may be made ready again while its old place is forgotten, and would be left without any. So its row is locked and looked at as it is
-- now: whoever makes it ready is either seen here, or waits, and then finds the old place gone and makes a new one.
with item as materialized (
    select r.tenant, r.action_id
    from json_to_recordset(:items::json) as r(tenant text, action_id uuid)
    where num_nonnulls(r.tenant, r.action_id) = 2
),
ready_place as materialized (
    select q.tenant, q.action_id
    from item as r
    join queue_ready as q on q.tenant = r.tenant and q.action_id = r.action_id
    where num_nonnulls(r.tenant, r.action_id) = 2
    order by q.action_id
    for update of q
),
delayed_place as materialized (
    select q.tenant, q.action_id
    from item as r
    join queue_delayed as q on q.tenant = r.tenant and q.action_id = r.action_id
    where num_nonnulls(r.tenant, r.action_id) = 2 and (select count(*) from ready_place) >= 0
    order by q.action_id
    for update of q
),
ended as materialized (
    select a.tenant, a.action_id
    from item as r
    join actions as a on a.tenant = r.tenant and a.action_id = r.action_id
    where num_nonnulls(r.tenant, r.action_id) = 2 and (a.state || '') <> 'QUEUED' and (select count(*) from delayed_place) >= 0
    order by a.action_id
    for share of a
),
orphan as materialized (
    select tenant, action_id from ended
    union all
    select r.tenant, r.action_id
    from item as r
    where not exists (select from actions as a where a.tenant = r.tenant and a.action_id = r.action_id)
),
ready as (
    delete from queue_ready as q
    using orphan as r
    where num_nonnulls(r.tenant, r.action_id) = 2 and q.tenant = r.tenant and q.action_id = r.action_id
    returning q.action_id
),
delayed as (
    delete from queue_delayed as q
    using orphan as r
    where num_nonnulls(r.tenant, r.action_id) = 2 and q.tenant = r.tenant and q.action_id = r.action_id
    returning q.action_id
)
select (select count(*) from ready) + (select count(*) from delayed)

-- name: set_back
-- Let places of actions that are not due stand behind those that are: old ones, found when the action was made ready again. Cross-tenant: as above.
with item as materialized (
    select r.tenant, r.action_id
    from json_to_recordset(:items::json) as r(tenant text, action_id uuid)
    where num_nonnulls(r.tenant, r.action_id) = 2
),
ready_place as materialized (
    select q.tenant, q.action_id
    from item as r
    join queue_ready as q on q.tenant = r.tenant and q.action_id = r.action_id
    where num_nonnulls(r.tenant, r.action_id) = 2
    order by q.action_id
    for update of q
),
moved as (
    update queue_ready as q
    set ready_time = a.ready_time
    from ready_place as r
    join actions as a on a.tenant = r.tenant and a.action_id = r.action_id
    where num_nonnulls(r.tenant, r.action_id) = 2
      and q.tenant = r.tenant
      and q.action_id = r.action_id
      and (a.state || '') = 'QUEUED'
      and a.ready_time > coalesce(:now::timestamptz, statement_timestamp())
      and q.ready_time < a.ready_time
    returning q.action_id
)
select count(*) from moved

-- name: summarize
-- How deep queues are, counted to a bound, how fast they are worked off, how much of that no server takes, since when the longest-waiting head of a
-- line is due, and whether they are paused; tenant NULL is every tenant's, the operator's, and queue NULL all queues. What is behind a connector is
-- taken by every server that takes anything.
with recursive {lines},
served as materialized (
    select distinct unnest(serves) as name from instances where state = 'ALIVE' and queue_slots > 0
),
delayed_line as (
    (select queue, tenant from queue_delayed order by queue, tenant limit 1)
    union all
    select n.*
    from delayed_line as l
    cross join lateral (
        select d.queue, d.tenant from queue_delayed as d where (d.queue, d.tenant) > (l.queue, l.tenant) order by d.queue, d.tenant limit 1
    ) as n
),
ready as (
    select
        l.queue, sum(c.count) as count, min(l.ready_time) as ready_time,
        sum(c.count) filter (where not (
            exists (select from served as s where s.name = l.capability || '@' || l.version)
            or exists (select from instances where state = 'ALIVE' and queue_slots > 0)
            and exists (
                select
                from capabilities as k
                join manifests as m on m.tenant = k.tenant and m.name = k.manifest
                where k.tenant in (l.tenant collate "C", '-')
                  and k.name = l.capability collate "C"
                  and k.version = l.version collate "C"
                  and m.connector is not null
            )
        )) as unroutable
    from line as l
    cross join lateral (
        select count(*)
        from (
            select
            from queue_ready as q
            where q.queue = l.queue and q.capability = l.capability and q.version = l.version and q.tenant = l.tenant
            limit :count_max
        ) as bounded
    ) as c
    where :owner::text is null or l.tenant = :owner
    group by l.queue
),
delayed as (
    select l.queue, sum(c.count) as count
    from delayed_line as l
    cross join lateral (
        select count(*) from (select from queue_delayed as d where d.queue = l.queue and d.tenant = l.tenant limit :count_max) as bounded
    ) as c
    where :owner::text is null or l.tenant = :owner
    group by l.queue
),
-- That of all tenants before the tenant's own.
pause as (
    select distinct on (queue) queue, reason, pause_time
    from queue_pauses
    where tenant = '-' or tenant = :owner
    order by queue, tenant <> '-'
),
-- Of the last whole minute.
flow as (
    select queue, sum(claimed) / 60.0 as claims, sum(settled) / 60.0 as settles
    from queue_counts
    where minute = date_trunc('minute', coalesce(:now::timestamptz, statement_timestamp())) - interval '1 minute'
      and (:owner::text is null or tenant = :owner)
    group by queue
)
select
    queue, least(coalesce(r.count, 0), :count_max)::bigint as ready, least(coalesce(d.count, 0), :count_max)::bigint as delayed,
    least(coalesce(r.unroutable, 0), :count_max)::bigint as unroutable,
    extract(epoch from coalesce(:now::timestamptz, statement_timestamp()) - r.ready_time)::double precision as oldest_seconds,
    p.reason as paused_reason, (extract(epoch from p.pause_time) * 1000000)::bigint as pause_time_us,
    coalesce(f.claims, 0)::double precision as claims_per_second, coalesce(f.settles, 0)::double precision as settles_per_second
from ready as r
full join delayed as d using (queue)
full join pause as p using (queue)
left join flow as f using (queue)
where :name::text is null or queue = :name
order by queue
limit :queues_max
