-- expand
--
-- Sessions that were closed long ago are found by when that was, however many there are.
create index sessions_closed on sessions (update_time) where state = 'CLOSED';
