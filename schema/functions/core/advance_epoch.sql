-- Opens a new epoch, and moves the rails to it.
--
-- Without p_reason it opens one only if the server is not the one of the newest epoch; it looks again under the lock, so
-- that of many claims one opens it. Then it returns null if another session has done so. Numbers and the versions of
-- metadata follow from the newest epoch and need no change. p_at_least is a lower bound of the
-- counter. The setting symphony.opened_epoch has the new and the previous epoch as JSON, until the transaction ends.
--
-- While the transaction is open, claims wait. So it is ended after it has been idle for five seconds, as in
-- lock_rail_policies. No producer's transaction holds a lock that this waits for.
-- Locks: epoch in EXCLUSIVE mode, then payment_rails in EXCLUSIVE mode, as a change of a rail's policy does.
-- Raises: 25000 outside READ COMMITTED, 55P03 while a worker leaves its transaction open, P7005.
-- For: ensure_epoch, open_epoch and check_worker_history.
create or replace function symphony.advance_epoch(p_actor text, p_reason text, p_at_least bigint)
  returns symphony.epoch
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
  set enable_seqscan = off
as $$
declare
  v_system_identifier constant bigint := (select s.system_identifier from pg_control_system() s);
  v_timeline          constant int := server_timeline();
  v_previous          epoch;
  v_opened            epoch;
begin
  perform check_isolation();
  lock table epoch in exclusive mode;
  select e.* into v_previous from epoch e order by e.counter desc limit 1;
  if p_reason is null and (v_previous.system_identifier, v_previous.timeline) = (v_system_identifier, v_timeline) then
    return null;
  elsif p_at_least > coalesce(v_previous.counter, 0) + 1000 then
    raise exception 'p_at_least must not be more than 1000 above the newest epoch, which is %', v_previous.counter
      using errcode = 'P7005';
  end if;
  if (select s.setting::int = 0 or s.setting::int > 5000 from pg_settings s where s.name = 'idle_in_transaction_session_timeout') then
    perform set_config('idle_in_transaction_session_timeout', '5s', true);
  end if;

  insert into epoch as e (counter, system_identifier, timeline, reason)
  values (
    greatest(next_epoch(v_previous.counter, v_timeline), p_at_least), v_system_identifier, v_timeline,
    coalesce(p_reason, format('the server changed from system %s, timeline %s, to system %s, timeline %s',
      v_previous.system_identifier, v_previous.timeline, v_system_identifier, v_timeline)))
  returning e.* into v_opened;
  -- A database need not have the payment lane.
  if to_regclass('symphony.payment_rails') is not null then
    perform move_rails_to_epoch(v_previous, v_opened, p_actor);
  end if;
  perform set_config('symphony.opened_epoch', jsonb_build_object(
    'opened', to_jsonb(v_opened), 'previous', case when v_previous.counter is not null then to_jsonb(v_previous) end)::text, true);
  return v_opened;
end
$$;

comment on function symphony.advance_epoch(text, text, bigint) is 'Opens a new epoch and moves the rails to it; without a reason only if the server has changed.';
