-- expand
--
-- How much of each queue was begun and ended, by the minute: what ListQueues tells rates from. Each server adds what it has done, now and then; a
-- server that dies loses some seconds of it. Kept for two hours.
create table queue_counts (
    minute  timestamptz not null,
    queue   text        not null,
    tenant  text        not null,
    boot_id uuid        not null,
    claimed bigint      not null,
    settled bigint      not null,
    constraint queue_counts_pkey primary key (minute, queue, tenant, boot_id)
) with (fillfactor = 80);
