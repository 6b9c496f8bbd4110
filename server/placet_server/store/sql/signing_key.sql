-- name: lock
-- One process makes the first key; the others wait for it, to the end of the tx.
select pg_advisory_xact_lock(7433, 8)

-- name: list_keys
-- All keys, the newest first.
select private_key from signing_keys order by create_time desc, key_id

-- name: put_key
-- A key more.
insert into signing_keys (key_id, private_key, create_time)
values (:key_id, :private_key, coalesce(:now::timestamptz, statement_timestamp()))
