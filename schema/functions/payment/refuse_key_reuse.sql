-- Refuses an idempotency key that was used for another payment.
--
-- The message does not say what differs, because a payload may contain personal data. Without p_outbox_id the other
-- use is earlier in the same batch.
-- Locks: nothing. Raises: P7004. For: the enqueue functions.
create or replace function symphony.refuse_key_reuse(p_instruction_id text, p_outbox_id uuid)
  returns void
  language plpgsql
  immutable
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  raise exception 'the idempotency key of instruction % is already used for another participant, rail or payload', p_instruction_id
    using errcode = 'P7004',
          detail = coalesce('It belongs to outbox ' || p_outbox_id || '.', 'It is used earlier in the same batch.'),
          hint = 'Repeat the first content to get that outbox, or use a new idempotency key for a new payment.';
end
$$;

comment on function symphony.refuse_key_reuse(text, uuid) is
  'Raises P7004 for an idempotency key that was used for another payment.';
