-- Sessions and the order of their runs: the rows of 0034_sessions.sql. Whose they are is in each query that somebody's request leads to.
--
-- Lock order: the session, its place in line, which is new, then the action.

-- part: told
-- A session as it is told, with `standing`. It is over once it was idle for its time, whether anybody has noted that or not.
select
    s.session_id::text, s.agent, s.subject, s.title, s.labels, s.run_count,
    case when s.state = 'OPEN' and (o.is_open or o.is_awaited or o.end_time > c.at) then 'OPEN' else 'CLOSED' end as state,
    case when o.is_open then s.active_action_id::text end as active_action_id,
    (extract(epoch from s.create_time) * 1000000)::bigint as create_time_us,
    (extract(epoch from s.update_time) * 1000000)::bigint as update_time_us,
    (extract(epoch from o.end_time) * 1000000)::bigint as expire_time_us
from sessions as s

-- part: standing
-- Of each session s: whether the run that has the turn is not over, or one waits for it; and until when it is open without another one, as it is idle only
-- since its run has ended.
cross join (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
cross join lateral (
    select
        a.action_id is not null and a.settle_time is null as is_open,
        exists (select from session_runs as w where w.session_id = s.session_id and w.waits and w.tenant = s.tenant) as is_awaited,
        greatest(s.expire_time, a.settle_time + s.idle) as end_time
    from (select 1) as one
    left join actions as a on a.tenant = s.tenant and a.action_id = s.active_action_id
) as o

-- part: locked
-- A session as its tx has it, with `standing`.
select
    s.session_id::text, s.state = 'OPEN' as is_open, not o.is_open and not o.is_awaited and o.end_time <= c.at as is_idle, s.active_action_id::text,
    s.run_count, s.subject
from sessions as s

-- name: insert
-- A new session; none if the key has made one before, or if so many of the subject's are open. Two at once may each be the last one.
insert into sessions (
    tenant, session_id, agent, subject, state, title, labels, idle, key_digest, create_time, update_time, expire_time, token_digest, token_nonce,
    token_expire_time)
select
    :tenant, :session_id::uuid, :agent, :subject, 'OPEN', :title, :labels, make_interval(secs => :idle_seconds::double precision),
    :key_digest::bytea, c.at, c.at, c.at + make_interval(secs => :idle_seconds::double precision), :token_digest::bytea, :token_nonce::bytea,
    c.at + make_interval(secs => :token_seconds::double precision)
from (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
where not exists (
    select from sessions as s
    where s.tenant || '' = :tenant and s.subject = :subject and (s.state || '') = 'OPEN' and s.expire_time > c.at
    offset :open_max::integer - 1
)
on conflict (key_digest) where key_digest is not null do nothing
returning session_id::text

-- name: find_by_key
-- Which session a key has made; the digest has tenant and subject in it.
select
    session_id::text, agent, title, labels, (extract(epoch from idle) * 1000000)::bigint as idle_us, token_digest, token_nonce,
    coalesce(burnt_digest, '') as burnt_digest, coalesce(burnt_key_digest, '') as burnt_key_digest,
    false as is_expired
from sessions
where key_digest = :key_digest::bytea and tenant = :tenant

-- name: get
-- One session of its owner.
{told}
{standing}
where s.tenant = :tenant and s.session_id = :session_id::uuid and s.subject = :subject

-- name: list_page
-- A page of somebody's sessions, newest first.
{told}
{standing}
where s.tenant || '' = :tenant and s.subject = :subject and s.session_id < :before::uuid
order by s.session_id desc
limit :page_size

-- name: lock
-- A session, locked until the tx ends, as it stands; subject NULL is whoever's it is, for who has found it by one of its runs.
{locked}
{standing}
where s.tenant = :tenant and s.session_id = :session_id::uuid and (:subject::text is null or s.subject = :subject)
for update of s

-- name: lock_free
-- The same of whoever's it is, unless somebody else has locked it.
{locked}
{standing}
where s.tenant = :tenant and s.session_id = :session_id::uuid
for update of s skip locked

-- name: close
-- No run begins in it any more; whoever waits does not. For who has locked it.
update sessions
set state = 'CLOSED', update_time = coalesce(:now::timestamptz, statement_timestamp())
where tenant = :tenant and session_id = :session_id::uuid and (state || '') = 'OPEN'

-- name: close_idle
-- Note that sessions were idle for their time, a bounded number. Cross-tenant: the cleaner's.
with due as materialized (
    select s.tenant, s.session_id
    from sessions as s
    {standing}
    where s.state = 'OPEN'
      and s.expire_time <= :now::timestamptz
      and o.end_time <= c.at
      and not o.is_open
      and not o.is_awaited
    order by s.expire_time
    limit :count_max
    for update of s skip locked
),
closed as (
    update sessions as s
    set state = 'CLOSED', update_time = :now::timestamptz
    from due as d
    where num_nonnulls(d.tenant, d.session_id) = 2 and s.tenant = d.tenant and s.session_id = d.session_id
    returning s.session_id
)
select count(*) from closed

-- name: delete_closed
-- Forget sessions that were closed long ago and of whose runs none is left, a bounded number. Cross-tenant: the cleaner's.
with due as materialized (
    select s.tenant, s.session_id
    from sessions as s
    where s.state = 'CLOSED'
      and s.update_time <= :before::timestamptz
      and not exists (select from session_runs as r where r.tenant = s.tenant and r.session_id = s.session_id)
    order by s.update_time
    limit :count_max
    for update of s skip locked
),
gone as (
    delete from sessions as s
    using due as d
    where num_nonnulls(d.tenant, d.session_id) = 2 and s.tenant = d.tenant and s.session_id = d.session_id
    returning s.session_id
)
select count(*) from gone
