-- Enqueues one instruction in the producer's transaction, or returns the outbox that its idempotency key already has.
--
-- The primary key of the key registry decides. Of two enqueues of one key the second waits for the first, and then
-- finds its row or takes its place. Under REPEATABLE READ and SERIALIZABLE PostgreSQL raises 40001 for a key that was
-- registered after the snapshot. Only a new key takes a sequence number. There is no subtransaction: 100,000 calls may
-- share a transaction.
--
-- A known key is an idempotent replay if the digest is the same, or if its outbox still exists with the same content.
-- The schedule is not part of the content: a replay with another p_not_before is a replay, and changes nothing.
-- After the payload was erased or the rows were removed, the digest alone decides; after the latter sequence_id is null. Sequential scans are
-- disabled: a session would keep a plan that was made while the table had one row.
--
-- Claims leave the payment alone before p_not_before, which may be up to 366 days ahead; a time that has passed means now.
-- Locks: the key, then the participant's row, until the transaction ends. Raises: P7004, P7005, P7006, 40001.
-- For: symphony_ingest.
create or replace function symphony.enqueue_payment_outbox(
  p_instruction_id  text,
  p_participant_id  text,
  p_idempotency_key text,
  p_rail_type       text,
  p_payload         jsonb,
  p_not_before      timestamptz default null,
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
  -- The rules of check_enqueue, repeated here because a call costs as much as the row. It raises the error. The same for the digest of
  -- outbox_content_digest and, below, for uuidv7.
  if ((ascii(p_instruction_id) between 33 and 126 or p_instruction_id ~ '[^[:space:]]') and char_length(p_instruction_id) <= 200
      and (ascii(p_participant_id) between 33 and 126 or p_participant_id ~ '[^[:space:]]') and char_length(p_participant_id) <= 200
      and (ascii(p_idempotency_key) between 33 and 126 or p_idempotency_key ~ '[^[:space:]]') and char_length(p_idempotency_key) <= 200
      and jsonb_typeof(p_payload) = 'object' and pg_column_size(p_payload) <= 262144 and pg_column_compression(p_payload) is null
      and (pg_column_size(p_payload) < 800 or not jsonb_path_exists(p_payload, '$.**{101 to last}'))
      and (p_not_before is null or isfinite(p_not_before) and p_not_before <= now() + interval '366 days')) is not true then
    perform check_enqueue(array[p_instruction_id], array[p_participant_id], array[p_idempotency_key], array[p_rail_type], array[p_payload],
                          array[p_not_before]);
  end if;
  v_digest := sha256(convert_to(
    concat(char_length(p_idempotency_key), ':', p_idempotency_key, char_length(p_instruction_id), ':', p_instruction_id,
           char_length(p_participant_id), ':', p_participant_id, char_length(p_rail_type), ':', p_rail_type, p_payload::text),
    'UTF8'));

  insert into payment_outbox_keys as k (idempotency_key, instruction_id, outbox_id, content_digest)
  values (
    p_idempotency_key, p_instruction_id,
    overlay('0' || to_hex((date_part('epoch', clock_timestamp()) * 4096000)::bigint) || substr(gen_random_uuid()::text, 20)
            placing '7' from 13 for 0)::uuid,
    v_digest)
  on conflict (idempotency_key, instruction_id) do nothing
  returning k.outbox_id
  into outbox_id;
  if outbox_id is not null then
    -- The rail also has the newest epoch; the expression is number_floor, unless the server was promoted and no claim has noticed it yet.
    insert into payment_outbox_pending as p
      (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, traceparent, epoch, next_attempt_at, not_before)
    select enqueue_payment_outbox.outbox_id, p_instruction_id, p_participant_id,
           bump_participant_outbox_seq(
             p_participant_id,
             case
               when r.epoch_timeline = ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int
                 then (r.epoch - 1) * 1000000000000
             end),
           p_idempotency_key, p_rail_type, p_payload,
           case when current_setting('symphony.traceparent', true) <> '' then caller_traceparent() end,
           r.epoch, greatest(p_not_before, now()), p_not_before
    from payment_rails r
    where r.rail_type = p_rail_type
      and r.retired_at is null
    returning p.sequence_id, p.created_at
    into sequence_id, created_at;
    if sequence_id is null then
      -- The error also undoes the key. check_enqueue takes the key for a known one, which may be of a retired rail.
      perform check_enqueue(array[p_instruction_id], array[p_participant_id], array[p_idempotency_key], array[p_rail_type], array[p_payload],
                            array[p_not_before]);
      perform registered_rail(p_rail_type);
      raise exception 'rail % was not registered when this statement began', p_rail_type
        using errcode = '40001',
              hint = 'Run the whole transaction again.';
    end if;
    replayed := false;
    return;
  end if;

  perform check_enqueue(array[p_instruction_id], array[p_participant_id], array[p_idempotency_key], array[p_rail_type], array[p_payload],
                        array[p_not_before]);
  select k.outbox_id, k.content_digest = salt_digest(v_digest, k.digest_salt) as same_digest, coalesce(o.created_at, k.created_at) as created_at, o.sequence_id,
         k.digest_salt is null
         and (o.participant_id, o.rail_type, o.payload) is not distinct from (p_participant_id, p_rail_type, p_payload) as same_content
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
    raise exception 'the idempotency key of instruction % was removed at the end of its retention', p_instruction_id
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

comment on function symphony.enqueue_payment_outbox(text, text, text, text, jsonb, timestamptz) is
  'Enqueues one instruction in the producer''s transaction, or returns the outbox that its key already has.';
