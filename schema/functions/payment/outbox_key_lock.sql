-- The advisory lock of an (instruction, idempotency key) pair.
--
-- Each part is hashed with a seed of its own, the second with the first's hash, so that neither
-- swapping the parts nor moving their boundary gives the same number. A collision costs waiting, no more.
-- Locks: nothing. For: the enqueue functions and redrive.
create or replace function symphony.outbox_key_lock(p_instruction_id text, p_idempotency_key text)
  returns bigint
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return hashtextextended(p_idempotency_key, hashtextextended(p_instruction_id, 7004));
end
$$;

comment on function symphony.outbox_key_lock(text, text) is 'Number of the advisory lock that serialises the uses of one idempotency key.';
