-- Returns the counter of the epoch that follows p_counter on a server with this timeline.
--
-- Two restores of one backup both continue from the same epoch. Their timelines differ, so their counters must differ
-- as well: otherwise the second would give out the numbers of the first again. Timelines rise, so the counter is at
-- least the timeline. A timeline over a million is no timeline of a real server and is left out.
-- Locks: nothing. For: number_epoch and advance_epoch.
create or replace function symphony.next_epoch(p_counter bigint, p_timeline int)
  returns bigint
  language sql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
  select greatest(coalesce(p_counter, 0) + 1, case when p_timeline <= 1000000 then p_timeline end)
$$;

comment on function symphony.next_epoch(bigint, int) is 'The counter of the epoch that follows another on a server with this timeline.';
