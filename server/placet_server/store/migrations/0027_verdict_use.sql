-- expand
--
-- When what the policies said was last said of an action, give or take some hours: a verdict that no action names any more is deleted. Whoever believes one to be
-- stored says so again after an hour at most, so those whose time is a day ago are named by no action to come.
alter table verdicts add column use_time timestamptz not null default now();
create index verdicts_use on verdicts (use_time);
