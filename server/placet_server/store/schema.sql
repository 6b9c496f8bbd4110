-- All migrations together, as pg_dump shows them. Written by tests/store/test_migrate_schema_snapshot.py.

CREATE FUNCTION public.action_is_possible(state text, effect_class text, on_caller_gone text, attempt integer, attempts_max integer, effect text, effect_begun boolean, effect_unknown boolean, lease_id uuid, ready_time timestamp with time zone, settle_time timestamp with time zone, output text, reason text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
begin
    if attempts_max < 1 or on_caller_gone not in ('CANCEL', 'DETACH')
        or (attempt < 1 and (attempt < 0 or effect_begun or effect_unknown
            or state not in ('QUEUED', 'WAITING', 'CANCELLED', 'EXHAUSTED', 'DENIED', 'REFUSED')))
    then
        return false;
    end if;

    if effect_class = 'READ' then
        if effect is not null or effect_begun or effect_unknown then
            return false;
        end if;
    elsif effect is null or effect not in ('NOT_DONE', 'DONE', 'UNKNOWN') or effect_class not in ('IDEMPOTENT', 'RECONCILABLE', 'UNSAFE') then
        -- The others are spared a look.
        if effect_class <> 'COMPOSED' or effect is null or effect not in ('NOT_DONE', 'DONE', 'UNKNOWN') or effect_unknown or state = 'AMBIGUOUS' then
            return false;
        elsif state in ('SUCCEEDED', 'FAILED', 'CANCELLED', 'EXHAUSTED', 'DENIED', 'REFUSED') then
            return num_nulls(lease_id, settle_time) = 0 and (output is null) = (state <> 'SUCCEEDED') and (reason is null) = (state = 'SUCCEEDED')
                and (attempt > 0 or effect = 'NOT_DONE');
        end if;
    end if;

    -- The most frequent first.
    if state = 'RUNNING' then
        return lease_id is not null and num_nonnulls(settle_time, output, reason) = 0;
    elsif state = 'SUCCEEDED' then
        return num_nulls(lease_id, settle_time, output) = 0 and reason is null and not effect_unknown and (effect is null or effect = 'DONE');
    elsif state = 'FAILED' then
        return num_nulls(lease_id, settle_time, reason) = 0 and output is null and not effect_unknown and effect is distinct from 'UNKNOWN';
    elsif state in ('CANCELLED', 'EXHAUSTED', 'DENIED', 'REFUSED') then
        return num_nulls(lease_id, settle_time, reason) = 0 and output is null and not effect_unknown and (effect is null or effect = 'NOT_DONE');
    elsif state = 'AMBIGUOUS' then
        return num_nulls(lease_id, reason) = 0 and num_nonnulls(settle_time, output) = 0 and effect_unknown and effect = 'UNKNOWN';
    elsif state = 'QUEUED' then
        return num_nonnulls(lease_id, settle_time, output, reason) = 0 and ready_time is not null and (not effect_unknown or effect = 'UNKNOWN');
    elsif state = 'WAITING' then
        return num_nonnulls(lease_id, settle_time, output, reason) = 0 and ready_time is not null and not effect_unknown
            and (effect is null or effect = 'NOT_DONE');
    end if;
    return false;
end
$$;

CREATE FUNCTION public.admitted_body(capability text, version text, contract_digest bytea, subject text, input_digest bytea, durability text) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (((((((((((('{"capability":'::text || (to_json(capability))::text) || ',"contract_digest":"'::text) || encode(contract_digest, 'hex'::text)) || '","durability":"'::text) || durability) || '","input_digest":"'::text) || encode(input_digest, 'hex'::text)) || '","subject":'::text) || (to_json(subject))::text) || ',"version":'::text) || (to_json(version))::text) || '}'::text);

CREATE FUNCTION public.child_body(submitted text, parent_id uuid, step_path text) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ((((("left"(submitted, '-1'::integer) || ',"parent_id":"'::text) || parent_id) || '","step_path":'::text) || (to_json(step_path))::text) || '}'::text);

CREATE FUNCTION public.feed_epoch_is_current() RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select (e.system_identifier, e.timeline) = (s.system_identifier, c.timeline_id)
    from pg_control_system() as s, pg_control_checkpoint() as c, (select * from feed_epochs order by epoch desc limit 1) as e
$$;

CREATE FUNCTION public.open_feed_epoch() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO '$user', 'public'
    AS $$
declare
    older feed_epochs;
    is_elsewhere boolean;
    reached bigint;
begin
    if feed_epoch_is_current() then
        return;
    end if;
    lock table events in access exclusive mode;
    if feed_epoch_is_current() then
        return; -- Another one was faster.
    end if;
    select * into older from feed_epochs order by epoch desc limit 1;
    select older.system_identifier <> s.system_identifier into is_elsewhere from pg_control_system() as s;
    if is_elsewhere then
        select coalesce(max(written_xid), older.floor_xid) into reached from events where feed_epoch = older.epoch;
    else
        reached := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
    end if;
    update feed_epochs as e set last_xid = reached where e.epoch = older.epoch;
    insert into feed_epochs (epoch, system_identifier, timeline, open_time, floor_xid)
    select older.epoch + 1, s.system_identifier, c.timeline_id, statement_timestamp(), pg_snapshot_xmin(pg_current_snapshot())::text::bigint
    from pg_control_system() as s, pg_control_checkpoint() as c;
    execute format('alter table events alter column feed_epoch set default %s', older.epoch + 1);
end
$$;

CREATE FUNCTION public.receipt(previous bytea, action_id uuid, sequence bigint, type text, create_time timestamp with time zone, body text) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN sha256((previous || convert_to((((((((((action_id)::text || '
'::text) || (sequence)::text) || '
'::text) || type) || '
'::text) || (((EXTRACT(epoch FROM create_time) * (1000000)::numeric))::bigint)::text) || '
'::text) || body), 'UTF8'::name)));

CREATE FUNCTION public.submitted_body(admitted text, queue text, ready_time timestamp with time zone) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ((((("left"(admitted, '-1'::integer) || ',"queue":'::text) || (to_json(queue))::text) || ',"ready_time_us":'::text) || ((EXTRACT(epoch FROM ready_time) * (1000000)::numeric))::bigint) || '}'::text);

CREATE FUNCTION public.summarize_feed() RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO '$user', 'public'
    SET lock_timeout TO '20ms'
    AS $$
begin
    return brin_summarize_new_values('events_feed');
exception
    when lock_not_available then
        return 0;
end
$$;

CREATE FUNCTION public.woken_body(attempt integer) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (('{"attempt":'::text || attempt) || ',"cause":"WOKEN","ready_delay_seconds":0.0}'::text);

CREATE TABLE public.actions (
    tenant text NOT NULL,
    action_id uuid NOT NULL,
    capability text NOT NULL,
    version text NOT NULL,
    contract_digest bytea NOT NULL,
    effect_class text NOT NULL,
    subject text NOT NULL,
    caller text NOT NULL,
    idempotency_key text,
    key_digest bytea,
    key_ttl interval NOT NULL,
    key_released boolean DEFAULT false NOT NULL,
    input text NOT NULL,
    input_digest bytea NOT NULL,
    labels text NOT NULL,
    on_caller_gone text NOT NULL,
    durability text NOT NULL,
    predecessor_id uuid,
    create_time timestamp with time zone NOT NULL,
    effect_marked boolean NOT NULL,
    effect_key_expire_time timestamp with time zone,
    attempts_max integer NOT NULL,
    state text NOT NULL,
    attempt integer NOT NULL,
    lease_id uuid,
    instance_id uuid,
    ready_time timestamp with time zone,
    start_time timestamp with time zone,
    deadline timestamp with time zone,
    cancel_requested_time timestamp with time zone,
    settle_time timestamp with time zone,
    effect text,
    effect_begun boolean NOT NULL,
    effect_unknown boolean DEFAULT false NOT NULL,
    reason text,
    cause text,
    message text,
    failure_code text,
    failure_category text,
    retry_delay interval,
    output text,
    provider_operation text,
    provider_cursor text,
    sequence bigint NOT NULL,
    receipt_digest bytea NOT NULL,
    queue text,
    priority smallint,
    attempt_timeout interval,
    effect_key_ttl interval,
    queue_delay interval,
    retry text,
    budget_time timestamp with time zone,
    generation integer,
    parent_id uuid,
    root_id uuid,
    step_path text,
    verdict_digest bytea,
    approval_id uuid
)
WITH (fillfactor='70', autovacuum_vacuum_cost_delay='0', autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE VIEW public.action_summaries AS
 SELECT tenant,
    action_id,
    capability,
    version,
    encode(contract_digest, 'hex'::text) AS contract_digest,
    effect_class,
    subject,
    caller,
    COALESCE(idempotency_key, ''::text) AS idempotency_key,
    encode(input_digest, 'hex'::text) AS input_digest,
    labels,
    on_caller_gone,
    durability,
    predecessor_id,
    ((EXTRACT(epoch FROM create_time) * (1000000)::numeric))::bigint AS create_time_us,
    effect_marked,
    ((EXTRACT(epoch FROM effect_key_expire_time) * (1000000)::numeric))::bigint AS effect_key_expire_time_us,
    attempts_max,
    state,
    attempt,
    lease_id,
    instance_id,
    ((EXTRACT(epoch FROM ready_time) * (1000000)::numeric))::bigint AS ready_time_us,
    ((EXTRACT(epoch FROM start_time) * (1000000)::numeric))::bigint AS start_time_us,
    ((EXTRACT(epoch FROM deadline) * (1000000)::numeric))::bigint AS deadline_us,
    ((EXTRACT(epoch FROM cancel_requested_time) * (1000000)::numeric))::bigint AS cancel_requested_time_us,
    ((EXTRACT(epoch FROM settle_time) * (1000000)::numeric))::bigint AS settle_time_us,
    ((EXTRACT(epoch FROM (settle_time + key_ttl)) * (1000000)::numeric))::bigint AS key_expire_time_us,
    effect,
    effect_begun,
    effect_unknown,
    reason,
    cause,
    message,
    failure_code,
    failure_category,
    (EXTRACT(epoch FROM retry_delay))::double precision AS retry_delay_seconds,
    key_released,
    provider_operation,
    provider_cursor,
    sequence,
    encode(receipt_digest, 'hex'::text) AS receipt_digest,
    key_digest,
    COALESCE(queue, ''::text) AS queue,
    COALESCE(priority, (0)::smallint) AS priority,
    (EXTRACT(epoch FROM attempt_timeout))::double precision AS attempt_timeout_seconds,
    (EXTRACT(epoch FROM queue_delay))::double precision AS queue_delay_seconds,
    retry,
    ((EXTRACT(epoch FROM budget_time) * (1000000)::numeric))::bigint AS budget_time_us,
    COALESCE(generation, 1) AS generation,
    parent_id,
    root_id,
    COALESCE(step_path, ''::text) AS step_path,
    encode(verdict_digest, 'hex'::text) AS verdict_digest,
    approval_id
   FROM public.actions;

CREATE VIEW public.action_records AS
 SELECT s.tenant,
    s.action_id,
    s.capability,
    s.version,
    s.contract_digest,
    s.effect_class,
    s.subject,
    s.caller,
    s.idempotency_key,
    s.input_digest,
    s.labels,
    s.on_caller_gone,
    s.durability,
    s.predecessor_id,
    s.create_time_us,
    s.effect_marked,
    s.effect_key_expire_time_us,
    s.attempts_max,
    s.state,
    s.attempt,
    s.lease_id,
    s.instance_id,
    s.ready_time_us,
    s.start_time_us,
    s.deadline_us,
    s.cancel_requested_time_us,
    s.settle_time_us,
    s.key_expire_time_us,
    s.effect,
    s.effect_begun,
    s.effect_unknown,
    s.reason,
    s.cause,
    s.message,
    s.failure_code,
    s.failure_category,
    s.retry_delay_seconds,
    s.key_released,
    s.provider_operation,
    s.provider_cursor,
    s.sequence,
    s.receipt_digest,
    s.key_digest,
    s.queue,
    s.priority,
    s.attempt_timeout_seconds,
    s.queue_delay_seconds,
    s.retry,
    s.budget_time_us,
    s.generation,
    s.parent_id,
    s.root_id,
    s.step_path,
    s.verdict_digest,
    s.approval_id,
    a.input,
    a.output
   FROM (public.action_summaries s
     JOIN public.actions a ON (((a.tenant = s.tenant) AND (a.action_id = s.action_id))));

CREATE TABLE public.approval_decisions (
    tenant text NOT NULL,
    approval_id uuid NOT NULL,
    decision_id text NOT NULL,
    voter text NOT NULL,
    verdict text NOT NULL,
    reason text NOT NULL,
    ticket text NOT NULL,
    attachments text[] NOT NULL,
    suggested_input text,
    roles text[] NOT NULL,
    groups text[] NOT NULL,
    create_time timestamp with time zone NOT NULL,
    revoke_time timestamp with time zone,
    answer text,
    CONSTRAINT approval_decisions_verdict_check CHECK (((verdict = ANY (ARRAY['APPROVE'::text, 'DENY'::text, 'ANSWER'::text])) AND ((verdict = 'ANSWER'::text) = (answer IS NOT NULL))))
);

CREATE TABLE public.approvals (
    tenant text NOT NULL,
    approval_id uuid NOT NULL,
    action_id uuid NOT NULL,
    kind text NOT NULL,
    state text NOT NULL,
    digest bytea NOT NULL,
    terms text NOT NULL,
    capability text NOT NULL,
    subject text NOT NULL,
    title text NOT NULL,
    summary text NOT NULL,
    predecessor_id uuid,
    difference text DEFAULT ''::text NOT NULL,
    subjects text[] NOT NULL,
    roles text[] NOT NULL,
    groups text[] NOT NULL,
    create_time timestamp with time zone NOT NULL,
    expire_time timestamp with time zone NOT NULL,
    escalate_time timestamp with time zone,
    escalated boolean DEFAULT false NOT NULL,
    next_time timestamp with time zone,
    consume_time timestamp with time zone,
    end_time timestamp with time zone,
    revision bigint DEFAULT 1 NOT NULL,
    claimed_by text,
    claim_expire_time timestamp with time zone,
    CONSTRAINT approvals_claim CHECK ((num_nulls(claimed_by, claim_expire_time) = ANY (ARRAY[0, 2]))),
    CONSTRAINT approvals_digest_check CHECK ((length(digest) = 32)),
    CONSTRAINT approvals_kind_check CHECK ((kind = ANY (ARRAY['APPROVAL'::text, 'INPUT'::text]))),
    CONSTRAINT approvals_possible CHECK ((((state = 'PENDING'::text) = (end_time IS NULL)) AND ((consume_time IS NULL) OR (state = 'GRANTED'::text)) AND ((next_time IS NULL) OR ((state = ANY (ARRAY['PENDING'::text, 'GRANTED'::text])) AND (consume_time IS NULL))))),
    CONSTRAINT approvals_state_check CHECK ((state = ANY (ARRAY['PENDING'::text, 'GRANTED'::text, 'DENIED'::text, 'REVOKED'::text, 'EXPIRED'::text, 'WITHDRAWN'::text])))
)
WITH (fillfactor='80');

CREATE TABLE public.bootstrap_tokens (
    digest bytea NOT NULL,
    create_time timestamp with time zone NOT NULL,
    expire_time timestamp with time zone NOT NULL,
    use_time timestamp with time zone,
    CONSTRAINT bootstrap_tokens_digest_check CHECK ((length(digest) = 32))
);

CREATE TABLE public.capabilities (
    tenant text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    version text NOT NULL COLLATE pg_catalog."C",
    manifest text NOT NULL COLLATE pg_catalog."C",
    contract_digest bytea NOT NULL,
    document text NOT NULL,
    current boolean NOT NULL,
    create_time timestamp with time zone NOT NULL,
    admitted_by text NOT NULL,
    withdraw_time timestamp with time zone,
    withdrawn_by text,
    withdraw_reason text,
    withdrawals integer DEFAULT 0 NOT NULL,
    kind text GENERATED ALWAYS AS (COALESCE(((document)::jsonb ->> 'kind'::text), 'TOOL'::text)) STORED NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT capabilities_contract_digest_check CHECK ((length(contract_digest) = 32)),
    CONSTRAINT capabilities_name_check CHECK (((length(name) >= 1) AND (length(name) <= 128))),
    CONSTRAINT capabilities_version_check CHECK (((length(version) >= 1) AND (length(version) <= 32))),
    CONSTRAINT capabilities_withdrawn CHECK ((num_nulls(withdraw_time, withdrawn_by, withdraw_reason) = ANY (ARRAY[0, 3])))
);

CREATE TABLE public.catalog_revisions (
    tenant text NOT NULL COLLATE pg_catalog."C",
    revision bigint NOT NULL,
    update_time timestamp with time zone NOT NULL,
    CONSTRAINT catalog_revisions_revision_check CHECK ((revision >= 0))
);

CREATE TABLE public.dead_letters (
    tenant text NOT NULL,
    action_id uuid NOT NULL,
    queue text,
    capability text NOT NULL,
    reason text NOT NULL,
    dead_time timestamp with time zone NOT NULL
);

CREATE TABLE public.deliveries (
    tenant text NOT NULL,
    create_time timestamp with time zone NOT NULL,
    delivery_id uuid NOT NULL,
    target text NOT NULL,
    type text NOT NULL,
    subject text NOT NULL,
    event_id uuid NOT NULL,
    action_id uuid,
    data text NOT NULL,
    state text DEFAULT 'PENDING'::text NOT NULL,
    generation integer DEFAULT 1 NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    attempts_max integer NOT NULL,
    next_time timestamp with time zone NOT NULL,
    lease_id uuid,
    last_status integer DEFAULT 0 NOT NULL,
    last_error text DEFAULT ''::text NOT NULL,
    end_time timestamp with time zone,
    redelivery bytea,
    redelivered_by text,
    CONSTRAINT deliveries_attempts CHECK ((attempts <= attempts_max)),
    CONSTRAINT deliveries_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT deliveries_attempts_max_check CHECK ((attempts_max >= 1)),
    CONSTRAINT deliveries_generation_check CHECK ((generation >= 1)),
    CONSTRAINT deliveries_possible CHECK ((((state = 'PENDING'::text) = (end_time IS NULL)) AND ((state = 'PENDING'::text) OR (lease_id IS NULL)))),
    CONSTRAINT deliveries_state_check CHECK ((state = ANY (ARRAY['PENDING'::text, 'DELIVERED'::text, 'DEAD'::text])))
)
WITH (fillfactor='80');

CREATE TABLE public.events (
    tenant text NOT NULL,
    action_id uuid NOT NULL,
    sequence bigint NOT NULL,
    type text NOT NULL,
    create_time timestamp with time zone NOT NULL,
    body text NOT NULL,
    receipt_digest bytea NOT NULL,
    written_xid bigint DEFAULT ((pg_current_xact_id())::text)::bigint,
    feed_epoch smallint DEFAULT 1,
    CONSTRAINT events_sequence_check CHECK ((sequence >= 1))
)
WITH (autovacuum_vacuum_insert_scale_factor='0.1');

CREATE TABLE public.feed_epochs (
    epoch smallint NOT NULL,
    system_identifier bigint NOT NULL,
    timeline integer NOT NULL,
    open_time timestamp with time zone NOT NULL,
    floor_xid bigint NOT NULL,
    last_xid bigint
);

CREATE TABLE public.governed (
    tenant text NOT NULL,
    action_id uuid NOT NULL,
    output text NOT NULL
);

CREATE TABLE public.instances (
    boot_id uuid NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    state text DEFAULT 'ALIVE'::text NOT NULL,
    lease_seconds double precision NOT NULL,
    started_time timestamp with time zone NOT NULL,
    heartbeat_time timestamp with time zone NOT NULL,
    dead_time timestamp with time zone,
    probe_time timestamp with time zone,
    serves text[] DEFAULT '{}'::text[] NOT NULL,
    queue_slots integer DEFAULT 0 NOT NULL,
    drain_time timestamp with time zone,
    CONSTRAINT instances_dead_time_check CHECK (((state = 'DEAD'::text) = (dead_time IS NOT NULL))),
    CONSTRAINT instances_heartbeat_time_check CHECK ((heartbeat_time >= started_time)),
    CONSTRAINT instances_host_check CHECK (((length(host) >= 1) AND (length(host) <= 255))),
    CONSTRAINT instances_lease_seconds_check CHECK ((lease_seconds > (0)::double precision)),
    CONSTRAINT instances_pid_check CHECK ((pid > 0)),
    CONSTRAINT instances_queue_slots_check CHECK ((queue_slots >= 0)),
    CONSTRAINT instances_state_check CHECK ((state = ANY (ARRAY['ALIVE'::text, 'DEAD'::text]))),
    CONSTRAINT instances_version_check CHECK (((length(version) >= 1) AND (length(version) <= 100)))
)
WITH (fillfactor='50', autovacuum_vacuum_threshold='50', autovacuum_vacuum_scale_factor='0.1');

CREATE TABLE public.lane_items (
    tenant text NOT NULL,
    action_id uuid NOT NULL,
    attempt integer NOT NULL,
    number bigint NOT NULL,
    lease_id uuid NOT NULL,
    type text NOT NULL,
    create_time timestamp with time zone NOT NULL,
    body text NOT NULL,
    CONSTRAINT lane_items_attempt_check CHECK ((attempt >= 1)),
    CONSTRAINT lane_items_number_check CHECK ((number >= 1)),
    CONSTRAINT lane_items_type_check CHECK ((type = ANY (ARRAY['chunk'::text, 'progress'::text, 'delta'::text, 'tool_started'::text, 'tool_finished'::text])))
);

CREATE TABLE public.lineage (
    tenant text NOT NULL,
    parent_id uuid NOT NULL,
    step text NOT NULL,
    number smallint NOT NULL,
    action_id uuid NOT NULL,
    root_id uuid NOT NULL,
    depth smallint NOT NULL,
    generation integer NOT NULL,
    attempt integer NOT NULL
);

CREATE TABLE public.manifests (
    tenant text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    version text NOT NULL,
    digest bytea NOT NULL,
    document text NOT NULL,
    capability_count integer NOT NULL,
    create_time timestamp with time zone NOT NULL,
    update_time timestamp with time zone NOT NULL,
    admitted_by text NOT NULL,
    connector text,
    CONSTRAINT manifests_capability_count_check CHECK (((capability_count >= 1) AND (capability_count <= 256))),
    CONSTRAINT manifests_digest_check CHECK ((length(digest) = 32)),
    CONSTRAINT manifests_name_check CHECK (((length(name) >= 1) AND (length(name) <= 64))),
    CONSTRAINT manifests_version_check CHECK ((length(version) <= 32))
);

CREATE TABLE public.message_claims (
    tenant text NOT NULL,
    subject text NOT NULL,
    message_id text NOT NULL,
    action_id uuid NOT NULL,
    digest bytea NOT NULL,
    expire_time timestamp with time zone NOT NULL
);

CREATE TABLE public.policy_refusals (
    tenant text NOT NULL,
    refusal_id uuid NOT NULL,
    create_time timestamp with time zone NOT NULL,
    capability text NOT NULL,
    version text NOT NULL,
    subject text NOT NULL,
    caller text NOT NULL,
    input_digest bytea NOT NULL,
    parent text NOT NULL,
    verdict text NOT NULL
);

CREATE TABLE public.policy_sets (
    tenant text NOT NULL,
    revision bigint NOT NULL,
    digest bytea NOT NULL,
    document text NOT NULL,
    name text NOT NULL,
    policy_count integer NOT NULL,
    admitted_by text NOT NULL,
    restores bigint,
    create_time timestamp with time zone NOT NULL,
    CONSTRAINT policy_sets_revision_check CHECK ((revision >= 1))
);

CREATE TABLE public.queue_counts (
    minute timestamp with time zone NOT NULL,
    queue text NOT NULL,
    tenant text NOT NULL,
    boot_id uuid NOT NULL,
    claimed bigint NOT NULL,
    settled bigint NOT NULL
)
WITH (fillfactor='80');

CREATE TABLE public.queue_delayed (
    tenant text NOT NULL,
    action_id uuid NOT NULL,
    queue text NOT NULL,
    capability text NOT NULL,
    version text NOT NULL,
    priority smallint NOT NULL,
    ready_time timestamp with time zone NOT NULL,
    expire_time timestamp with time zone
)
WITH (autovacuum_vacuum_cost_delay='0', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='50000');

CREATE TABLE public.queue_pauses (
    queue text NOT NULL,
    tenant text NOT NULL,
    pause_time timestamp with time zone NOT NULL,
    paused_by text NOT NULL,
    reason text NOT NULL
);

CREATE TABLE public.queue_ready (
    tenant text NOT NULL,
    action_id uuid NOT NULL,
    queue text NOT NULL,
    capability text NOT NULL,
    version text NOT NULL,
    priority smallint NOT NULL,
    ready_time timestamp with time zone NOT NULL,
    expire_time timestamp with time zone
)
WITH (fillfactor='90', autovacuum_vacuum_cost_delay='0', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='50000');

CREATE TABLE public.quota_rates (
    tenant text NOT NULL,
    tokens double precision NOT NULL,
    update_time timestamp with time zone NOT NULL
);

CREATE TABLE public.quota_usage (
    tenant text NOT NULL,
    open_actions bigint DEFAULT 0 NOT NULL,
    stored_bytes bigint DEFAULT 0 NOT NULL,
    meter_time timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    walk_after uuid DEFAULT '00000000-0000-0000-0000-000000000000'::uuid NOT NULL,
    walk_bytes bigint DEFAULT 0 NOT NULL
);

CREATE TABLE public.rates (
    capability text NOT NULL,
    tenant text NOT NULL,
    tokens double precision NOT NULL,
    update_time timestamp with time zone NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_threshold='200', autovacuum_vacuum_scale_factor='0.1');

CREATE TABLE public.receipt_heads (
    tenant text NOT NULL,
    action_id uuid NOT NULL,
    sequence bigint NOT NULL,
    receipt_digest bytea NOT NULL,
    delete_time timestamp with time zone NOT NULL
);

CREATE TABLE public.reconciles (
    tenant text NOT NULL,
    action_id uuid NOT NULL,
    capability text NOT NULL,
    version text NOT NULL,
    since_time timestamp with time zone NOT NULL,
    asked integer DEFAULT 0 NOT NULL,
    next_time timestamp with time zone NOT NULL,
    wanted boolean DEFAULT false NOT NULL,
    give_up_time timestamp with time zone,
    finding text
)
WITH (fillfactor='70');

CREATE TABLE public.reports (
    tenant text NOT NULL,
    report_id uuid NOT NULL,
    create_time timestamp with time zone NOT NULL,
    requester text NOT NULL,
    key_digest bytea,
    summary text NOT NULL,
    document text NOT NULL
);

CREATE TABLE public.retention_walk (
    single boolean DEFAULT true NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    action_id uuid DEFAULT '00000000-0000-0000-0000-000000000000'::uuid NOT NULL,
    next_time timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    CONSTRAINT retention_walk_single_check CHECK (single)
);

CREATE TABLE public.run_entries (
    tenant text NOT NULL,
    action_id uuid NOT NULL,
    ordinal integer NOT NULL,
    type text NOT NULL,
    turn integer NOT NULL,
    attempt integer NOT NULL,
    create_time timestamp with time zone NOT NULL,
    body text NOT NULL,
    digest bytea NOT NULL,
    CONSTRAINT run_entries_digest CHECK ((length(digest) = 32)),
    CONSTRAINT run_entries_ordinal CHECK (((ordinal >= 1) AND ((ordinal = 1) = (type = 'opened'::text)))),
    CONSTRAINT run_entries_type CHECK ((type = ANY (ARRAY['opened'::text, 'requested'::text, 'answered'::text, 'failed'::text, 'compacted'::text])))
);

CREATE TABLE public.runs (
    tenant text NOT NULL,
    action_id uuid NOT NULL,
    ordinal integer NOT NULL,
    compacted_ordinal integer DEFAULT 1 NOT NULL,
    model text NOT NULL,
    budget text NOT NULL,
    turns integer NOT NULL,
    requests integer NOT NULL,
    calls integer NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    cost_micros bigint NOT NULL,
    unpriced integer NOT NULL,
    active_ms bigint NOT NULL,
    reserved_tokens bigint NOT NULL,
    reserved_micros bigint NOT NULL,
    trace text,
    said_time timestamp with time zone,
    CONSTRAINT runs_trace CHECK ((trace ~ '^[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{16}$'::text))
)
WITH (fillfactor='50');

CREATE TABLE public.schema_migrations (
    version integer NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    checksum text NOT NULL,
    applied_time timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    CONSTRAINT schema_migrations_kind_check CHECK ((kind = ANY (ARRAY['expand'::text, 'contract'::text]))),
    CONSTRAINT schema_migrations_version_check CHECK ((version > 0))
);

CREATE TABLE public.session_runs (
    tenant text NOT NULL,
    session_id uuid NOT NULL,
    number integer NOT NULL,
    action_id uuid NOT NULL,
    waits boolean NOT NULL,
    CONSTRAINT session_runs_number CHECK ((number >= 1))
);

CREATE TABLE public.sessions (
    tenant text NOT NULL,
    session_id uuid NOT NULL,
    agent text NOT NULL,
    subject text NOT NULL,
    state text NOT NULL,
    title text NOT NULL,
    labels text NOT NULL,
    active_action_id uuid,
    run_count integer DEFAULT 0 NOT NULL,
    idle interval NOT NULL,
    key_digest bytea,
    create_time timestamp with time zone NOT NULL,
    update_time timestamp with time zone NOT NULL,
    expire_time timestamp with time zone NOT NULL,
    token_digest bytea,
    token_expire_time timestamp with time zone,
    token_nonce bytea,
    burnt_digest bytea,
    burnt_key_digest bytea,
    CONSTRAINT sessions_runs CHECK (((run_count >= 0) AND ((run_count > 0) OR (active_action_id IS NULL)))),
    CONSTRAINT sessions_state CHECK ((state = ANY (ARRAY['OPEN'::text, 'CLOSED'::text]))),
    CONSTRAINT sessions_tokens CHECK (((num_nonnulls(token_digest, token_expire_time, token_nonce) = ANY (ARRAY[0, 3])) AND ((burnt_digest IS NULL) = (burnt_key_digest IS NULL)) AND (COALESCE(length(token_digest), 32) = 32)))
)
WITH (fillfactor='50');

CREATE TABLE public.signing_keys (
    key_id text NOT NULL,
    private_key text NOT NULL,
    create_time timestamp with time zone NOT NULL
);

CREATE TABLE public.slots (
    capability text NOT NULL,
    tenant text NOT NULL,
    number integer NOT NULL,
    action_id uuid,
    lease_id uuid,
    hold_time timestamp with time zone
)
WITH (fillfactor='50', autovacuum_vacuum_threshold='200', autovacuum_vacuum_scale_factor='0.1');

CREATE TABLE public.verdicts (
    tenant text NOT NULL,
    digest bytea NOT NULL,
    document text NOT NULL,
    use_time timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE public.wakes (
    tenant text NOT NULL,
    parent_id uuid NOT NULL,
    child_id uuid NOT NULL,
    create_time timestamp with time zone NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_threshold='200', autovacuum_vacuum_scale_factor='0.1');

ALTER TABLE ONLY public.actions
    ADD CONSTRAINT actions_pkey PRIMARY KEY (tenant, action_id);

ALTER TABLE public.actions
    ADD CONSTRAINT actions_possible CHECK (public.action_is_possible(state, effect_class, on_caller_gone, attempt, attempts_max, effect, effect_begun, effect_unknown, lease_id, ready_time, settle_time, output, reason)) NOT VALID;

ALTER TABLE ONLY public.approval_decisions
    ADD CONSTRAINT approval_decisions_pkey PRIMARY KEY (tenant, approval_id, decision_id);

ALTER TABLE ONLY public.approvals
    ADD CONSTRAINT approvals_pkey PRIMARY KEY (tenant, approval_id);

ALTER TABLE ONLY public.bootstrap_tokens
    ADD CONSTRAINT bootstrap_tokens_pkey PRIMARY KEY (digest);

ALTER TABLE ONLY public.capabilities
    ADD CONSTRAINT capabilities_pkey PRIMARY KEY (tenant, name, version);

ALTER TABLE ONLY public.catalog_revisions
    ADD CONSTRAINT catalog_revisions_pkey PRIMARY KEY (tenant);

ALTER TABLE ONLY public.dead_letters
    ADD CONSTRAINT dead_letters_pkey PRIMARY KEY (tenant, action_id);

ALTER TABLE ONLY public.deliveries
    ADD CONSTRAINT deliveries_id UNIQUE (delivery_id);

ALTER TABLE ONLY public.deliveries
    ADD CONSTRAINT deliveries_pkey PRIMARY KEY (tenant, create_time, delivery_id);

ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (tenant, action_id, sequence);

ALTER TABLE ONLY public.feed_epochs
    ADD CONSTRAINT feed_epochs_pkey PRIMARY KEY (epoch);

ALTER TABLE ONLY public.governed
    ADD CONSTRAINT governed_pkey PRIMARY KEY (tenant, action_id);

ALTER TABLE ONLY public.instances
    ADD CONSTRAINT instances_pkey PRIMARY KEY (boot_id);

ALTER TABLE ONLY public.lane_items
    ADD CONSTRAINT lane_items_pkey PRIMARY KEY (tenant, action_id, attempt, number);

ALTER TABLE ONLY public.lineage
    ADD CONSTRAINT lineage_pkey PRIMARY KEY (tenant, parent_id, step, number);

ALTER TABLE ONLY public.manifests
    ADD CONSTRAINT manifests_pkey PRIMARY KEY (tenant, name);

ALTER TABLE ONLY public.message_claims
    ADD CONSTRAINT message_claims_pkey PRIMARY KEY (tenant, subject, message_id);

ALTER TABLE ONLY public.policy_refusals
    ADD CONSTRAINT policy_refusals_pkey PRIMARY KEY (tenant, refusal_id);

ALTER TABLE ONLY public.policy_sets
    ADD CONSTRAINT policy_sets_pkey PRIMARY KEY (tenant, revision);

ALTER TABLE ONLY public.queue_counts
    ADD CONSTRAINT queue_counts_pkey PRIMARY KEY (minute, queue, tenant, boot_id);

ALTER TABLE ONLY public.queue_delayed
    ADD CONSTRAINT queue_delayed_pkey PRIMARY KEY (tenant, action_id);

ALTER TABLE ONLY public.queue_pauses
    ADD CONSTRAINT queue_pauses_pkey PRIMARY KEY (queue, tenant);

ALTER TABLE ONLY public.queue_ready
    ADD CONSTRAINT queue_ready_pkey PRIMARY KEY (tenant, action_id);

ALTER TABLE ONLY public.quota_rates
    ADD CONSTRAINT quota_rates_pkey PRIMARY KEY (tenant);

ALTER TABLE ONLY public.quota_usage
    ADD CONSTRAINT quota_usage_pkey PRIMARY KEY (tenant);

ALTER TABLE ONLY public.rates
    ADD CONSTRAINT rates_pkey PRIMARY KEY (capability, tenant);

ALTER TABLE ONLY public.receipt_heads
    ADD CONSTRAINT receipt_heads_pkey PRIMARY KEY (tenant, action_id);

ALTER TABLE ONLY public.reconciles
    ADD CONSTRAINT reconciles_pkey PRIMARY KEY (tenant, action_id);

ALTER TABLE ONLY public.reports
    ADD CONSTRAINT reports_pkey PRIMARY KEY (tenant, report_id);

ALTER TABLE ONLY public.retention_walk
    ADD CONSTRAINT retention_walk_pkey PRIMARY KEY (single);

ALTER TABLE ONLY public.run_entries
    ADD CONSTRAINT run_entries_pkey PRIMARY KEY (tenant, action_id, ordinal);

ALTER TABLE ONLY public.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (tenant, action_id);

ALTER TABLE ONLY public.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY public.session_runs
    ADD CONSTRAINT session_runs_pkey PRIMARY KEY (tenant, session_id, number);

ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (tenant, session_id);

ALTER TABLE ONLY public.signing_keys
    ADD CONSTRAINT signing_keys_pkey PRIMARY KEY (key_id);

ALTER TABLE ONLY public.slots
    ADD CONSTRAINT slots_pkey PRIMARY KEY (capability, tenant, number);

ALTER TABLE ONLY public.verdicts
    ADD CONSTRAINT verdicts_pkey PRIMARY KEY (tenant, digest);

ALTER TABLE ONLY public.wakes
    ADD CONSTRAINT wakes_pkey PRIMARY KEY (tenant, parent_id, child_id);

CREATE INDEX actions_ambiguous ON public.actions USING btree (tenant, action_id) WHERE (state = 'AMBIGUOUS'::text);

CREATE INDEX actions_composed ON public.actions USING btree (((tenant || ''::text)), action_id) WHERE ((effect_class || ''::text) = 'COMPOSED'::text);

CREATE UNIQUE INDEX actions_key ON public.actions USING btree (key_digest) WHERE (key_digest IS NOT NULL);

CREATE INDEX actions_running ON public.actions USING btree (instance_id) WHERE (state = 'RUNNING'::text);

CREATE UNIQUE INDEX approval_decisions_voter ON public.approval_decisions USING btree (approval_id, voter);

CREATE INDEX approvals_action ON public.approvals USING btree (action_id, approval_id);

CREATE INDEX approvals_all ON public.approvals USING btree (((tenant || ''::text)), expire_time, approval_id);

CREATE INDEX approvals_next ON public.approvals USING btree (next_time) WHERE (next_time IS NOT NULL);

CREATE UNIQUE INDEX approvals_open ON public.approvals USING btree (action_id) WHERE ((state = ANY (ARRAY['PENDING'::text, 'GRANTED'::text])) AND (consume_time IS NULL));

CREATE INDEX approvals_pending ON public.approvals USING btree (((tenant || ''::text)), expire_time, approval_id) WHERE (state = 'PENDING'::text);

CREATE UNIQUE INDEX capabilities_current ON public.capabilities USING btree (name, tenant) WHERE current;

CREATE INDEX capabilities_withdrawn ON public.capabilities USING btree (withdraw_time) WHERE (withdraw_time IS NOT NULL);

CREATE INDEX dead_letters_newest ON public.dead_letters USING btree (action_id);

CREATE INDEX deliveries_action ON public.deliveries USING btree (action_id, create_time, delivery_id) WHERE (action_id IS NOT NULL);

CREATE INDEX deliveries_dead ON public.deliveries USING btree (end_time) WHERE (state = 'DEAD'::text);

CREATE INDEX deliveries_due ON public.deliveries USING btree (target, tenant, next_time) WHERE (state = 'PENDING'::text);

CREATE INDEX deliveries_ended ON public.deliveries USING btree (end_time) WHERE (end_time IS NOT NULL);

CREATE INDEX deliveries_newest ON public.deliveries USING btree (create_time, delivery_id);

CREATE INDEX events_feed ON public.events USING brin (written_xid) WITH (pages_per_range='64', autosummarize='on');

CREATE INDEX lineage_root ON public.lineage USING btree (root_id, action_id);

CREATE INDEX manifests_connectors ON public.manifests USING btree (name, tenant) WHERE (connector IS NOT NULL);

CREATE INDEX message_claims_expire ON public.message_claims USING btree (expire_time);

CREATE INDEX queue_delayed_due ON public.queue_delayed USING btree (ready_time);

CREATE INDEX queue_delayed_expire ON public.queue_delayed USING btree (expire_time) WHERE (expire_time IS NOT NULL);

CREATE INDEX queue_delayed_order ON public.queue_delayed USING btree (queue, tenant);

CREATE INDEX queue_ready_expire ON public.queue_ready USING btree (expire_time) WHERE (expire_time IS NOT NULL);

CREATE INDEX queue_ready_order ON public.queue_ready USING btree (queue, capability, version, tenant, priority, ready_time, action_id);

CREATE INDEX reconciles_due ON public.reconciles USING btree (capability, version, tenant, next_time) WHERE (give_up_time IS NULL);

CREATE UNIQUE INDEX reports_key ON public.reports USING btree (key_digest) WHERE (key_digest IS NOT NULL);

CREATE INDEX runs_said ON public.runs USING btree (said_time) WHERE (said_time IS NOT NULL);

CREATE UNIQUE INDEX session_runs_action ON public.session_runs USING btree (action_id);

CREATE INDEX session_runs_waiting ON public.session_runs USING btree (session_id) WHERE waits;

CREATE INDEX sessions_closed ON public.sessions USING btree (update_time) WHERE (state = 'CLOSED'::text);

CREATE INDEX sessions_expiry ON public.sessions USING btree (expire_time) WHERE (state = 'OPEN'::text);

CREATE UNIQUE INDEX sessions_key ON public.sessions USING btree (key_digest) WHERE (key_digest IS NOT NULL);

CREATE INDEX sessions_open ON public.sessions USING btree (((tenant || ''::text)), subject, expire_time) WHERE ((state || ''::text) = 'OPEN'::text);

CREATE INDEX sessions_owner ON public.sessions USING btree (((tenant || ''::text)), subject, session_id);

CREATE INDEX verdicts_use ON public.verdicts USING btree (use_time);

CREATE INDEX wakes_age ON public.wakes USING btree (create_time);

ALTER TABLE ONLY public.capabilities
    ADD CONSTRAINT capabilities_manifest_fkey FOREIGN KEY (tenant, manifest) REFERENCES public.manifests(tenant, name);

ALTER TABLE ONLY public.manifests
    ADD CONSTRAINT manifests_tenant_fkey FOREIGN KEY (tenant) REFERENCES public.catalog_revisions(tenant);
