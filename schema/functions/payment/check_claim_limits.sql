-- Checks the argument p_limits or p_followers: how many rows of each rail the calling worker can take.
--
-- It is a JSON object such as {"sepa": 12, "swift": 0}. A rail that it does not name gets nothing. Null sets no
-- limit for p_limits, and allows no followers for p_followers.
-- Locks: nothing. Raises: P7005. For: claim_outbox_batch and next_outbox_due.
create or replace function symphony.check_claim_limits(p_limits jsonb, p_name text default 'p_limits')
  returns void
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if jsonb_typeof(p_limits) <> 'object'
     or jsonb_path_exists(p_limits, '$.* ? (@.type() != "number" || @ < 0 || @ > 1000000 || @.floor() != @)') then
    raise exception '% must be a JSON object whose values are whole numbers from 0 to 1000000', p_name
      using errcode = 'P7005',
            hint = 'Give the free capacity of each rail, such as {"sepa": 12, "swift": 0}.';
  end if;
end
$$;

comment on function symphony.check_claim_limits(jsonb, text) is
  'Raises P7005 unless the argument is null or a JSON object of rails and their free capacity.';
