-- expand
--
-- What a tenant lets happen. One policy set is in force, the newest; the ones before are kept, so that one can go back to them, which makes a
-- further revision. The operator's own, tenant '-', is asked first for every tenant.
create table policy_sets (
    tenant       text        not null,
    revision     bigint      not null check (revision >= 1),
    digest       bytea       not null,
    document     text        not null, -- RFC 8785
    name         text        not null,
    policy_count integer     not null,
    admitted_by  text        not null,
    restores     bigint,               -- the revision that this one repeats
    create_time  timestamptz not null,
    constraint policy_sets_pkey primary key (tenant, revision)
);

-- What the policies said when an action was admitted: few, as what they say depends on few facts, so each is written once, before the first action
-- that names it. An action without one was admitted before there were policies.
create table verdicts (
    tenant   text  not null,
    digest   bytea not null,
    document text  not null, -- RFC 8785
    constraint verdicts_pkey primary key (tenant, digest)
);

-- Calls that policies refused: of each tenant the newest. Nothing of their inputs but the digest.
create table policy_refusals (
    tenant       text        not null,
    refusal_id   uuid        not null, -- version 7
    create_time  timestamptz not null,
    capability   text        not null,
    version      text        not null,
    subject      text        not null,
    caller       text        not null, -- JSON, as in actions
    input_digest bytea       not null,
    parent       text        not null, -- the capability that called it; empty for none
    verdict      text        not null, -- RFC 8785
    constraint policy_refusals_pkey primary key (tenant, refusal_id)
);

alter table actions add column verdict_digest bytea;

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
    parent_id, root_id, coalesce(step_path, '') as step_path, encode(verdict_digest, 'hex') as verdict_digest
from actions;
create view action_records as
select s.*, a.input, a.output
from action_summaries as s join actions as a on a.tenant = s.tenant and a.action_id = s.action_id;
