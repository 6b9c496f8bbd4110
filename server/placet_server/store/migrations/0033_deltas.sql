-- expand
--
-- What the model of a run says, and when the calls that it makes begin and end, is told in the lane of the attempt, as chunks are.
alter table lane_items drop constraint lane_items_type_check;
alter table lane_items add constraint lane_items_type_check check (type in ('chunk', 'progress', 'delta', 'tool_started', 'tool_finished')) not valid;
alter table lane_items validate constraint lane_items_type_check;
