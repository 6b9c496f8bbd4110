-- expand
--
-- One action is one row, and that row is everything at once: the recorded intent, the reservation of the caller's key, the lease of the process
-- that acts, and the result. So one statement that updates one row can decide a race that would otherwise need several tables to agree.
--
-- Who may write. `lease_id` is fresh and random at every acquisition (admission, claim). Every write of a runner names it, and a mismatch changes
-- nothing. Requeueing clears it. Terminal and AMBIGUOUS rows keep it: the late true answer of an attempt that was given up still settles an
-- AMBIGUOUS row, because nobody else has acquired it since.
--
-- What may have happened. `effect_begun` says that the current attempt may have touched the provider; `effect_unknown` that an attempt since the
-- last definite answer stopped without one. Together they decide whether a stopped action is ready again, ambiguous, or cleanly ended.
--
-- Why these indexes and no others. Every index on a column that settling changes, or with a predicate that names `state`, is written again at
-- every settle. The key index leads with the digest, not with the tenant: no index but the primary key may start with `tenant`, or the planner,
-- on a table it has no statistics for, takes that other index and reads a whole tenant to find one row.
create table actions (
    tenant                 text        not null,
    action_id              uuid        not null,
    capability             text        not null,
    version                text        not null,
    contract_digest        bytea       not null,
    effect_class           text        not null check (effect_class in ('READ', 'IDEMPOTENT', 'RECONCILABLE', 'UNSAFE')),
    subject                text        not null,
    caller                 text        not null, -- JSON: kind, roles, scopes
    idempotency_key        text,
    key_digest             bytea,                -- held key: SHA-256 of tenant, capability, scope and key; NULL once another action took it over
    key_ttl                interval    not null,
    key_released           boolean     not null default false,
    input                  text        not null, -- RFC 8785
    input_digest           bytea       not null,
    labels                 text        not null, -- JSON object
    on_caller_gone         text        not null check (on_caller_gone in ('CANCEL', 'DETACH')),
    durability             text        not null,
    predecessor_id         uuid,
    create_time            timestamptz not null,
    effect_marked          boolean     not null,
    effect_key_expire_time timestamptz,          -- IDEMPOTENT: repeating is safe until then
    attempts_max           integer     not null check (attempts_max >= 1),

    state                  text        not null check (state in ('QUEUED', 'RUNNING', 'AMBIGUOUS', 'SUCCEEDED', 'FAILED', 'CANCELLED', 'EXHAUSTED')),
    attempt                integer     not null check (attempt >= 1),
    lease_id               uuid,
    instance_id            uuid        not null,
    ready_time             timestamptz,
    start_time             timestamptz not null,
    deadline               timestamptz not null,
    cancel_requested_time  timestamptz,
    settle_time            timestamptz,
    effect                 text check (effect in ('NOT_DONE', 'DONE', 'UNKNOWN')),
    effect_begun           boolean     not null,
    effect_unknown         boolean     not null default false,
    reason                 text,
    cause                  text,
    message                text,
    failure_code           text,
    failure_category       text,
    retry_delay            interval,
    output                 text,
    provider_operation     text,
    provider_cursor        text,
    sequence               bigint      not null,
    receipt_digest         bytea       not null,

    constraint actions_pkey primary key (tenant, action_id),
    constraint actions_lease check ((state = 'QUEUED') = (lease_id is null)),
    constraint actions_ready check (state <> 'QUEUED' or ready_time is not null),
    constraint actions_settled check ((settle_time is not null) = (state in ('SUCCEEDED', 'FAILED', 'CANCELLED', 'EXHAUSTED'))),
    constraint actions_output check ((output is not null) = (state = 'SUCCEEDED')),
    constraint actions_reason check ((reason is not null) = (state in ('FAILED', 'CANCELLED', 'EXHAUSTED', 'AMBIGUOUS'))),
    constraint actions_truth check (
        case state
            when 'AMBIGUOUS' then effect = 'UNKNOWN' and effect_unknown
            when 'CANCELLED' then effect is distinct from 'UNKNOWN' and effect is distinct from 'DONE' and not effect_unknown
            when 'EXHAUSTED' then effect is distinct from 'UNKNOWN' and effect is distinct from 'DONE' and not effect_unknown
            when 'FAILED' then effect is distinct from 'UNKNOWN' and not effect_unknown
            when 'SUCCEEDED' then effect is not distinct from case when effect_class <> 'READ' then 'DONE' end and not effect_unknown
            when 'QUEUED' then not effect_unknown or effect = 'UNKNOWN'
            else true
        end
    ),
    constraint actions_effect check ((effect is null) = (effect_class = 'READ')),
    constraint actions_read_has_no_effect check (effect_class <> 'READ' or not (effect_unknown or effect_begun))
) with (fillfactor = 70, autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

create unique index actions_key on actions (key_digest) where key_digest is not null;
create index actions_running on actions (instance_id) where state = 'RUNNING';
create index actions_queued on actions (ready_time) where state = 'QUEUED';

-- The life of each action, gap-free by sequence, chained by receipt_digest = SHA-256(previous receipt ‖ canonical event), where the canonical
-- event is action id, sequence, type, microseconds and body, joined by line feeds. Written only by statements that hold the action's row.
create table events (
    tenant         text        not null,
    action_id      uuid        not null,
    sequence       bigint      not null check (sequence >= 1),
    type           text        not null,
    create_time    timestamptz not null,
    body           text        not null, -- JSON
    receipt_digest bytea       not null,
    constraint events_pkey primary key (tenant, action_id, sequence)
) with (autovacuum_vacuum_insert_scale_factor = 0.1);

-- What a handler says while it works: chunks of output and progress, numbered within the attempt that says it. Insert only, outside the row
-- lock and the receipt chain, so that a talkative handler costs its own action nothing.
create table lane_items (
    tenant      text        not null,
    action_id   uuid        not null,
    attempt     integer     not null check (attempt >= 1),
    number      bigint      not null check (number >= 1),
    lease_id    uuid        not null,
    type        text        not null check (type in ('chunk', 'progress')),
    create_time timestamptz not null,
    body        text        not null, -- JSON
    constraint lane_items_pkey primary key (tenant, action_id, attempt, number)
);

create function receipt(previous bytea, action_id uuid, sequence bigint, type text, create_time timestamptz, body text) returns bytea
    language sql stable parallel safe
    return sha256(previous || convert_to(
        action_id::text || E'\n' || sequence::text || E'\n' || type || E'\n'
            || (extract(epoch from create_time) * 1000000)::bigint::text || E'\n' || body, 'UTF8'));

-- The event that records an admission: who asked for what, under which contract.
create function admitted_body(
    capability text, version text, contract_digest bytea, subject text, input_digest bytea, durability text
) returns text
    language sql stable parallel safe
    return '{"capability":' || to_json(capability)::text || ',"contract_digest":"' || encode(contract_digest, 'hex')
        || '","durability":"' || durability || '","input_digest":"' || encode(input_digest, 'hex')
        || '","subject":' || to_json(subject)::text || ',"version":' || to_json(version)::text || '}';

-- An action without its payloads, as `model/action.py` has it: times in microseconds, digests in hexadecimal.
create view action_summaries as
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
    sequence, encode(receipt_digest, 'hex') as receipt_digest, key_digest
from actions;

-- The same with its payloads.
create view action_records as
select s.*, a.input, a.output
from action_summaries as s join actions as a on a.tenant = s.tenant and a.action_id = s.action_id;
