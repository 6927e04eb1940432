-- Allows two changes of a registered idempotency key: a redrive points it at the outbox that retries the failed one, and
-- an erasure salts its digest.
--
-- The operations log must contain that redrive, and payment_payload_erasures that salt. So no role can point a key at
-- another outbox or at other content, the owner included.
-- Locks: nothing. Raises: P0001. For: the trigger on payment_outbox_keys.
create or replace function symphony.check_key_change()
  returns trigger
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if (old.idempotency_key, old.instruction_id, old.content_digest, old.digest_salt, old.created_at)
     is not distinct from (new.idempotency_key, new.instruction_id, new.content_digest, new.digest_salt, new.created_at)
     and exists (
       select
       from payment_outbox_operations o
       where o.operation = 'REDRIVE'
         and o.outbox_id = old.outbox_id
         and o.new_outbox_id = new.outbox_id)
  then
    return new;
  elsif (old.idempotency_key, old.instruction_id, old.outbox_id, old.created_at)
        is not distinct from (new.idempotency_key, new.instruction_id, new.outbox_id, new.created_at)
        and old.digest_salt is null
        and new.content_digest = salt_digest(old.content_digest, new.digest_salt)
        and exists (
          select
          from payment_payload_erasures e
          where e.outbox_id = old.outbox_id
            and e.salt = new.digest_salt)
  then
    return new;
  end if;
  raise exception 'update on payment_outbox_keys: a key changes by a redrive or an erasure only'
    using errcode = 'P0001',
          hint = 'Change the state of an outbox through the functions of schema symphony only; see schema/README.md.';
end
$$;

comment on function symphony.check_key_change() is
  'Trigger: refuses with P0001 a change of a registered key that is neither a redrive nor an erasure.';
