-- Tokens for who puts the first policies in force. Each is known by its digest alone.

-- name: put
-- Keep a fresh one, and forget those that nobody can use any more.
with clock as materialized (
    select coalesce(:now::timestamptz, statement_timestamp()) as at
),
gone as (
    delete from bootstrap_tokens as t using clock as c where t.expire_time <= c.at
)
insert into bootstrap_tokens (digest, create_time, expire_time)
select :digest, c.at, c.at + make_interval(secs => :ttl_seconds)
from clock as c

-- name: is_valid
-- It is not used, nor too old, and the operator has no policies, by whatever way.
select exists (
    select from bootstrap_tokens
    where digest = :digest and use_time is null and expire_time > coalesce(:now::timestamptz, statement_timestamp())
) and not exists (select from policy_sets where tenant = '-')

-- name: use
-- Use up all that there are, for one of them: of those who try at once one does.
with held as materialized (
    select digest
    from bootstrap_tokens
    where use_time is null and expire_time > coalesce(:now::timestamptz, statement_timestamp())
    order by digest
    for update
),
used as (
    update bootstrap_tokens as t
    set use_time = coalesce(:now::timestamptz, statement_timestamp())
    from held as h
    where t.digest = h.digest
    returning t.digest
)
select exists (select from used where digest = :digest)
