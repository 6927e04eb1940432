-- Returns where the ledger's partition of a time starts, or the partition p_periods later: Monday, 00:00 UTC.
--
-- The length of a partition is stated here and nowhere else.
-- Locks: nothing. For: extend_ledger_at.
create or replace function symphony.ledger_partition_start(p_at timestamptz, p_periods int)
  returns timestamptz
  language sql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
  -- Hours, because a day has 23 or 25 of them where the session's time zone changes. 2001-01-01 was a Monday.
  select date_bin(interval '168 hours', p_at, timestamptz '2001-01-01 00:00:00+00') + p_periods * interval '168 hours'
$$;

comment on function symphony.ledger_partition_start(timestamptz, int) is
  'Where the ledger''s partition of a time starts, or the partition so many periods later.';
