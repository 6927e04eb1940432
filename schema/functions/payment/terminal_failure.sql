-- Finds the terminal failure that a person wants to act on, and locks its key in the registry.
--
-- Refuses what did not fail for good, and what was redriven already: the newest outbox of a key is the
-- only one that may be acted on, or a payment made by the redrive could be made again.
-- Locks: the row of the key in the registry. Raises: P7003, P7005, and 25000 outside READ COMMITTED. For: redrive and resolve.
create or replace function symphony.terminal_failure(p_outbox_id uuid)
  returns symphony.payment_outbox_attempts
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
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
              hint = 'A payment that was made cannot be made again. Enqueue a new instruction if another one is due.';
    elsif exists (select from payment_outbox_pending p where p.outbox_id = p_outbox_id) then
      raise exception 'outbox % is still pending', p_outbox_id
        using errcode = 'P7003',
              hint = 'Wait until it has ended; symphony.outbox_operational_status says what it waits for.';
    end if;
    raise exception 'there is no outbox %', p_outbox_id
      using errcode = 'P7005',
            hint = 'Take the outbox_id from symphony.payment_outbox_dlq.';
  end if;

  perform
  from payment_outbox_keys k
  where k.idempotency_key = v_failure.idempotency_key
    and k.instruction_id = v_failure.instruction_id
  for no key update;
  if not found then
    raise exception 'the key of outbox % is not registered', p_outbox_id
      using errcode = 'P7003',
            hint = 'Its row in symphony.payment_outbox_keys was lost, by a bad restore for example: a redrive could not be told from a second payment.';
  end if;

  select o.new_outbox_id
  into v_redrive
  from payment_outbox_operations o
  where o.outbox_id = p_outbox_id
    and o.operation = 'REDRIVE';
  if found then
    raise exception 'outbox % was redriven already', p_outbox_id
      using errcode = 'P7003',
            detail = format('It goes on as outbox %s.', v_redrive),
            hint = 'Act on that one, once it has failed for good.';
  end if;
  return v_failure;
end
$$;

comment on function symphony.terminal_failure(uuid) is 'The failure that a person wants to act on, or P7003 for anything else.';
