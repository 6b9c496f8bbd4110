-- Which queues begin nothing. The statements that claim ask this table themselves: queue.sql's claim_batch, action.sql's claim.

-- name: pause
-- Pause a queue for a tenant, or for all by '-', unless that tenant has too many paused; a pause that stands gets the new reason alone.
insert into queue_pauses as p (queue, tenant, pause_time, paused_by, reason)
select :queue::text, :tenant::text, coalesce(:now::timestamptz, statement_timestamp()), :paused_by, :reason
where exists (select from queue_pauses where queue = :queue::text and tenant = :tenant::text)
    or (select count(*) from queue_pauses where tenant = :tenant::text) < :count_max::integer
on conflict (queue, tenant) do update set paused_by = excluded.paused_by, reason = excluded.reason
returning true

-- name: resume
-- Take a tenant's pause of a queue back.
delete from queue_pauses where queue = :queue and tenant = :tenant
