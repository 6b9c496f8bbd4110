-- Actions whose effect may have happened. Found by an index that holds nothing else, so that a settle never touches it.

-- part: may_act
-- Whether a lost attempt may still act: itself, or through what it has called, also where that has ended before what it called itself. What is tried again while it is in doubt has earlier ones, of which
-- none has more time than its contract gives.
(
    coalesce(
        greatest(
            s.deadline_us,
            case when s.effect_class = 'IDEMPOTENT' and s.attempt > 1 then (
                select s.start_time_us + (max((k.document::json #>> '{contract,limits,timeout_max_seconds}')::double precision) * 1000000)::bigint
                from capabilities as k
                where k.tenant in (s.tenant, '-') and k.name = s.capability and k.version = s.version
            ) end
        ) > (extract(epoch from coalesce(:now::timestamptz, statement_timestamp()) - make_interval(secs => :grace_seconds)) * 1000000)::bigint,
        false
    )
    or exists (
        with recursive below as (
            select l.tenant, l.action_id from lineage as l where l.tenant = s.tenant and l.parent_id = s.action_id
            union all
            select l.tenant, l.action_id from below as b join lineage as l on l.tenant = b.tenant and l.parent_id = b.action_id
        )
        select
        from below as b join actions as c on c.tenant = b.tenant and c.action_id = b.action_id
        where num_nonnulls(b.tenant, b.action_id) = 2 and (c.state || '') in ('QUEUED', 'RUNNING', 'WAITING', 'AMBIGUOUS')
    )
)

-- name: find
-- An action as a verdict on it looks at it: whether the lost attempt may still act, and what was said when the action last ended.
select
    s.*,
    (
        select e.body
        from events as e
        where e.tenant = s.tenant and e.action_id = s.action_id and e.type = 'settled'
        order by e.sequence desc
        limit 1
    ) as last_end,
    {may_act} as attempt_may_act
from action_records as s
where s.tenant = :tenant and s.action_id = :action_id

-- name: list_page
-- A page of ambiguous actions, oldest action first, each with when it became so; tenant NULL is every tenant's, the operator's.
select
    s.*,
    (
        select (extract(epoch from e.create_time) * 1000000)::bigint
        from events as e
        where e.tenant = s.tenant and e.action_id = s.action_id and e.type = 'ambiguous'
        order by e.sequence desc
        limit 1
    ) as since_time_us,
    {may_act} as attempt_may_act,
    coalesce(r.asked, 0) as asked, coalesce(r.finding, '') as finding,
    case when r.give_up_time is null then (extract(epoch from r.next_time) * 1000000)::bigint end as next_time_us
from (
    (
        select a.tenant, a.action_id
        from actions as a
        where a.state = 'AMBIGUOUS'
          and a.tenant = :tenant::text
          and a.action_id > :after
          and (cardinality(:capabilities::text[]) = 0 or a.capability = any (:capabilities::text[]))
        order by a.action_id
        limit :page_size
    )
    union all
    (
        select a.tenant, a.action_id
        from actions as a
        where a.state = 'AMBIGUOUS'
          and :tenant::text is null
          and a.action_id > :after
          and (cardinality(:capabilities::text[]) = 0 or a.capability = any (:capabilities::text[]))
        order by a.action_id
        limit :page_size
    )
) as d
join action_summaries as s on s.tenant = d.tenant and s.action_id = d.action_id
left join reconciles as r on r.tenant = d.tenant and r.action_id = d.action_id
order by s.action_id
