-- Resume tokens of sessions: 0035_session_tokens.sql.

-- name: get_token
-- What is kept of a session's resume token; for who has locked the session.
select
    coalesce(s.token_digest, '') as token_digest, coalesce(s.token_nonce, '') as token_nonce, coalesce(s.burnt_digest, '') as burnt_digest,
    coalesce(s.burnt_key_digest, '') as burnt_key_digest,
    coalesce(s.token_expire_time <= coalesce(:now::timestamptz, statement_timestamp()), true) as is_expired
from sessions as s
where s.tenant = :tenant and s.session_id = :session_id::uuid

-- name: burn_token
-- Another token instead of the one before; the session, which is locked, goes on.
update sessions
set token_digest = :digest::bytea,
    token_nonce = :nonce::bytea,
    token_expire_time = c.at + make_interval(secs => :seconds::double precision),
    burnt_digest = :burnt_digest::bytea,
    burnt_key_digest = :burnt_key_digest::bytea,
    update_time = c.at,
    expire_time = c.at + idle
from (select coalesce(:now::timestamptz, statement_timestamp()) as at) as c
where tenant = :tenant and session_id = :session_id::uuid
