-- Ends the hold of a failure on the later payments of its participant, and unparks the next of them.
--
-- Returns whether the failure held its stream. A claim that parks rows behind the hold has locked it FOR SHARE, so the
-- DELETE waits for that claim, and the next statement sees and unparks those rows: as at the end of a head, see
-- unpark_successors. With p_unpark false the caller puts another row in the place of the failure, and that row goes first.
-- Locks: the hold, and the next row of the stream. For: resolve_payment_outbox and redrive_payment_outbox.
create or replace function symphony.release_stream_hold(p_failure symphony.payment_outbox_attempts, p_unpark boolean)
  returns boolean
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
as $$
begin
  delete from payment_stream_holds h
  where h.participant_id = p_failure.participant_id
    and h.rail_type = p_failure.rail_type
    and h.sequence_id = p_failure.sequence_id
    and h.outbox_id = p_failure.outbox_id;
  if not found then
    return false;
  end if;
  if p_unpark then
    perform unpark_successors(array[p_failure.participant_id], array[p_failure.rail_type], array[p_failure.sequence_id], false);
  end if;
  return true;
end
$$;

comment on function symphony.release_stream_hold(symphony.payment_outbox_attempts, boolean) is
  'Ends the hold of a failure on the later payments of its participant; returns whether it held them.';
