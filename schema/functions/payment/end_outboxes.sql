-- Ends outboxes for certain: appends DISPATCHED or FAILED to the ledger and lets the row go.
--
-- Most completions are of this kind, so it is one statement, and the deletion is the lock: it finds the row by
-- outbox, token, worker and expiry, waits for whoever changes it, and looks again. The attempt's number
-- is read in the same statement: while a lease is held, nobody else appends to its outbox.
-- places says which of those given were recorded, counted from 1; the others hold no lease. An outbox that was given twice ends once. Of an
-- error's message only what clean_error_text leaves is kept.
-- Locks: the rows it ends, in the order of their ids, and their successors on ordered rails. Raises: 23505 where the ledger says that an outbox has ended
-- already. For: complete_outbox_batch.
create or replace function symphony.end_outboxes(
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
  v_capped       text[];
  -- What ended on ordered rails, in parallel.
  v_participants text[];
  v_rails        text[];
  v_sequence_ids bigint[];
  v_seat_free    boolean;
begin
  select array_agg(r.rail_type) filter (where r.ordered), array_agg(r.rail_type) filter (where r.max_in_flight is not null)
  into v_ordered, v_capped
  from payment_rails r;

  with gone as (
    delete from payment_outbox_pending p
    using (
      select *
      from unnest(p_outbox_ids, p_lease_tokens, p_states, p_rail_references, p_rail_codes, p_error_codes, p_error_messages, p_latencies_ms,
                  v_attempt_ids) with ordinality
        as g (outbox_id, lease_token, state, rail_reference, rail_code, error_code, error_message, latency_ms, attempt_id, place)
      order by g.outbox_id, g.place
      offset 0
    ) g
    -- As an array of one: an equality would also let a plan made for a table of one row walk all of pending by its key.
    where p.outbox_id = any (array[g.outbox_id])
      and p.lease_token = g.lease_token
      and p.claimed_by = p_worker_id
      and p.lease_expires_at > now()
    returning g.place, p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key, p.rail_type, p.payload,
              p.claimed_at, p.created_at, g.state, g.rail_reference, g.rail_code, g.error_code, g.error_message, g.latency_ms,
              g.attempt_id
  ),
  numbered as materialized (
    select g.*,
           coalesce((
             select a.attempt_no
             from payment_outbox_attempts a
             where a.outbox_id = g.outbox_id
             order by a.attempt_no desc
             limit 1), 0) + 1 as attempt_no
    from gone g
  ),
  appended as (
    insert into payment_outbox_attempts
      (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no,
       state, claimed_at, rail_reference, rail_code, error_code, error_message, latency_ms, worker_id, created_at)
    select n.attempt_id, n.outbox_id, n.instruction_id, n.participant_id, n.sequence_id, n.idempotency_key, n.rail_type, n.payload, n.attempt_no,
           n.state, n.claimed_at, n.rail_reference, n.rail_code, n.error_code,
           case when n.error_message is not null then clean_error_text(n.error_message) end,
           n.latency_ms, p_worker_id, n.created_at
    from numbered n
  )
  select array_agg(n.place order by n.place), array_agg(n.attempt_no order by n.place),
         array_agg(n.participant_id) filter (where n.rail_type = any (v_ordered)),
         array_agg(n.rail_type) filter (where n.rail_type = any (v_ordered)),
         array_agg(n.sequence_id) filter (where n.rail_type = any (v_ordered)),
         bool_or(n.rail_type = any (v_capped))
  into places, attempt_nos, v_participants, v_rails, v_sequence_ids, v_seat_free
  from numbered n;

  if v_participants is not null or v_seat_free then
    perform free_successors(v_participants, v_rails, v_sequence_ids, v_seat_free);
  end if;
end
$$;

comment on function symphony.end_outboxes(uuid[], uuid[], text, symphony.outbox_attempt_state[], text[], text[], text[], text[], int[]) is
  'Ends outboxes whose lease a worker holds: one terminal ledger row each, and the pending row goes.';
