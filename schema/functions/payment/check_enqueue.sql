-- Checks the instructions of an enqueue: refuses the first invalid one and says what is wrong with it.
--
-- One query finds the first invalid position; the checks after it choose the message. The arrays have the same length.
-- Locks: nothing. Raises: P7005, P7006. For: the enqueue functions.
create or replace function symphony.check_enqueue(
  p_instruction_ids  text[],
  p_participant_ids  text[],
  p_idempotency_keys text[],
  p_rail_types       text[],
  p_payloads         jsonb[],
  p_not_befores      timestamptz[])
  returns void
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
as $$
declare
  v_payload_limit constant int := 262144;
  v_wrong         int;
  -- The position, in a batch.
  v_which         text := '';
begin
  select g.place
  into v_wrong
  from unnest(p_instruction_ids, p_participant_ids, p_idempotency_keys, p_rail_types, p_payloads, p_not_befores) with ordinality
    as g (instruction_id, participant_id, idempotency_key, rail_type, payload, not_before, place)
  where (g.instruction_id ~ '[^[:space:]]' and char_length(g.instruction_id) <= 200
         and g.participant_id ~ '[^[:space:]]' and char_length(g.participant_id) <= 200
         and g.idempotency_key ~ '[^[:space:]]' and char_length(g.idempotency_key) <= 200
         -- The elements of an array are never compressed.
         and jsonb_typeof(g.payload) = 'object' and pg_column_size(g.payload) <= v_payload_limit
         and (pg_column_size(g.payload) < 800 or not jsonb_path_exists(g.payload, '$.**{101 to last}'))
         and (g.not_before is null or isfinite(g.not_before) and g.not_before <= now() + interval '366 days')
         and (g.rail_type = any (array(select r.rail_type from payment_rails r where r.retired_at is null))
              -- A known key is a replay, even if its rail was retired since.
              or g.rail_type = any (array(select r.rail_type from payment_rails r))
                 and exists (
                   select
                   from payment_outbox_keys k
                   where k.idempotency_key = g.idempotency_key
                     and k.instruction_id = g.instruction_id))) is not true
  limit 1;
  if v_wrong is null then
    return;
  end if;

  if cardinality(p_instruction_ids) > 1 then
    v_which := format('[%s]', v_wrong);
  end if;
  perform check_argument('p_instruction_id' || v_which, p_instruction_ids[v_wrong], 200);
  perform check_argument('p_participant_id' || v_which, p_participant_ids[v_wrong], 200);
  perform check_argument('p_idempotency_key' || v_which, p_idempotency_keys[v_wrong], 200);
  perform check_argument('p_rail_type' || v_which, p_rail_types[v_wrong], 200);
  if p_payloads[v_wrong] is null or jsonb_typeof(p_payloads[v_wrong]) <> 'object' then
    raise exception 'p_payload% must be a JSON object, not %', v_which, coalesce('a JSON ' || jsonb_typeof(p_payloads[v_wrong]), 'null')
      using errcode = 'P7005';
  end if;
  perform check_payload('p_payload' || v_which, p_payloads[v_wrong], v_payload_limit);
  if not isfinite(p_not_befores[v_wrong]) or p_not_befores[v_wrong] > now() + interval '366 days' then
    raise exception 'p_not_before% must be a time at most 366 days ahead, not %', v_which, p_not_befores[v_wrong]
      using errcode = 'P7005',
            hint = 'Enqueue a payment of a later date when that date is nearer, or leave p_not_before null to send it now.';
  end if;
  raise exception 'rail % is not registered%', p_rail_types[v_wrong], case when v_which = '' then '' else ' (p_rail_type' || v_which || ')' end
    using errcode = 'P7006',
          hint = 'Check the spelling, or let an operator register it with symphony.register_payment_rail.';
end
$$;

comment on function symphony.check_enqueue(text[], text[], text[], text[], jsonb[], timestamptz[]) is
  'Raises P7005 or P7006 for the first instruction that may not be enqueued.';
