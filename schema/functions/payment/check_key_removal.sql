-- Refuses the deletion of an idempotency key, unless it is past its retention and no row of its outbox is left.
--
-- A payment whose key was deleted too early could be paid twice. It applies to every role, the owner and superusers
-- included. Pending first, then the ledger: a completion moves a row from the one to the other.
-- Locks: nothing. Raises: P0001. For: a trigger of payment_outbox_keys.
create or replace function symphony.check_key_removal()
  returns trigger
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_cutoff constant timestamptz := retention_cutoff('payment_keys');
begin
  if old.created_at < v_cutoff
     and old.outbox_id < uuidv7_lower_bound(v_cutoff)
     and not exists (select from payment_outbox_pending p where p.outbox_id = old.outbox_id)
     and not exists (select from payment_outbox_attempts a where a.outbox_id = old.outbox_id) then
    return old;
  end if;
  raise exception 'delete on payment_outbox_keys: a key that was used stays registered'
    using errcode = 'P0001',
          hint = 'symphony maintain removes keys past the retention of payment_keys whose outbox is neither pending nor in the ledger.';
end
$$;

comment on function symphony.check_key_removal() is
  'Trigger: refuses to delete an idempotency key before the end of its retention, or while its outbox is pending or in the ledger.';
