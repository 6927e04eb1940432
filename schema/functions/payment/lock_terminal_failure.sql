-- Finds the terminal failure that an operator acts on, and locks its idempotency key in the registry.
--
-- It refuses an outbox that is not FAILED, one that was cancelled, and one that was redriven. Only the newest outbox of a
-- key may be redriven or resolved: otherwise a payment that the redrive has made could be made again.
-- Locks: the key's row in the registry. Raises: P7003, P7005, 25000 outside READ COMMITTED.
-- For: redrive_payment_outbox and resolve_payment_outbox.
create or replace function symphony.lock_terminal_failure(p_outbox_id uuid)
  returns symphony.payment_outbox_attempts
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_archive record;
  v_failure payment_outbox_attempts;
  v_redrive uuid;
begin
  perform check_isolation();
  if p_outbox_id is null then
    raise exception 'p_outbox_id must not be null' using errcode = 'P7005';
  end if;

  select a.*
  into v_failure
  from payment_outbox_attempts a
  where a.outbox_id = p_outbox_id
    and a.state in ('DISPATCHED', 'FAILED');

  if v_failure.state is distinct from 'FAILED' then
    if v_failure.state = 'DISPATCHED' then
      raise exception 'outbox % was dispatched, it did not fail', p_outbox_id
        using errcode = 'P7003',
              hint = 'Enqueue a new instruction if another payment is due.';
    elsif exists (select from payment_outbox_pending p where p.outbox_id = p_outbox_id) then
      raise exception 'outbox % is still pending', p_outbox_id
        using errcode = 'P7003',
              hint = 'Wait until it has ended; symphony.outbox_operational_status shows its status.';
    end if;
    select f.location, f.archived_at into v_archive from find_archived_outboxes(p_outbox_id::text) f limit 1;
    if found then
      raise exception 'the ledger rows of outbox % were archived on %, in %', p_outbox_id,
        to_char(v_archive.archived_at at time zone 'UTC', 'YYYY-MM-DD'), v_archive.location
        using errcode = 'P7003',
              hint = 'What was archived cannot be redriven or resolved. Enqueue a new instruction if another payment is due.';
    end if;
    raise exception 'there is no outbox %', p_outbox_id
      using errcode = 'P7005',
            hint = 'Take the outbox_id from symphony.payment_outbox_dlq.';
  end if;

  if v_failure.error_code = 'CANCELLED' then
    raise exception 'outbox % was cancelled, it did not fail', p_outbox_id
      using errcode = 'P7003',
            hint = 'Enqueue a new instruction, or the same under a new idempotency key, if the payment is due after all.';
  end if;

  perform
  from payment_outbox_keys k
  where k.idempotency_key = v_failure.idempotency_key
    and k.instruction_id = v_failure.instruction_id
  for no key update;
  if not found then
    raise exception 'the key of outbox % is not registered', p_outbox_id
      using errcode = 'P7003',
            hint = 'Its row in symphony.payment_outbox_keys was lost, for example by a bad restore. Restore that row first: without it a redrive could pay twice.';
  end if;

  select o.new_outbox_id
  into v_redrive
  from payment_outbox_operations o
  where o.outbox_id = p_outbox_id
    and o.operation = 'REDRIVE';
  if found then
    raise exception 'outbox % was redriven already', p_outbox_id
      using errcode = 'P7003',
            detail = format('It continues as outbox %s.', v_redrive),
            hint = 'Redrive or resolve that outbox, once it has failed terminally.';
  end if;
  return v_failure;
end
$$;

comment on function symphony.lock_terminal_failure(uuid) is
  'The terminal failure that an operator acts on; raises P7003 for anything else.';
