-- Ends leases that expired, in the ledger's words: the one mechanism behind repair and takeover.
--
-- The caller has locked the rows and says where they are. With a delay they are due after it; without, they keep their time.
-- Locks: nothing more. For: claim_outbox_batch and repair_expired_leases.
create or replace function symphony.end_expired_leases(p_pending_rows tid[], p_worker_id text, p_delay_seconds int)
  returns table (outbox_id uuid, attempt_no int, state symphony.outbox_attempt_state, next_attempt_at timestamptz, worker_id text)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
#variable_conflict use_column
declare
  v_count constant int := coalesce(cardinality(p_pending_rows), 0);
begin
  if v_count = 0 then
    return;
  end if;
  return query
    select s.outbox_id, s.attempt_no, s.state, s.next_attempt_at, s.worker_id
    from settle_outbox_leases(
      p_pending_rows,
      array_fill('ZOMBIE_REQUEUE'::symphony.outbox_attempt_state, array[v_count]),
      null,
      null,
      array_fill('LEASE_EXPIRED'::text, array[v_count]),
      array_fill(format('the lease expired without an outcome; %s found it', p_worker_id), array[v_count]),
      null,
      array_fill(p_delay_seconds, array[v_count])) s;
end
$$;

comment on function symphony.end_expired_leases(tid[], text, int) is 'Ends expired leases: ZOMBIE_REQUEUE, or FAILED with LEASE_EXPIRED at the ceiling.';
