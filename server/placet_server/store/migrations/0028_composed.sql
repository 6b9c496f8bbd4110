-- expand
--
-- Actions that do nothing themselves: what they do are the actions that they call, each with a truth of its own. So one may be run again from its
-- start at any time: no attempt of it is in doubt. Its effect, once it has ended, is what was known of theirs then: anything, in every end.
create or replace function action_is_possible(
    state text, effect_class text, on_caller_gone text, attempt integer, attempts_max integer, effect text, effect_begun boolean, effect_unknown boolean,
    lease_id uuid, ready_time timestamptz, settle_time timestamptz, output text, reason text
) returns boolean
    language plpgsql immutable parallel safe as $$
begin
    if attempts_max < 1 or on_caller_gone not in ('CANCEL', 'DETACH')
        or (attempt < 1 and (attempt < 0 or effect_begun or effect_unknown
            or state not in ('QUEUED', 'WAITING', 'CANCELLED', 'EXHAUSTED', 'DENIED', 'REFUSED')))
    then
        return false;
    end if;

    if effect_class = 'READ' then
        if effect is not null or effect_begun or effect_unknown then
            return false;
        end if;
    elsif effect is null or effect not in ('NOT_DONE', 'DONE', 'UNKNOWN') or effect_class not in ('IDEMPOTENT', 'RECONCILABLE', 'UNSAFE') then
        -- The others are spared a look.
        if effect_class <> 'COMPOSED' or effect is null or effect not in ('NOT_DONE', 'DONE', 'UNKNOWN') or effect_unknown or state = 'AMBIGUOUS' then
            return false;
        elsif state in ('SUCCEEDED', 'FAILED', 'CANCELLED', 'EXHAUSTED', 'DENIED', 'REFUSED') then
            return num_nulls(lease_id, settle_time) = 0 and (output is null) = (state <> 'SUCCEEDED') and (reason is null) = (state = 'SUCCEEDED')
                and (attempt > 0 or effect = 'NOT_DONE');
        end if;
    end if;

    -- The most frequent first.
    if state = 'RUNNING' then
        return lease_id is not null and num_nonnulls(settle_time, output, reason) = 0;
    elsif state = 'SUCCEEDED' then
        return num_nulls(lease_id, settle_time, output) = 0 and reason is null and not effect_unknown and (effect is null or effect = 'DONE');
    elsif state = 'FAILED' then
        return num_nulls(lease_id, settle_time, reason) = 0 and output is null and not effect_unknown and effect is distinct from 'UNKNOWN';
    elsif state in ('CANCELLED', 'EXHAUSTED', 'DENIED', 'REFUSED') then
        return num_nulls(lease_id, settle_time, reason) = 0 and output is null and not effect_unknown and (effect is null or effect = 'NOT_DONE');
    elsif state = 'AMBIGUOUS' then
        return num_nulls(lease_id, reason) = 0 and num_nonnulls(settle_time, output) = 0 and effect_unknown and effect = 'UNKNOWN';
    elsif state = 'QUEUED' then
        return num_nonnulls(lease_id, settle_time, output, reason) = 0 and ready_time is not null and (not effect_unknown or effect = 'UNKNOWN');
    elsif state = 'WAITING' then
        return num_nonnulls(lease_id, settle_time, output, reason) = 0 and ready_time is not null and not effect_unknown
            and (effect is null or effect = 'NOT_DONE');
    end if;
    return false;
end
$$;
