-- expand
--
-- Where a manifest's capabilities run, if not in the server: in its document, too, which is not read to find it.
alter table manifests add column connector text;
create index manifests_connectors on manifests (name, tenant) where connector is not null;

-- What signs the tokens that connectors get: read by the servers' role alone, never by an RPC. The newest signs, all of them hold.
create table signing_keys (
    key_id text not null,
    private_key text not null,
    create_time timestamptz not null,
    constraint signing_keys_pkey primary key (key_id)
);
