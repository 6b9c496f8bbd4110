-- expand
--
-- Effects that may have happened, and when somebody is asked about each: rows beside the actions, as those of the queues are. Whether an action is
-- AMBIGUOUS says its own row, and a verdict is an update of that row; a row here that is missing or too many delays a question and decides nothing.
-- Whatever makes an action ambiguous puts a row here, and whatever is found out takes it away; but the late answer of a lost attempt does not look
-- here, as every settle would pay for it. The reconciler takes away what it finds to be settled, and puts in what it finds to be missing.
--
-- Lock order: the action, then its row here. Who claims rows here locks no action.
create table reconciles (
    tenant       text        not null,
    action_id    uuid        not null,
    capability   text        not null,
    version      text        not null,
    since_time   timestamptz not null,
    asked        integer     not null default 0,
    next_time    timestamptz not null,
    wanted       boolean     not null default false,  -- an operator has it asked, whatever its contract says
    give_up_time timestamptz,                         -- an operator's from then on
    finding      text,
    constraint reconciles_pkey primary key (tenant, action_id)
) with (fillfactor = 70);
create index reconciles_due on reconciles (capability, version, tenant, next_time) where give_up_time is null;

insert into reconciles (tenant, action_id, capability, version, since_time, next_time)
select tenant, action_id, capability, version, statement_timestamp(), statement_timestamp()
from actions
where state = 'AMBIGUOUS';
