-- Manifests and capabilities. Lock order: the revision of '-', then the tenant's; both before any row below them.

-- name: create_revision
-- Make the row that is locked and polled, if the tenant has none.
insert into catalog_revisions (tenant, revision, update_time)
values (:tenant, 0, coalesce(:now::timestamptz, statement_timestamp()))
on conflict do nothing

-- name: lock_revision
-- Be the only one to change the tenant's catalogue until the end of the tx.
select revision from catalog_revisions where tenant = :tenant for update

-- name: share_revision
-- Let nobody change the tenant's catalogue until the end of the tx.
select revision from catalog_revisions where tenant = :tenant for share

-- name: raise_revision
-- Tell every replica that the tenant's catalogue has changed.
update catalog_revisions
set revision = revision + 1, update_time = coalesce(:now::timestamptz, statement_timestamp())
where tenant = :tenant
returning revision

-- name: get_revision
-- The revision of one tenant.
select revision from catalog_revisions where tenant = :tenant

-- name: get_manifest
-- One manifest of one owner.
select tenant, name, version, digest, document, capability_count, (extract(epoch from update_time) * 1000000)::bigint as update_time_us
from manifests
where tenant = :tenant and name = :name

-- name: put_manifest
-- Store a manifest in place of the one before.
insert into manifests
    (tenant, name, version, digest, document, capability_count, connector, create_time, update_time, admitted_by)
select :tenant, :name, :version, :digest, :document, :capability_count, :connector, at, at, :admitted_by
from (select coalesce(:now::timestamptz, statement_timestamp()) as at) as clock
on conflict on constraint manifests_pkey do update
set version = excluded.version,
    digest = excluded.digest,
    document = excluded.document,
    capability_count = excluded.capability_count,
    connector = excluded.connector,
    update_time = excluded.update_time,
    admitted_by = excluded.admitted_by

-- name: list_manifests
-- A page by name: the tenant's and the server's own, which hide others of their name.
select m.tenant, m.name, m.version, m.digest, m.capability_count
from manifests m
where m.tenant in ('-', :tenant)
  and m.name > :after_name
  and (m.tenant = '-' or not exists (select from manifests o where o.tenant = '-' and o.name = m.name))
order by m.name
limit :count_max

-- name: list_connectors
-- Cross-tenant, for whoever dials: every manifest with a connector, without its capabilities.
select tenant, name, digest, connector
from manifests
where connector is not null
order by tenant, name

-- name: list_versions
-- Every version that a manifest has, or had, and its contract digest.
select name, version, contract_digest
from capabilities
where tenant = :tenant and manifest = :manifest

-- name: list_named
-- Owner and contract digest of every version of the given names.
select name, version, manifest, contract_digest, withdraw_time is not null as is_withdrawn, withdrawals
from capabilities
where tenant = :tenant and name = any (:names::text[])

-- name: clear_current
-- Let no capability of a manifest be current.
update capabilities set current = false
where tenant = :tenant and manifest = :manifest and current

-- name: put_capabilities
-- Store the versions of a manifest; those known already get its presentation and keep their contract, and what was withdrawn is back.
insert into capabilities
    (tenant, name, version, manifest, contract_digest, document, current, create_time, admitted_by)
select :tenant, item.name, item.version, :manifest, item.contract_digest, item.document, item.current,
       coalesce(:now::timestamptz, statement_timestamp()), :admitted_by
from unnest(:names::text[], :versions::text[], :digests::bytea[], :documents::text[], :currents::boolean[])
     as item (name, version, contract_digest, document, current)
order by item.name, item.version
on conflict on constraint capabilities_pkey do update
set document = excluded.document,
    current = excluded.current,
    withdraw_time = null,
    withdrawn_by = null,
    withdraw_reason = null
where capabilities.contract_digest = excluded.contract_digest and capabilities.manifest = excluded.manifest

-- name: get_capability
-- One version of a name.
select tenant, name, version, manifest, contract_digest, document, current, withdraw_time is not null as is_withdrawn
from capabilities
where tenant = :tenant and name = :name and version = :version

-- name: get_current_capability
-- The version that invocations without one get.
select tenant, name, version, manifest, contract_digest, document, current, withdraw_time is not null as is_withdrawn
from capabilities
where tenant = :tenant and name = :name and current

-- name: list_capabilities
-- A page by name and version: the tenant's and the server's own, which hide others of their name.
select c.tenant, c.name, c.version, c.manifest, c.contract_digest, c.document, c.current, c.withdraw_time is not null as is_withdrawn
from capabilities c
where c.tenant in ('-', :tenant)
  and (c.name, c.version) > (:after_name::text collate "C", :after_version::text collate "C")
  and starts_with(c.name, :name_prefix)
  and c.name >= :name_prefix::text collate "C"
  and (:kind::text is null or c.kind = :kind)
  and (c.tenant = '-' or not exists (select from capabilities o where o.tenant = '-' and o.name = c.name))
order by c.name, c.version
limit :count_max

-- name: list_for_policies
-- A page, by owner, name and version, of what policies of a tenant can be about: its own and the server's. Cross-tenant for the operator's policies,
-- which are about everybody's.
select tenant, name, version, manifest, contract_digest, document, current, withdraw_time is not null as is_withdrawn
from capabilities
where (:tenant = '-' or tenant in ('-', :tenant))
  and (tenant, name, version) > (:after_tenant::text collate "C", :after_name::text collate "C", :after_version::text collate "C")
order by tenant, name, version
limit :count_max

-- name: list_chosen
-- Versions in service of the given names, as a tenant calls them: its own and the server's, which hide others of their name.
select c.tenant, c.manifest, c.name, c.version, c.current, c.kind
from capabilities c
where c.tenant in ('-', :tenant) and c.name = any (:names::text[]) and c.withdraw_time is null
  and (c.tenant = '-' or not exists (select from capabilities o where o.tenant = '-' and o.name = c.name))

-- name: list_stems
-- Those stems ("orders.") that names of capabilities in service begin with, of a tenant or the server's own, but for agents.
select stem
from unnest(:stems::text[]) as asked (stem)
where exists (
    select from capabilities c
    -- A stem ends in a dot, and what comes after a dot is a slash.
    where c.tenant in ('-', :tenant) and c.name > asked.stem and c.name < left(asked.stem, -1) || '/'
      and c.withdraw_time is null and c.kind <> 'AGENT'
)

-- name: withdraw
-- Take versions of a name out of service; those that were so already are left alone.
update capabilities
set withdraw_time = coalesce(:now::timestamptz, statement_timestamp()),
    withdrawn_by = :withdrawn_by,
    withdraw_reason = :reason,
    withdrawals = withdrawals + 1
where tenant = :tenant and name = :name and version = any (:versions::text[]) and withdraw_time is null

-- name: count_open
-- What has not ended of versions of a name: waits for people, waits in line, runs.
select
    (
        select count(*)
        from approvals as p
        join actions as a on a.tenant = p.tenant and a.action_id = p.action_id
        where p.tenant || '' = :tenant and p.state = 'PENDING' and p.capability = :name
          and a.version = any (:versions::text[]) and a.state = 'WAITING'
    ) as waiting,
    (
        select count(*)
        from (
            select from queue_ready where tenant = :tenant and capability = :name and version = any (:versions::text[])
            union all
            select from queue_delayed where tenant = :tenant and capability = :name and version = any (:versions::text[])
        ) as placed
    ) as queued,
    (
        select count(*)
        from actions
        where state = 'RUNNING' and tenant = :tenant and capability = :name and version = any (:versions::text[])
    ) as running

-- name: list_withdrawn
-- What stands in line for a version that was withdrawn, looked up in each queue. Cross-tenant: the sweep's.
with recursive gone as materialized (
    select tenant collate "default" as tenant, name collate "default" as name, version collate "default" as version
    from capabilities
    where withdraw_time is not null
),
line as (
    (select queue from queue_ready where exists (select from gone) order by queue limit 1)
    union all
    select n.queue
    from line as l
    cross join lateral (select q.queue from queue_ready as q where q.queue > l.queue order by q.queue limit 1) as n
)
select s.*
from (
    select q.tenant, q.action_id
    from gone as g
    cross join line as l
    cross join lateral (
        select r.tenant, r.action_id
        from queue_ready as r
        where r.queue = l.queue and r.capability = g.name and r.version = g.version and r.tenant = g.tenant
        limit :count_max
    ) as q
    limit :count_max
) as e
join action_summaries as s on s.tenant = e.tenant and s.action_id = e.action_id
where num_nonnulls(e.tenant, e.action_id) = 2
