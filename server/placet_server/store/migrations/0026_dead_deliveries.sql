-- expand
--
-- What nobody was told of: counted, and shown to whoever asks what stopped, among all that was told.
create index deliveries_dead on deliveries (end_time) where state = 'DEAD';
