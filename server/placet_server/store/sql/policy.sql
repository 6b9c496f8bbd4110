-- Policy sets by revision, the verdicts that actions name, and what was refused.

-- name: get_revisions
-- The newest revision of the operator's set and of a tenant's; null for none.
select
    (select max(revision) from policy_sets where tenant = '-') as operator,
    (select max(revision) from policy_sets where tenant = :tenant) as own

-- name: get_set
-- One revision; null: the newest.
select tenant, revision, encode(digest, 'hex') as digest, document, policy_count, admitted_by, restores,
    (extract(epoch from create_time) * 1000000)::bigint as create_time_us
from policy_sets
where tenant = :tenant
  and revision = coalesce(:revision::bigint, (select max(revision) from policy_sets where tenant = :tenant))

-- name: list_sets
-- A page of revisions without their documents, newest first.
select tenant, revision, encode(digest, 'hex') as digest, name, policy_count, admitted_by, restores,
    (extract(epoch from create_time) * 1000000)::bigint as create_time_us
from policy_sets
where tenant = :tenant and revision < :before
order by revision desc
limit :page_size

-- name: put_set
-- The revision after the one that was looked at; nothing if somebody was faster.
insert into policy_sets (tenant, revision, digest, document, name, policy_count, admitted_by, restores, create_time)
select :tenant, :after::bigint + 1, :digest, :document, :name, :policy_count, :admitted_by, :restores,
    coalesce(:now::timestamptz, statement_timestamp())
where :after = coalesce((select max(revision) from policy_sets where tenant = :tenant), 0)
on conflict do nothing
returning revision

-- name: drop_sets
-- What a tenant's newest revision is so far ahead of that nobody goes back to it.
delete from policy_sets where tenant = :tenant and revision <= :last

-- name: put_verdict
-- Once for all actions that name it, and now and then when it was used.
insert into verdicts (tenant, digest, document, use_time)
values (:tenant, :digest, :document, coalesce(:now::timestamptz, statement_timestamp()))
on conflict (tenant, digest) do update set use_time = excluded.use_time where verdicts.use_time < excluded.use_time - interval '10 minutes'

-- name: get_verdicts
-- By digest.
select encode(digest, 'hex') as digest, document from verdicts where tenant = :tenant and digest = any (:digests::bytea[])

-- name: put_refusal
-- One call that was refused; of an action that was to begin the last time.
insert into policy_refusals (tenant, refusal_id, create_time, capability, version, subject, caller, input_digest, parent, verdict)
values (:tenant, :refusal_id, coalesce(:now::timestamptz, statement_timestamp()), :capability, :version, :subject, :caller, :input_digest, :parent, :verdict)
on conflict (tenant, refusal_id) do update set create_time = excluded.create_time, verdict = excluded.verdict

-- name: get_refusal
-- One call that was refused.
select refusal_id, capability, version, subject, caller, encode(input_digest, 'hex') as input_digest, parent, verdict,
    (extract(epoch from create_time) * 1000000)::bigint as create_time_us
from policy_refusals
where tenant = :tenant and refusal_id = :refusal_id

-- name: drop_refusals
-- All but a tenant's newest, and those of actions, which go with them; of what is older a bounded part is looked at.
with old as materialized (
    select refusal_id from policy_refusals where tenant = :tenant order by refusal_id desc offset :kept limit 5000
),
due as materialized (
    select r.refusal_id
    from old as o
    join policy_refusals as r on r.tenant = :tenant and r.refusal_id = o.refusal_id
    where not exists (select from actions as a where a.tenant = r.tenant and a.action_id = r.refusal_id)
    for update of r skip locked
)
delete from policy_refusals as r
using due as d
where r.tenant = :tenant and r.refusal_id = d.refusal_id

-- name: list_inputs
-- What actions were asked to do, and by which capability's action, for who decides about them again.
select a.action_id, a.input, p.capability as parent
from unnest(:action_ids::uuid[]) as r(action_id)
join actions as a on a.tenant = :tenant and a.action_id = r.action_id
left join actions as p on p.tenant = a.tenant and p.action_id = a.parent_id
where num_nonnulls(r.action_id) = 1
