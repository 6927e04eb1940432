-- Enqueues many instructions in the caller's transaction: all of them, or none and an error that says why.
--
-- Returns a row for each, in the order given. A key that is known already, from before or from further
-- up in the same call, is a replay and makes nothing new. The rules are those of enqueue_payment_outbox: what may stand in a row is said by
-- the types of its columns, and where they refuse, check_enqueue has the words.
-- Locks: the key of each instruction, then the row of each participant, each kind in one order for
-- everyone, so that two batches never wait for each other in a circle. Each key is an entry in the
-- server's lock table, which everybody shares (max_locks_per_transaction × max_connections, some 8,000 at
-- the defaults): hence the limit of 500, and a reason not to put many batches into one transaction.
-- Raises: P7004, P7005, P7006. For: symphony_ingest.
create or replace function symphony.enqueue_payment_outbox_batch(
  p_instruction_ids  text[],
  p_participant_ids  text[],
  p_idempotency_keys text[],
  p_rail_types       text[],
  p_payloads         jsonb[])
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
  v_new_ids      uuid[];
  -- How many different keys there are, and whether any is known or stands twice.
  v_keys         int;
  v_known        boolean;
  -- By position: the outbox that the key has already, and where in this batch the key stands first; null if all are new.
  v_outbox_ids   uuid[];
  v_sequence_ids bigint[];
  v_created_ats  timestamptz[];
  v_first_places bigint[];
  v_replayed     boolean[];
  v_reuse_at     bigint;
  v_constraint   text;
begin
  perform check_range('the number of instructions', v_count, 1, 500);
  if array[cardinality(p_participant_ids), cardinality(p_idempotency_keys), cardinality(p_rail_types), cardinality(p_payloads)]
     is distinct from array[v_count, v_count, v_count, v_count] then
    raise exception 'the five arrays must have the same number of elements' using errcode = 'P7005';
  end if;
  -- Places are counted from 1 below.
  if array[array_dims(p_instruction_ids), array_dims(p_participant_ids), array_dims(p_idempotency_keys), array_dims(p_rail_types), array_dims(p_payloads)]
     is distinct from array_fill(format('[1:%s]', v_count), array[5]) then
    raise exception 'the five arrays must have one dimension that begins at 1' using errcode = 'P7005';
  end if;

  v_new_ids := uuidv7s(v_count);
  perform pg_advisory_xact_lock(k.key_lock)
  from (
    select distinct outbox_key_lock(g.instruction_id, g.idempotency_key) as key_lock
    from unnest(p_instruction_ids, p_idempotency_keys) as g (instruction_id, idempotency_key)
    order by key_lock
  ) k;
  get diagnostics v_keys = row_count;

  for v_look in 1 .. 2 loop
    -- As a rule every key is new, and there is nothing to compare.
    v_known := v_keys < v_count or exists (
      select
      from unnest(p_instruction_ids, p_idempotency_keys) as g (instruction_id, idempotency_key)
      where (
        select true
        from payment_outbox_pending p
        where p.instruction_id = g.instruction_id
          and p.idempotency_key = g.idempotency_key
        limit 1)
      or (
        select true
        from payment_outbox_attempts a
        where a.instruction_id = g.instruction_id
          and a.idempotency_key = g.idempotency_key
        limit 1));
    if v_known then
      perform check_enqueue(p_instruction_ids, p_participant_ids, p_idempotency_keys, p_rail_types, p_payloads);
      select array_agg(k.outbox_id order by g.place),
             array_agg(k.sequence_id order by g.place),
             array_agg(k.created_at order by g.place),
             array_agg(g.first_place order by g.place),
             min(g.place) filter (where case
               when k.outbox_id is not null then
                 (k.participant_id, k.rail_type, k.payload) is distinct from (g.participant_id, g.rail_type, g.payload)
               when g.first_place < g.place then
                 (p_participant_ids[g.first_place], p_rail_types[g.first_place], p_payloads[g.first_place])
                 is distinct from (g.participant_id, g.rail_type, g.payload)
               end)
      into v_outbox_ids, v_sequence_ids, v_created_ats, v_first_places, v_reuse_at
      from (
        select g.*, min(g.place) over (partition by g.instruction_id, g.idempotency_key) as first_place
        from unnest(p_instruction_ids, p_participant_ids, p_idempotency_keys, p_rail_types, p_payloads) with ordinality
          as g (instruction_id, participant_id, idempotency_key, rail_type, payload, place)
      ) g
      left join lateral (
        (select p.outbox_id, p.sequence_id, p.created_at, p.participant_id, p.rail_type, p.payload
         from payment_outbox_pending p
         where p.instruction_id = g.instruction_id
           and p.idempotency_key = g.idempotency_key)
        union all
        (select a.outbox_id, a.sequence_id, a.created_at, a.participant_id, a.rail_type, a.payload
         from payment_outbox_attempts a
         where a.instruction_id = g.instruction_id
           and a.idempotency_key = g.idempotency_key
         order by a.sequence_id desc
         limit 1)
        limit 1
      ) k on true;
    end if;
    if v_reuse_at is not null then
      perform refuse_key_reuse(p_instruction_ids[v_reuse_at], v_outbox_ids[v_reuse_at]);
    end if;

    begin
      with given as (
        select *
        from unnest(p_instruction_ids, p_participant_ids, p_idempotency_keys, p_rail_types, p_payloads,
                    v_new_ids, v_outbox_ids, v_sequence_ids, v_created_ats, v_first_places) with ordinality
          as g (instruction_id, participant_id, idempotency_key, rail_type, payload,
                new_id, known_outbox_id, known_sequence_id, known_created_at, first_place, place)
      ),
      fresh as materialized (
        select s.*, bump_participant_outbox_seq(s.participant_id) as sequence_id
        from (
          select g.place, g.new_id as outbox_id, g.instruction_id, g.participant_id, g.idempotency_key, g.rail_type, g.payload
          from given g
          where g.known_outbox_id is null
            and g.place = coalesce(g.first_place, g.place)
          order by g.participant_id collate "C", g.place
        ) s
      ),
      inserted as (
        insert into payment_outbox_pending
          (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, traceparent)
        select f.outbox_id, f.instruction_id, f.participant_id, f.sequence_id, f.idempotency_key,
               -- Null, which the column refuses, where the rail is not registered.
               case when f.rail_type = any (array(select r.rail_type from payment_rails r where r.retired_at is null)) then f.rail_type end,
               f.payload, (select caller_traceparent())
        from fresh f
      )
      select array_agg(coalesce(g.known_outbox_id, f.outbox_id) order by g.place),
             array_agg(coalesce(g.known_sequence_id, f.sequence_id) order by g.place),
             array_agg(coalesce(g.known_created_at, now()) order by g.place),
             array_agg(g.known_outbox_id is not null or coalesce(g.first_place < g.place, false) order by g.place)
      into v_outbox_ids, v_sequence_ids, v_created_ats, v_replayed
      from given g
      left join fresh f on f.place = coalesce(g.first_place, g.place);
      exit;
    exception
      when unique_violation then
        get stacked diagnostics v_constraint = constraint_name;
        if v_constraint <> 'payment_outbox_pending_key_is_unique' then
          raise;
        end if;
        -- A writer that holds no lock got in between: look again, and find it.
        if v_look = 2 then
          raise exception 'one of these instructions was enqueued by another transaction meanwhile'
            using errcode = '40001',
                  hint = 'Run the whole transaction again.';
        end if;
      when check_violation or not_null_violation then
        perform check_enqueue(p_instruction_ids, p_participant_ids, p_idempotency_keys, p_rail_types, p_payloads);
        raise;
    end;
  end loop;

  return query
    select r.place::int, r.outbox_id, r.sequence_id, r.created_at, r.replayed
    from unnest(v_outbox_ids, v_sequence_ids, v_created_ats, v_replayed) with ordinality
      as r (outbox_id, sequence_id, created_at, replayed, place)
    order by r.place;
end
$$;

comment on function symphony.enqueue_payment_outbox_batch(text[], text[], text[], text[], jsonb[]) is
  'Enqueues many instructions in the caller''s transaction, in one statement, with a result for each.';
