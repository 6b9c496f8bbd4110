-- name: create_table
-- The record of what was applied; made under the migration lock.
create table if not exists schema_migrations (
    version      integer primary key check (version > 0),
    name         text not null,
    kind         text not null check (kind in ('expand', 'contract')),
    checksum     text not null,
    applied_time timestamptz not null default statement_timestamp()
)

-- name: table_exists
-- Whether anything was ever applied.
select to_regclass('schema_migrations') is not null

-- name: list_applied
-- What was applied, in order.
select version, name, kind, checksum from schema_migrations order by version

-- name: record
-- Note a migration as applied, in its own tx.
insert into schema_migrations (version, name, kind, checksum)
values (:version, :name, :kind, :checksum)

-- name: lock
-- Let one process migrate this database at a time; waits as long as lock_timeout allows.
select pg_advisory_lock(:key)

-- name: feed_exists
-- Whether this schema has a feed.
select to_regclass('feed_epochs') is not null

-- name: open_feed_epoch
-- Begin another epoch of the feed if this is another place than where the newest one began.
select open_feed_epoch()
