-- expand
--
-- What tenants that have a quota use of it; nobody else has rows here. The rate is exact over all servers: whoever admits for such a tenant takes from
-- its row first. What is open and what is stored is counted now and then by one server at a time, that which has the row locked; what is stored by a walk
-- along the primary key of actions, a bounded page at a time.
create table quota_rates (
    tenant      text             not null,
    tokens      double precision not null,
    update_time timestamptz      not null,
    constraint quota_rates_pkey primary key (tenant)
);

create table quota_usage (
    tenant       text        not null,
    open_actions bigint      not null default 0,
    stored_bytes bigint      not null default 0,
    meter_time   timestamptz not null default '-infinity', -- when it was counted last
    walk_after   uuid        not null default '00000000-0000-0000-0000-000000000000',
    walk_bytes   bigint      not null default 0, -- as far as the present walk has come
    constraint quota_usage_pkey primary key (tenant)
);
