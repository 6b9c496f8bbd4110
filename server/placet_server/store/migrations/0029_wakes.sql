-- expand
--
-- Who has to be woken. A composed action whose steps all wait is WAITING on CHILD, a row and nothing else. Whatever ends one of its steps, or leaves it in
-- doubt with nobody to ask, inserts a row here in the same statement, and never touches the parent; and once that is committed, looks whether the parent
-- waits. Who parks a parent is ready at once if a step that it waits for has a row here; else it commits, and then looks whether there are rows. One of the
-- two commits later and sees the other, so nobody's look need wait for anybody. What a crash leaves between a commit and its look, a sweep finds.
--
-- A row is gone once its parent was made ready, has parked having seen it, or has ended. One too many costs a look, and decides nothing: what a step came to
-- is in the step's own row.
--
-- Lock order: the instance, places in line, actions (a parent before its children), lineage, rows here.
create table wakes (
    tenant      text        not null,
    parent_id   uuid        not null,
    child_id    uuid        not null,
    create_time timestamptz not null,
    constraint wakes_pkey primary key (tenant, parent_id, child_id)
) with (fillfactor = 70, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.1);
create index wakes_age on wakes (create_time);

-- What the event says that makes a parent ready.
create function woken_body(attempt integer) returns text
    language sql immutable parallel safe
    return '{"attempt":' || attempt || ',"cause":"WOKEN","ready_delay_seconds":0.0}';
