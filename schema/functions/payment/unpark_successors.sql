-- Unparks the rows that waited behind rows that have just ended, and notifies an idle relayer.
--
-- When a row ends on an ordered rail, the next row of its stream can be claimed. If it is parked, it returns to the
-- claim order and is due now. Leased successors are skipped, as they may be ending right now; see
-- docs/decisions/0001-ordered-rails.md. A successor that another session has locked is left to unpark_requested_rows: a producer
-- that cancels it may keep its transaction open, and no worker waits for a producer. No INSERT announces the successor, so an idle relayer is notified here.
-- The arrays name the rows that ended on ordered rails. p_capacity_freed says that a rail with max_in_flight has a
-- free lease again: it needs the same notification, because no INSERT sends one.
-- rail_type || '' keeps the plan from the index of the claim order.
-- Locks: the successors (SKIP LOCKED). For: record_attempts, record_terminal_attempts, quarantine_outbox, release_stream_hold and
-- apply_rail_policy.
create or replace function symphony.unpark_successors(p_participants text[], p_rails text[], p_sequence_ids bigint[], p_capacity_freed boolean)
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
  v_has_successor boolean := false;
begin
  if p_participants is not null then
    with successors as (
      select n.outbox_id, n.parked
      from (
        -- Of a run that ended together, one look-up: what follows its first row follows the others too.
        select e.participant_id, e.rail_type, min(e.sequence_id) as sequence_id
        from unnest(p_participants, p_rails, p_sequence_ids) as e (participant_id, rail_type, sequence_id)
        group by e.participant_id, e.rail_type
      ) e
      cross join lateral (
        select p.outbox_id, p.parked
        from payment_outbox_pending p
        where p.participant_id = e.participant_id
          and p.rail_type || '' = e.rail_type
          and p.sequence_id > e.sequence_id
          and p.lease_token is null
        order by p.sequence_id
        limit 1
      ) n
    ),
    waiting as (
      select p.outbox_id, p.ctid as place
      from payment_outbox_pending p
      where p.outbox_id = any (array(select s.outbox_id from successors s where s.parked))
        and p.parked
      order by p.outbox_id
      for no key update skip locked
    ),
    unparked as (
      update payment_outbox_pending p
      set parked = false,
          next_attempt_at = greatest(p.next_attempt_at, now())
      from waiting w
      where p.ctid = w.place
    ),
    requested as (
      insert into payment_unpark_requests (request_id, outbox_id)
      select uuidv7(), s.outbox_id
      from successors s
      where s.parked
        and s.outbox_id <> all (array(select w.outbox_id from waiting w))
    )
    select exists (select from successors)
    into v_has_successor;
  end if;
  if v_has_successor or p_capacity_freed then
    perform notify_idle_relayers('outbox_pending');
  end if;
end
$$;

comment on function symphony.unpark_successors(text[], text[], bigint[], boolean) is
  'Unparks the rows behind rows that have ended, and notifies an idle relayer.';
