-- expand
--
-- What kind each capability is, beside its document: agents are listed, and told from what patterns cover, without a look into each. Made of the document,
-- so that a release that does not know of it writes it, too.
alter table capabilities
    add column kind text collate "C" not null generated always as (coalesce(document::jsonb ->> 'kind', 'TOOL')) stored;
