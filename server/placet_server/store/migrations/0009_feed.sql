-- expand
--
-- The feed of a tenant: the events of all its actions, in an order that a reader can follow from a cursor without missing any. `sequence` orders one
-- action; here the place of an event is (epoch, xid of the tx that wrote it, action, sequence).
--
-- Why nothing is skipped. A tx that began earlier may commit later. So a reader is told only of txs below the oldest one that still runs: nothing
-- that commits later can come before them. A tx that stays open holds the feed up; the server says for how long, and which backend it is.
--
-- Why epochs. An xid means something within one cluster. What a dump brings into another one keeps its xids, and what is written there begins low
-- again; a promoted standby may give an xid a second time. So a server that starts looks where it is, and opens another epoch if that is elsewhere.
-- Older epochs are over and wholly visible: a reader finishes one, and goes on with the next.
--
-- Why BRIN. Rows are stored in the order of their xids, so the range of xids of each few pages finds them. An insert costs it no page of an index and
-- no WAL; the tail that has no range yet is read whole, so readers have it summarized. Defaults fill the columns: no statement names them. What was
-- written before this migration has neither, and is in no feed.
alter table events add column written_xid bigint, add column feed_epoch smallint;
alter table events alter column written_xid set default (pg_current_xact_id()::text::bigint), alter column feed_epoch set default 1;
create index events_feed on events using brin (written_xid int8_minmax_ops) with (pages_per_range = 64, autosummarize = on);

create table feed_epochs (
    epoch             smallint    primary key,
    system_identifier bigint      not null,
    timeline          integer     not null,
    open_time         timestamptz not null,
    floor_xid         bigint      not null, -- the first that may have events
    last_xid          bigint                -- of an epoch that is over: none after it
);
insert into feed_epochs (epoch, system_identifier, timeline, open_time, floor_xid)
select 1, s.system_identifier, c.timeline_id, statement_timestamp(), pg_snapshot_xmin(pg_current_snapshot())::text::bigint
from pg_control_system() as s, pg_control_checkpoint() as c;

create function feed_epoch_is_current() returns boolean
    language sql stable as $$
    select (e.system_identifier, e.timeline) = (s.system_identifier, c.timeline_id)
    from pg_control_system() as s, pg_control_checkpoint() as c, (select * from feed_epochs order by epoch desc limit 1) as e
$$;

-- Who writes events waits meanwhile: all of the older epoch have their end, and none of the new one is written yet. Within the cluster that the older
-- epoch began in, its last xid is known; elsewhere its events say it.
create function open_feed_epoch() returns void
    language plpgsql security definer set search_path from current as $$
declare
    older feed_epochs;
    is_elsewhere boolean;
    reached bigint;
begin
    if feed_epoch_is_current() then
        return;
    end if;
    lock table events in access exclusive mode;
    if feed_epoch_is_current() then
        return; -- Another one was faster.
    end if;
    select * into older from feed_epochs order by epoch desc limit 1;
    select older.system_identifier <> s.system_identifier into is_elsewhere from pg_control_system() as s;
    if is_elsewhere then
        select coalesce(max(written_xid), older.floor_xid) into reached from events where feed_epoch = older.epoch;
    else
        reached := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
    end if;
    update feed_epochs as e set last_xid = reached where e.epoch = older.epoch;
    insert into feed_epochs (epoch, system_identifier, timeline, open_time, floor_xid)
    select older.epoch + 1, s.system_identifier, c.timeline_id, statement_timestamp(), pg_snapshot_xmin(pg_current_snapshot())::text::bigint
    from pg_control_system() as s, pg_control_checkpoint() as c;
    execute format('alter table events alter column feed_epoch set default %s', older.epoch + 1);
end
$$;

-- For roles that do not own the table, too. A vacuum of it does the same at its end, and is not to be disturbed.
create function summarize_feed() returns integer
    language plpgsql security definer set search_path from current set lock_timeout = '20ms' as $$
begin
    return brin_summarize_new_values('events_feed');
exception
    when lock_not_available then
        return 0;
end
$$;
