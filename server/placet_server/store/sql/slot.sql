-- How many attempts of a capability run for a tenant, and how many begin: the rows that 0010_slots.sql describes.
--
-- Lock order: the instance, the place in line, the slot, the rate, the action.

-- name: ensure
-- Make the slots that a contract allows.
insert into slots (capability, tenant, number)
select :capability, :tenant, n from generate_series(1, :count_max::integer) as n
on conflict do nothing

-- name: ensure_rate
-- Make a full rate.
insert into rates (capability, tenant, tokens, update_time)
values (:capability, :tenant, greatest(1.0::double precision, :rate_max::double precision), coalesce(:now::timestamptz, statement_timestamp()))
on conflict do nothing

-- name: take
-- Take free slots for leases that are about to be written, at most one each; those whom somebody takes right now are passed over.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
free as materialized (
    select f.capability, f.tenant, f.number, row_number() over () as place
    from (
        select s.capability, s.tenant, s.number
        from slots as s
        where s.capability = :capability
          and s.tenant = :tenant
          and s.number <= :count_max::integer
          and (
              s.lease_id is null
              -- What has no row under its lease yet may still be about to run; not if the clock was ahead when it took the slot, by
              -- more than statements that look for one at the same time are apart.
              or coalesce(
                  (select a.state || '' from actions as a where a.tenant = s.tenant and a.action_id = s.action_id and a.lease_id = s.lease_id),
                  case
                      when s.hold_time > (select at from clock)
                          and s.hold_time <= (select at from clock) + make_interval(secs => 2 * :hold_seconds::double precision) then 'RUNNING'
                      else 'ENDED'
                  end
              ) <> 'RUNNING'
          )
        order by s.number
        limit cardinality(:lease_ids::uuid[])
        for update of s skip locked
    ) as f
)
update slots as s
set action_id = (:action_ids::uuid[])[f.place],
    lease_id = (:lease_ids::uuid[])[f.place],
    hold_time = c.at + make_interval(secs => :hold_seconds::double precision)
from free as f cross join clock as c
where s.capability = f.capability and s.tenant = f.tenant and s.number = f.number
returning s.number, s.lease_id

-- name: holds
-- Whether a lease has its slot still.
select exists (select from slots where capability = :capability and tenant = :tenant and number = :number::integer and lease_id = :lease_id::uuid)

-- name: release
-- Give slots back, if they have not gone to others. Cross-tenant: for those whom this process took for them.
update slots as s
set action_id = null, lease_id = null, hold_time = null
from json_to_recordset(:items::json) as r(capability text, tenant text, number integer, lease_id uuid)
where num_nonnulls(r.capability, r.tenant, r.number, r.lease_id) = 4
  and s.capability = r.capability
  and s.tenant = r.tenant
  and s.number = r.number
  and s.lease_id = r.lease_id

-- name: release_lease
-- Give back the slot of a lease, whichever it is.
update slots
set action_id = null, lease_id = null, hold_time = null
where capability = :capability and tenant = :tenant and lease_id = :lease_id::uuid

-- name: charge
-- Take as many of the starts that are wanted as the rate allows; a burst is what one second allows, and one at least. Who has waited for the row
-- is of an earlier time than whoever was faster, and gives that time back to nobody; what is later by far was written by a clock that was ahead.
with held as materialized (
    select
        r.capability, r.tenant, c.at,
        least(
            greatest(1.0::double precision, :rate_max::double precision),
            r.tokens + greatest(0.0::double precision, extract(epoch from c.at - r.update_time)::double precision) * :rate_max
        ) as tokens
    from rates as r cross join (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
    where r.capability = :capability and r.tenant = :tenant
    for update of r
)
update rates as r
set tokens = h.tokens - least(:wanted::integer, floor(h.tokens)),
    update_time = case when r.update_time between h.at and h.at + interval '10 s' then r.update_time else h.at end
from held as h
where r.capability = h.capability and r.tenant = h.tenant
returning least(:wanted, floor(h.tokens))::integer

-- name: refund
-- Give starts back that did not begin.
update rates set tokens = tokens + :count::integer where capability = :capability and tenant = :tenant
