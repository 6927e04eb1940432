-- Quarantines a pending row whose outbox already has a terminal ledger row: moves it out of the queue and keeps it as
-- evidence.
--
-- Only a bad restore or a write past the functions leaves such a row. Claimed again, it could be paid twice; left
-- pending, its lease would expire for ever. payment_outbox_quarantine keeps the whole row, its successors on an
-- ordered rail go on, and the number of quarantined rows is the metric terminal_backstop_total. It does not write the
-- ledger. Returns whether the outbox is still pending: true if the ledger has no terminal row and nothing was done.
-- Locks: the row, which the caller holds already, and its successor on an ordered rail.
-- For: claim_outbox_batch and record_attempts.
create or replace function symphony.quarantine_outbox(p_outbox_id uuid)
  returns boolean
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  v_row record;
begin
  insert into payment_outbox_quarantine
    (quarantine_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_count, created_at,
     redrive_of, claimed_by, claimed_at, lease_expires_at, epoch, claimed_epoch, claimed_endpoint, ledger_attempt_no, ledger_state,
     ledger_completed_at)
  select uuidv7(), p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key, p.rail_type, p.payload, p.attempt_count,
         p.created_at, p.redrive_of, p.claimed_by, p.claimed_at, p.lease_expires_at, p.epoch, p.claimed_epoch, p.claimed_endpoint,
         a.attempt_no, a.state, a.completed_at
  from payment_outbox_pending p
  cross join lateral (
    select a.attempt_no, a.state, a.completed_at
    from payment_outbox_attempts a
    where a.outbox_id = p.outbox_id
      and a.state in ('DISPATCHED', 'FAILED')
    limit 1
  ) a
  where p.outbox_id = p_outbox_id;
  if not found then
    return true;
  end if;

  delete from payment_outbox_pending p
  where p.outbox_id = p_outbox_id
  returning p.participant_id::text, p.rail_type::text, p.sequence_id::bigint
  into strict v_row;
  delete from payment_awaiting_confirmation w where w.outbox_id = p_outbox_id;
  perform unpark_successors(array[v_row.participant_id], array[v_row.rail_type], array[v_row.sequence_id], true);
  return false;
end
$$;

comment on function symphony.quarantine_outbox(uuid) is
  'Moves a pending row whose outbox already has a terminal ledger row into quarantine; returns whether it is still pending.';
