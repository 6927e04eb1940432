-- Lets go what waited for rows that have just ended.
--
-- When a row ends on an ordered rail, the next of its stream may have been parked behind it: it is put
-- back into the claim order, due from now on. Successors under a lease are passed over, as they may be
-- ending at this very moment; see docs/decisions/0001-ordered-rails.md. The arrays name what ended on ordered rails; whether
-- a seat of a capped rail is free again comes with them, since either makes work claimable that nobody inserts.
-- Locks: the successors. For: settle_outbox_leases and end_outboxes.
create or replace function symphony.free_successors(p_participants text[], p_rails text[], p_sequence_ids bigint[], p_seat_free boolean)
  returns void
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_material = off
  set enable_hashjoin = off
  set enable_mergejoin = off
as $$
declare
  v_freed boolean := false;
begin
  if p_participants is not null then
    with successors as (
      select n.outbox_id
      from unnest(p_participants, p_rails, p_sequence_ids) as e (participant_id, rail_type, sequence_id)
      cross join lateral (
        select p.outbox_id
        from payment_outbox_pending p
        where p.participant_id = e.participant_id
          and p.rail_type = e.rail_type
          and p.sequence_id > e.sequence_id
          and p.lease_token is null
        order by p.sequence_id
        limit 1
      ) n
    ),
    waiting as (
      select p.ctid as place
      from payment_outbox_pending p
      where p.outbox_id = any (array(select s.outbox_id from successors s))
        and p.parked
      order by p.outbox_id
      for no key update
    )
    update payment_outbox_pending p
    set parked = false,
        next_attempt_at = greatest(p.next_attempt_at, now())
    from waiting w
    where p.ctid = w.place;
    v_freed := found;
  end if;
  if v_freed or p_seat_free then
    perform wake_sleepers('outbox_pending');
  end if;
end
$$;

comment on function symphony.free_successors(text[], text[], bigint[], boolean) is
  'Puts back into the claim order what was parked behind rows that have ended, and wakes a sleeping relayer.';
