-- Ends leases: appends the outcome of each to the ledger, and lets its row go or schedules it again.
--
-- For outcomes after which a row may be tried again, of completions, repairs and takeovers alike; those that end it for
-- certain have a shorter way, end_outboxes. These two alone write the ledger; quarantine_outbox also deletes from
-- pending, what the ledger had ended before. The caller has locked the rows, says where they are, and has checked that it may end
-- them; no row is given twice. ZOMBIE_REQUEUE is the outcome of a lease that expired. A row that the ledger says has ended
-- already, by somebody's hand or a bad restore, is quarantined and not returned, so that it does not stop the others; place counts what was given from 1.
--
-- The attempt's number comes from the ledger under the row's lock, never from the cache. At the rail's
-- ceiling what would be tried again ends as FAILED instead; an unknown outcome stays one there, because
-- only a person may settle it. A delay is the caller's if it gave one, else the rail's backoff; a zombie
-- without a delay keeps its time, as its row is claimed again in the same breath. Of an error's message, the code in front of it included, only what
-- clean_error_text leaves is kept; the code itself is kept as it is.
-- Locks: the rows given and the successors of those that end. For: the other functions.
create or replace function symphony.settle_outbox_leases(
  p_pending_rows          tid[],
  p_states                symphony.outbox_attempt_state[],
  p_rail_references       text[],
  p_rail_codes            text[],
  p_error_codes           text[],
  p_error_messages        text[],
  p_latencies_ms          int[],
  p_retry_delays_seconds  int[])
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
  v_again_ats     timestamptz[];
  v_worker_ids    text[];
  -- What ended on ordered rails, in parallel.
  v_participants  text[];
  v_rails         text[];
  v_sequence_ids  bigint[];
  -- Whether a seat of a capped rail is free again.
  v_seat_free     boolean;
begin
  with held as materialized (
    select g.place, p.ctid as pending_row, p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key,
           p.rail_type, p.payload, p.claimed_at, p.claimed_by, p.created_at, p.next_attempt_at,
           g.state as outcome, g.rail_reference, g.rail_code, g.error_code, g.error_message, g.latency_ms, g.retry_delay_seconds,
           r.backoff_base_seconds, r.backoff_cap_seconds, r.ordered, r.max_in_flight,
           coalesce(l.attempt_no, 0) + 1 as attempt_no,
           case
             when g.state in ('RETRYABLE', 'ZOMBIE_REQUEUE') and coalesce(l.attempt_no, 0) + 1 >= r.max_attempts then 'FAILED'
             else g.state
           end as state
    from unnest(p_pending_rows, p_states, p_rail_references, p_rail_codes, p_error_codes, p_error_messages,
                p_latencies_ms, p_retry_delays_seconds) with ordinality
      as g (pending_row, state, rail_reference, rail_code, error_code, error_message, latency_ms, retry_delay_seconds, place)
    join payment_outbox_pending p on p.ctid = g.pending_row
    cross join lateral (
      select r.max_attempts, r.backoff_base_seconds, r.backoff_cap_seconds, r.ordered, r.max_in_flight
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
  settled as materialized (
    select h.*,
           case
             when h.state in ('DISPATCHED', 'FAILED') then null
             when h.retry_delay_seconds is not null then now() + make_interval(secs => h.retry_delay_seconds)
             when h.state = 'ZOMBIE_REQUEUE' then h.next_attempt_at
             else now() + make_interval(secs => least(h.backoff_cap_seconds, h.backoff_base_seconds::bigint << (h.attempt_no - 1)))
           end as again_at,
           h.outcome = 'RETRYABLE' and h.state = 'FAILED' and not coalesce(h.error_code in (select u.error_code from unknown_outcome_codes u), false) as exhausted
    from held h
  ),
  appended as (
    insert into payment_outbox_attempts
      (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no,
       state, claimed_at, rail_reference, rail_code, error_code, error_message, latency_ms, worker_id, created_at)
    select uuidv7(), s.outbox_id, s.instruction_id, s.participant_id, s.sequence_id, s.idempotency_key, s.rail_type, s.payload,
           s.attempt_no, s.state, s.claimed_at, s.rail_reference, s.rail_code,
           case when s.exhausted then 'RETRIES_EXHAUSTED' else s.error_code end,
           case when s.said is not null then clean_error_text(s.said) end,
           s.latency_ms, s.claimed_by, s.created_at
    from (
      select s.*, case when s.exhausted then concat_ws(': ', s.error_code, s.error_message) else s.error_message end as said
      from settled s
    ) s
  ),
  ended as (
    delete from payment_outbox_pending p
    using settled s
    where p.ctid = s.pending_row
      and s.again_at is null
  ),
  again as (
    update payment_outbox_pending p
    set claimed_by = null,
        claimed_at = null,
        lease_token = null,
        lease_expires_at = null,
        attempt_count = greatest(p.attempt_count, s.attempt_no),
        next_attempt_at = s.again_at
    from settled s
    where p.ctid = s.pending_row
      and s.again_at is not null
  )
  select array_agg(s.place), array_agg(s.outbox_id), array_agg(s.attempt_no), array_agg(s.state), array_agg(s.again_at), array_agg(s.claimed_by),
         array_agg(s.participant_id) filter (where s.ordered and s.again_at is null),
         array_agg(s.rail_type) filter (where s.ordered and s.again_at is null),
         array_agg(s.sequence_id) filter (where s.ordered and s.again_at is null),
         bool_or(s.max_in_flight is not null)
  into v_places, v_outbox_ids, v_attempt_nos, v_states, v_again_ats, v_worker_ids, v_participants, v_rails, v_sequence_ids, v_seat_free
  from settled s;

  perform free_successors(v_participants, v_rails, v_sequence_ids, v_seat_free);
  if coalesce(cardinality(v_places), 0) < cardinality(p_pending_rows) then
    perform quarantine_outbox(p.outbox_id)
    from unnest(p_pending_rows) with ordinality as g (pending_row, place)
    join payment_outbox_pending p on p.ctid = g.pending_row
    where g.place <> all (coalesce(v_places, '{}'));
  end if;

  return query
    select *
    from unnest(v_places, v_outbox_ids, v_attempt_nos, v_states, v_again_ats, v_worker_ids);
end
$$;

comment on function symphony.settle_outbox_leases(tid[], symphony.outbox_attempt_state[], text[], text[], text[], text[], int[], int[]) is
  'Ends leases the caller has locked: one ledger row each, and the row goes or is scheduled again.';
