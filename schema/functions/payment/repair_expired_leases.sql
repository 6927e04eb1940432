-- Requeues rows whose lease has expired, because their worker has died or hangs.
--
-- Claims take over the expired leases that they meet in the same way. This function is for those that no claim meets:
-- on paused rails, on rails at their in-flight limit, and behind rows that became visible in front of them. One call
-- reads a bounded part of the queue, however long it is:
--
-- 1. The front of each rail's claim order, as many rows as payment_backlog counts. A leased row was due, so nearly
--    always it is there. If no rail has more due rows than were read, the call has seen every lease.
-- 2. Otherwise also the next 1024 pages of the table, from where the last call stopped (payment_repair_cursor), and from
--    the first page again after the last. A row under an expired lease does not move. So a sweep finds every expired
--    lease, in one call per 1024 pages of the table, and one more.
--
-- It also makes payments due that were enqueued while the clock was ahead, and unparks what a completion had to leave: see
-- make_future_rows_due and unpark_requested_rows.
--
-- A null p_max_rows reads all due rows. The ledger row has the lost worker and the time of its claim. Each lease is also
-- listed in the setting symphony.repaired_leases; see end_expired_leases.
-- Locks: the rows it repairs and the cursor, skipping what another session has locked; payment_rails in ROW SHARE mode.
-- Raises: P7005, 25000 outside READ COMMITTED. For: symphony_executor.
create or replace function symphony.repair_expired_leases(p_batch_size int, p_worker_id text, p_max_rows int default 10000)
  returns table (outbox_id uuid, attempt_no int, state symphony.outbox_attempt_state, next_attempt_at timestamptz, lost_worker text)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set enable_tidscan = on
as $$
#variable_conflict use_column
declare
  c_sweep_pages constant bigint := 1024;
  v_front       int;
  v_rail        text;
  v_seen        int;
  -- Whether a rail may have due rows behind those that were read.
  v_more        boolean := false;
  v_expired     tid[] := '{}';
  v_found       tid[];
  v_page        bigint;
begin
  perform check_range('p_batch_size', p_batch_size, 1, 1000);
  perform check_argument('p_worker_id', p_worker_id, 200);
  v_front := max_rows_per_rail(p_max_rows);
  perform check_isolation();
  -- Clear the list of an earlier call in this transaction.
  if current_setting('symphony.repaired_leases', true) <> '' then
    perform set_config('symphony.repaired_leases', '', true);
  end if;
  -- Keeps rail policies constant during the call; see lock_rail_policies.
  lock table payment_rails in row share mode;
  perform make_future_rows_due();
  perform unpark_requested_rows();

  for v_rail in select r.rail_type from payment_rails r order by r.rail_type loop
    select count(*), array_agg(w.row_id) filter (where w.lease_expires_at <= now())
    into v_seen, v_found
    from (
      select p.ctid as row_id, p.lease_expires_at
      from payment_outbox_pending p
      where p.rail_type = v_rail
        and not p.parked
        and p.next_attempt_at <= now()
      order by p.next_attempt_at, p.created_at
      limit v_front
    ) w;
    v_more := v_more or coalesce(v_seen = v_front, false);
    continue when v_found is null;
    v_expired := v_expired || array(
      select p.ctid
      from payment_outbox_pending p
      where p.ctid = any (v_found)
        and p.lease_expires_at <= now()
      limit p_batch_size - cardinality(v_expired)
      for no key update skip locked);
    exit when cardinality(v_expired) >= p_batch_size;
  end loop;

  if v_more and cardinality(v_expired) < p_batch_size then
    select c.next_page into v_page from payment_repair_cursor c for update skip locked;
    -- Without a row to lock, another call holds the cursor, and this one leaves the sweep to it. A lost row comes back.
    if not found and not exists (select from payment_repair_cursor) then
      insert into payment_repair_cursor as c default values on conflict do nothing returning c.next_page into v_page;
    end if;
    if v_page is not null then
      if v_page >= pg_relation_size('symphony.payment_outbox_pending') / current_setting('block_size')::int then
        v_page := 0;
      end if;
      v_found := array(
        select p.ctid
        from payment_outbox_pending p
        where p.ctid >= format('(%s,0)', v_page)::tid
          and p.ctid < format('(%s,0)', v_page + c_sweep_pages)::tid
          and p.lease_expires_at <= now()
          and p.ctid <> all (v_expired)
        limit p_batch_size - cardinality(v_expired)
        for no key update skip locked);
      v_expired := v_expired || v_found;
      update payment_repair_cursor c
      -- A full batch may have left leases behind in these pages: the next call goes over them again.
      set next_page = case when cardinality(v_expired) < p_batch_size then v_page + c_sweep_pages else v_page end;
    end if;
  end if;

  return query
    select r.outbox_id, r.attempt_no, r.state, r.next_attempt_at, r.worker_id
    from end_expired_leases(v_expired, p_worker_id, 1) r;
end
$$;

comment on function symphony.repair_expired_leases(int, text, int) is
  'Requeues rows whose lease has expired: each gets a ledger row, and is due again or has failed at max_attempts. One call reads a bounded part of the queue.';
