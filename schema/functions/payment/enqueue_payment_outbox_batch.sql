-- Enqueues many instructions in the producer's transaction: all of them, or none with an error.
--
-- Returns one row per instruction, in the order given. A known key, from before or from earlier in the same call, is
-- an idempotent replay. The rules are those of enqueue_payment_outbox. A null p_not_befores schedules none.
-- Locks: the key of each instruction, then the row of each participant, each kind in one global order, so that two
-- batches never deadlock. All are row locks: a transaction may enqueue any number of batches.
-- Raises: P7004, P7005, P7006, 40001. For: symphony_ingest.
create or replace function symphony.enqueue_payment_outbox_batch(
  p_instruction_ids  text[],
  p_participant_ids  text[],
  p_idempotency_keys text[],
  p_rail_types       text[],
  p_payloads         jsonb[],
  p_not_befores      timestamptz[] default null)
  returns table ("position" int, outbox_id uuid, sequence_id bigint, created_at timestamptz, replayed boolean)
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
  v_count        constant int := coalesce(cardinality(p_instruction_ids), 0);
  v_rails        text[];
  -- The newest epoch, which every rail has.
  v_epoch        bigint;
  v_all_valid    boolean;
  v_new_ids      uuid[];
  v_digests      bytea[];
  -- The outbox ids that were registered, of the new keys.
  v_registered   uuid[];
  v_all_new      boolean;
  -- The participants of the new keys: how many sequence numbers each takes, and the number after the last of them.
  v_participants text[];
  v_counts       int[];
  v_nexts        bigint[];
  -- By position, if some keys are known: their outboxes, and the first whose content differs.
  v_outbox_ids   uuid[];
  v_sequence_ids bigint[];
  v_created_ats  timestamptz[];
  v_reuse_at     bigint;
begin
  perform check_range('the number of instructions', v_count, 1, 500);
  if array[cardinality(p_participant_ids), cardinality(p_idempotency_keys), cardinality(p_rail_types), cardinality(p_payloads),
           coalesce(cardinality(p_not_befores), v_count)]
     is distinct from array_fill(v_count, array[5]) then
    raise exception 'the arrays must have the same number of elements' using errcode = 'P7005';
  end if;
  -- The code below counts positions from 1.
  if array[array_dims(p_instruction_ids), array_dims(p_participant_ids), array_dims(p_idempotency_keys), array_dims(p_rail_types), array_dims(p_payloads),
           coalesce(array_dims(p_not_befores), format('[1:%s]', v_count))]
     is distinct from array_fill(format('[1:%s]', v_count), array[6]) then
    raise exception 'the arrays must have one dimension that begins at 1' using errcode = 'P7005';
  end if;
  select coalesce(array_agg(r.rail_type), '{}'), max(r.epoch)
  into v_rails, v_epoch
  from payment_rails r
  where r.retired_at is null;
  -- The rules of check_enqueue and the digest of outbox_content_digest, written out: a call per row costs more than an
  -- index entry.
  select array_agg(g.digest), bool_and(g.is_valid)
  into v_digests, v_all_valid
  from (
    select sha256(convert_to(
             concat(char_length(g.idempotency_key), ':', g.idempotency_key, char_length(g.instruction_id), ':', g.instruction_id,
                    char_length(g.participant_id), ':', g.participant_id, char_length(g.rail_type), ':', g.rail_type, g.payload::text),
             'UTF8')) as digest,
           ((ascii(g.instruction_id) between 33 and 126 or g.instruction_id ~ '[^[:space:]]') and char_length(g.instruction_id) <= 200
            and (ascii(g.participant_id) between 33 and 126 or g.participant_id ~ '[^[:space:]]') and char_length(g.participant_id) <= 200
            and (ascii(g.idempotency_key) between 33 and 126 or g.idempotency_key ~ '[^[:space:]]') and char_length(g.idempotency_key) <= 200
            and jsonb_typeof(g.payload) = 'object' and pg_column_size(g.payload) <= 262144
            and (pg_column_size(g.payload) < 800 or not jsonb_path_exists(g.payload, '$.**{101 to last}'))
            and (g.not_before is null or isfinite(g.not_before) and g.not_before <= now() + interval '366 days')
            and g.rail_type = any (v_rails)) is true as is_valid
    from unnest(p_instruction_ids, p_participant_ids, p_idempotency_keys, p_rail_types, p_payloads, p_not_befores) with ordinality
      as g (instruction_id, participant_id, idempotency_key, rail_type, payload, not_before, place)
    order by g.place
  ) g;
  if not v_all_valid then
    -- Raises the error, unless a key is known whose rail was retired.
    perform check_enqueue(p_instruction_ids, p_participant_ids, p_idempotency_keys, p_rail_types, p_payloads, p_not_befores);
  end if;
  v_new_ids := uuidv7s(v_count);

  with registered as (
    insert into payment_outbox_keys as k (idempotency_key, instruction_id, outbox_id, content_digest)
    select g.idempotency_key, g.instruction_id, g.new_id, g.digest
    from unnest(p_instruction_ids, p_idempotency_keys, v_new_ids, v_digests) with ordinality
      as g (instruction_id, idempotency_key, new_id, digest, place)
    order by g.idempotency_key collate "C", g.instruction_id collate "C", g.place
    on conflict (idempotency_key, instruction_id) do nothing
    returning k.outbox_id
  )
  select array_agg(r.outbox_id)
  into v_registered
  from registered r;
  v_all_new := coalesce(cardinality(v_registered), 0) = v_count;

  if v_registered is not null then
    select array_agg(c.participant_id), array_agg(c.count)
    into v_participants, v_counts
    from (
      select g.participant_id, count(*)::int as count
      from unnest(p_participant_ids, v_new_ids) as g (participant_id, new_id)
      where v_all_new or g.new_id in (select unnest(v_registered))
      group by g.participant_id
    ) c;
    select a.participant_ids, a.next_sequence_ids
    into v_participants, v_nexts
    from allocate_outbox_sequences(v_participants, v_counts) a;

    -- The sequence numbers by position, counted from the last; null for a known key.
    v_sequence_ids := array(
      select case
               when g.is_new then n.next - row_number() over (partition by g.participant_id, g.is_new order by g.place desc)
             end
      from (
        select g.participant_id, g.place, v_all_new or g.new_id in (select unnest(v_registered)) as is_new
        from unnest(p_participant_ids, v_new_ids) with ordinality as g (participant_id, new_id, place)
      ) g
      left join unnest(v_participants, v_nexts) as n (participant_id, next) on n.participant_id = g.participant_id
      order by g.place);
    insert into payment_outbox_pending
      (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, traceparent, epoch, next_attempt_at, not_before)
    select g.new_id, g.instruction_id, g.participant_id, g.sequence_id, g.idempotency_key, g.rail_type, g.payload,
           (select caller_traceparent()), v_epoch, greatest(g.not_before, now()), g.not_before
    from unnest(p_instruction_ids, p_participant_ids, p_idempotency_keys, p_rail_types, p_payloads, p_not_befores, v_new_ids, v_sequence_ids)
      as g (instruction_id, participant_id, idempotency_key, rail_type, payload, not_before, new_id, sequence_id)
    where g.sequence_id is not null;
    if v_all_new then
      return query
        select r.place::int, r.outbox_id, r.sequence_id, now(), false
        from unnest(v_new_ids, v_sequence_ids) with ordinality as r (outbox_id, sequence_id, place)
        order by r.place;
      return;
    end if;
  end if;

  -- Some keys are known or given twice. Every key has its row by now, so new ones are read like the others.
  select array_agg(k.outbox_id order by g.place),
         array_agg(o.sequence_id order by g.place),
         array_agg(coalesce(o.created_at, k.created_at) order by g.place),
         min(g.place) filter (where not (
           k.content_digest = salt_digest(g.digest, k.digest_salt)
           or k.digest_salt is null and (o.participant_id, o.rail_type, o.payload) is not distinct from (g.participant_id, g.rail_type, g.payload)))
  into v_outbox_ids, v_sequence_ids, v_created_ats, v_reuse_at
  from unnest(p_instruction_ids, p_participant_ids, p_idempotency_keys, p_rail_types, p_payloads, v_digests) with ordinality
    as g (instruction_id, participant_id, idempotency_key, rail_type, payload, digest, place)
  cross join lateral (
    select k.outbox_id, k.content_digest, k.digest_salt, k.created_at
    from payment_outbox_keys k
    where k.idempotency_key = g.idempotency_key
      and k.instruction_id = g.instruction_id
    limit 1
  ) k
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
  ) o on true;
  if v_reuse_at is not null then
    perform refuse_key_reuse(
      p_instruction_ids[v_reuse_at],
      case when v_outbox_ids[v_reuse_at] <> all (v_new_ids) then v_outbox_ids[v_reuse_at] end);
  end if;
  return query
    select r.place::int, r.outbox_id, r.sequence_id, r.created_at, r.outbox_id <> r.new_id
    from unnest(v_outbox_ids, v_sequence_ids, v_created_ats, v_new_ids) with ordinality as r (outbox_id, sequence_id, created_at, new_id, place)
    order by r.place;
end
$$;

comment on function symphony.enqueue_payment_outbox_batch(text[], text[], text[], text[], jsonb[], timestamptz[]) is
  'Enqueues many instructions in the producer''s transaction, in one statement, with a result for each.';
