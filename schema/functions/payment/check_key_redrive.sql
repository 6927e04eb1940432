-- Allows one change of a registered idempotency key: a redrive points it at the outbox that retries the failed one.
--
-- The operations log must contain that redrive. So no role can point a key at another outbox, the owner included.
-- Locks: nothing. Raises: P0001. For: the trigger on payment_outbox_keys.
create or replace function symphony.check_key_redrive()
  returns trigger
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if (old.idempotency_key, old.instruction_id, old.content_digest, old.created_at)
     is distinct from (new.idempotency_key, new.instruction_id, new.content_digest, new.created_at)
     or not exists (
       select
       from payment_outbox_operations o
       where o.operation = 'REDRIVE'
         and o.outbox_id = old.outbox_id
         and o.new_outbox_id = new.outbox_id)
  then
    raise exception 'update on payment_outbox_keys: a key changes by a redrive only'
      using errcode = 'P0001',
            hint = 'Change the state of an outbox through the functions of schema symphony only; see schema/README.md.';
  end if;
  return new;
end
$$;

comment on function symphony.check_key_redrive() is 'Trigger: refuses with P0001 a change of a registered key that is not a redrive.';
