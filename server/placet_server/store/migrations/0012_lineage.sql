-- expand
--
-- Who called whom. A handler that calls another capability makes a child action; children alone have rows in `lineage`, so that nothing else pays.
-- A step of a parent is tried as often as the parent is redriven, each time by another child: the newest try is the step's.
--
-- Lock order: the instance, places in line, actions (a parent before its children), lineage.
alter table actions
    add column parent_id uuid,
    add column root_id uuid,      -- the first ancestor
    add column step_path text;    -- of the parent: the step, and after "#" its try, from the second on

create table lineage (
    tenant     text     not null,
    parent_id  uuid     not null,
    step       text     not null,
    number     smallint not null, -- of the try, from 1
    action_id  uuid     not null,
    root_id    uuid     not null,
    depth      smallint not null, -- 1: the root's own child
    generation integer  not null, -- the parent's, when it called
    attempt    integer  not null, -- the parent's, when it called
    constraint lineage_pkey primary key (tenant, parent_id, step, number)
);
create index lineage_root on lineage (root_id, action_id);

-- The event that records a child: a submission, and whose step it is.
create function child_body(submitted text, parent_id uuid, step_path text) returns text
    language sql stable parallel safe
    return left(submitted, -1) || ',"parent_id":"' || parent_id || '","step_path":' || to_json(step_path)::text || '}';

drop view action_records;
create or replace view action_summaries as
select
    tenant, action_id, capability, version, encode(contract_digest, 'hex') as contract_digest, effect_class, subject, caller,
    coalesce(idempotency_key, '') as idempotency_key, encode(input_digest, 'hex') as input_digest, labels, on_caller_gone, durability,
    predecessor_id, (extract(epoch from create_time) * 1000000)::bigint as create_time_us, effect_marked,
    (extract(epoch from effect_key_expire_time) * 1000000)::bigint as effect_key_expire_time_us, attempts_max,
    state, attempt, lease_id, instance_id, (extract(epoch from ready_time) * 1000000)::bigint as ready_time_us,
    (extract(epoch from start_time) * 1000000)::bigint as start_time_us, (extract(epoch from deadline) * 1000000)::bigint as deadline_us,
    (extract(epoch from cancel_requested_time) * 1000000)::bigint as cancel_requested_time_us,
    (extract(epoch from settle_time) * 1000000)::bigint as settle_time_us,
    (extract(epoch from settle_time + key_ttl) * 1000000)::bigint as key_expire_time_us,
    effect, effect_begun, effect_unknown, reason, cause, message, failure_code, failure_category,
    extract(epoch from retry_delay)::double precision as retry_delay_seconds, key_released, provider_operation, provider_cursor,
    sequence, encode(receipt_digest, 'hex') as receipt_digest, key_digest,
    coalesce(queue, '') as queue, coalesce(priority, 0::smallint) as priority,
    extract(epoch from attempt_timeout)::double precision as attempt_timeout_seconds,
    extract(epoch from queue_delay)::double precision as queue_delay_seconds, retry,
    (extract(epoch from budget_time) * 1000000)::bigint as budget_time_us, coalesce(generation, 1) as generation,
    parent_id, root_id, coalesce(step_path, '') as step_path
from actions;
create view action_records as
select s.*, a.input, a.output
from action_summaries as s join actions as a on a.tenant = s.tenant and a.action_id = s.action_id;
