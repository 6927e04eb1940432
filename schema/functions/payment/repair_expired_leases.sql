-- Requeues rows whose lease has expired, because their worker has died or hangs.
--
-- Claims take over the expired leases that they meet in the same way. This function is for those that no claim meets:
-- on paused rails and on rails at their in-flight limit. It reads the claim order, because a leased row was due and is
-- at its front. The ledger row has the lost worker and the time of its claim. Each lease is also listed in the setting
-- symphony.repaired_leases; see end_expired_leases.
-- Locks: the rows it repairs, skipping rows that another session has locked; payment_rails in ROW SHARE mode.
-- Raises: P7005, 25000 outside READ COMMITTED. For: symphony_executor.
create or replace function symphony.repair_expired_leases(p_batch_size int, p_worker_id text)
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
as $$
#variable_conflict use_column
declare
  v_rail     text;
  v_expired  tid[] := '{}';
begin
  perform check_range('p_batch_size', p_batch_size, 1, 1000);
  perform check_argument('p_worker_id', p_worker_id, 200);
  perform check_isolation();
  -- Clear the list of an earlier call in this transaction.
  if current_setting('symphony.repaired_leases', true) <> '' then
    perform set_config('symphony.repaired_leases', '', true);
  end if;
  -- Keeps rail policies constant during the call; see lock_rail_policies.
  lock table payment_rails in row share mode;

  for v_rail in select r.rail_type from payment_rails r order by r.rail_type loop
    v_expired := v_expired || array(
      select p.ctid
      from payment_outbox_pending p
      where p.rail_type = v_rail
        and not p.parked
        and p.next_attempt_at <= now()
        and p.lease_expires_at <= now()
      order by p.next_attempt_at, p.created_at
      limit p_batch_size - cardinality(v_expired)
      for no key update skip locked);
    exit when cardinality(v_expired) >= p_batch_size;
  end loop;

  return query
    select r.outbox_id, r.attempt_no, r.state, r.next_attempt_at, r.worker_id
    from end_expired_leases(v_expired, p_worker_id, 1) r;
end
$$;

comment on function symphony.repair_expired_leases(int, text) is
  'Requeues rows whose lease has expired: each gets a ledger row, and is due again or has failed at max_attempts.';
