-- expand
--
-- Whoever holds a session's resume token may hand the conversation on, once: it is burnt for the next one. Of tokens only SHA-256 is kept, and what of the
-- next one is not in the token before and in the key, so that a resend gets the same answer and nobody who reads this table gets any.
alter table sessions
    add column token_digest bytea,
    add column token_expire_time timestamptz,
    add column token_nonce bytea,
    -- Of the token that was burnt for this one, and of the key with which.
    add column burnt_digest bytea,
    add column burnt_key_digest bytea,
    add constraint sessions_tokens check (
        num_nonnulls(token_digest, token_expire_time, token_nonce) in (0, 3) and (burnt_digest is null) = (burnt_key_digest is null)
        and coalesce(length(token_digest), 32) = 32);
