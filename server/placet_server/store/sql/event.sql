-- name: read
-- What happened to an action after a position: events of its life, then what its handlers said, both bounded, in one snapshot. What they said
-- is bounded in bytes, too, but for the last item.
(
    select 1 as part, sequence, 0 as attempt, 0::bigint as number, type, (extract(epoch from create_time) * 1000000)::bigint as create_time_us, body
    from events
    where tenant = :tenant and action_id = :action_id and sequence > :after_sequence
    order by sequence
    limit :count_max
)
union all
(
    select 2, 0, attempt, number, type, (extract(epoch from create_time) * 1000000)::bigint, body
    from (
        select *, sum(octet_length(body)) over (order by attempt, number rows between unbounded preceding and current row) as bytes
        from (
            select attempt, number, type, create_time, body
            from lane_items
            where tenant = :tenant and action_id = :action_id and (attempt, number) > (:after_attempt::integer, :after_number::bigint)
            order by attempt, number
            limit :count_max
        ) as page
    ) as measured
    where bytes - octet_length(body) < :bytes_max
    order by attempt, number
)

-- name: last_lane_number
-- How many items an attempt has said.
select coalesce(max(number), 0)::bigint from lane_items where tenant = :tenant and action_id = :action_id and attempt = :attempt

-- name: list_tools_told
-- What was told of the calls of a run, among the newest items of its lane.
select type, body
from (
    select attempt, number, type, body
    from lane_items
    where tenant = :tenant and action_id = :action_id
    order by attempt desc, number desc
    limit :count_max
) as newest
where type in ('tool_started', 'tool_finished')

-- name: insert_lane_items
-- Store what handlers said, only while their lease is the action's: a scalar subquery, because the planner would make a join of anything
-- else, and on a table without statistics one that reads the whole of it.
insert into lane_items (tenant, action_id, attempt, number, lease_id, type, create_time, body)
select r.tenant, r.action_id, r.attempt, r.number, r.lease_id, r.type, coalesce(:now::timestamptz, statement_timestamp()), r.body
from json_to_recordset(:items::json) as r(tenant text, action_id uuid, attempt integer, number bigint, lease_id uuid, type text, body text)
where (select a.lease_id from actions as a where a.tenant = r.tenant and a.action_id = r.action_id) = r.lease_id
on conflict do nothing

-- name: list_receipts
-- The whole chain of an action, for verification.
select sequence, type, (extract(epoch from create_time) * 1000000)::bigint as create_time_us, body, encode(receipt_digest, 'hex') as receipt
from events
where tenant = :tenant and action_id = :action_id
order by sequence
