-- What others are told of, and how that went: the rows of deliveries.
--
-- Lock order: after the action and what belongs to it. Who takes rows here locks nothing else.

-- part: delivery
-- What is read of a row.
d.tenant, d.delivery_id, d.target, d.type, d.subject, d.event_id, d.action_id, d.state, d.generation, d.attempts, d.attempts_max,
(extract(epoch from d.create_time) * 1000000)::bigint as create_time_us, (extract(epoch from d.next_time) * 1000000)::bigint as next_time_us,
(extract(epoch from d.end_time) * 1000000)::bigint as end_time_us, d.last_status, d.last_error, d.lease_id

-- part: matching
-- Empty filters match all. Newest first, after the delivery that a page ended with; one that is gone meanwhile ends the list.
and (d.create_time, d.delivery_id) < ((select create_time from edge), (select delivery_id from edge))
and (cardinality(:states::text[]) = 0 or d.state = any (:states::text[]))
and (:target::text is null or d.target = :target)

-- name: insert
-- Rows for those targets that have none of this yet.
insert into deliveries (tenant, create_time, delivery_id, target, type, subject, event_id, action_id, data, attempts_max, next_time)
select :tenant, c.at, t.delivery_id, t.target, :type, :subject, :event_id::uuid, :action_id::uuid, :data, :attempts_max, c.at
from unnest(:delivery_ids::uuid[], :targets::text[]) as t(delivery_id, target)
cross join (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
on conflict (delivery_id) do nothing

-- name: list_due
-- How much of each target's is due, up to a few. Cross-tenant: the sender's.
select k.tenant, k.target, p.due
from unnest(:tenants::text[], :targets::text[]) as k(tenant, target)
cross join lateral (
    select count(*)::integer as due
    from (
        select
        from deliveries as d
        where d.state = 'PENDING' and d.target = k.target and d.tenant = k.tenant
          and d.next_time <= coalesce(:now::timestamptz, statement_timestamp())
        limit :each_max
    ) as found
) as p
where p.due > 0

-- name: claim
-- Take so many of each target's for one attempt, longest due first, each under a lease of its own. One whose last attempt never said how it ended is given
-- up instead. What another process takes right now is passed over. Cross-tenant: the sender's.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
picked as materialized (
    select p.delivery_id, p.attempts < p.attempts_max as may_try
    from unnest(:tenants::text[], :targets::text[], :rooms::integer[]) as k(tenant, target, room)
    cross join lateral (
        select d.delivery_id, d.attempts, d.attempts_max
        from deliveries as d
        where d.state = 'PENDING' and d.target = k.target and d.tenant = k.tenant and d.next_time <= (select at from clock)
        order by d.next_time
        limit k.room
        for update skip locked
    ) as p
)
update deliveries as d
set state = case when p.may_try then 'PENDING' else 'DEAD' end,
    attempts = d.attempts + case when p.may_try then 1 else 0 end,
    lease_id = case when p.may_try then gen_random_uuid() end,
    next_time = c.at + make_interval(secs => :lease_seconds),
    end_time = case when not p.may_try then c.at end,
    last_status = case when p.may_try then d.last_status else 0 end,
    last_error = case when p.may_try then d.last_error else :lost end
from picked as p
cross join clock as c
where p.delivery_id is not null and d.delivery_id = p.delivery_id
returning {delivery}, d.data

-- name: settle
-- How the attempt ended, said by who holds the lease. Whoever has asked meanwhile that it be sent out again is not answered by this attempt: it is due at
-- once, whatever this one came to.
update deliveries as d
set state = case when d.generation = :generation then :state else 'PENDING' end,
    lease_id = null,
    next_time = c.at + case when d.generation = :generation then make_interval(secs => :delay_seconds) else interval '0' end,
    end_time = case when d.generation = :generation and :state <> 'PENDING' then c.at end,
    last_status = :last_status,
    last_error = :last_error
from (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
where d.delivery_id = :delivery_id and d.tenant = :tenant and d.lease_id = :lease_id
returning d.state

-- name: give_back
-- What was taken and will not be answered for: the next look of anybody finds it. Cross-tenant: the sender's.
update deliveries as d
set lease_id = null, next_time = c.at
from unnest(:lease_ids::uuid[], :delivery_ids::uuid[]) as l(lease_id, delivery_id)
cross join (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
where d.delivery_id = l.delivery_id and d.lease_id = l.lease_id

-- name: bury_without_target
-- Give up what has been due for long, of targets that are not among these. Cross-tenant: the sender's.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
picked as materialized (
    select d.delivery_id
    from deliveries as d
    where d.state = 'PENDING'
      and d.next_time <= (select at from clock) - make_interval(secs => :due_seconds)
      and not exists (
          select from unnest(:tenants::text[], :targets::text[]) as k(tenant, target) where k.tenant = d.tenant and k.target = d.target
      )
    limit :count_max
    for update skip locked
),
buried as (
    update deliveries as d
    set state = 'DEAD', lease_id = null, end_time = c.at, last_status = 0, last_error = :last_error
    from picked as p cross join clock as c
    where p.delivery_id is not null and d.delivery_id = p.delivery_id
    returning d.delivery_id
)
select count(*) from buried

-- name: get
-- One delivery, with what it tells; tenant NULL is any tenant's, the operator's.
select {delivery}, d.data from deliveries as d where d.delivery_id = :delivery_id and (:tenant::text is null or d.tenant = :tenant)

-- name: list_page
-- A page of deliveries, newest first, without what they tell; tenant NULL is every tenant's, the operator's.
with edge as materialized (
    select
        case when :before::uuid is null then 'infinity'::timestamptz else (select create_time from deliveries where delivery_id = :before) end as create_time,
        coalesce(:before::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff') as delivery_id
)
(
    select {delivery}
    from deliveries as d
    where :action_id::uuid is null and d.tenant = :tenant::text
      {matching}
    order by d.create_time desc, d.delivery_id desc
    limit :page_size
)
union all
(
    select {delivery}
    from deliveries as d
    where :action_id::uuid is null and :tenant::text is null
      {matching}
    order by d.create_time desc, d.delivery_id desc
    limit :page_size
)
union all
(
    select {delivery}
    from deliveries as d
    where d.action_id = :action_id::uuid and (:tenant::text is null or d.tenant = :tenant)
      {matching}
    order by d.create_time desc, d.delivery_id desc
    limit :page_size
)

-- name: count_open
-- How much is to be told yet, how much of that is due and in nobody's hands, and how much was given up, up to a bound; tenant NULL is every tenant's, the
-- operator's.
select
    (
        select count(*)
        from (select from deliveries where state = 'PENDING' and (:tenant::text is null or tenant = :tenant) limit :count_max) as open
    ) as pending,
    (
        select count(*)
        from (
            select
            from deliveries
            where state = 'PENDING' and (:tenant::text is null or tenant = :tenant)
              and next_time <= coalesce(:now::timestamptz, statement_timestamp())
            limit :count_max
        ) as late
    ) as due,
    (
        select count(*)
        from (select from deliveries where state = 'DEAD' and (:tenant::text is null or tenant = :tenant) limit :count_max) as given_up
    ) as dead

-- name: list_open
-- The newest of what was given up, and what is to be told next, without what they tell; tenant NULL is every tenant's, the operator's.
(
    select {delivery}
    from deliveries as d
    where d.state = 'DEAD' and (:tenant::text is null or d.tenant = :tenant)
    order by d.end_time desc
    limit :count_max
)
union all
(
    select {delivery}
    from deliveries as d
    where d.state = 'PENDING' and (:tenant::text is null or d.tenant = :tenant)
    order by d.next_time
    limit :count_max
)

-- name: redeliver
-- Send it out again, with attempts of its own, unless this request has done so. One that is under way keeps its lease.
update deliveries as d
set state = 'PENDING',
    generation = d.generation + 1,
    attempts_max = greatest(d.attempts_max, d.attempts + :attempts::integer),
    next_time = case when d.lease_id is null then c.at else d.next_time end,
    end_time = null,
    redelivery = :redelivery,
    redelivered_by = :redelivered_by
from (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
where d.delivery_id = :delivery_id and d.tenant = :tenant and d.redelivery is distinct from :redelivery
returning d.delivery_id
