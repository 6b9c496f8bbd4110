-- name: standing
-- The epochs of the feed, oldest first. All txs before `settled_xid` are over. Cross-tenant: it tells nothing of any.
select epoch, floor_xid, last_xid, pg_snapshot_xmin(pg_current_snapshot())::text::bigint as settled_xid
from feed_epochs
order by epoch

-- name: read
-- A page of a tenant's feed after a position: one epoch, a bounded stretch of txs, only txs that nothing can precede any more. `below` is the end of the
-- stretch. Whoever stands before `floor_xid` may have missed what is deleted. The tenant is written so that the one index that finds it is that of the feed. What is asked of the action is a scalar subquery, which the planner
-- takes for each row by its key, whatever it thinks of the table.
with stretch as materialized (
    select least(:xid::bigint + :txs_max::bigint, coalesce(last_xid + 1, pg_snapshot_xmin(pg_current_snapshot())::text::bigint)) as below, last_xid, floor_xid
    from feed_epochs
    where epoch = :epoch::smallint
)
select s.below, s.last_xid, s.floor_xid, e.*
from stretch as s
left join lateral (
    select e.written_xid, e.action_id, e.sequence, e.type, (extract(epoch from e.create_time) * 1000000)::bigint as create_time_us, e.body
    from events as e
    where e.written_xid >= :xid::bigint
      and e.written_xid < s.below
      and (e.written_xid, e.action_id, e.sequence) > (:xid::bigint, :action_id::uuid, :sequence::bigint)
      and e.feed_epoch = :epoch::smallint
      and e.tenant || '' = :tenant
      and (cardinality(:types::text[]) = 0 or e.type = any (:types::text[]))
      and (:root_id::uuid is null or e.action_id = :root_id::uuid or coalesce((
          select a.root_id = :root_id::uuid from actions as a where a.tenant = e.tenant and a.action_id = e.action_id
      ), false))
      and (not :by_action::boolean or coalesce((
          select (cardinality(:capabilities::text[]) = 0 or a.capability = any (:capabilities::text[])) and a.labels::jsonb @> :labels::jsonb
          from actions as a
          where a.tenant = e.tenant and a.action_id = e.action_id
      ), false))
    order by e.written_xid, e.action_id, e.sequence
    limit :count_max
) as e on true
order by e.written_xid, e.action_id, e.sequence

-- name: place
-- Where an event of an action stands in the feed of its tenant.
select feed_epoch as epoch, written_xid as xid
from events
where tenant = :tenant and action_id = :action_id and sequence = :sequence and written_xid is not null

-- name: lag
-- The oldest tx that may still write, in any database, since it holds up every feed: for how long, and which backend. Of other roles' sessions that needs
-- pg_read_all_stats. Cross-tenant: it tells nothing of any.
select extract(epoch from clock_timestamp() - begin)::double precision as seconds, backend, (select max(epoch) from feed_epochs) as epoch
from (select) as one
left join lateral (
    select xact_start as begin, pid as backend from pg_stat_activity where backend_xid is not null
    union all
    select prepared, null from pg_prepared_xacts
    order by 1
    limit 1
) as oldest on true

-- name: summarize
-- Let the index of the feed know of the newest rows.
select summarize_feed()
