-- name: read_settings
-- What this session's commits go through. A role that may not see a standby's state still sees that there is one.
select
    current_setting('fsync') as fsync,
    current_setting('full_page_writes') as full_page_writes,
    current_setting('synchronous_commit') as synchronous_commit,
    current_setting('synchronous_standby_names') as synchronous_standby_names,
    (select count(*) from pg_stat_replication where coalesce(state, 'streaming') = 'streaming') as standby_count
