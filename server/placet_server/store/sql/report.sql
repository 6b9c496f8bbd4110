-- Reports of what was found and done when somebody asked for recovery, and what such a report looks at.

-- name: insert
-- Keep a report, unless one was made by the same request; of each tenant the newest are kept.
with old as (
    delete from reports as r
    using (
        select report_id from reports where tenant = :tenant order by report_id desc offset :kept_max limit 100
    ) as o
    where r.tenant = :tenant and r.report_id = o.report_id
)
insert into reports (tenant, report_id, create_time, requester, key_digest, summary, document)
values (:tenant, :report_id, 'epoch'::timestamptz + :create_time_us::bigint * interval '1 microsecond', :requester, :key_digest, :summary, :document)
on conflict do nothing

-- name: get
-- One report, whole.
select document from reports where tenant = :tenant and report_id = :report_id

-- name: get_by_key
-- The report that a request made; the digest of its key has the tenant and the requester in it.
select document from reports where key_digest = :key_digest

-- name: list_page
-- A page of reports without their entries, newest first.
select summary
from reports
where tenant = :tenant and report_id < :before
order by report_id desc
limit :page_size

-- name: list_lost
-- Running actions whose server is dead or silent, oldest first, each with how many there are; tenant NULL is every tenant's, the operator's.
with lost as materialized (
    select a.tenant, a.action_id
    from instances as i
    join actions as a on a.instance_id = i.boot_id and a.state = 'RUNNING'
    where (i.state = 'DEAD' or i.heartbeat_time + make_interval(secs => i.lease_seconds) < coalesce(:now::timestamptz, statement_timestamp()))
      and (:tenant::text is null or a.tenant = :tenant)
    order by a.action_id
    limit :scan_max
)
select s.*, (select count(*) from lost) as found
from lost as l
join action_summaries as s on s.tenant = l.tenant and s.action_id = l.action_id
order by s.action_id
limit :count_max

-- name: list_states
-- How actions stand now. Cross-tenant: of what was listed before.
select a.action_id, a.state
from unnest(:tenants::text[], :action_ids::uuid[]) as l(tenant, action_id)
join actions as a on a.tenant = l.tenant and a.action_id = l.action_id

-- name: count
-- How many effects are in doubt, and how many dead letters there are, up to a bound; tenant NULL is every tenant's, the operator's. And how many server
-- processes are alive, and how many of them silent for longer than their lease.
select
    (
        select count(*)
        from (select from actions where state = 'AMBIGUOUS' and (:tenant::text is null or tenant = :tenant) limit :count_max) as doubted
    ) as ambiguous,
    (
        select count(*)
        from (select from dead_letters where :tenant::text is null or tenant = :tenant limit :count_max) as dead
    ) as dead_letters,
    (select count(*) from instances where state = 'ALIVE') as processes,
    (
        select count(*)
        from instances
        where state = 'ALIVE'
          and heartbeat_time + make_interval(secs => lease_seconds) < coalesce(:now::timestamptz, statement_timestamp())
    ) as silent
