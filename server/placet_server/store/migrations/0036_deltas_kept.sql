-- expand
--
-- What the model of a run says is kept for a while, and then only what it has answered, which is in its entry. `said_time` is when the first answer was
-- written since the last time that this was looked at: null where there is nothing to take away. Set once in a while, so that the updates of the row which
-- come with each entry stay on its page.
alter table runs add column said_time timestamptz;

create index runs_said on runs (said_time) where said_time is not null;
