-- Redrives a terminal failure as a new outbox: same instruction and rail, a new sequence number, and the same key and payload
-- unless others are given.
--
-- A bank that keeps its promise answers a repeated key with its first outcome: a payment that it refused is refused again. A new
-- key makes it another payment there, with p_payload as its content if that is given. It is allowed only where the ledger knows
-- that the old key was not paid: see check_key_replacement. The old key keeps its outbox, and an enqueue of it stays a replay.
--
-- If the failure holds its stream (on_failure HOLD), the redrive takes its place: the new outbox has its sequence number and
-- goes before the later payments, which wait for it.
--
-- The failed outbox is never reopened. A failure with unknown outcome may have been paid: it can be redriven only
-- after an operator has resolved it as NOT_PAID. One whose payload was erased cannot be redriven: there is nothing to send.
-- Locks: the key, the new key, then the hold of the stream or the participant's row.
-- Raises: P7003, P7004 for a new key that is used already, P7005, P7006 for a retired rail, 25000 outside READ COMMITTED. For: symphony_operator.
create or replace function symphony.redrive_payment_outbox(
  p_outbox_id       uuid,
  p_actor           text,
  p_reason          text,
  p_idempotency_key text  default null,
  p_payload         jsonb default null,
  out outbox_id     uuid,
  out sequence_id   bigint,
  out created_at    timestamptz)
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
  if p_idempotency_key is not null then
    perform check_argument('p_idempotency_key', p_idempotency_key, 200);
  elsif p_payload is not null then
    raise exception 'p_payload needs p_idempotency_key: a bank answers a known key with the outcome of its first payload'
      using errcode = 'P7005',
            hint = 'Give both, or neither to redrive the same payment.';
  end if;
  if jsonb_typeof(p_payload) <> 'object' then
    raise exception 'p_payload must be a JSON object, not a JSON %', jsonb_typeof(p_payload) using errcode = 'P7005';
  elsif p_payload is not null then
    perform check_payload('p_payload', p_payload, 262144);
  end if;
  v_failure := lock_terminal_failure(p_outbox_id);
  if p_idempotency_key = v_failure.idempotency_key then
    raise exception 'the new idempotency key is that of the failure' using errcode = 'P7005', hint = 'Give another one, or none to redrive the same payment.';
  end if;

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
  outbox_id := uuidv7();
  if p_idempotency_key is not null then
    perform check_key_replacement(v_failure);
    insert into payment_outbox_keys as k (idempotency_key, instruction_id, outbox_id, content_digest)
    values (
      p_idempotency_key, v_failure.instruction_id, redrive_payment_outbox.outbox_id,
      outbox_content_digest(
        p_idempotency_key, v_failure.instruction_id, v_failure.participant_id, v_failure.rail_type, coalesce(p_payload, v_failure.payload)))
    on conflict (idempotency_key, instruction_id) do nothing;
    if not found then
      raise exception 'instruction % has used the new idempotency key already', v_failure.instruction_id
        using errcode = 'P7004',
              hint = 'Choose a key that no payment has had.';
    end if;
  end if;

  v_in_place := release_stream_hold(v_failure, false);
  insert into payment_outbox_pending as p
    (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, redrive_of, epoch)
  values
    (redrive_payment_outbox.outbox_id, v_failure.instruction_id, v_failure.participant_id,
     case when v_in_place then v_failure.sequence_id else bump_participant_outbox_seq(v_failure.participant_id) end,
     coalesce(p_idempotency_key, v_failure.idempotency_key), v_failure.rail_type, coalesce(p_payload, v_failure.payload), p_outbox_id,
     -- Of the failure's epoch: an earlier redrive of it may have been paid, and lost with that epoch.
     v_failure.epoch)
  returning p.sequence_id, p.created_at
  into sequence_id, created_at;

  insert into payment_outbox_operations (operation_id, operation, outbox_id, new_outbox_id, rail_type, policy_before, policy_after, actor, reason)
  values (
    uuidv7(), 'REDRIVE', p_outbox_id, outbox_id, v_failure.rail_type,
    case when p_idempotency_key is not null then jsonb_build_object('idempotency_key', v_failure.idempotency_key) end,
    case when p_idempotency_key is not null then jsonb_build_object('idempotency_key', p_idempotency_key, 'payload_replaced', p_payload is not null) end,
    p_actor, p_reason);

  if p_idempotency_key is null then
    update payment_outbox_keys k
    set outbox_id = redrive_payment_outbox.outbox_id
    where k.idempotency_key = v_failure.idempotency_key
      and k.instruction_id = v_failure.instruction_id;
  end if;
end
$$;

comment on function symphony.redrive_payment_outbox(uuid, text, text, text, jsonb) is
  'Redrives a terminal failure as a new outbox under the same idempotency key, or a refused one under a new key.';
