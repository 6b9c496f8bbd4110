-- expand
--
-- How many sessions somebody has open is found without those that were closed. Written so that no other index of sessions is thought as good.
create index sessions_open on sessions ((tenant || ''), subject, expire_time) where (state || '') = 'OPEN';
