-- name: configure
-- Set session parameters; after the connection is made, as poolers refuse them as start parameters.
select set_config(key, value, false) from jsonb_each_text(:settings::jsonb)

-- name: mark
-- Leave a mark in the session and tell which server process holds it.
select set_config('placet.session_mark', :mark, false), pg_backend_pid()

-- name: read_mark
-- The session's mark and its server process.
select current_setting('placet.session_mark', true), pg_backend_pid()
