-- Enqueues one instruction in the caller's transaction, or answers with the outbox that its key has already.
--
-- The advisory lock lets one caller at a time decide about a key. It looks in pending first and then in
-- the ledger, in one statement and so in one snapshot: an outbox that ends meanwhile is in one of them.
-- Only a key that is in neither takes a number. Should a writer that holds no lock get in between, the
-- unique index stops us, the number goes back with the subtransaction, and the next look finds the winner.
-- Locks: the key, then the participant's row, until the caller's transaction ends.
-- Raises: P7004, P7005, P7006. For: symphony_ingest.
create or replace function symphony.enqueue_payment_outbox(
  p_instruction_id  text,
  p_participant_id  text,
  p_idempotency_key text,
  p_rail_type       text,
  p_payload         jsonb,
  out outbox_id     uuid,
  out sequence_id   bigint,
  out created_at    timestamptz,
  out replayed      boolean)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
#variable_conflict use_column
declare
  v_known      record;
  v_constraint text;
begin
  perform check_enqueue(array[p_instruction_id], array[p_participant_id], array[p_idempotency_key], array[p_rail_type], array[p_payload]);
  perform pg_advisory_xact_lock(outbox_key_lock(p_instruction_id, p_idempotency_key));

  for v_look in 1 .. 2 loop
    select k.*
    into v_known
    from (
      (select p.outbox_id, p.sequence_id, p.created_at, p.participant_id, p.rail_type, p.payload
       from payment_outbox_pending p
       where p.instruction_id = p_instruction_id
         and p.idempotency_key = p_idempotency_key)
      union all
      (select a.outbox_id, a.sequence_id, a.created_at, a.participant_id, a.rail_type, a.payload
       from payment_outbox_attempts a
       where a.instruction_id = p_instruction_id
         and a.idempotency_key = p_idempotency_key
       order by a.sequence_id desc
       limit 1)
      limit 1
    ) k;

    if found then
      if (v_known.participant_id, v_known.rail_type, v_known.payload) is distinct from (p_participant_id, p_rail_type, p_payload) then
        perform refuse_key_reuse(p_instruction_id, v_known.outbox_id);
      end if;
      outbox_id := v_known.outbox_id;
      sequence_id := v_known.sequence_id;
      created_at := v_known.created_at;
      replayed := true;
      return;
    end if;

    begin
      insert into payment_outbox_pending as p
        (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, traceparent)
      values
        (uuidv7(), p_instruction_id, p_participant_id, bump_participant_outbox_seq(p_participant_id),
         p_idempotency_key, p_rail_type, p_payload, caller_traceparent())
      returning p.outbox_id, p.sequence_id, p.created_at
      into outbox_id, sequence_id, created_at;
      replayed := false;
      return;
    exception when unique_violation then
      get stacked diagnostics v_constraint = constraint_name;
      if v_constraint <> 'payment_outbox_pending_key_is_unique' then
        raise;
      end if;
    end;
  end loop;

  -- Stopped by a row that we cannot see: the caller's snapshot is older than that row.
  raise exception 'instruction % was enqueued by another transaction meanwhile', p_instruction_id
    using errcode = '40001',
          hint = 'Run the whole transaction again.';
end
$$;

comment on function symphony.enqueue_payment_outbox(text, text, text, text, jsonb) is
  'Enqueues one instruction in the caller''s transaction, or returns the outbox that its key has already.';
