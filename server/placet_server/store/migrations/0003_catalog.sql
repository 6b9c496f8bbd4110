-- expand
--
-- The catalogue: what each tenant may invoke. Tenant '-' is the server itself, whose names every tenant sees first.
-- One row of catalog_revisions per tenant is both the lock of an admission and what replicas poll: whoever changes the
-- tenant's catalogue holds it and raises it. Lock order: '-' before any other tenant. Versions of a capability live
-- side by side and are never deleted, since actions stay pinned to theirs; names compare by code point, so that pages
-- and prefixes follow the primary key.

create table catalog_revisions (
    tenant      text collate "C" primary key,
    revision    bigint not null check (revision >= 0),
    update_time timestamptz not null
);

create table manifests (
    tenant           text collate "C" not null references catalog_revisions (tenant),
    name             text collate "C" not null check (length(name) between 1 and 64),
    version          text not null check (length(version) <= 32),
    digest           bytea not null check (length(digest) = 32),
    document         text not null, -- RFC 8785
    capability_count integer not null check (capability_count between 1 and 256),
    create_time      timestamptz not null,
    update_time      timestamptz not null,
    admitted_by      text not null,
    constraint manifests_pkey primary key (tenant, name)
);

create table capabilities (
    tenant          text collate "C" not null,
    name            text collate "C" not null check (length(name) between 1 and 128),
    version         text collate "C" not null check (length(version) between 1 and 32),
    manifest        text collate "C" not null,
    contract_digest bytea not null check (length(contract_digest) = 32),
    document        text not null, -- RFC 8785
    current         boolean not null,
    create_time     timestamptz not null,
    admitted_by     text not null,
    constraint capabilities_pkey primary key (tenant, name, version),
    constraint capabilities_manifest_fkey foreign key (tenant, manifest) references manifests (tenant, name)
);

-- One version of a name is the one that invocations without a version get. The name leads, so that no plan can mistake
-- this index for the primary key.
create unique index capabilities_current on capabilities (name, tenant) where current;
