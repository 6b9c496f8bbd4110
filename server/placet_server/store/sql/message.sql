-- Which message made which action: the rows that the migration of message_claims describes. They are written with the action, by action.sql.

-- name: attach
-- Take a message for an action that is there already, unless it was taken before.
insert into message_claims (tenant, subject, message_id, action_id, digest, expire_time)
values (
    :tenant, :subject, :message_id, :action_id::text::uuid, decode(:digest, 'hex'), 'epoch'::timestamptz + :expire_time_us::bigint * interval '1 microsecond'
)
on conflict do nothing

-- name: get
-- Who took it.
select action_id, encode(digest, 'hex') as digest from message_claims where tenant = :tenant and subject = :subject and message_id = :message_id

-- name: delete_expired
-- Forget messages that would not be accepted any more. Cross-tenant: the cleaner's.
with due as materialized (
    select tenant, subject, message_id from message_claims where expire_time <= :now::timestamptz order by expire_time limit :count_max for update skip locked
),
gone as (
    delete from message_claims as m
    using due as d
    where m.tenant = d.tenant and m.subject = d.subject and m.message_id = d.message_id
    returning m.message_id
)
select count(*) from gone
