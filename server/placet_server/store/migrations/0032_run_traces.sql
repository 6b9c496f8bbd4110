-- expand
--
-- Where the spans of a traced run belong: its trace, the span that all its stretches are below, and the one of the newest stretch, to which the next is
-- linked. None: nobody traces it.
alter table runs
    add column trace text constraint runs_trace check (trace ~ '^[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{16}$');
