-- expand
--
-- What a row of actions can never say, in one CHECK. Postgres reads, simplifies and compiles every CHECK of a table anew for each statement that
-- writes to it, which cost a statement that moves one row a quarter of its time; a function is compiled once per session. It is as strict as the
-- constraints it replaces, and never answers NULL, which a CHECK would take for true.
create function action_is_possible(
    state text, effect_class text, on_caller_gone text, attempt integer, attempts_max integer, effect text, effect_begun boolean, effect_unknown boolean,
    lease_id uuid, ready_time timestamptz, settle_time timestamptz, output text, reason text
) returns boolean
    language plpgsql immutable parallel safe as $$
begin
    if attempt < 1 or attempts_max < 1 or on_caller_gone not in ('CANCEL', 'DETACH') then
        return false;
    end if;

    if effect_class = 'READ' then
        if effect is not null or effect_begun or effect_unknown then
            return false;
        end if;
    elsif effect is null or effect not in ('NOT_DONE', 'DONE', 'UNKNOWN') or effect_class not in ('IDEMPOTENT', 'RECONCILABLE', 'UNSAFE') then
        return false;
    end if;

    -- The most frequent first.
    if state = 'RUNNING' then
        return lease_id is not null and num_nonnulls(settle_time, output, reason) = 0;
    elsif state = 'SUCCEEDED' then
        return num_nulls(lease_id, settle_time, output) = 0 and reason is null and not effect_unknown and (effect is null or effect = 'DONE');
    elsif state = 'FAILED' then
        return num_nulls(lease_id, settle_time, reason) = 0 and output is null and not effect_unknown and effect is distinct from 'UNKNOWN';
    elsif state in ('CANCELLED', 'EXHAUSTED') then
        return num_nulls(lease_id, settle_time, reason) = 0 and output is null and not effect_unknown and (effect is null or effect = 'NOT_DONE');
    elsif state = 'AMBIGUOUS' then
        return num_nulls(lease_id, reason) = 0 and num_nonnulls(settle_time, output) = 0 and effect_unknown and effect = 'UNKNOWN';
    elsif state = 'QUEUED' then
        return num_nonnulls(lease_id, settle_time, output, reason) = 0 and ready_time is not null and (not effect_unknown or effect = 'UNKNOWN');
    end if;
    return false;
end
$$;

-- Not validated: what is there has passed the constraints before, and reading a large table again would lock it for that long.
alter table actions
    drop constraint actions_effect_class_check,
    drop constraint actions_on_caller_gone_check,
    drop constraint actions_attempts_max_check,
    drop constraint actions_state_check,
    drop constraint actions_attempt_check,
    drop constraint actions_effect_check,
    drop constraint actions_lease,
    drop constraint actions_ready,
    drop constraint actions_settled,
    drop constraint actions_output,
    drop constraint actions_reason,
    drop constraint actions_truth,
    drop constraint actions_effect,
    drop constraint actions_read_has_no_effect,
    add constraint actions_possible check (action_is_possible(
        state, effect_class, on_caller_gone, attempt, attempts_max, effect, effect_begun, effect_unknown,
        lease_id, ready_time, settle_time, output, reason
    )) not valid;
