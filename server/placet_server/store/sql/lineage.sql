-- Children: actions that a handler calls as steps of its own work, as 0012_lineage.sql describes them.
--
-- What admits them is in batch.sql.

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

-- name: list_acted
-- Which of these open actions that do nothing themselves have steps that may have done something by now, steps of steps included.
select w.action_id
from unnest(:action_ids::uuid[]) as w (action_id)
where exists (
    with recursive step as (
        select l.tenant, l.action_id from lineage as l where l.tenant = :tenant and l.parent_id = w.action_id
        union all
        -- One that has ended has said what its own have done.
        select l.tenant, l.action_id
        from step as s
        join actions as a on a.tenant = s.tenant and a.action_id = s.action_id
        join lineage as l on l.tenant = a.tenant and l.parent_id = a.action_id
        where a.effect_class = 'COMPOSED' and a.settle_time is null
    )
    select from step as s join actions as a on a.tenant = s.tenant and a.action_id = s.action_id
    where num_nonnulls(s.tenant, s.action_id) = 2
      and (a.effect <> 'NOT_DONE' or a.effect_unknown or (a.effect_begun and a.effect_class <> 'COMPOSED' and (a.state || '') = 'RUNNING'))
)

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
