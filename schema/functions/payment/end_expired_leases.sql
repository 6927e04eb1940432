-- Ends expired leases: each gets its ledger row, and its row is due again or has failed. Repair and takeover both use
-- it.
--
-- The caller has locked the rows. record_attempts appends ZOMBIE_REQUEUE, or FAILED with LEASE_EXPIRED at
-- max_attempts. With p_delay_seconds the rows are due after that delay; without, they keep their next_attempt_at.
--
-- The contract's result of a claim has no column for the leases that it took over. So the ended leases are also
-- appended to the setting symphony.repaired_leases, a line with a JSON array per call, until the transaction ends. The
-- relayer's claim statement reads it, to count and log dead workers without another round trip.
-- Locks: nothing more. For: claim_outbox_batch, repair_expired_leases and repair_payment_rail.
create or replace function symphony.end_expired_leases(p_pending_rows tid[], p_worker_id text, p_delay_seconds int)
  returns table (outbox_id uuid, attempt_no int, state symphony.outbox_attempt_state, next_attempt_at timestamptz, worker_id text)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
#variable_conflict use_column
declare
  v_count constant int := coalesce(cardinality(p_pending_rows), 0);
  v_rails jsonb;
  v_ended jsonb;
begin
  if v_count = 0 then
    return;
  end if;
  select jsonb_object_agg(p.outbox_id, p.rail_type)
  into v_rails
  from payment_outbox_pending p
  where p.ctid = any (p_pending_rows);

  select jsonb_agg(jsonb_build_object(
           'outbox_id', s.outbox_id, 'attempt_no', s.attempt_no, 'state', s.state, 'next_attempt_at', s.next_attempt_at,
           'rail_type', v_rails -> s.outbox_id::text, 'lost_worker', s.worker_id))
  into v_ended
  from record_attempts(
    p_pending_rows,
    array_fill('ZOMBIE_REQUEUE'::symphony.outbox_attempt_state, array[v_count]),
    null,
    null,
    array_fill('LEASE_EXPIRED'::text, array[v_count]),
    array_fill(format('the lease expired without an outcome; %s found it', p_worker_id), array[v_count]),
    null,
    array_fill(p_delay_seconds, array[v_count])) s;

  if v_ended is null then
    return;
  end if;
  -- Appended as text: an invalid value of the setting must not make a claim fail.
  perform set_config('symphony.repaired_leases', concat_ws(E'\n', nullif(current_setting('symphony.repaired_leases', true), ''), v_ended), true);
  return query
    select e.outbox_id, e.attempt_no, e.state, e.next_attempt_at, e.lost_worker
    from jsonb_to_recordset(v_ended) as e (
      outbox_id uuid, attempt_no int, state symphony.outbox_attempt_state, next_attempt_at timestamptz, lost_worker text);
end
$$;

comment on function symphony.end_expired_leases(tid[], text, int) is
  'Ends expired leases: ZOMBIE_REQUEUE, or FAILED with LEASE_EXPIRED at max_attempts. Lists them in the setting symphony.repaired_leases.';
