-- The lease of a boot. Lock order: the instance row comes before any row that the instance owns.

-- name: register
-- Record a new boot as alive; again after a lost reply, which changes nothing.
insert into instances (boot_id, host, pid, version, lease_seconds, started_time, heartbeat_time, serves, queue_slots)
select
    :boot_id::uuid, :host::text, :pid::integer, :version::text, :lease_seconds::double precision, at, at, :serves::text[], :queue_slots::integer
from (select coalesce(:now::timestamptz, statement_timestamp()) as at) as clock
on conflict (boot_id) do nothing

-- name: renew
-- Extend the lease of a boot that is still alive; never moves it back when a clock jumps.
update instances
set heartbeat_time = greatest(heartbeat_time, coalesce(:now::timestamptz, statement_timestamp()))
where boot_id = :boot_id and state = 'ALIVE'
returning heartbeat_time

-- name: note_drain
-- Say that a boot begins nothing more and is about to end.
update instances
set drain_time = coalesce(:now::timestamptz, statement_timestamp())
where boot_id = :boot_id and state = 'ALIVE' and drain_time is null

-- name: retire
-- End one's own lease at a clean stop.
update instances
set state = 'DEAD', dead_time = coalesce(:now::timestamptz, statement_timestamp())
where boot_id = :boot_id and state = 'ALIVE'

-- name: list_expired
-- The boots whose lease has run out, longest gone first.
select boot_id, host, pid, lease_seconds, heartbeat_time
from instances
where state = 'ALIVE'
  and heartbeat_time + make_interval(secs => lease_seconds)
      < coalesce(:now::timestamptz, statement_timestamp())
order by heartbeat_time, boot_id
limit :count_max

-- name: mark_dead
-- Win the right to rescue a boot: ALIVE to DEAD, only if still expired and not renewed since it was observed.
update instances
set state = 'DEAD', dead_time = coalesce(:now::timestamptz, statement_timestamp())
where boot_id = :boot_id
  and state = 'ALIVE'
  and heartbeat_time = :observed_heartbeat_time
  and heartbeat_time + make_interval(secs => lease_seconds)
      < coalesce(:now::timestamptz, statement_timestamp())
returning boot_id

-- name: mark_all_others_dead
-- Declare every other boot dead, expired or not, for a data folder whose lock proves that they are gone.
update instances
set state = 'DEAD', dead_time = coalesce(:now::timestamptz, statement_timestamp())
where boot_id <> all (:boot_ids::uuid[]) and state = 'ALIVE'
returning boot_id

-- name: get_state
-- Whether a boot is alive or dead.
select state from instances where boot_id = :boot_id

-- name: list_alive
-- The boots that nobody has declared dead, after a given one. Silent: the lease has run out.
select
    boot_id, host, pid, version, lease_seconds, serves, queue_slots, drain_time is not null as draining,
    (extract(epoch from started_time) * 1000000)::bigint as started_time_us,
    (extract(epoch from heartbeat_time) * 1000000)::bigint as heartbeat_time_us,
    heartbeat_time + make_interval(secs => lease_seconds) < coalesce(:now::timestamptz, statement_timestamp()) as silent
from instances
where state = 'ALIVE' and boot_id > :after::uuid
order by boot_id
limit :count_max

-- name: list_served
-- What some server that is alive takes from queues, as capability@version.
select distinct unnest(serves) as served from instances where state = 'ALIVE' and queue_slots > 0
