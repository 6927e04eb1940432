-- Moves all rails to a new epoch, holds those whose policy says so, and logs the operation.
--
-- From then on enqueues write rows of the new epoch, and claims treat all others as of unknown outcome. A rail that is
-- held already stays held since the earlier epoch. Retired rails are moved as well: they may have pending rows.
-- Locks: payment_rails in EXCLUSIVE mode. Raises: 55P03 while a worker leaves its transaction open. For: advance_epoch.
create or replace function symphony.move_rails_to_epoch(p_previous symphony.epoch, p_opened symphony.epoch, p_actor text)
  returns void
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  perform lock_rail_policies();
  update payment_rails r
  set epoch = p_opened.counter,
      epoch_timeline = p_opened.timeline,
      held_since_epoch = case when r.on_epoch_change = 'HOLD' then coalesce(r.held_since_epoch, p_opened.counter) else r.held_since_epoch end;

  insert into payment_outbox_operations (operation_id, operation, policy_before, policy_after, actor, reason)
  values (
    uuidv7(), 'OPEN_EPOCH', case when p_previous.counter is not null then to_jsonb(p_previous) end,
    to_jsonb(p_opened) || jsonb_build_object(
      'held_rails', array(select r.rail_type from payment_rails r where r.held_since_epoch is not null order by r.rail_type)),
    p_actor, p_opened.reason);
end
$$;

comment on function symphony.move_rails_to_epoch(symphony.epoch, symphony.epoch, text) is
  'Moves all rails to a new epoch, and holds those whose on_epoch_change is HOLD.';
