-- How much of each queue was begun and ended, by the minute.

-- name: add
-- Add to this minute's counts of a boot. Cross-tenant: what that boot has done.
insert into queue_counts (minute, queue, tenant, boot_id, claimed, settled)
select date_trunc('minute', coalesce(:now::timestamptz, statement_timestamp())), r.queue, r.tenant, :boot_id, r.claimed, r.settled
from json_to_recordset(:items::json) as r(queue text, tenant text, claimed bigint, settled bigint)
on conflict (minute, queue, tenant, boot_id) do update
set claimed = queue_counts.claimed + excluded.claimed, settled = queue_counts.settled + excluded.settled

-- name: trim
-- Forget minutes that nobody asks for any more. Cross-tenant: each server's.
with old as materialized (
    select minute, queue, tenant, boot_id
    from queue_counts
    where minute < coalesce(:now::timestamptz, statement_timestamp()) - interval '2 hours'
    order by minute
    limit :count_max
    for update skip locked
)
delete from queue_counts as c
using old as o
where num_nonnulls(o.minute, o.queue, o.tenant, o.boot_id) = 4
  and c.minute = o.minute
  and c.queue = o.queue
  and c.tenant = o.tenant
  and c.boot_id = o.boot_id
