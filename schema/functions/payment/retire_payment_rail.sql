-- Retires a rail: no more payments can be enqueued to it.
--
-- Only a rail without pending payments can be retired. Its row stays, marked, because the ledger names it: attempts,
-- dead letters and operations remain readable. An enqueue that began before and commits after is not lost: claims
-- still take pending rows of a retired rail, and relayers that do not serve it report it. A dead letter can be
-- resolved; to redrive it, register the rail again.
-- Locks: payment_rails in EXCLUSIVE mode: it waits for claims under way, and later claims wait for it.
-- Raises: P7003 while payments are pending, P7005, P7006, 25000 outside READ COMMITTED, 55P03 while a worker leaves
-- its transaction open.
-- For: symphony_operator.
create or replace function symphony.retire_payment_rail(p_rail_type text, p_actor text, p_reason text)
  returns symphony.payment_rails
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  -- Counting stops here: one pending payment is enough to refuse.
  v_max_counted      constant int := 10000;
  v_before    payment_rails;
  v_after     payment_rails;
  v_pending   bigint;
  v_leased    bigint;
  v_scheduled bigint;
begin
  perform check_argument('p_rail_type', p_rail_type, 200);
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  perform check_isolation();
  perform lock_rail_policies();
  v_before := registered_rail(p_rail_type);

  select count(*),
         count(*) filter (where w.lease_token is not null),
         count(*) filter (where w.lease_token is null and w.next_attempt_at > now())
  into v_pending, v_leased, v_scheduled
  from (
    select p.lease_token, p.next_attempt_at
    from payment_outbox_pending p
    where p.rail_type = p_rail_type
    limit v_max_counted
  ) w;
  if v_pending > 0 then
    raise exception 'rail % has % pending payments: % due, % leased, % scheduled', p_rail_type,
        case when v_pending = v_max_counted then v_max_counted || ' or more' else v_pending::text end,
        v_pending - v_leased - v_scheduled, v_leased, v_scheduled
      using errcode = 'P7003',
            hint = 'Let a relayer serve the rail until they have ended, then retire it. symphony.outbox_operational_status lists them.';
  end if;

  update payment_rails r
  set retired_at = clock_timestamp(),
      updated_by = p_actor,
      updated_at = clock_timestamp()
  where r.rail_type = p_rail_type
  returning r.* into v_after;
  delete from payment_rail_in_flight s where s.rail_type = p_rail_type;
  delete from payment_stream_holds h where h.rail_type = p_rail_type;

  insert into payment_outbox_operations (operation_id, operation, rail_type, policy_before, policy_after, actor, reason)
  values (uuidv7(), 'RETIRE_RAIL', p_rail_type, to_jsonb(v_before), to_jsonb(v_after), p_actor, p_reason);
  return v_after;
end
$$;

comment on function symphony.retire_payment_rail(text, text, text) is
  'Retires a rail without pending payments: no more payments can be enqueued to it.';
