-- expand
--
-- What of the queues begins nothing for now. The pause of one tenant and that of all, whose tenant is '-', stand beside each other and are taken
-- back each by itself.
create table queue_pauses (
    queue      text        not null,
    tenant     text        not null,
    pause_time timestamptz not null,
    paused_by  text        not null,
    reason     text        not null,
    constraint queue_pauses_pkey primary key (queue, tenant)
);
