-- Refuses an instruction that may not be enqueued, naming what is wrong with it.
--
-- p_which says which one it is when there are many, and is empty otherwise. The first test is the whole
-- rule; the rest only finds the words for a refusal.
-- Locks: nothing. Raises: P7005, P7006. For: the enqueue functions.
create or replace function symphony.check_enqueue(
  p_instruction_id  text,
  p_participant_id  text,
  p_idempotency_key text,
  p_rail_type       text,
  p_payload         jsonb,
  p_which           text)
  returns void
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_payload_limit constant int := 262144;
begin
  if p_instruction_id ~ '[^[:space:]]' and char_length(p_instruction_id) <= 200
     and p_participant_id ~ '[^[:space:]]' and char_length(p_participant_id) <= 200
     and p_idempotency_key ~ '[^[:space:]]' and char_length(p_idempotency_key) <= 200
     and jsonb_typeof(p_payload) = 'object' and pg_column_size(p_payload) <= v_payload_limit
     and exists (select from payment_rails r where r.rail_type = p_rail_type) then
    return;
  end if;
  perform check_argument('p_instruction_id' || p_which, p_instruction_id, 200);
  perform check_argument('p_participant_id' || p_which, p_participant_id, 200);
  perform check_argument('p_idempotency_key' || p_which, p_idempotency_key, 200);
  perform check_argument('p_rail_type' || p_which, p_rail_type, 200);
  if p_payload is null or jsonb_typeof(p_payload) <> 'object' then
    raise exception 'p_payload% must be a JSON object, not %', p_which, coalesce('a JSON ' || jsonb_typeof(p_payload), 'null')
      using errcode = 'P7005';
  elsif pg_column_size(p_payload) > v_payload_limit then
    raise exception 'p_payload% must have at most % bytes, not %', p_which, v_payload_limit, pg_column_size(p_payload)
      using errcode = 'P7005',
            hint = 'Keep a large document in a table of your own, and its key in the payload.';
  end if;
  raise exception 'rail % is not registered%', p_rail_type, case when p_which = '' then '' else ' (p_rail_type' || p_which || ')' end
    using errcode = 'P7006',
          hint = 'Check the spelling, or let an operator register it with symphony.set_payment_rail.';
end
$$;

comment on function symphony.check_enqueue(text, text, text, text, jsonb, text) is
  'Raises P7005 or P7006 for an instruction that may not be enqueued.';
