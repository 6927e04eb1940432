-- Returns the time before which ended rows of a kind are past their retention; null if they are kept for ever.
--
-- Whole hours: so a pass that removes what is past the cutoff finds something once an hour, and not a few rows each time.
-- Locks: nothing. For: the other functions.
create or replace function symphony.retention_cutoff(p_kept text)
  returns timestamptz
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return (
    select date_bin(interval '1 hour', now(), timestamptz '2001-01-01 00:00:00+00') - r.keep_days * interval '24 hours'
    from retention_policies r
    where r.kept = p_kept
    order by r.policy_no desc
    limit 1);
end
$$;

comment on function symphony.retention_cutoff(text) is 'The time before which rows of this kind are past their retention; null if they are kept for ever.';
