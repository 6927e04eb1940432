-- Releases rails that a new epoch has held, all or one of them, and logs it with actor and reason.
--
-- Call it after the payments of the rail were compared with what the bank has executed. The rows of earlier epochs are
-- then claimed as of unknown outcome, so each is inquired about before it is sent. Returns the rails that were released.
-- Locks: payment_rails in EXCLUSIVE mode: it waits for claims under way, and later claims wait for it.
-- Raises: P7003 if the rail is not held, P7005, P7006, 25000 outside READ COMMITTED, 55P03 while a worker leaves its
-- transaction open.
-- For: symphony_operator.
create or replace function symphony.recover_epoch(p_actor text, p_reason text, p_rail_type text default null)
  returns setof symphony.payment_rails
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_before   payment_rails;
  v_after    payment_rails;
  v_released boolean := false;
begin
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  if p_rail_type is not null then
    perform check_argument('p_rail_type', p_rail_type, 200);
  end if;
  perform check_isolation();
  perform lock_rail_policies();
  if p_rail_type is not null and not exists (select from payment_rails r where r.rail_type = p_rail_type) then
    perform registered_rail(p_rail_type);
  elsif p_rail_type is not null and exists (select from payment_rails r where r.rail_type = p_rail_type and r.held_since_epoch is null) then
    raise exception 'rail % is not held', p_rail_type
      using errcode = 'P7003',
            hint = 'symphony.payment_rail_policies has held_since_epoch for each rail.';
  end if;

  for v_before in
    select r.*
    from payment_rails r
    where r.held_since_epoch is not null
      and (p_rail_type is null or r.rail_type = p_rail_type)
    order by r.rail_type
  loop
    update payment_rails r
    set held_since_epoch = null,
        updated_by = p_actor,
        updated_at = clock_timestamp()
    where r.rail_type = v_before.rail_type
    returning r.* into v_after;
    insert into payment_outbox_operations (operation_id, operation, rail_type, policy_before, policy_after, actor, reason)
    values (uuidv7(), 'RECOVER_EPOCH', v_before.rail_type, to_jsonb(v_before), to_jsonb(v_after), p_actor, p_reason);
    v_released := true;
    return next v_after;
  end loop;
  if v_released then
    -- Rows are due on the released rails, and no INSERT notifies of them.
    perform notify_idle_relayers('outbox_pending');
  end if;
end
$$;

comment on function symphony.recover_epoch(text, text, text) is 'Releases the rails that a new epoch has held, all or one of them.';
