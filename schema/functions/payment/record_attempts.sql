-- Records the outcomes of leases: appends a ledger row each, and deletes the pending row or schedules its retry.
--
-- It serves batches with a RETRYABLE, repairs and takeovers. complete_outbox_batch and record_terminal_attempts are the
-- short paths for terminal outcomes. No other function writes the ledger. The caller has locked the rows, has
-- checked the leases, and gives no row twice. ZOMBIE_REQUEUE is the outcome of an expired lease. A row whose outbox
-- already has a terminal ledger row is quarantined and not returned, so that it does not stop the others. place is the
-- position of the argument, from 1.
--
-- attempt_no comes from the ledger under the row's lock, never from attempt_count. At the rail's max_attempts a retry
-- is recorded as FAILED instead. An unknown outcome keeps its error code there, because only an operator may resolve
-- it. The delay is the caller's, otherwise the rail's backoff; a zombie without a delay keeps its next_attempt_at,
-- because the same transaction claims it again. Error messages are stored through clean_error_text, error codes as
-- they are.
--
-- A payment with an attempt of AWAITING_CONFIRMATION was accepted by the rail: it is never sent again. So every further
-- RETRYABLE of it is recorded with that code, whatever the worker says, and the claim calls its outcome unknown. Its delay is
-- confirm_every_seconds. At max_attempts it is FAILED with OUTCOME_UNKNOWN.
--
-- A row without a lease was never sent and is cancelled, or the rail has confirmed its outcome. It takes worker and endpoint from
-- p_worker_id and p_endpoint, and has no claimed_at. p_confirmation_id marks the terminal outcome that the rail has confirmed, and
-- ends the lease of a row that has one; see confirm_payment_outbox. A cancellation holds no stream: no operator has anything to
-- find out.
-- Locks: the rows given, and the successors of those that end.
-- For: complete_outbox_batch, end_expired_leases, confirm_payment_outbox and cancel_payment_outbox.
create or replace function symphony.record_attempts(
  p_pending_rows          tid[],
  p_states                symphony.outbox_attempt_state[],
  p_rail_references       text[],
  p_rail_codes            text[],
  p_error_codes           text[],
  p_error_messages        text[],
  p_latencies_ms          int[],
  p_retry_delays_seconds  int[],
  p_confirmation_id       text default null,
  p_worker_id             text default null,
  p_endpoint              text default null)
  returns table (
    place           bigint,
    outbox_id       uuid,
    attempt_no      int,
    state           symphony.outbox_attempt_state,
    next_attempt_at timestamptz,
    worker_id       text)
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
#variable_conflict use_column
declare
  v_places        bigint[];
  v_outbox_ids    uuid[];
  v_attempt_nos   int[];
  v_states        symphony.outbox_attempt_state[];
  v_retry_ats     timestamptz[];
  v_worker_ids    text[];
  -- The rows that ended on ordered rails and hold nothing, as parallel arrays.
  v_participants  text[];
  v_rails         text[];
  v_sequence_ids  bigint[];
  -- Whether a rail with max_in_flight has a free lease again.
  v_capacity_freed     boolean;
  -- The outboxes that ended on rails that publish outcomes.
  v_to_publish    uuid[];
  -- The failures that hold their streams.
  v_to_hold       uuid[];
begin
  with leased as materialized (
    select g.place, p.ctid as pending_row, p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key,
           p.rail_type, p.payload, p.claimed_at, coalesce(p.claimed_by, p_worker_id) as claimed_by, p.created_at, p.next_attempt_at,
           case when p.lease_token is null then p_endpoint else p.claimed_endpoint end as endpoint,
           case when p.lease_token is null then r.epoch else coalesce(p.claimed_epoch, p.epoch) end as epoch,
           g.state as outcome, g.rail_reference, g.rail_code, g.error_code, g.error_message, g.latency_ms, g.retry_delay_seconds,
           r.backoff_base_seconds, r.backoff_cap_seconds, r.confirm_every_seconds, r.ordered, r.max_in_flight, r.publish_outcomes, r.on_failure,
           coalesce(l.attempt_no, 0) + 1 as attempt_no,
           g.state = 'RETRYABLE' and (
             coalesce(g.error_code = 'AWAITING_CONFIRMATION', false)
             or (
               select true
               from payment_outbox_attempts a
               where a.outbox_id = p.outbox_id
                 and a.error_code = 'AWAITING_CONFIRMATION'
               limit 1) is not null) as awaiting,
           case
             when g.state in ('RETRYABLE', 'ZOMBIE_REQUEUE') and coalesce(l.attempt_no, 0) + 1 >= r.max_attempts then 'FAILED'
             else g.state
           end as state
    from unnest(p_pending_rows, p_states, p_rail_references, p_rail_codes, p_error_codes, p_error_messages,
                p_latencies_ms, p_retry_delays_seconds) with ordinality
      as g (pending_row, state, rail_reference, rail_code, error_code, error_message, latency_ms, retry_delay_seconds, place)
    join payment_outbox_pending p on p.ctid = g.pending_row
    cross join lateral (
      select r.max_attempts, r.backoff_base_seconds, r.backoff_cap_seconds, r.confirm_every_seconds, r.ordered, r.max_in_flight, r.publish_outcomes, r.on_failure, r.epoch
      from payment_rails r
      where r.rail_type = p.rail_type
      limit 1
    ) r
    left join lateral (
      select a.attempt_no
      from payment_outbox_attempts a
      where a.outbox_id = p.outbox_id
      order by a.attempt_no desc
      limit 1
    ) l on true
    where l.attempt_no is null
       or (
         select true
         from payment_outbox_attempts a
         where a.outbox_id = p.outbox_id
           and a.state in ('DISPATCHED', 'FAILED')
         limit 1) is null
  ),
  outcomes as materialized (
    select l.*,
           l.state = 'FAILED' and l.on_failure = 'HOLD' and l.error_code is distinct from 'CANCELLED' as holds,
           case
             when l.state in ('DISPATCHED', 'FAILED') then null
             when l.retry_delay_seconds is not null then now() + make_interval(secs => l.retry_delay_seconds)
             when l.state = 'ZOMBIE_REQUEUE' then l.next_attempt_at
             when l.awaiting then now() + make_interval(secs => l.confirm_every_seconds)
             -- The backoff: base doubled with each attempt, up to the cap.
             else now() + make_interval(secs => least(l.backoff_cap_seconds, l.backoff_base_seconds::bigint << (l.attempt_no - 1)))
           end as retry_at,
           l.outcome = 'RETRYABLE' and l.state = 'FAILED' and not l.awaiting
           and not coalesce(l.error_code in (select u.error_code from unknown_outcome_codes u), false) as exhausted
    from leased l
  ),
  -- Insert into the ledger.
  appended as (
    insert into payment_outbox_attempts
      (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no,
       state, claimed_at, rail_reference, rail_code, error_code, error_message, latency_ms, worker_id, created_at, epoch, endpoint,
       confirmation_id)
    select uuidv7(), s.outbox_id, s.instruction_id, s.participant_id, s.sequence_id, s.idempotency_key, s.rail_type, s.payload,
           s.attempt_no, s.state, s.claimed_at, s.rail_reference, s.rail_code,
           case
             when s.exhausted then 'RETRIES_EXHAUSTED'
             when s.awaiting and s.retry_at is null then 'OUTCOME_UNKNOWN'
             when s.awaiting then 'AWAITING_CONFIRMATION'
             else s.error_code
           end,
           case when s.message is not null then clean_error_text(s.message) end,
           s.latency_ms, s.claimed_by, s.created_at, s.epoch, s.endpoint, p_confirmation_id
    from (
      select s.*,
             case
               when s.exhausted then concat_ws(': ', s.error_code, s.error_message)
               when s.awaiting then nullif(concat_ws(
                 ': ', case when s.retry_at is null then 'accepted, and not confirmed within max_attempts' end,
                 nullif(s.error_code, 'AWAITING_CONFIRMATION'), s.error_message), '')
               else s.error_message
             end as message
      from outcomes s
    ) s
  ),
  ended as (
    delete from payment_outbox_pending p
    using outcomes s
    where p.ctid = s.pending_row
      and s.retry_at is null
  ),
  requeued as (
    update payment_outbox_pending p
    set claimed_by = null,
        claimed_at = null,
        lease_token = null,
        lease_expires_at = null,
        claimed_endpoint = null,
        attempt_count = greatest(p.attempt_count, s.attempt_no),
        next_attempt_at = s.retry_at
    from outcomes s
    where p.ctid = s.pending_row
      and s.retry_at is not null
  ),
  accepted as (
    insert into payment_awaiting_confirmation (outbox_id, rail_type)
    select s.outbox_id, s.rail_type
    from outcomes s
    where s.awaiting
      and s.retry_at is not null
    on conflict do nothing
  ),
  confirmed as (
    delete from payment_awaiting_confirmation w
    using outcomes s
    -- An array of one, as in complete_outbox_batch.
    where w.outbox_id = any (array[s.outbox_id])
      and s.attempt_no > 1
      and s.retry_at is null
  )
  select array_agg(s.place), array_agg(s.outbox_id), array_agg(s.attempt_no), array_agg(s.state), array_agg(s.retry_at), array_agg(s.claimed_by),
         array_agg(s.participant_id) filter (where s.ordered and s.retry_at is null and not s.holds),
         array_agg(s.rail_type) filter (where s.ordered and s.retry_at is null and not s.holds),
         array_agg(s.sequence_id) filter (where s.ordered and s.retry_at is null and not s.holds),
         bool_or(s.max_in_flight is not null),
         array_agg(s.outbox_id) filter (where s.publish_outcomes and s.retry_at is null),
         array_agg(s.outbox_id) filter (where s.holds)
  into v_places, v_outbox_ids, v_attempt_nos, v_states, v_retry_ats, v_worker_ids, v_participants, v_rails, v_sequence_ids, v_capacity_freed,
       v_to_publish, v_to_hold
  from outcomes s;

  if v_to_hold is not null then
    perform hold_payment_streams(v_to_hold);
  end if;
  perform unpark_successors(v_participants, v_rails, v_sequence_ids, v_capacity_freed);
  if v_to_publish is not null then
    perform publish_payment_outcomes(v_to_publish);
  end if;
  if coalesce(cardinality(v_places), 0) < cardinality(p_pending_rows) then
    perform quarantine_outbox(p.outbox_id)
    from unnest(p_pending_rows) with ordinality as g (pending_row, place)
    join payment_outbox_pending p on p.ctid = g.pending_row
    where g.place <> all (coalesce(v_places, '{}'));
  end if;

  return query
    select *
    from unnest(v_places, v_outbox_ids, v_attempt_nos, v_states, v_retry_ats, v_worker_ids);
end
$$;

comment on function symphony.record_attempts(tid[], symphony.outbox_attempt_state[], text[], text[], text[], text[], int[], int[], text, text, text) is
  'Records outcomes of leases that the caller has checked: one ledger row each; the pending row goes or is scheduled again.';
