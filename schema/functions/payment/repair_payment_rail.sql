-- Requeues the rows of one rail whose lease has expired, for an operator, and logs the operation with actor and
-- reason.
--
-- Relayers repair all rails by themselves; this is for when no relayer runs. At most a thousand rows per call.
-- Locks: the rows it repairs, skipping rows that another session has locked; payment_rails in ROW SHARE mode.
-- Raises: P7005, P7006, 25000 outside READ COMMITTED. For: symphony_operator.
create or replace function symphony.repair_payment_rail(
  p_rail_type  text,
  p_actor      text,
  p_reason     text,
  out requeued bigint,
  out failed   bigint)
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
  v_expired tid[];
begin
  perform check_argument('p_rail_type', p_rail_type, 200);
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  perform check_isolation();
  -- Keeps rail policies constant during the call; see lock_rail_policies.
  lock table payment_rails in row share mode;
  if not exists (select from payment_rails r where r.rail_type = p_rail_type) then
    raise exception 'rail % is not registered', p_rail_type
      using errcode = 'P7006',
            hint = 'Check the spelling: symphony.payment_rail_policies lists the rails.';
  end if;

  v_expired := array(
    select p.ctid
    from payment_outbox_pending p
    where p.rail_type = p_rail_type
      and not p.parked
      and p.next_attempt_at <= now()
      and p.lease_expires_at <= now()
    order by p.next_attempt_at, p.created_at
    limit 1000
    for no key update skip locked);

  select count(*) filter (where e.state = 'ZOMBIE_REQUEUE'),
         count(*) filter (where e.state = 'FAILED')
  into requeued, failed
  -- The operator's name goes to the operations log only: more roles may read the ledger.
  from end_expired_leases(v_expired, 'an operator', 1) e;

  insert into payment_outbox_operations (operation_id, operation, rail_type, actor, reason)
  values (uuidv7(), 'REPAIR', p_rail_type, p_actor, p_reason);
end
$$;

comment on function symphony.repair_payment_rail(text, text, text) is
  'Requeues the rows of a rail whose lease has expired: each gets a ledger row, and is due again or has failed at max_attempts.';
