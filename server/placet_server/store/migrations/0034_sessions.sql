-- expand
--
-- Conversations with agents. A session is an order of runs, of which at most one is not over; its history is what its runs remember (0031), so nothing is
-- copied, and the actions of a session are kept as long as it is OPEN.
--
-- `active_action_id` is the run whose turn it is, or was last. Whether that one is over is in the action's own row and nowhere else: so whatever ends a run,
-- a crash and its rescue too, has freed the session with the same statement, and nobody need do it. Who wants the next turn locks the session, then the
-- action, and looks. Who may not have it yet is WAITING, cause SESSION, until whoever has ended the run before it looks, or the sweep.
--
-- Lock order: the session, then all that its runs lock.
create table sessions (
    tenant           text        not null,
    session_id       uuid        not null,
    -- The one agent that it is with; '': any.
    agent            text        not null,
    -- Whose it is: nobody else sees it.
    subject          text        not null,
    state            text        not null,
    title            text        not null,
    labels           text        not null,
    active_action_id uuid,
    run_count        integer     not null default 0,
    -- After so long without a run it is over.
    idle             interval    not null,
    -- Of the key that it was created with.
    key_digest       bytea,
    create_time      timestamptz not null,
    update_time      timestamptz not null,
    expire_time      timestamptz not null,
    constraint sessions_pkey primary key (tenant, session_id),
    constraint sessions_state check (state in ('OPEN', 'CLOSED')),
    constraint sessions_runs check (run_count >= 0 and (run_count > 0 or active_action_id is null))
) with (fillfactor = 50);
create unique index sessions_key on sessions (key_digest) where key_digest is not null;
create index sessions_owner on sessions ((tenant || ''), subject, session_id);
create index sessions_expiry on sessions (expire_time) where state = 'OPEN';

create table session_runs (
    tenant     text    not null,
    session_id uuid    not null,
    -- Its place in the conversation, from 1.
    number     integer not null,
    action_id  uuid    not null,
    -- It has not had its turn.
    waits      boolean not null,
    constraint session_runs_pkey primary key (tenant, session_id, number),
    constraint session_runs_number check (number >= 1)
);
create unique index session_runs_action on session_runs (action_id);
create index session_runs_waiting on session_runs (session_id) where waits;
