-- Enqueues one instruction in the caller's transaction, or answers with the outbox that its key has already.
--
-- The advisory lock lets one caller at a time decide about a key. It looks in pending and in the ledger in one statement and so in one snapshot: an
-- outbox that ends meanwhile is in one of them. Only a key that is in neither takes a number. What may stand in a row is said by the types of its
-- columns; should they refuse, check_enqueue has the words. Should a writer that holds no lock get in between, the unique index stops us, the number
-- goes back with the subtransaction, and the look that follows finds the winner. Plans that walk the table are ruled out: one made while it had a single row
-- would be kept until somebody analyses it.
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
  set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_known      record;
  v_constraint text;
begin
  perform pg_advisory_xact_lock(outbox_key_lock(p_instruction_id, p_idempotency_key));

  if not (
    exists (
      select
      from payment_outbox_pending p
      where p.instruction_id = p_instruction_id
        and p.idempotency_key = p_idempotency_key)
    or exists (
      select
      from payment_outbox_attempts a
      where a.instruction_id = p_instruction_id
        and a.idempotency_key = p_idempotency_key))
  then
    begin
      insert into payment_outbox_pending as p
        (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, traceparent)
      select uuidv7(), p_instruction_id, p_participant_id, bump_participant_outbox_seq(p_participant_id),
             p_idempotency_key, r.rail_type, p_payload,
             case when current_setting('symphony.traceparent', true) <> '' then caller_traceparent() end
      from payment_rails r
      where r.rail_type = p_rail_type
        and r.retired_at is null
      returning p.outbox_id, p.sequence_id, p.created_at
      into outbox_id, sequence_id, created_at;
      if outbox_id is not null then
        replayed := false;
        return;
      end if;
    exception
      when unique_violation then
        get stacked diagnostics v_constraint = constraint_name;
        if v_constraint <> 'payment_outbox_pending_key_is_unique' then
          raise;
        end if;
      when check_violation or not_null_violation then
        perform check_enqueue(array[p_instruction_id], array[p_participant_id], array[p_idempotency_key], array[p_rail_type], array[p_payload]);
        raise;
    end;
  end if;

  perform check_enqueue(array[p_instruction_id], array[p_participant_id], array[p_idempotency_key], array[p_rail_type], array[p_payload]);
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
  if not found then
    -- Stopped by a row that we cannot see: the caller's snapshot is older than that row.
    raise exception 'instruction % was enqueued by another transaction meanwhile', p_instruction_id
      using errcode = '40001',
            hint = 'Run the whole transaction again.';
  elsif (v_known.participant_id, v_known.rail_type, v_known.payload) is distinct from (p_participant_id, p_rail_type, p_payload) then
    perform refuse_key_reuse(p_instruction_id, v_known.outbox_id);
  end if;
  outbox_id := v_known.outbox_id;
  sequence_id := v_known.sequence_id;
  created_at := v_known.created_at;
  replayed := true;
end
$$;

comment on function symphony.enqueue_payment_outbox(text, text, text, text, jsonb) is
  'Enqueues one instruction in the caller''s transaction, or returns the outbox that its key has already.';
