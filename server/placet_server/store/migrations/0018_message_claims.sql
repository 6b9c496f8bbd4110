-- expand
--
-- Which message made which action. A caller may give a message an id and a time; the id is taken in the tx that stores the action, so that whoever has
-- recorded the message and sends it again makes nothing new. A message is accepted only near its time, so a claim is kept no longer than that.
create table message_claims (
    tenant      text        not null,
    subject     text        not null, -- ids are the caller's own
    message_id  text        not null,
    action_id   uuid        not null,
    digest      bytea       not null, -- SHA-256 of what is asked for and its key
    expire_time timestamptz not null,
    constraint message_claims_pkey primary key (tenant, subject, message_id)
);
create index message_claims_expire on message_claims (expire_time);
