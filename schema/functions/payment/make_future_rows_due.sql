-- Makes payments due that were enqueued while the clock was ahead, and returns how many.
--
-- A new payment is due when it is enqueued, by the clock. When a clock that was an hour ahead has been set back, claims
-- would not see it for an hour. Its outbox_id, a UUIDv7, has the time of its enqueue, so such rows are the last ones of the primary
-- key: if there is none, the call reads one page. A row that was scheduled for another reason keeps its time, which differs
-- from created_at. One whose producer named a time that had passed by that clock is due at that time. At most 1,000 per call. A
-- difference of up to five seconds is left to time.
-- Locks: the rows it changes, skipping rows that another session has locked. For: repair_expired_leases.
create or replace function symphony.make_future_rows_due()
  returns bigint
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
as $$
declare
  v_rows tid[];
begin
  v_rows := array(
    select p.ctid
    from payment_outbox_pending p
    where p.outbox_id > uuidv7_lower_bound(now() + interval '5 seconds')
      and p.next_attempt_at = p.created_at
      and p.next_attempt_at > greatest(now(), p.not_before)
      and p.lease_token is null
    order by p.outbox_id
    limit 1000
    for no key update skip locked);
  if cardinality(v_rows) = 0 then
    return 0;
  end if;
  update payment_outbox_pending p
  set next_attempt_at = greatest(now(), p.not_before)
  where p.ctid = any (v_rows);
  return cardinality(v_rows);
end
$$;

comment on function symphony.make_future_rows_due() is
  'Makes payments due that were enqueued while the clock was ahead, and returns how many.';
