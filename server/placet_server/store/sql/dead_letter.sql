-- Ended actions that nobody waits for: every EXHAUSTED one, and FAILED ones that were submitted. Their rows here come with the statements that end
-- them, in action.sql.
--
-- Lock order: the instance, the place in line, the action.

-- part: matching
-- Empty filters match all.
and (cardinality(:capabilities::text[]) = 0 or d.capability = any (:capabilities::text[]))
and (:queue::text is null or d.queue = :queue)
and (:reason::text is null or d.reason = :reason)

-- name: find
-- An action as a redrive looks at it: whether another one has taken its key over, whether an effect below it is ambiguous, what its last redrive
-- said, and whether its session has gone on without it. A child that would be tried again is looked below, too: there is no meeting what it has called, which would be called once more.
select
    s.*,
    s.idempotency_key <> '' and s.key_digest is null as key_is_taken,
    exists (
        with recursive below as (
            select l.tenant, l.action_id, false as is_deep from lineage as l where l.tenant = s.tenant and l.parent_id = s.action_id
            union all
            select l.tenant, l.action_id, true
            from below as b
            join actions as c on c.tenant = b.tenant and c.action_id = b.action_id
            join lineage as l on l.tenant = c.tenant and l.parent_id = c.action_id
            where (c.state || '') in ('FAILED', 'CANCELLED', 'EXHAUSTED', 'DENIED', 'REFUSED') and c.effect is distinct from 'DONE'
        )
        select
        from below as b join actions as c on c.tenant = b.tenant and c.action_id = b.action_id
        where num_nonnulls(b.tenant, b.action_id) = 2
          and ((c.state || '') = 'AMBIGUOUS' or (b.is_deep and (c.state || '') in ('QUEUED', 'RUNNING', 'WAITING') and c.effect is not null))
    ) as child_is_ambiguous,
    (
        select e.body
        from events as e
        where e.tenant = s.tenant and e.action_id = s.action_id and e.type = 'redriven'
        order by e.sequence desc
        limit 1
    ) as last_redrive,
    exists (
        select
        from session_runs as v join sessions as o on o.tenant = v.tenant and o.session_id = v.session_id
        where v.action_id = s.action_id and v.tenant = s.tenant and (
            o.state <> 'OPEN'
            or o.active_action_id is distinct from s.action_id
            -- It was idle for its time: `standing` in session.sql.
            or greatest(o.expire_time, timestamptz 'epoch' + s.settle_time_us * interval '1 microsecond' + o.idle)
                <= coalesce(:now::timestamptz, statement_timestamp()))
    ) as is_passed
from action_summaries as s
where s.tenant = :tenant and s.action_id = :action_id

-- name: redrive
-- Put an ended action back into line, as it was read, under a new generation, with its event. Never one whose effect is done or not known, nor one
-- whose key another action has taken over, nor a child, which its parent's redrive tries again. What is
-- COMPOSED finds again what its steps have done. The provider's deduplication counts anew: nothing of what was tried before took effect.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
again as (
    update actions as a
    set state = case when a.approval_id is null then 'QUEUED' else 'WAITING' end,
        approval_id = case when a.approval_id is not null then :approval_id::uuid end,
        lease_id = null,
        generation = coalesce(a.generation, 1) + 1,
        attempts_max = a.attempt + :attempts::integer,
        ready_time = c.at,
        budget_time = null,
        settle_time = null,
        cancel_requested_time = null,
        reason = null,
        cause = (select p.kind from approvals as p where p.tenant = a.tenant and p.approval_id = a.approval_id),
        message = null,
        failure_code = null,
        failure_category = null,
        retry_delay = null,
        key_released = false,
        effect = case when a.effect_class <> 'READ' then 'NOT_DONE' end,
        effect_begun = a.effect_class = 'COMPOSED' and a.effect_begun,
        effect_key_ttl = coalesce(a.effect_key_ttl, a.effect_key_expire_time - a.create_time),
        effect_key_expire_time = null,
        queue = coalesce(a.queue, :queue_default),
        priority = coalesce(a.priority, :priority_default),
        sequence = a.sequence + 1,
        receipt_digest = receipt(a.receipt_digest, a.action_id, a.sequence + 1, 'redriven', c.at, :event_body)
    from clock as c
    where a.tenant = :tenant
      and a.action_id = :action_id
      and a.sequence = :sequence
      and (a.state || '') in ('FAILED', 'CANCELLED', 'EXHAUSTED')
      and not a.effect_unknown
      and (a.effect is distinct from 'DONE' or a.effect_class = 'COMPOSED')
      and a.parent_id is null
      and (a.idempotency_key is null or a.key_digest is not null)
    returning a.*, c.at
),
again_event as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select tenant, action_id, sequence, 'redriven', at, :event_body, receipt_digest from again
),
ready as (
    insert into queue_ready (tenant, action_id, queue, capability, version, priority, ready_time, expire_time)
    select tenant, action_id, queue, capability, version, priority, at, at + queue_delay from again where state = 'QUEUED'
    on conflict do nothing
),
-- As it was asked for before: the same people, about the same bytes.
requested as (
    insert into approvals (
        tenant, approval_id, action_id, kind, state, digest, terms, capability, subject, title, summary, subjects, roles, groups, predecessor_id, difference,
        create_time, expire_time, escalate_time, next_time
    )
    select
        p.tenant, x.approval_id, p.action_id, p.kind, 'PENDING', p.digest, p.terms, p.capability, p.subject, p.title, p.summary, p.subjects, p.roles,
        p.groups, p.approval_id, 'It ended without an effect, and is to be tried again.',
        x.at, x.at + (p.expire_time - p.create_time), x.at + (p.escalate_time - p.create_time),
        x.at + least(p.expire_time - p.create_time, p.escalate_time - p.create_time)
    from again as x
    join approvals as p on p.tenant = x.tenant and p.approval_id = :former_id::uuid
    where x.state = 'WAITING'
    returning approval_id
),
buried as (
    delete from dead_letters as d using again as x where d.tenant = x.tenant and d.action_id = x.action_id
)
select action_id from again

-- name: list_page
-- A page of dead letters, newest action first; tenant NULL is every tenant's, the operator's.
select s.*
from (
    (
        select d.tenant, d.action_id
        from dead_letters as d
        where d.tenant = :tenant::text and d.action_id < :before
          {matching}
        order by d.action_id desc
        limit :page_size
    )
    union all
    (
        select d.tenant, d.action_id
        from dead_letters as d
        where :tenant::text is null and d.action_id < :before
          {matching}
        order by d.action_id desc
        limit :page_size
    )
) as d
join action_summaries as s on s.tenant = d.tenant and s.action_id = d.action_id
order by s.action_id desc

-- name: list_selected
-- The ids of a tenant's dead letters that match, oldest first.
select d.action_id
from dead_letters as d
where d.tenant = :tenant
  {matching}
order by d.action_id
limit :count_max
