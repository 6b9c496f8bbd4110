-- name: read
-- Read from a table, not from memory alone.
select version from schema_migrations order by version desc limit 1

-- name: write
-- Commit a write that changes nothing anybody decides by; the real time, also when tests set the clock.
update instances set probe_time = statement_timestamp() where boot_id = :boot_id returning boot_id
