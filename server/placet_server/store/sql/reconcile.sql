-- When somebody is asked what became of an effect: the rows of 0011_reconciles.sql. What puts them there with their actions' rows, and takes them
-- away, is in action.sql: advance_queued, close_queued.

-- name: list_kinds
-- What is due to be asked about: one row per capability, version and tenant, after a given one. Cross-tenant: the reconciler's.
with recursive kind as (
    (
        select capability, version, tenant
        from reconciles
        where give_up_time is null
          and (capability, version, tenant) > (:capability::text, :version::text, :tenant::text)
        order by capability, version, tenant
        limit 1
    )
    union all
    select n.*
    from kind as k
    cross join lateral (
        select r.capability, r.version, r.tenant
        from reconciles as r
        where r.give_up_time is null
          and (r.capability, r.version, r.tenant) > (k.capability, k.version, k.tenant)
        order by r.capability, r.version, r.tenant
        limit 1
    ) as n
)
select k.capability, k.version, k.tenant
from kind as k
where exists (
    select from reconciles as r
    where r.give_up_time is null
      and r.capability = k.capability
      and r.version = k.version
      and r.tenant = k.tenant
      and r.next_time <= coalesce(:now::timestamptz, statement_timestamp())
)
limit :count_max

-- name: claim_due
-- What is to be asked about now, longest due first within each kind, with its action as it stands. It is due again after the visible time, if nobody
-- says what was found. Cross-tenant: the reconciler's.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
picked as materialized (
    select p.tenant, p.action_id, p.wanted
    from unnest(:capabilities::text[], :versions::text[], :tenants::text[]) as k(capability, version, tenant)
    cross join lateral (
        select r.tenant, r.action_id, r.wanted
        from reconciles as r
        where r.give_up_time is null
          and r.capability = k.capability
          and r.version = k.version
          and r.tenant = k.tenant
          and r.next_time <= (select at from clock)
        order by r.next_time
        limit :each_max
        for update skip locked
    ) as p
    limit :count_max
),
noted as (
    update reconciles as r
    set asked = r.asked + 1,
        wanted = false,
        next_time = c.at + make_interval(secs => :visible_seconds)
    from picked as p cross join clock as c
    where num_nonnulls(p.tenant, p.action_id) = 2 and r.tenant = p.tenant and r.action_id = p.action_id
    returning r.tenant, r.action_id, r.asked, r.since_time, p.wanted, c.at
)
select s.*, n.asked, n.wanted, (extract(epoch from n.since_time) * 1000000)::bigint as since_time_us,
    (extract(epoch from n.at) * 1000000)::bigint as claim_time_us,
    exists (
        with recursive below as (
            select l.tenant, l.action_id from lineage as l where l.tenant = n.tenant and l.parent_id = n.action_id
            union all
            select l.tenant, l.action_id from below as b join lineage as l on l.tenant = b.tenant and l.parent_id = b.action_id
        )
        select
        from below as b join actions as c on c.tenant = b.tenant and c.action_id = b.action_id
        where num_nonnulls(b.tenant, b.action_id) = 2 and (c.state || '') in ('QUEUED', 'RUNNING', 'WAITING', 'AMBIGUOUS')
    ) as child_may_act
from noted as n
join action_records as s on s.tenant = n.tenant and s.action_id = n.action_id

-- name: note_finding
-- What was found is not enough: asked again after the delay, or given up. Somebody's wish that came meanwhile stands. Said of
-- the doubt that was asked about alone: the action may have been tried again meanwhile, and be in another. Given up, a step is told to its
-- parent as it is.
with noted as (
    update reconciles
    set finding = :finding,
        next_time = case when wanted then next_time else coalesce(:now::timestamptz, statement_timestamp()) + make_interval(secs => :delay_seconds) end,
        give_up_time = case when :give_up::boolean and not wanted then coalesce(:now::timestamptz, statement_timestamp()) end
    where tenant = :tenant
      and action_id = :action_id
      and since_time = 'epoch'::timestamptz + :since_time_us::bigint * interval '1 microsecond'
    returning tenant, action_id, give_up_time
)
insert into wakes (tenant, parent_id, child_id, create_time)
select n.tenant, a.parent_id, n.action_id, n.give_up_time
from noted as n
join actions as a on a.tenant = n.tenant and a.action_id = n.action_id
join actions as p on p.tenant = a.tenant and p.action_id = a.parent_id
where n.give_up_time is not null and num_nonnulls(n.tenant, n.action_id) = 2 and p.effect_class = 'COMPOSED'
on conflict do nothing

-- name: give_up
-- Nobody could say it in time: the action's event, so that whoever watches it knows that a person is needed.
with given_up as (
    update actions as a
    set sequence = a.sequence + 1,
        receipt_digest = receipt(a.receipt_digest, a.action_id, a.sequence + 1, 'reconcile_given_up', c.at, :event_body)
    from (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
    where a.tenant = :tenant
      and a.action_id = :action_id
      and (a.state || '') = 'AMBIGUOUS'
      and a.sequence = :sequence
    returning a.tenant, a.action_id, a.sequence, a.receipt_digest, c.at
)
insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
select tenant, action_id, sequence, 'reconcile_given_up', at, :event_body, receipt_digest from given_up

-- name: list_asked
-- Which of a tenant's actions somebody is still asked about.
select action_id from reconciles where tenant = :tenant and action_id = any (:action_ids::uuid[]) and give_up_time is null

-- name: want
-- Somebody wants to know now, also of what was given up. One that is ambiguous without a row gets it.
insert into reconciles (tenant, action_id, capability, version, since_time, next_time, wanted)
select a.tenant, a.action_id, a.capability, a.version, c.at, c.at, true
from actions as a
cross join (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
where a.tenant = :tenant and a.action_id = :action_id and (a.state || '') = 'AMBIGUOUS'
on conflict (tenant, action_id) do update
set next_time = excluded.next_time, wanted = true, give_up_time = null

-- name: forget
-- Of an action that is not ambiguous any more.
delete from reconciles as r
using actions as a
where r.tenant = :tenant
  and r.action_id = :action_id
  and a.tenant = r.tenant
  and a.action_id = r.action_id
  and (a.state || '') <> 'AMBIGUOUS'

-- name: repair
-- Rows for ambiguous actions that have none, as an older release leaves them. Cross-tenant: the reconciler's.
insert into reconciles (tenant, action_id, capability, version, since_time, next_time)
select a.tenant, a.action_id, a.capability, a.version, c.at, c.at
from actions as a
cross join (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
where a.state = 'AMBIGUOUS'
  and not exists (select from reconciles as r where r.tenant = a.tenant and r.action_id = a.action_id)
limit :count_max
on conflict do nothing

-- name: drop_settled
-- Rows that were given up, whose actions have settled all the same. Cross-tenant: the reconciler's.
delete from reconciles as r
using (
    select g.tenant, g.action_id
    from reconciles as g
    join actions as a on a.tenant = g.tenant and a.action_id = g.action_id
    where g.give_up_time is not null and (a.state || '') <> 'AMBIGUOUS'
    limit :count_max
    for update of g skip locked
) as s
where r.tenant = s.tenant and r.action_id = s.action_id
