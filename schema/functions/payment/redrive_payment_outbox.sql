-- Redrives a terminal failure as a new outbox: same instruction, key, rail and payload, a new sequence number.
--
-- If the failure holds its stream (on_failure HOLD), the redrive takes its place: the new outbox has its sequence number and
-- goes before the later payments, which wait for it.
--
-- The failed outbox is never reopened. A failure with unknown outcome may have been paid: it can be redriven only
-- after an operator has resolved it as NOT_PAID. One whose payload was erased cannot be redriven: there is nothing to send.
-- Locks: the key, then the hold of the stream or the participant's row.
-- Raises: P7003, P7005, P7006 for a retired rail, 25000 outside READ COMMITTED. For: symphony_operator.
create or replace function symphony.redrive_payment_outbox(
  p_outbox_id     uuid,
  p_actor         text,
  p_reason        text,
  out outbox_id   uuid,
  out sequence_id bigint,
  out created_at  timestamptz)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_failure    payment_outbox_attempts;
  v_resolution text;
  v_in_place   boolean;
begin
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  v_failure := lock_terminal_failure(p_outbox_id);

  v_resolution := outbox_resolution(p_outbox_id);
  if v_resolution in ('PAID', 'SKIPPED') then
    raise exception 'outbox % was resolved as % and cannot be redriven', p_outbox_id, v_resolution
      using errcode = 'P7003',
            hint = 'Enqueue a new instruction if another payment is due.';
  elsif coalesce(v_failure.error_code in (select u.error_code from unknown_outcome_codes u), false) and v_resolution is distinct from 'NOT_PAID' then
    raise exception 'the outcome of outbox % is unknown: it may have been paid', p_outbox_id
      using errcode = 'P7003',
            hint = 'Ask the bank, then call symphony.resolve_payment_outbox with PAID or NOT_PAID and the evidence.';
  end if;

  if exists (select from payment_payload_erasures e where e.outbox_id = p_outbox_id) then
    raise exception 'the payload of outbox % was erased, so it cannot be redriven', p_outbox_id
      using errcode = 'P7003',
            hint = 'Enqueue a new instruction if the payment is still due.';
  end if;

  perform registered_rail(v_failure.rail_type);

  v_in_place := release_stream_hold(v_failure, false);
  insert into payment_outbox_pending as p
    (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, redrive_of, epoch)
  values
    (uuidv7(), v_failure.instruction_id, v_failure.participant_id,
     case when v_in_place then v_failure.sequence_id else bump_participant_outbox_seq(v_failure.participant_id) end,
     v_failure.idempotency_key, v_failure.rail_type, v_failure.payload, p_outbox_id,
     -- Of the failure's epoch: an earlier redrive of it may have been paid, and lost with that epoch.
     v_failure.epoch)
  returning p.outbox_id, p.sequence_id, p.created_at
  into outbox_id, sequence_id, created_at;

  insert into payment_outbox_operations (operation_id, operation, outbox_id, new_outbox_id, rail_type, actor, reason)
  values (uuidv7(), 'REDRIVE', p_outbox_id, outbox_id, v_failure.rail_type, p_actor, p_reason);

  update payment_outbox_keys k
  set outbox_id = redrive_payment_outbox.outbox_id
  where k.idempotency_key = v_failure.idempotency_key
    and k.instruction_id = v_failure.instruction_id;
end
$$;

comment on function symphony.redrive_payment_outbox(uuid, text, text) is
  'Redrives a terminal failure as a new outbox under the same idempotency key.';
