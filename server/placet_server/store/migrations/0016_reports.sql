-- expand
--
-- What was found and done when somebody asked for recovery. A report is kept as it was told: `summary` is it without its entries, for lists.
create table reports (
    tenant      text        not null,   -- '-': of every tenant
    report_id   uuid        not null,
    create_time timestamptz not null,
    requester   text        not null,
    key_digest  bytea,                  -- ties resends of one request together
    summary     text        not null,
    document    text        not null,
    constraint reports_pkey primary key (tenant, report_id)
);
create unique index reports_key on reports (key_digest) where key_digest is not null;
