-- expand
--
-- What is COMPOSED, in the order in which it is listed: runs of agents are found among all that a tenant has ever called. Of everything else no row is in
-- it, and nothing in it changes as an action goes on. Tenant and predicate are expressions, so that no plan for one action takes it for the primary key:
-- only a query that says them alike may read it.
create index actions_composed on actions ((tenant || ''), action_id) where effect_class || '' = 'COMPOSED';
