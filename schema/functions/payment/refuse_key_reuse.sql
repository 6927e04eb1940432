-- Refuses an idempotency key that was used for something else: that would be two payments under one name.
--
-- It does not say what differs, since a payload may hold personal data. Without an outbox, the other use
-- is further up in the same batch.
-- Locks: nothing. Raises: P7004. For: the enqueue functions.
create or replace function symphony.refuse_key_reuse(p_instruction_id text, p_outbox_id uuid)
  returns void
  language plpgsql
  immutable
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  raise exception 'the idempotency key of instruction % is taken, for another participant, rail or payload', p_instruction_id
    using errcode = 'P7004',
          detail = coalesce('It belongs to outbox ' || p_outbox_id || '.', 'It stands further up in the same batch.'),
          hint = 'Send what was sent first to get that outbox back, or a new idempotency key for a new payment.';
end
$$;

comment on function symphony.refuse_key_reuse(text, uuid) is 'Raises P7004 for an idempotency key that was used for something else.';
