-- expand
-- Tokens that servers have written for who puts the first policies in force. A store lets one of them do so, once.
create table bootstrap_tokens (
    digest bytea primary key check (length(digest) = 32),
    create_time timestamptz not null,
    expire_time timestamptz not null,
    use_time timestamptz
);
