-- What waits for people, and their votes, as 0017_approvals.sql describes them. What admits an action with its approval is in action.sql: submit_waiting.
--
-- Lock order: the instance, places in line (ready, then delayed), the action, its approval.

-- part: record
-- An approval, as it is read.
tenant, approval_id, action_id, kind, state, encode(digest, 'hex') as digest, terms, capability, title, summary, predecessor_id, difference,
(extract(epoch from create_time) * 1000000)::bigint as create_time_us, (extract(epoch from expire_time) * 1000000)::bigint as expire_time_us,
(extract(epoch from escalate_time) * 1000000)::bigint as escalate_time_us, escalated,
(extract(epoch from consume_time) * 1000000)::bigint as consume_time_us, (extract(epoch from end_time) * 1000000)::bigint as end_time_us, revision,
claimed_by, (extract(epoch from claim_expire_time) * 1000000)::bigint as claim_expire_time_us

-- name: get
-- One approval.
select {record} from approvals where tenant = :tenant and approval_id = :approval_id

-- name: list_by_ids
-- Some of a tenant's approvals.
select {record} from approvals where tenant = :tenant and approval_id = any (:approval_ids::uuid[])

-- name: list_decisions
-- The votes on some of a tenant's approvals, oldest first.
select
    approval_id, decision_id, voter, verdict, reason, ticket, attachments, suggested_input, answer, roles, groups,
    (extract(epoch from create_time) * 1000000)::bigint as create_time_us, (extract(epoch from revoke_time) * 1000000)::bigint as revoke_time_us
from approval_decisions
where tenant = :tenant and approval_id = any (:approval_ids::uuid[])
order by approval_id, create_time, decision_id

-- part: looked
-- What is looked at of each: where it stands in the order, and whether it matches. Empty filters match all.
approval_id, expire_time,
    (cardinality(:states::text[]) = 0 or state = any (:states::text[]))
    and (cardinality(:capabilities::text[]) = 0 or capability = any (:capabilities::text[]))
    and (:requester::text is null or subject = :requester)
    and (
        not :eligible_only::boolean or :voter::text = any (subjects) or roles && :voter_roles::text[] or groups && :voter_groups::text[]
    ) as matches

-- part: scanned
-- From a place in the order on.
and (expire_time, approval_id) > ('epoch'::timestamptz + :after_us::bigint * interval '1 microsecond', :after_id::uuid)
order by expire_time, approval_id
limit :scan_max

-- part: page
-- How far was looked, and what of it matches: only what is on the page is read whole.
page as (
    select approval_id from scanned where matches order by expire_time, approval_id limit :page_size
),
far as (
    select (select count(*) from scanned) as scanned_count, (extract(epoch from l.expire_time) * 1000000)::bigint as last_us, l.approval_id as last_id
    from (select 1) as once
    left join (select expire_time, approval_id from scanned order by expire_time desc, approval_id desc limit 1) as l on true
)

-- part: told
-- The approvals of the page, each with how far was looked; one row without an approval if there is none.
select m.*, f.scanned_count, f.last_us, f.last_id
from far as f
left join whole as m on true
order by m.expire_time_us, m.approval_id

-- name: list_pending
-- A page of what is pending, soonest expiry first: at most scan_max rows are looked at, the last of them is told even if it does not match.
with scanned as materialized (
    select {looked} from approvals where tenant || '' = :tenant and state = 'PENDING' {scanned}
),
{page},
whole as (
    select {record} from approvals where tenant = :tenant and approval_id = any (array(select approval_id from page))
)
{told}

-- name: list
-- The same of approvals in whatever state.
with scanned as materialized (
    select {looked} from approvals where tenant || '' = :tenant {scanned}
),
{page},
whole as (
    select {record} from approvals where tenant = :tenant and approval_id = any (array(select approval_id from page))
)
{told}

-- name: list_of_action
-- The same of all that one action needed.
with scanned as materialized (
    select {looked} from approvals where action_id = :action_id::uuid and tenant || '' = :tenant {scanned}
),
{page},
whole as (
    select {record} from approvals where tenant = :tenant and approval_id = any (array(select approval_id from page))
)
{told}

-- name: lock_action
-- An action with its places in line, locked until the tx ends, and the time.
with line as materialized (
    select 1 from queue_ready where tenant = :tenant and action_id = :action_id for update
),
later as materialized (
    select 1 from queue_delayed where tenant = :tenant and action_id = :action_id for update
),
held as materialized (
    select tenant, action_id
    from actions
    where (select count(*) from line) + (select count(*) from later) >= 0 and tenant = :tenant and action_id = :action_id
    for update
)
select action_id from held

-- name: lock
-- One approval, locked until the tx ends. Its action is locked by this tx already.
select {record} from approvals where tenant = :tenant and approval_id = :approval_id for update

-- name: now
-- The time, asked for once everything is locked.
select coalesce(:now::timestamptz, statement_timestamp())

-- name: insert_decision
-- Keep a vote.
insert into approval_decisions (
    tenant, approval_id, decision_id, voter, verdict, reason, ticket, attachments, suggested_input, answer, roles, groups, create_time
)
values (
    :tenant, :approval_id, :decision_id, :voter, :verdict, :reason, :ticket, :attachments, :suggested_input, :answer, :roles, :groups, :now
)

-- name: revoke_decision
-- Say of a vote that it was taken back.
update approval_decisions set revoke_time = :now
where tenant = :tenant and approval_id = :approval_id and decision_id = :decision_id and revoke_time is null

-- name: note
-- Tell something in the life of an action that does not move by it.
with noted as (
    update actions as a
    set sequence = a.sequence + 1,
        receipt_digest = receipt(a.receipt_digest, a.action_id, a.sequence + 1, :event_type, :now::timestamptz, :event_body)
    where a.tenant = :tenant and a.action_id = :action_id and a.sequence = :sequence
    returning a.tenant, a.action_id, a.sequence, a.receipt_digest
)
insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
select tenant, action_id, sequence, :event_type, :now::timestamptz, :event_body, receipt_digest from noted

-- name: queue_action
-- Make a waiting action ready, as it was locked, with its event and its place in line, and its retry budget without the time that people took.
with queued as (
    update actions as a
    set state = 'QUEUED',
        cause = null,
        ready_time = greatest(a.ready_time, :now::timestamptz),
        budget_time = 'epoch'::timestamptz + :budget_time_us::bigint * interval '1 microsecond',
        sequence = a.sequence + 1,
        receipt_digest = receipt(a.receipt_digest, a.action_id, a.sequence + 1, :event_type, :now::timestamptz, :event_body)
    where a.tenant = :tenant
      and a.action_id = :action_id
      and a.sequence = :sequence
      and (a.state || '') = 'WAITING'
      and a.cancel_requested_time is null
    returning a.*
),
queued_event as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select tenant, action_id, sequence, :event_type, :now::timestamptz, :event_body, receipt_digest from queued
),
ready as (
    insert into queue_ready (tenant, action_id, queue, capability, version, priority, ready_time, expire_time)
    select tenant, action_id, queue, capability, version, priority, ready_time, 'epoch'::timestamptz + :expire_time_us::bigint * interval '1 microsecond'
    from queued
    where ready_time <= :now::timestamptz
    on conflict do nothing
),
delayed as (
    insert into queue_delayed (tenant, action_id, queue, capability, version, priority, ready_time, expire_time)
    select tenant, action_id, queue, capability, version, priority, ready_time, 'epoch'::timestamptz + :expire_time_us::bigint * interval '1 microsecond'
    from queued
    where ready_time > :now::timestamptz
    on conflict do nothing
)
select action_id from queued

-- name: grant
-- Enough people have said yes.
update approvals
set state = 'GRANTED', end_time = :now, next_time = least(expire_time, :now + interval '1 minute'), revision = revision + 1
where tenant = :tenant and approval_id = :approval_id and state || '' = 'PENDING' and expire_time > :now

-- name: end
-- An open approval has ended otherwise.
update approvals set state = :state, end_time = :now, next_time = null, revision = revision + 1
where tenant = :tenant and approval_id = :approval_id and state || '' in ('PENDING', 'GRANTED') and consume_time is null

-- name: touch
-- A vote was cast or taken back that leaves it pending.
update approvals set revision = revision + 1 where tenant = :tenant and approval_id = :approval_id and state || '' = 'PENDING'

-- name: consume
-- Begin a running action under its approval, by its lease: whether it holds the lease, and whether it may begin.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
held as materialized (
    select tenant, action_id, approval_id
    from actions
    where tenant = :tenant and action_id = :action_id and lease_id = :lease_id and (state || '') = 'RUNNING'
    for update
),
consumed as (
    update approvals as p
    set consume_time = coalesce(p.consume_time, c.at),
        next_time = null,
        revision = p.revision + case when p.consume_time is null then 1 else 0 end
    from held as h cross join clock as c
    where num_nonnulls(h.tenant, h.approval_id) = 2
      and p.tenant = h.tenant
      and p.approval_id = h.approval_id
      and p.action_id = h.action_id
      and p.state || '' = 'GRANTED'
      and (p.consume_time is not null or p.expire_time > c.at)
    returning p.approval_id
)
select exists (select from held) as is_held, exists (select from consumed) as is_consumed

-- name: fence
-- Take its lease away from an attempt that was lost before it began, as it was locked: it may not begin any more, and nothing was done by it.
update actions as a set lease_id = :new_lease_id, effect_begun = false
where a.tenant = :tenant
  and a.action_id = :action_id
  and a.lease_id = :lease_id
  and a.sequence = :sequence
  and (a.state || '') = 'RUNNING'
  and not a.effect_unknown

-- name: claim_due
-- What somebody has to look at: it has expired, more people are to be told, or its action was cancelled. For so long nobody else is told of it, so that
-- servers share what is due; what somebody holds right now is passed over. Cross-tenant: the expirer's.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
due as materialized (
    select p.tenant, p.approval_id
    from approvals as p
    where p.next_time <= coalesce(:now::timestamptz, statement_timestamp())
    order by p.next_time
    limit :count_max
    for update skip locked
)
update approvals as p
set next_time = c.at + make_interval(secs => :seconds::double precision)
from due as d cross join clock as c
where num_nonnulls(d.tenant, d.approval_id) = 2 and p.tenant = d.tenant and p.approval_id = d.approval_id
returning p.tenant, p.approval_id, p.action_id

-- name: escalate
-- More people are told of a pending one.
update approvals set escalated = true, next_time = expire_time, revision = revision + 1
where tenant = :tenant and approval_id = :approval_id and state || '' = 'PENDING' and not escalated

-- name: look_again
-- Nothing is to be done about it now: when it is to be looked at again. A granted one before it expires, ever more seldom: its action may end without
-- having begun.
update approvals
set next_time = least(
    case when state = 'PENDING' and not escalated and escalate_time > :now::timestamptz then escalate_time end,
    case when state = 'GRANTED' then :now::timestamptz + greatest(interval '1 minute', :now::timestamptz - end_time) end,
    case when expire_time > :now::timestamptz then expire_time else :now::timestamptz + interval '5 seconds' end)
where tenant = :tenant and approval_id = :approval_id and next_time is not null

-- name: put_off
-- What cannot be looked at now: when somebody is to try again.
update approvals set next_time = coalesce(:now::timestamptz, statement_timestamp()) + interval '1 minute'
where tenant = :tenant and approval_id = :approval_id and next_time is not null

-- name: count_pending
-- How many wait for people, counted up to a bound. Cross-tenant: the expirer's.
select count(*) from (select from approvals where state = 'PENDING' limit :count_max) as p

-- name: list_open
-- What waits for people, or was granted and has not begun, soonest expiry first, each with how many there are; tenant NULL is every tenant's, the
-- operator's.
with open as materialized (
    select tenant, approval_id, expire_time
    from approvals
    where state in ('PENDING', 'GRANTED') and consume_time is null and (:tenant::text is null or tenant = :tenant)
    order by expire_time
    limit :scan_max
)
select {record}, (select count(*) from open) as found
from approvals
where (tenant, approval_id) in (select tenant, approval_id from open order by expire_time limit :count_max)
order by expire_time

-- name: list_below
-- Open waits of what an action has called, soonest expiry first, each with its steps from that action on. So many of what is below are looked at, those
-- nearest to the action; no more of them are searched for.
with recursive below as (
    select l.tenant, l.action_id, l.step || case when l.number > 1 then '#' || l.number else '' end as path
    from lineage as l
    where l.tenant = :tenant and l.parent_id = :action_id
    union all
    select l.tenant, l.action_id, b.path || '/' || l.step || case when l.number > 1 then '#' || l.number else '' end
    from below as b join lineage as l on l.tenant = b.tenant and l.parent_id = b.action_id
)
select b.path, p.kind, p.approval_id, p.action_id, p.title, (extract(epoch from p.expire_time) * 1000000)::bigint as expire_time_us
from (select * from below limit :below_max) as b
join actions as a on a.tenant = b.tenant and a.action_id = b.action_id
join approvals as p on p.tenant = a.tenant and p.approval_id = a.approval_id
where num_nonnulls(b.tenant, b.action_id) = 2 and (a.state || '') = 'WAITING' and p.state || '' = 'PENDING'
order by p.expire_time, p.approval_id
limit :count_max

-- name: find_answer
-- What somebody answered to the question that an action is, as it was asked last, and may be used.
select d.answer
from actions as a
join approvals as p on p.tenant = a.tenant and p.approval_id = a.approval_id
join approval_decisions as d on d.tenant = p.tenant and d.approval_id = p.approval_id
where a.tenant = :tenant
  and a.action_id = :action_id
  and p.kind = 'INPUT'
  and p.state || '' = 'GRANTED'
  and d.verdict = 'ANSWER'
  and d.revoke_time is null

-- name: claim
-- Say who is looking at a pending approval, unless somebody else does.
update approvals as p
set claimed_by = :subject, claim_expire_time = least(p.expire_time, c.at + make_interval(secs => :seconds))
from (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
where p.tenant = :tenant
  and p.approval_id = :approval_id
  and p.state || '' = 'PENDING'
  and p.expire_time > c.at
  and (p.claimed_by is null or p.claimed_by = :subject or p.claim_expire_time <= c.at)

-- name: release
-- Take back that somebody is looking at it.
update approvals set claimed_by = null, claim_expire_time = null
where tenant = :tenant and approval_id = :approval_id and claimed_by = :subject
