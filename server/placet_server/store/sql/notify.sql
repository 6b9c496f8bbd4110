-- Wake-ups between processes, on a session that does nothing else. Nothing is lost that is not also found by looking.

-- name: relax
-- Let the commits of this session not wait for the disk: there is nothing in them to keep.
select set_config('synchronous_commit', 'off', false)

-- name: send
-- Tell every process that listens on this database.
select pg_notify('placet', payload) from unnest(:payloads::text[]) as payload

-- name: has_others
-- Whether any other process is at work on this database.
select exists (select from instances where state = 'ALIVE' and boot_id <> :boot_id)
