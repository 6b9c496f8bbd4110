-- expand
-- What was withdrawn stays, as the actions that are pinned to it do. `withdrawals` counts how often, so that two of them are never taken for one.
alter table capabilities
    add column withdraw_time timestamptz,
    add column withdrawn_by text,
    add column withdraw_reason text,
    add column withdrawals integer not null default 0,
    add constraint capabilities_withdrawn check (num_nulls(withdraw_time, withdrawn_by, withdraw_reason) in (0, 3));

create index capabilities_withdrawn on capabilities (withdraw_time) where withdraw_time is not null;

-- What a governing action has changed, written in the tx of the change: whoever runs the action once more, after its process died between the change and
-- the settling, finds that it is done, and what came of it.
create table governed (
    tenant text not null,
    action_id uuid not null,
    output text not null,
    primary key (tenant, action_id)
);
