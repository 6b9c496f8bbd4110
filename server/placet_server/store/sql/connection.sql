-- name: configure
-- Set session parameters; after the connection is made, as poolers refuse them as start parameters.
select set_config(key, value, false) from jsonb_each_text(:settings::jsonb)

-- name: mark
-- Leave a mark in the session and tell which server process holds it.
select set_config('placet.session_mark', :mark, false), pg_backend_pid()

-- name: read_mark
-- The session's mark and its server process.
select current_setting('placet.session_mark', true), pg_backend_pid()

-- name: identify
-- The server process of this connection, and since when it is that.
select pid, backend_start from pg_stat_get_activity(pg_backend_pid())

-- name: end_process
-- End the server process of another connection of ours, with whatever it is at, and wait for that: true if there is no such process any more.
select coalesce(
    (
        select pg_terminate_backend(p.pid, :wait_milliseconds::bigint)
        from pg_stat_get_activity(:pid::integer) as p
        where p.backend_start = :started::timestamptz
    ),
    true
)
