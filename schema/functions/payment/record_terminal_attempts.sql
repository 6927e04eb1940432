-- Records terminal outcomes: checks the leases, appends DISPATCHED or FAILED to the ledger, and deletes the pending
-- rows.
--
-- complete_outbox_batch records the usual outcome itself; this is for the other terminal ones. It is one statement, and
-- the DELETE is also the lock. It finds a row by outbox,
-- token, worker and expiry, waits for a concurrent change, and checks again. Its conditions are those of
-- lock_leased_outboxes; a lock before the DELETE would write every row twice. attempt_no is read in the same
-- statement: while a worker holds the lease, no other session appends to its outbox.
--
-- places has the positions, from 1, of the outcomes that were recorded; the worker holds no lease on the others. An
-- outbox that is given twice ends once. Error messages are stored through clean_error_text.
-- Locks: the rows it ends, in the order of their ids, and their successors on ordered rails.
-- Raises: 23505 if an outbox already has a terminal ledger row. For: complete_outbox_batch.
create or replace function symphony.record_terminal_attempts(
  p_outbox_ids      uuid[],
  p_lease_tokens    uuid[],
  p_worker_id       text,
  p_states          symphony.outbox_attempt_state[],
  p_rail_references text[],
  p_rail_codes      text[],
  p_error_codes     text[],
  p_error_messages  text[],
  p_latencies_ms    int[],
  out places        int[],
  out attempt_nos   int[])
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
  v_attempt_ids  constant uuid[] := uuidv7s(cardinality(p_outbox_ids));
  v_ordered      text[];
  v_limited      text[];
  v_publishing   text[];
  v_holding      text[];
  -- The rows that ended on ordered rails and hold nothing, as parallel arrays.
  v_participants text[];
  v_rails        text[];
  v_sequence_ids bigint[];
  v_capacity_freed    boolean;
  -- The outboxes that ended on rails that publish outcomes.
  v_to_publish   uuid[];
  -- The failures that hold their streams.
  v_to_hold      uuid[];
  -- Outboxes with an earlier attempt: the rail may have accepted them.
  v_repeated     uuid[];
begin
  select array_agg(r.rail_type) filter (where r.ordered), array_agg(r.rail_type) filter (where r.max_in_flight is not null),
         array_agg(r.rail_type) filter (where r.publish_outcomes),
         coalesce(array_agg(r.rail_type) filter (where r.on_failure = 'HOLD'), '{}')
  into v_ordered, v_limited, v_publishing, v_holding
  from payment_rails r;

  with deleted as (
    delete from payment_outbox_pending p
    using (
      select *
      from unnest(p_outbox_ids, p_lease_tokens, p_states, p_rail_references, p_rail_codes, p_error_codes, p_error_messages, p_latencies_ms,
                  v_attempt_ids) with ordinality
        as g (outbox_id, lease_token, state, rail_reference, rail_code, error_code, error_message, latency_ms, attempt_id, place)
      order by g.outbox_id, g.place
      offset 0
    ) g
    -- An array of one: with an equality, a plan made for a table of one row could scan the whole primary key.
    where p.outbox_id = any (array[g.outbox_id])
      and p.lease_token = g.lease_token
      and p.claimed_by = p_worker_id
      and p.lease_expires_at > now()
    returning g.place, p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key, p.rail_type, p.payload,
              p.claimed_at, p.claimed_endpoint, p.created_at, g.state, g.rail_reference, g.rail_code, g.error_code, g.error_message, g.latency_ms,
              g.attempt_id, coalesce(p.claimed_epoch, p.epoch) as epoch
  ),
  numbered as materialized (
    select g.*, g.state = 'FAILED' and g.rail_type = any (v_holding) as holds,
           coalesce((
             select a.attempt_no
             from payment_outbox_attempts a
             where a.outbox_id = g.outbox_id
             order by a.attempt_no desc
             limit 1), 0) + 1 as attempt_no
    from deleted g
  ),
  -- Insert into the ledger.
  appended as (
    insert into payment_outbox_attempts
      (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no,
       state, claimed_at, rail_reference, rail_code, error_code, error_message, latency_ms, worker_id, created_at, epoch, endpoint)
    select n.attempt_id, n.outbox_id, n.instruction_id, n.participant_id, n.sequence_id, n.idempotency_key, n.rail_type, n.payload, n.attempt_no,
           n.state, n.claimed_at, n.rail_reference, n.rail_code, n.error_code,
           case when n.error_message is not null then clean_error_text(n.error_message) end,
           n.latency_ms, p_worker_id, n.created_at, n.epoch, n.claimed_endpoint
    from numbered n
  )
  select array_agg(n.place order by n.place), array_agg(n.attempt_no order by n.place),
         array_agg(n.participant_id) filter (where n.rail_type = any (v_ordered) and not n.holds),
         array_agg(n.rail_type) filter (where n.rail_type = any (v_ordered) and not n.holds),
         array_agg(n.sequence_id) filter (where n.rail_type = any (v_ordered) and not n.holds),
         bool_or(n.rail_type = any (v_limited)),
         array_agg(n.outbox_id order by n.place) filter (where n.rail_type = any (v_publishing)),
         array_agg(n.outbox_id) filter (where n.holds),
         array_agg(n.outbox_id) filter (where n.attempt_no > 1)
  into places, attempt_nos, v_participants, v_rails, v_sequence_ids, v_capacity_freed, v_to_publish, v_to_hold, v_repeated
  from numbered n;

  if v_to_hold is not null then
    perform hold_payment_streams(v_to_hold);
  end if;
  if v_repeated is not null then
    delete from payment_awaiting_confirmation w where w.outbox_id = any (v_repeated);
  end if;

  if v_participants is not null or v_capacity_freed then
    perform unpark_successors(v_participants, v_rails, v_sequence_ids, v_capacity_freed);
  end if;
  if v_to_publish is not null then
    perform publish_payment_outcomes(v_to_publish);
  end if;
end
$$;

comment on function symphony.record_terminal_attempts(uuid[], uuid[], text, symphony.outbox_attempt_state[], text[], text[], text[], text[], int[]) is
  'Records terminal outcomes of leases that a worker holds: one ledger row each, and the pending row is deleted.';
