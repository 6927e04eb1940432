-- Refuses every change of a ledger or quarantine row but one: the erasure of the payload of an outbox that has ended.
--
-- It applies to every role, the owner and superusers included. The change is allowed if payment_payload_erasures has the
-- outbox, the operations log has that erasure, nothing but the payload changes, and the new payload is the one tombstone
-- that follows from the erasure and the old row. So a role that writes these rows past the function does the audited
-- erasure and nothing else: a tombstone cannot be replaced, and its digest is that of the payload which it replaced. The
-- trigger's argument completes the message of refuse_change.
-- Locks: nothing. Raises: P0001. For: the triggers on payment_outbox_attempts and payment_outbox_quarantine.
create or replace function symphony.check_payload_erasure()
  returns trigger
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_other   record;
  v_erasure payment_payload_erasures;
begin
  if tg_op = 'UPDATE' then
    v_other := new;
    v_other.payload := old.payload;
    if v_other *= old then
      select e.*
      into v_erasure
      from payment_payload_erasures e
      join payment_outbox_operations o
        on o.operation_id = e.operation_id
       and o.outbox_id = e.outbox_id
       and o.operation = 'ERASE'
      where e.outbox_id = old.outbox_id
        and exists (
          select
          from payment_outbox_attempts a
          where a.outbox_id = old.outbox_id
            and a.state in ('DISPATCHED', 'FAILED'));
      if found
         and not is_payload_tombstone(old.payload, v_erasure.erased_at)
         and new.payload = payload_tombstone(
           v_erasure.erased_at,
           salt_digest(
             outbox_content_digest(old.idempotency_key, old.instruction_id, old.participant_id, old.rail_type, old.payload),
             v_erasure.salt))
      then
        return new;
      end if;
    end if;
  end if;
  raise exception '% on %: %', lower(tg_op), tg_table_name, tg_argv[0]
    using errcode = 'P0001',
          hint = 'Change the state of an outbox through the functions of schema symphony only; see schema/README.md.';
end
$$;

comment on function symphony.check_payload_erasure() is
  'Trigger: refuses every change with P0001, for every role, but the erasure of a payload that the audit log has.';
