-- What governing actions have changed. Rows go with their actions.

-- name: hold
-- In the tx of a change: the attempt that makes it has its lease, and keeps it until the end of the tx. Whoever settles or rescues the action comes
-- before this or after the change, never between.
select action_id
from actions
where tenant = :tenant and action_id = :action_id and lease_id = :lease_id and (state || '') = 'RUNNING'
for share

-- name: put
-- Say in the tx of a change that an action has made it.
insert into governed (tenant, action_id, output) values (:tenant, :action_id, :output)

-- name: get
-- What came of an action's change, if it was made.
select output from governed where tenant = :tenant and action_id = :action_id
