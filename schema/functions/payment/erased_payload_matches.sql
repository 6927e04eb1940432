-- Returns whether an erased payload was the one given: an auditor who has the original proves that it was this one.
--
-- Numbers must be written as the producer wrote them, 10.00 and not 10.0; order and blanks do not matter.
-- Locks: nothing. Raises: P7003, P7005. For: symphony_auditor.
create or replace function symphony.erased_payload_matches(p_outbox_id uuid, p_payload jsonb)
  returns boolean
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_erased record;
begin
  if p_outbox_id is null or p_payload is null then
    raise exception '% must not be null', case when p_outbox_id is null then 'p_outbox_id' else 'p_payload' end using errcode = 'P7005';
  end if;
  select a.idempotency_key, a.instruction_id, a.participant_id, a.rail_type, a.payload, e.salt
  into v_erased
  from payment_outbox_attempts a
  left join payment_payload_erasures e on e.outbox_id = a.outbox_id
  where a.outbox_id = p_outbox_id
    and a.state in ('DISPATCHED', 'FAILED');
  if not found then
    raise exception 'there is no outbox % that has ended', p_outbox_id using errcode = 'P7005';
  elsif v_erased.salt is null then
    raise exception 'the payload of outbox % was not erased', p_outbox_id
      using errcode = 'P7003',
            hint = 'Read it in symphony.payment_outbox_attempts.';
  end if;
  return v_erased.payload ->> 'digest' = encode(
    salt_digest(
      outbox_content_digest(v_erased.idempotency_key, v_erased.instruction_id, v_erased.participant_id, v_erased.rail_type, p_payload),
      v_erased.salt),
    'hex');
end
$$;

comment on function symphony.erased_payload_matches(uuid, jsonb) is 'Whether the payload that was erased from an outbox was this one.';
