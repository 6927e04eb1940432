-- Ends leases that expired, in the ledger's words: the one mechanism behind repair and takeover.
--
-- The caller has locked the rows. With a delay they are due after it; without, they keep their time.
-- Locks: nothing more. For: claim_outbox_batch and repair_expired_leases.
create or replace function symphony.end_expired_leases(p_outbox_ids uuid[], p_worker_id text, p_delay_seconds int)
  returns table (outbox_id uuid, attempt_no int, state symphony.outbox_attempt_state, next_attempt_at timestamptz, worker_id text)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  -- A row that has ended already, by somebody's hand or a bad restore, is passed over: it must not stop the others.
  v_ids   constant uuid[] := array(
    select i.outbox_id
    from unnest(p_outbox_ids) as i (outbox_id)
    where (
      select true
      from payment_outbox_attempts a
      where a.outbox_id = i.outbox_id
        and a.state in ('DISPATCHED', 'FAILED')
      limit 1) is null);
  v_count constant int := cardinality(v_ids);
begin
  if v_count = 0 then
    return;
  end if;
  return query
    select *
    from settle_outbox_leases(
      v_ids,
      array_fill('ZOMBIE_REQUEUE'::symphony.outbox_attempt_state, array[v_count]),
      null,
      null,
      array_fill('LEASE_EXPIRED'::text, array[v_count]),
      array_fill(format('the lease expired without an outcome; %s found it', p_worker_id), array[v_count]),
      null,
      array_fill(p_delay_seconds, array[v_count]));
end
$$;

comment on function symphony.end_expired_leases(uuid[], text, int) is 'Ends expired leases: ZOMBIE_REQUEUE, or FAILED with LEASE_EXPIRED at the ceiling.';
