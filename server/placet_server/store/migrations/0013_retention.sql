-- expand
--
-- What is left of actions that were kept long enough: the last link of their chain, so that it can be shown for ever that nothing else happened to
-- them, and that none was taken away unseen.
create table receipt_heads (
    tenant         text        not null,
    action_id      uuid        not null,
    sequence       bigint      not null,
    receipt_digest bytea       not null,
    delete_time    timestamptz not null,
    constraint receipt_heads_pkey primary key (tenant, action_id)
);

-- How far the present walk over all actions has come: the one row that a process locks to clean, so that one cleans at a time. Ended actions are
-- found by walking along the primary key, as an index on the time of settling would be written by every settle.
create table retention_walk (
    single    boolean     primary key default true check (single),
    tenant    text        not null default '',
    action_id uuid        not null default '00000000-0000-0000-0000-000000000000',
    next_time timestamptz not null default '-infinity' -- not before
);
insert into retention_walk default values;
