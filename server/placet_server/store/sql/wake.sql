-- Making parents ready whose steps have ended: the rows of 0029_wakes.sql. What inserts them is in action.sql (advance_step,
-- advance_queued, close_queued, close_many; and whoever marks a parent as to be cancelled) and reconcile.sql (note_finding).
--
-- Lock order: the action, its place in line, which is new, then the rows here.

-- name: wake
-- Make ready, of these parents, who waits for steps and has rows here, each with its event and its place in line. It is as old as the parent, so that what
-- was begun is ended before more is begun. Who is to be cancelled is left to who does that for some seconds, and then ready to be closed by the sweep.
-- Cross-tenant: of who has ended the steps.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
item as materialized (
    select distinct r.tenant, r.parent_id
    from json_to_recordset(:parents::json) as r(tenant text, parent_id uuid)
    where num_nonnulls(r.tenant, r.parent_id) = 2
),
target as materialized (
    select a.tenant, a.action_id
    from item as r
    join actions as a on a.tenant = r.tenant and a.action_id = r.parent_id
    cross join clock as c
    where num_nonnulls(r.tenant, r.parent_id) = 2
      and (a.state || '') = 'WAITING'
      and a.cause = 'CHILD'
      and (a.cancel_requested_time is null or a.cancel_requested_time <= c.at - interval '5 seconds')
      and exists (select from wakes as w where w.tenant = a.tenant and w.parent_id = a.action_id)
    order by a.action_id
    for update of a
),
woken as (
    update actions as a
    set state = 'QUEUED',
        cause = 'WOKEN',
        ready_time = c.at,
        -- Since when it waits is the ready time of a row that does: none of that is its retry budget.
        budget_time = a.budget_time + greatest(c.at - a.ready_time, interval '0'),
        sequence = a.sequence + 1,
        receipt_digest = receipt(a.receipt_digest, a.action_id, a.sequence + 1, 'requeued', c.at, woken_body(a.attempt))
    from target as t cross join clock as c
    where num_nonnulls(t.tenant, t.action_id) = 2 and a.tenant = t.tenant and a.action_id = t.action_id
    returning a.tenant, a.action_id, a.sequence, a.receipt_digest, a.attempt, a.create_time, c.at, coalesce(a.queue, 'default') as queue,
        coalesce(a.priority, 5::smallint) as priority, a.capability, a.version, case when a.cancel_requested_time is not null then c.at end as expire_time
),
woken_event as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select tenant, action_id, sequence, 'requeued', at, woken_body(attempt), receipt_digest from woken
),
ready as (
    insert into queue_ready (tenant, action_id, queue, capability, version, priority, ready_time, expire_time)
    select tenant, action_id, queue, capability, version, priority, least(create_time, at), expire_time from woken
    on conflict do nothing
),
gone as (
    delete from wakes as w using woken as x where num_nonnulls(x.tenant, x.action_id) = 2 and w.tenant = x.tenant and w.parent_id = x.action_id
)
select tenant, action_id, queue, capability, version from woken

-- name: list_parents
-- Parents that wait for steps, and have rows here: those whom nobody has woken. Cross-tenant: the sweep's.
select distinct w.tenant, w.parent_id
from wakes as w
join actions as p on p.tenant = w.tenant and p.action_id = w.parent_id
where (p.state || '') = 'WAITING' and p.cause = 'CHILD'
limit :count_max

-- name: drop_left_over
-- Forget a bounded number of rows of parents that have ended, or are gone, but of none that ended just now. Cross-tenant: the sweep's.
with old as materialized (
    select w.tenant, w.parent_id, w.child_id
    from wakes as w
    left join actions as p on p.tenant = w.tenant and p.action_id = w.parent_id
    where w.create_time < coalesce(:now::timestamptz, statement_timestamp()) - make_interval(secs => :age_seconds::double precision)
      and (p.action_id is null or p.settle_time is not null)
    limit :count_max
    -- Every server sweeps.
    for update of w skip locked
),
gone as (
    delete from wakes as w
    using old as o
    where num_nonnulls(o.tenant, o.parent_id, o.child_id) = 3 and w.tenant = o.tenant and w.parent_id = o.parent_id and w.child_id = o.child_id
    returning w.child_id
)
select count(*) from gone
