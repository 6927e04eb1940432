-- Makes the scheduled payments of one rail due at once, for an operator, and logs the operation with actor and reason.
--
-- For payments that wait longer than they should: the server's clock was ahead when they were scheduled, or a bank that
-- was down is back and the backoff is long. Those that are due first come first, at most 10,000 per call, parked ones
-- last. Leased rows keep their lease. A payment that its producer scheduled is due at its not_before at the earliest. Returns
-- how many payments it moved.
-- Locks: the rows it changes, skipping rows that another session has locked. Raises: P7005, P7006, 25000 outside READ
-- COMMITTED. For: symphony_operator.
create or replace function symphony.make_payments_due(
  p_rail_type text,
  p_actor     text,
  p_reason    text)
  returns bigint
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
as $$
declare
  v_parked boolean;
  v_rows   tid[] := '{}';
begin
  perform check_argument('p_rail_type', p_rail_type, 200);
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  perform check_isolation();
  if not exists (select from payment_rails r where r.rail_type = p_rail_type) then
    raise exception 'rail % is not registered', p_rail_type
      using errcode = 'P7006',
            hint = 'Check the spelling: symphony.payment_rail_policies lists the rails.';
  end if;

  foreach v_parked in array '{false,true}'::boolean[] loop
    v_rows := v_rows || array(
      select p.ctid
      from payment_outbox_pending p
      where p.rail_type = p_rail_type
        and p.parked = v_parked
        and p.next_attempt_at > now()
        and (p.not_before is null or p.next_attempt_at > p.not_before)
        and p.lease_token is null
      order by p.next_attempt_at, p.created_at
      limit 10000 - cardinality(v_rows)
      for no key update skip locked);
  end loop;
  update payment_outbox_pending p
  set next_attempt_at = greatest(now(), p.not_before)
  where p.ctid = any (v_rows);

  insert into payment_outbox_operations (operation_id, operation, rail_type, actor, reason)
  values (uuidv7(), 'MAKE_DUE', p_rail_type, p_actor, p_reason);
  perform pg_notify('outbox_pending', 'new_work');
  return cardinality(v_rows);
end
$$;

comment on function symphony.make_payments_due(text, text, text) is
  'Makes the scheduled payments of a rail due at once: at most 10,000 per call. Returns how many.';
