-- Cancels a payment that was never sent: it ends as FAILED with the error code CANCELLED.
--
-- A producer calls it in the transaction that cancels the order, an operator on their own. It needs proof that nothing left:
-- no worker holds a lease, every attempt in the ledger ended as NOT_SENT, and the payment is of the current epoch, because one
-- of an earlier epoch may have been sent in a history that this database has lost. Nor may the bank have said that it has executed
-- it: see payment_refused_confirmations. So a payment is either claimed or
-- cancelled, never both. It cannot be redriven or resolved, it is no dead letter, and its key stays used: another payment
-- needs another key. On an ordered rail the next payment of the participant goes on.
--
-- The ledger row takes the next attempt_no, though there was no lease, and has no claimed_at. The operations log has actor and
-- reason. On a rail with publish_outcomes it publishes payment.cancelled; on one with on_failure HOLD it holds nothing.
-- Locks: the pending row, until the transaction ends; no worker waits for it. It waits for a worker that has the row, at most
-- 5 s.
-- Raises: P7001 if it has ended, P7002 if it is leased or may have been sent, P7005, 25000 outside READ COMMITTED, 55P03.
-- For: symphony_ingest, symphony_operator.
create or replace function symphony.cancel_payment_outbox(
  p_instruction_id  text,
  p_idempotency_key text,
  p_actor           text,
  p_reason          text,
  out outbox_id     uuid,
  out cancelled_at  timestamptz)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_row     record;
  v_attempt record;
begin
  perform check_argument('p_instruction_id', p_instruction_id, 200);
  perform check_argument('p_idempotency_key', p_idempotency_key, 200);
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  perform check_isolation();

  select k.outbox_id
  into outbox_id
  from payment_outbox_keys k
  where k.idempotency_key = p_idempotency_key
    and k.instruction_id = p_instruction_id;
  if not found then
    raise exception 'instruction % has no payment with this idempotency key', p_instruction_id
      using errcode = 'P7005',
            hint = 'Check both: the producer of the payment chose them.';
  end if;

  select p.ctid as place, p.lease_token, p.claimed_by, p.epoch, p.rail_type
  into v_row
  from payment_outbox_pending p
  where p.outbox_id = cancel_payment_outbox.outbox_id
  for update;
  if not found then
    select a.state, a.error_code
    into v_attempt
    from payment_outbox_attempts a
    where a.outbox_id = cancel_payment_outbox.outbox_id
      and a.state in ('DISPATCHED', 'FAILED');
    if v_attempt.error_code = 'CANCELLED' then
      raise exception 'outbox % was cancelled already', outbox_id
        using errcode = 'P7001',
              hint = 'There is nothing left to do: it was not sent, and never will be.';
    end if;
    raise exception 'outbox % has ended%', outbox_id, coalesce(' as ' || v_attempt.state, ', and its ledger rows were archived')
      using errcode = 'P7001',
            hint = 'Read symphony.payment_outcome. What was paid is recalled at the bank; an operator resolves an unknown outcome.';
  end if;

  -- After the lock, in a statement that sees what its last holder has committed.
  select a.attempt_no, a.error_code
  into v_attempt
  from payment_outbox_attempts a
  where a.outbox_id = cancel_payment_outbox.outbox_id
    and a.error_code is distinct from 'NOT_SENT'
  order by a.attempt_no
  limit 1;
  if v_row.lease_token is not null then
    raise exception 'worker % holds a lease on outbox %, and may be sending it', v_row.claimed_by, outbox_id
      using errcode = 'P7002',
            hint = 'Read symphony.payment_outcome until it has ended. If its next attempt is scheduled and it was not sent, cancel it then.';
  elsif v_attempt.attempt_no is not null then
    raise exception 'outbox % was sent by attempt %, which ended with %', outbox_id, v_attempt.attempt_no, coalesce(v_attempt.error_code, 'no error code')
      using errcode = 'P7002',
            hint = 'Read symphony.payment_outcome until it has ended. What the bank has paid is recalled at the bank.';
  elsif exists (
    select
    from payment_refused_confirmations c
    where c.idempotency_key = p_idempotency_key
      and c.rail_type = v_row.rail_type
      and c.outcome = 'EXECUTED')
  then
    raise exception 'outbox % was never sent, but the bank has said that it executed a payment with this key', outbox_id
      using errcode = 'P7002',
            hint = 'An operator reads symphony.refused_confirmations and asks the bank.';
  elsif v_row.epoch is distinct from epoch_of_this_server() then
    raise exception 'outbox % is of an earlier epoch: it may have been sent in a history that this database has lost', outbox_id
      using errcode = 'P7002',
            hint = 'Read symphony.payment_outcome until it has ended: a relayer inquires about it before it sends it.';
  end if;

  if (
    select count(*)
    from record_attempts(array[v_row.place], '{FAILED}', null, null, '{CANCELLED}', array['cancelled before it was sent'], null, null,
                         p_worker_id => 'cancellation')) = 0
  then
    raise exception 'outbox % is pending, and the ledger says that it has ended', outbox_id
      using errcode = 'P7001',
            hint = 'A bad restore left its pending row. A claim quarantines it; it is not sent again.';
  end if;
  insert into payment_outbox_operations as o (operation_id, operation, outbox_id, rail_type, actor, reason)
  values (uuidv7(), 'CANCEL', cancel_payment_outbox.outbox_id, v_row.rail_type, p_actor, p_reason)
  returning o.created_at
  into cancelled_at;
end
$$;

comment on function symphony.cancel_payment_outbox(text, text, text, text) is
  'Cancels a payment that was never sent: it ends as FAILED with the error code CANCELLED.';
