-- What tenants with a quota use of it: the rows that 0020_quotas.sql describes.

-- name: ensure_rate
-- Make a full rate.
insert into quota_rates (tenant, tokens, update_time)
values (:tenant, greatest(1.0::double precision, :rate::double precision), coalesce(:now::timestamptz, statement_timestamp()))
on conflict do nothing

-- name: charge
-- Take as many of the admissions that are wanted as the rate allows; a burst is what one second allows, and one at least. How many, and how many
-- seconds it takes until there is one more. Who began to wait for the row before another one took from it does not turn its time back, as what has
-- passed would count twice; nobody waits so long that it is not the clock that was turned back.
with held as materialized (
    select
        r.tenant, case when c.at < r.update_time and c.at > r.update_time - interval '10 seconds' then r.update_time else c.at end as at,
        least(
            greatest(1.0::double precision, :rate::double precision),
            r.tokens + greatest(0.0::double precision, extract(epoch from c.at - r.update_time)::double precision) * :rate
        ) as tokens
    from quota_rates as r cross join (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
    where r.tenant = :tenant
    for update of r
)
update quota_rates as r
set tokens = h.tokens - least(:wanted::integer, floor(h.tokens)), update_time = h.at
from held as h
where r.tenant = h.tenant
returning least(:wanted, floor(h.tokens))::integer as granted, (1 - (h.tokens - floor(h.tokens))) / :rate as wait_seconds

-- name: get_usage
-- What was counted last. A walk that has found more than the one before need not be over for it.
select open_actions, greatest(stored_bytes, walk_bytes) as stored_bytes from quota_usage where tenant = :tenant

-- name: ensure_usage
-- Make a row to count in.
insert into quota_usage (tenant) values (:tenant) on conflict do nothing

-- name: lock_usage
-- Where the walk over a tenant's actions stands, for who may count now: nobody else does until the tx ends.
select walk_after, walk_bytes
from quota_usage
where tenant = :tenant and meter_time <= coalesce(:now::timestamptz, statement_timestamp()) - make_interval(secs => :interval_seconds::double precision)
for update skip locked

-- name: count_open
-- A tenant's open actions, counted to a bound in each of the places where they stand: in line, waiting for people, running, in doubt.
select
    (select count(*) from (select from queue_ready where tenant = :tenant limit :count_max) as q)
    + (select count(*) from (select from queue_delayed where tenant = :tenant limit :count_max) as q)
    + (select count(*) from (select from approvals where tenant || '' = :tenant and state = 'PENDING' limit :count_max) as p)
    + (select count(*) from (select from actions where tenant || '' = :tenant and state = 'RUNNING' limit :count_max) as r)
    + (select count(*) from (select from reconciles where tenant = :tenant limit :count_max) as d)

-- name: weigh_page
-- The next actions of a tenant in the order of their ids: how many, the last one, and what they, what their handlers said
-- and what runs remember take.
with page as materialized (
    select
        a.action_id, 1024 + octet_length(a.input) + octet_length(a.labels) + coalesce(octet_length(a.output), 0)
            + coalesce((select sum(octet_length(l.body)) from lane_items as l where l.tenant = a.tenant and l.action_id = a.action_id), 0)
            + case when a.effect_class = 'COMPOSED' then coalesce(
                (select sum(octet_length(e.body)) from run_entries as e where e.tenant = a.tenant and e.action_id = a.action_id), 0) else 0 end as bytes
    from actions as a
    where a.tenant = :tenant and a.action_id > :after::uuid
    order by a.action_id
    limit :count_max
)
select
    (select count(*) from page) as actions, (select action_id from page order by action_id desc limit 1) as last,
    coalesce((select sum(bytes) from page), 0)::bigint as bytes

-- name: note_usage
-- What was counted, and how far the walk has come; a walk that is over says what is stored.
update quota_usage
set open_actions = :open_actions,
    stored_bytes = coalesce(:stored_bytes::bigint, stored_bytes),
    walk_after = :walk_after::uuid,
    walk_bytes = :walk_bytes,
    meter_time = coalesce(:now::timestamptz, statement_timestamp())
where tenant = :tenant
