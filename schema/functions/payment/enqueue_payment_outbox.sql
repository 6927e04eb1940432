-- Enqueues one instruction in the caller's transaction, or answers with the outbox that its key has already.
--
-- The primary key of the registry decides: of two enqueues of one key the second waits for the first, and then finds its row or takes its place.
-- Under REPEATABLE READ and SERIALIZABLE PostgreSQL refuses with 40001 what was registered after the snapshot. Only a
-- new key takes a number. There is no subtransaction: 100,000 calls may share a transaction.
-- A known key is a replay where the digest is the same, or where the outbox is still there and holds the same content; after its rows have gone, the
-- digest alone decides, and the sequence number is not known any more. Plans that walk a table are ruled out: one made while it had a single row would be
-- kept until somebody analyses it.
-- Locks: the key, then the participant's row, until the caller's transaction ends.
-- Raises: P7004, P7005, P7006, 40001. For: symphony_ingest.
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
  v_digest bytea;
  v_known  record;
begin
  -- The rules are those of check_enqueue, which has the words; said here as well, because the call costs as much as a row.
  if (p_instruction_id ~ '[^[:space:]]' and char_length(p_instruction_id) <= 200
      and p_participant_id ~ '[^[:space:]]' and char_length(p_participant_id) <= 200
      and p_idempotency_key ~ '[^[:space:]]' and char_length(p_idempotency_key) <= 200
      and jsonb_typeof(p_payload) = 'object' and pg_column_size(p_payload) <= 262144 and pg_column_compression(p_payload) is null
      and (pg_column_size(p_payload) < 800 or not jsonb_path_exists(p_payload, '$.**{101 to last}'))) is not true then
    perform check_enqueue(array[p_instruction_id], array[p_participant_id], array[p_idempotency_key], array[p_rail_type], array[p_payload]);
  end if;
  v_digest := outbox_content_digest(p_idempotency_key, p_instruction_id, p_participant_id, p_rail_type, p_payload);

  insert into payment_outbox_keys as k (idempotency_key, instruction_id, outbox_id, content_digest)
  select p_idempotency_key, p_instruction_id, uuidv7(), v_digest
  from payment_rails r
  where r.rail_type = p_rail_type
    and r.retired_at is null
  on conflict (idempotency_key, instruction_id) do nothing
  returning k.outbox_id
  into outbox_id;
  if outbox_id is not null then
    insert into payment_outbox_pending as p
      (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, traceparent)
    values (
      enqueue_payment_outbox.outbox_id, p_instruction_id, p_participant_id, bump_participant_outbox_seq(p_participant_id),
      p_idempotency_key, p_rail_type, p_payload,
      case when current_setting('symphony.traceparent', true) <> '' then caller_traceparent() end)
    returning p.sequence_id, p.created_at
    into sequence_id, created_at;
    replayed := false;
    return;
  end if;

  perform check_enqueue(array[p_instruction_id], array[p_participant_id], array[p_idempotency_key], array[p_rail_type], array[p_payload]);
  select k.outbox_id, k.content_digest = v_digest as same_digest, coalesce(o.created_at, k.created_at) as created_at, o.sequence_id,
         (o.participant_id, o.rail_type, o.payload) is not distinct from (p_participant_id, p_rail_type, p_payload) as same_content
  into v_known
  from payment_outbox_keys k
  left join lateral (
    (select p.sequence_id, p.created_at, p.participant_id, p.rail_type, p.payload
     from payment_outbox_pending p
     where p.outbox_id = k.outbox_id)
    union all
    (select a.sequence_id, a.created_at, a.participant_id, a.rail_type, a.payload
     from payment_outbox_attempts a
     where a.outbox_id = k.outbox_id
     limit 1)
    limit 1
  ) o on true
  where k.idempotency_key = p_idempotency_key
    and k.instruction_id = p_instruction_id;
  if not found then
    -- The rail was registered between the two statements.
    raise exception 'rail % was not registered when this began', p_rail_type
      using errcode = '40001',
            hint = 'Run the whole transaction again.';
  elsif not (v_known.same_digest or v_known.same_content) then
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
