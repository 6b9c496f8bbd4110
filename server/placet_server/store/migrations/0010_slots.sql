-- expand
--
-- What a contract allows at once, over all servers: one row for each attempt of a capability that may run for a tenant, and one for how many may
-- still begin now. Only contracts that say so have any.
--
-- A slot names who holds it, and nobody needs to free it: it is free as soon as its holder does not run any more. Whoever ends gives it back all the
-- same, so that the next one looks no further. `hold_time`: until then a holder may still be about to run, as a slot is taken before the row that
-- runs in it is written; it is longer than any statement, so that nobody with an older snapshot takes such a holder for one that has ended.
--
-- Lock order: the instance, the place in line, the slot, the rate, the action.
create table slots (
    capability text    not null,
    tenant     text    not null,
    number     integer not null,
    action_id  uuid,
    lease_id   uuid,
    hold_time  timestamptz,
    constraint slots_pkey primary key (capability, tenant, number)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.1);

create table rates (
    capability  text             not null,
    tenant      text             not null,
    tokens      double precision not null,
    update_time timestamptz      not null,
    constraint rates_pkey primary key (capability, tenant)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.1);
