-- expand
--
-- One row per boot of a server process: the lease under which everything the boot runs is held. Only the boot renews
-- it, and only while ALIVE; a rescuer first wins ALIVE -> DEAD here, and only then takes what the boot had leased. A
-- DEAD row never comes back. The table stays tiny and is updated all the time: room for HOT updates, no further index.

create table instances (
    boot_id        uuid primary key,
    host           text not null check (length(host) between 1 and 255),
    pid            integer not null check (pid > 0),
    version        text not null check (length(version) between 1 and 100),
    state          text not null default 'ALIVE' check (state in ('ALIVE', 'DEAD')),
    lease_seconds  double precision not null check (lease_seconds > 0),
    started_time   timestamptz not null,
    heartbeat_time timestamptz not null,
    dead_time      timestamptz,
    probe_time     timestamptz,
    constraint instances_dead_time_check check ((state = 'DEAD') = (dead_time is not null)),
    constraint instances_heartbeat_time_check check (heartbeat_time >= started_time)
) with (
    fillfactor = 50,
    autovacuum_vacuum_threshold = 50,
    autovacuum_vacuum_scale_factor = 0.1
);
