-- expand
--
-- Work that waits for a server. The action's row stays the one record: whether it may run, who runs it, what came of it. What is new here are rows
-- of one kind of index, kept apart so that an admission, a settle and a list never touch them: an action that is due has a row in queue_ready, one
-- whose time has not come a row in queue_delayed, an ended one that nobody waits for a row in dead_letters. Whoever acquires an action updates its
-- row in `actions` under its state; that decides, whatever is found here. A row here that is missing or too many delays work and never doubles it.
--
-- Why two tables for what waits. A claim reads the head of an index. Were delayed actions in it, thousands of them could stand before the first
-- that is due. So due and not yet due are apart, and a sweep moves rows over.
--
-- Lock order: the instance, the place in line (ready, then delayed), the action.
alter table actions
    alter column instance_id drop not null,
    alter column start_time drop not null,
    alter column deadline drop not null,
    add column queue text,                    -- NULL: executed, not submitted
    add column priority smallint,
    add column attempt_timeout interval,      -- as asked for; the contract bounds it
    add column effect_key_ttl interval,       -- counted from the first attempt
    add column queue_delay interval,          -- not begun so long after ready_time: given up
    add column retry text,                    -- JSON, only where the contract's rule is not the default
    add column budget_time timestamptz,       -- when the first attempt of this generation began
    add column generation integer;            -- NULL: 1
drop index actions_queued;

-- As before, but for what was submitted: no attempt of it has begun until a server takes it.
create or replace function action_is_possible(
    state text, effect_class text, on_caller_gone text, attempt integer, attempts_max integer, effect text, effect_begun boolean, effect_unknown boolean,
    lease_id uuid, ready_time timestamptz, settle_time timestamptz, output text, reason text
) returns boolean
    language plpgsql immutable parallel safe as $$
begin
    if attempts_max < 1 or on_caller_gone not in ('CANCEL', 'DETACH')
        or (attempt < 1 and (attempt < 0 or effect_begun or effect_unknown or state not in ('QUEUED', 'CANCELLED', 'EXHAUSTED')))
    then
        return false;
    end if;

    if effect_class = 'READ' then
        if effect is not null or effect_begun or effect_unknown then
            return false;
        end if;
    elsif effect is null or effect not in ('NOT_DONE', 'DONE', 'UNKNOWN') or effect_class not in ('IDEMPOTENT', 'RECONCILABLE', 'UNSAFE') then
        return false;
    end if;

    -- The most frequent first.
    if state = 'RUNNING' then
        return lease_id is not null and num_nonnulls(settle_time, output, reason) = 0;
    elsif state = 'SUCCEEDED' then
        return num_nulls(lease_id, settle_time, output) = 0 and reason is null and not effect_unknown and (effect is null or effect = 'DONE');
    elsif state = 'FAILED' then
        return num_nulls(lease_id, settle_time, reason) = 0 and output is null and not effect_unknown and effect is distinct from 'UNKNOWN';
    elsif state in ('CANCELLED', 'EXHAUSTED') then
        return num_nulls(lease_id, settle_time, reason) = 0 and output is null and not effect_unknown and (effect is null or effect = 'NOT_DONE');
    elsif state = 'AMBIGUOUS' then
        return num_nulls(lease_id, reason) = 0 and num_nonnulls(settle_time, output) = 0 and effect_unknown and effect = 'UNKNOWN';
    elsif state = 'QUEUED' then
        return num_nonnulls(lease_id, settle_time, output, reason) = 0 and ready_time is not null and (not effect_unknown or effect = 'UNKNOWN');
    end if;
    return false;
end
$$;

-- All that is done passes through here, and little is ever in it: autovacuum must keep up by the number of rows, not by their share.
create table queue_ready (
    tenant      text        not null,
    action_id   uuid        not null,
    queue       text        not null,
    capability  text        not null,
    version     text        not null,
    priority    smallint    not null,
    ready_time  timestamptz not null,
    expire_time timestamptz,                  -- not begun by then: closed instead
    constraint queue_ready_pkey primary key (tenant, action_id)
) with (
    fillfactor = 90, autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000
);
create index queue_ready_order on queue_ready (queue, capability, version, tenant, priority, ready_time, action_id);
create index queue_ready_expire on queue_ready (expire_time) where expire_time is not null;

create table queue_delayed (
    tenant      text        not null,
    action_id   uuid        not null,
    queue       text        not null,
    capability  text        not null,
    version     text        not null,
    priority    smallint    not null,
    ready_time  timestamptz not null,
    expire_time timestamptz,
    constraint queue_delayed_pkey primary key (tenant, action_id)
) with (
    autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000
);
create index queue_delayed_due on queue_delayed (ready_time);
create index queue_delayed_expire on queue_delayed (expire_time) where expire_time is not null;
create index queue_delayed_order on queue_delayed (queue, tenant);

create table dead_letters (
    tenant     text        not null,
    action_id  uuid        not null,
    queue      text,                          -- NULL: executed, not submitted
    capability text        not null,
    reason     text        not null,
    dead_time  timestamptz not null,
    constraint dead_letters_pkey primary key (tenant, action_id)
);
create index dead_letters_newest on dead_letters (action_id);

insert into queue_ready (tenant, action_id, queue, capability, version, priority, ready_time, expire_time)
select tenant, action_id, 'default', capability, version, 5, ready_time, case when effect_unknown then effect_key_expire_time end
from actions
where state = 'QUEUED';

insert into dead_letters (tenant, action_id, queue, capability, reason, dead_time)
select tenant, action_id, null, capability, reason, settle_time
from actions
where state = 'EXHAUSTED';

-- The event that records a submission: an admission, and where it waits.
create function submitted_body(admitted text, queue text, ready_time timestamptz) returns text
    language sql stable parallel safe
    return left(admitted, -1) || ',"queue":' || to_json(queue)::text || ',"ready_time_us":' || (extract(epoch from ready_time) * 1000000)::bigint || '}';

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
    (extract(epoch from budget_time) * 1000000)::bigint as budget_time_us, coalesce(generation, 1) as generation
from actions;
create view action_records as
select s.*, a.input, a.output
from action_summaries as s join actions as a on a.tenant = s.tenant and a.action_id = s.action_id;
