-- expand
--
-- What a run of an agent remembers. `run_entries` grows by ordinal, never by arguments: each entry is written under the run's lease, in the statement that
-- also writes its event, which names its digest; so the chain of receipts covers what the model was told and said. `body` is text and stays as it is, as
-- one changed byte breaks a provider's signature: it is never json or jsonb.
--
-- `runs` is the one row of what a run has spent: absolute values, set by the entry that changes them, so that writing one again changes nothing, and going
-- on resets nothing. There is one from the first entry on.
--
-- Both belong to the action, and go with it. Lock order: the action, its row in `runs`, then rows in `wakes`.
create table run_entries (
    tenant      text        not null,
    action_id   uuid        not null,
    ordinal     integer     not null,
    type        text        not null,
    turn        integer     not null,
    attempt     integer     not null,
    create_time timestamptz not null,
    body        text        not null,
    digest      bytea       not null,
    constraint run_entries_pkey primary key (tenant, action_id, ordinal),
    constraint run_entries_ordinal check (ordinal >= 1 and (ordinal = 1) = (type = 'opened')),
    constraint run_entries_type check (type in ('opened', 'requested', 'answered', 'failed', 'compacted')),
    constraint run_entries_digest check (length(digest) = 32)
);

create table runs (
    tenant            text    not null,
    action_id         uuid    not null,
    -- Of the newest entry, and of the one that a replay begins with, after the first: what was compacted before it is not read any more.
    ordinal           integer not null,
    compacted_ordinal integer not null default 1,
    model             text    not null,
    -- What it may spend, as it was pinned when it opened: JSON.
    budget            text    not null,
    turns             integer not null,
    requests          integer not null,
    calls             integer not null,
    input_tokens      bigint  not null,
    output_tokens     bigint  not null,
    cached_tokens     bigint  not null,
    cost_micros       bigint  not null,
    -- Answers whose cost is not known.
    unpriced          integer not null,
    active_ms         bigint  not null,
    -- Charged for what is under way, or whose answer was lost.
    reserved_tokens   bigint  not null,
    reserved_micros   bigint  not null,
    constraint runs_pkey primary key (tenant, action_id)
) with (fillfactor = 50);
