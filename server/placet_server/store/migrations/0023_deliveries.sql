-- expand
--
-- What others are told of, and how that went: one row for each callback and target, written in the tx of what it tells of. What is told
-- and to whom makes the id, so that whatever is done twice is told once. `next_time` says when it is tried next; who takes a delivery moves it to the end of his
-- lease, so that nobody else does before, and `lease_id`, fresh at every taking, is the right to say how the attempt ended.
--
-- Lock order: after the action and what belongs to it. Who takes rows here locks nothing else.
create table deliveries (
    tenant        text        not null,
    create_time   timestamptz not null,
    delivery_id   uuid        not null,
    target        text        not null,
    type          text        not null,
    subject       text        not null,
    event_id      uuid        not null,
    action_id     uuid,
    data          text        not null, -- JSON
    state         text        not null default 'PENDING' check (state in ('PENDING', 'DELIVERED', 'DEAD')),
    generation    integer     not null default 1 check (generation >= 1),
    attempts      integer     not null default 0 check (attempts >= 0),
    attempts_max  integer     not null check (attempts_max >= 1),
    next_time     timestamptz not null,
    lease_id      uuid,
    last_status   integer     not null default 0,
    last_error    text        not null default '',
    end_time      timestamptz,
    redelivery    bytea,                -- of the newest request to send it out again: ties its resends together
    redelivered_by text,
    constraint deliveries_pkey primary key (tenant, create_time, delivery_id),
    constraint deliveries_id unique (delivery_id),
    constraint deliveries_attempts check (attempts <= attempts_max),
    constraint deliveries_possible check ((state = 'PENDING') = (end_time is null) and (state = 'PENDING' or lease_id is null))
) with (fillfactor = 80);
create index deliveries_due on deliveries (target, tenant, next_time) where state = 'PENDING';
create index deliveries_newest on deliveries (create_time, delivery_id);
create index deliveries_action on deliveries (action_id, create_time, delivery_id) where action_id is not null;
create index deliveries_ended on deliveries (end_time) where end_time is not null;
