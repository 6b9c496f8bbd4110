-- Taking away what was kept long enough, a bounded batch at a time. Never what is open or AMBIGUOUS, nor whose key is still known.
--
-- Lock order: the walk, the instance, the action, the epoch of the feed. An action that another statement holds is passed over until the next walk; so is one that a redrive
-- was faster to make ready again, as its row is looked at again under its lock.

-- part: over
-- Ended, and every time that it is to be kept is over. A dead letter is kept longer. A child is kept as long as its parent, which may be run again and
-- then asks for the same steps; a run as long as its session is open, as it is what the next one remembers.
a.settle_time is not null
and (a.state || '') in ('SUCCEEDED', 'FAILED', 'CANCELLED', 'EXHAUSTED', 'DENIED', 'REFUSED')
and (a.key_digest is null or a.settle_time + a.key_ttl <= :now::timestamptz)
and (a.parent_id is null or not exists (select from actions as p where p.tenant = a.tenant and p.action_id = a.parent_id))
and not exists (
    select
    from session_runs as v join sessions as s on s.tenant = v.tenant and s.session_id = v.session_id
    where v.tenant = a.tenant and v.action_id = a.action_id and s.state = 'OPEN'
)
and a.settle_time <= case
    when exists (select from dead_letters as d where d.tenant = a.tenant and d.action_id = a.action_id) then :dead_before::timestamptz
    else :ended_before::timestamptz
end

-- name: lock_walk
-- Where the walk stands, for who may go on with it now: nobody else does until the tx ends.
select tenant, action_id from retention_walk where next_time <= :now::timestamptz for update skip locked

-- name: note_walk
-- How far it has come, or that it is over until later.
update retention_walk set tenant = :tenant, action_id = :action_id, next_time = :next_time::timestamptz

-- name: next_tenant
-- The first tenant after one that has actions. Cross-tenant: the cleaner's.
select tenant from actions where tenant > :tenant order by tenant limit 1

-- name: end_of_page
-- The last of a bounded number of actions that were made before some id.
select action_id
from (
    select action_id
    from actions
    where tenant = :tenant and action_id > :after::uuid and action_id < :before::uuid
    order by action_id
    limit :count_max
) as page
order by action_id desc
limit 1

-- name: trim_lanes
-- Take away what the handlers of such actions said: it may be much for one action, so it goes first, and how much there was is told.
with due as materialized (
    select a.tenant, a.action_id
    from actions as a
    where a.tenant = :tenant and a.action_id > :after::uuid and a.action_id <= :last::uuid
      and {over}
    order by a.action_id
    limit :count_max
),
item as materialized (
    select l.tenant, l.action_id, l.attempt, l.number
    from due as d
    cross join lateral (
        select tenant, action_id, attempt, number from lane_items where tenant = d.tenant and action_id = d.action_id limit :items_max
    ) as l
    where num_nonnulls(d.tenant, d.action_id) = 2
    limit :items_max
),
gone as (
    delete from lane_items as l
    using item as i
    where num_nonnulls(i.tenant, i.action_id, i.attempt, i.number) = 4
      and l.tenant = i.tenant and l.action_id = i.action_id and l.attempt = i.attempt and l.number = i.number
    returning l.number
)
select count(*) from gone

-- name: trim_deltas
-- Take away what models said long ago in turns that have their answer: how much. The last thing that an attempt has said stays, as those who go on with it
-- go on with its number. Cross-tenant: the cleaner's.
with due as materialized (
    select tenant, action_id from runs where said_time <= :before::timestamptz order by said_time limit :count_max
),
answered as materialized (
    select d.tenant, d.action_id, (e.body::json ->> 'attempt')::integer as attempt, (e.body::json ->> 'lane_number')::bigint as number
    from due as d
    cross join lateral (
        select body from events where tenant = d.tenant and action_id = d.action_id and type = 'turn_answered' order by sequence desc limit 1
    ) as e
    where num_nonnulls(d.tenant, d.action_id) = 2
),
item as materialized (
    select l.tenant, l.action_id, l.attempt, l.number
    from answered as a
    cross join lateral (
        select i.tenant, i.action_id, i.attempt, i.number
        from lane_items as i
        where i.tenant = a.tenant and i.action_id = a.action_id and (i.attempt, i.number) <= (a.attempt, a.number)
          and i.type = 'delta' and i.create_time <= :before
          and i.number < (
            select max(o.number) from lane_items as o where o.tenant = i.tenant and o.action_id = i.action_id and o.attempt = i.attempt)
        limit :items_max
    ) as l
    where num_nonnulls(a.tenant, a.action_id) = 2
    limit :items_max
),
gone as (
    delete from lane_items as l
    using item as i
    where num_nonnulls(i.tenant, i.action_id, i.attempt, i.number) = 4
      and l.tenant = i.tenant and l.action_id = i.action_id and l.attempt = i.attempt and l.number = i.number
    returning l.number
)
select count(*) from gone

-- name: note_trimmed
-- These runs have been looked at: not again, or not before what they have said since is as old. How many. Cross-tenant: the cleaner's.
with due as materialized (
    select tenant, action_id from runs where said_time <= :before::timestamptz order by said_time limit :count_max for update skip locked
),
noted as (
    update runs as u
    set said_time = (
        select max(l.create_time) from lane_items as l
        where l.tenant = u.tenant and l.action_id = u.action_id and l.type = 'delta' and l.create_time > :before)
    from due as d
    where num_nonnulls(d.tenant, d.action_id) = 2 and u.tenant = d.tenant and u.action_id = d.action_id
    returning u.action_id
)
select count(*) from noted

-- name: delete_ended
-- Take away such actions with all that belongs to them, but for the heads of their chains: how many went, and the last one looked at if there may be
-- more on the page. What runs remember is at most as many rows as there are events.
with candidate as materialized (
    select c.*, sum(c.sequence) over (order by c.action_id) as events
    from (
        select a.tenant, a.action_id, a.sequence
        from actions as a
        where a.tenant = :tenant and a.action_id > :after::uuid and a.action_id <= :last::uuid
          and {over}
        order by a.action_id
        limit :count_max
    ) as c
),
-- Not many more events than that; one action at least.
chosen as materialized (
    select tenant, action_id from candidate where events - sequence < :events_max
),
due as materialized (
    select a.tenant, a.action_id, a.sequence, a.receipt_digest, a.parent_id
    from chosen as c
    join actions as a on a.tenant = c.tenant and a.action_id = c.action_id
    where num_nonnulls(c.tenant, c.action_id) = 2
      and {over}
    order by a.action_id
    for update of a skip locked
),
head as (
    insert into receipt_heads (tenant, action_id, sequence, receipt_digest, delete_time)
    select tenant, action_id, sequence, receipt_digest, :now::timestamptz from due
    on conflict do nothing
),
gone_events as (
    delete from events as e using due as d where num_nonnulls(d.tenant, d.action_id) = 2 and e.tenant = d.tenant and e.action_id = d.action_id
    returning e.feed_epoch, e.written_xid
),
-- Feeds begin behind all that is gone: whoever stands before it would miss some without knowing. So do older epochs, as what follows them has a gap.
gap as materialized (
    select feed_epoch as epoch, max(written_xid) + 1 as end_xid from gone_events where written_xid is not null group by feed_epoch
),
floor as (
    update feed_epochs as f
    set floor_xid = greatest(
        f.floor_xid, (select g.end_xid from gap as g where g.epoch = f.epoch),
        case when f.epoch < (select max(epoch) from gap) then f.last_xid + 2 end)
    where f.epoch <= (select max(epoch) from gap)
),
gone_items as (
    delete from lane_items as l using due as d where num_nonnulls(d.tenant, d.action_id) = 2 and l.tenant = d.tenant and l.action_id = d.action_id
),
gone_entries as (
    delete from run_entries as e using due as d where num_nonnulls(d.tenant, d.action_id) = 2 and e.tenant = d.tenant and e.action_id = d.action_id
),
gone_runs as (
    delete from runs as r using due as d where num_nonnulls(d.tenant, d.action_id) = 2 and r.tenant = d.tenant and r.action_id = d.action_id
),
gone_turns as (
    delete from session_runs as v using due as d where num_nonnulls(d.tenant, d.action_id) = 2 and v.tenant = d.tenant and v.action_id = d.action_id
),
gone_letters as (
    delete from dead_letters as l using due as d where num_nonnulls(d.tenant, d.action_id) = 2 and l.tenant = d.tenant and l.action_id = d.action_id
),
gone_questions as (
    delete from reconciles as r using due as d where num_nonnulls(d.tenant, d.action_id) = 2 and r.tenant = d.tenant and r.action_id = d.action_id
),
gone_approvals as (
    delete from approvals as p using due as d where num_nonnulls(d.tenant, d.action_id) = 2 and p.tenant = d.tenant and p.action_id = d.action_id
    returning p.tenant, p.approval_id
),
gone_votes as (
    delete from approval_decisions as v
    using gone_approvals as p
    where num_nonnulls(p.tenant, p.approval_id) = 2 and v.tenant = p.tenant and v.approval_id = p.approval_id
),
gone_changes as (
    delete from governed as g using due as d where num_nonnulls(d.tenant, d.action_id) = 2 and g.tenant = d.tenant and g.action_id = d.action_id
),
gone_refusals as (
    delete from policy_refusals as r
    using due as d
    where num_nonnulls(d.tenant, d.action_id) = 2 and r.tenant = d.tenant and r.refusal_id = d.action_id
),
gone_kin as (
    delete from lineage as l
    using due as d
    where num_nonnulls(d.tenant, d.action_id, d.parent_id) = 3 and l.tenant = d.tenant and l.parent_id = d.parent_id and l.action_id = d.action_id
),
gone as (
    delete from actions as a using due as d where num_nonnulls(d.tenant, d.action_id) = 2 and a.tenant = d.tenant and a.action_id = d.action_id
    returning a.action_id
)
select
    (select count(*) from gone) as deleted,
    case
        when (select count(*) from candidate) = :count_max::bigint or (select count(*) from chosen) < (select count(*) from candidate)
            then (select action_id from chosen order by action_id desc limit 1)
    end as more_after

-- name: delete_verdicts
-- Forget what the policies said, of one tenant, where it was last used long ago and no action names it any more: none of a bounded number that are left
-- from before. What is still named, or cannot be known within that bound, counts as used now. How many were looked at, and how many went. Cross-tenant:
-- the cleaner's.
with candidate as materialized (
    select v.tenant, v.digest
    from verdicts as v
    where v.tenant = (select tenant from verdicts where use_time <= :used_before::timestamptz order by use_time limit 1)
      and v.use_time <= :used_before
    order by v.use_time
    limit :count_max
    for update skip locked
),
kept as materialized (
    select a.verdict_digest
    from actions as a
    where a.tenant = (select tenant from candidate limit 1) and a.action_id < :before::uuid
    order by a.action_id
    limit :actions_max
),
named as materialized (
    select c.tenant, c.digest, (select count(*) from kept) >= :actions_max::bigint or exists (select from kept as k where k.verdict_digest = c.digest) as is_kept
    from candidate as c
),
noted as (
    update verdicts as v set use_time = :now::timestamptz from named as n where n.is_kept and v.tenant = n.tenant and v.digest = n.digest
),
gone as (
    delete from verdicts as v using named as n where not n.is_kept and v.tenant = n.tenant and v.digest = n.digest returning v.digest
)
select (select count(*) from candidate) as examined, (select count(*) from gone) as deleted

-- name: delete_boots
-- Forget boots that have been dead for long and own nothing. Cross-tenant: the cleaner's.
with due as materialized (
    select i.boot_id
    from instances as i
    where i.state = 'DEAD'
      and i.dead_time <= :dead_before::timestamptz
      and not exists (select from actions as a where a.instance_id = i.boot_id and a.state = 'RUNNING')
    order by i.boot_id
    limit :count_max
    for update skip locked
),
gone as (
    delete from instances as i using due as d where i.boot_id = d.boot_id returning i.boot_id
)
select count(*) from gone

-- name: delete_reports
-- Forget reports that are old. Cross-tenant: the cleaner's.
with due as materialized (
    select tenant, report_id from reports where create_time <= :before::timestamptz order by create_time limit :count_max for update skip locked
),
gone as (
    delete from reports as r using due as d where r.tenant = d.tenant and r.report_id = d.report_id returning r.report_id
)
select count(*) from gone

-- name: delete_deliveries
-- Forget what others were told of, when it has ended long ago. Cross-tenant: the cleaner's.
with due as materialized (
    select d.delivery_id from deliveries as d where d.end_time <= :before::timestamptz order by d.end_time limit :count_max for update skip locked
),
gone as (
    delete from deliveries as d using due as x where d.delivery_id = x.delivery_id and d.end_time <= :before returning d.delivery_id
)
select count(*) from gone
