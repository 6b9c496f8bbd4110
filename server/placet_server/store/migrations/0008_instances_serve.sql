-- expand
--
-- What each server could run, how much of it it takes from queues, and whether it is about to leave: so that work may be stored by a server that
-- cannot run it for one that can, and work that no server can run is seen. A server of an earlier release says nothing, and counts as one that
-- serves nothing.
alter table instances
    add column serves      text[]  not null default '{}', -- capability@version
    add column queue_slots integer not null default 0 check (queue_slots >= 0),
    add column drain_time  timestamptz;
