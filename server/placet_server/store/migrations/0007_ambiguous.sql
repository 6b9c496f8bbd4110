-- expand
--
-- Effects that may have happened are found at once, however many actions have settled. A move into or out of AMBIGUOUS writes here; to any other
-- settle it costs the look at its predicate, as `state` already stands in that of actions_running.
create index actions_ambiguous on actions (tenant, action_id) where state = 'AMBIGUOUS';
