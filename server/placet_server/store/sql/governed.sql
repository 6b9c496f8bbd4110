-- What governing actions have changed. Rows go with their actions.

-- name: put
-- Say in the tx of a change that an action has made it.
insert into governed (tenant, action_id, output) values (:tenant, :action_id, :output)

-- name: get
-- What came of an action's change, if it was made.
select output from governed where tenant = :tenant and action_id = :action_id
