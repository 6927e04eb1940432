-- Ends leases: appends the outcome of each to the ledger, and lets its row go or schedules it again.
--
-- The only place that writes the ledger and the only one that deletes from pending, for completions,
-- repairs and takeovers alike. The caller has locked the rows and has checked that it may end them; no
-- row is given twice. ZOMBIE_REQUEUE is the outcome of a lease that expired.
--
-- The attempt's number comes from the ledger under the row's lock, never from the cache. At the rail's
-- ceiling what would be tried again ends as FAILED instead; an unknown outcome stays one there, because
-- only a person may settle it. A delay is the caller's if it gave one, else the rail's backoff; a zombie
-- without a delay keeps its time, as its row is claimed again in the same breath. Of an error's message only what
-- clean_error_text leaves is kept; its code is kept as it is.
--
-- When a row ends on an ordered rail, the next of its stream may have been parked behind it: it is put
-- back into the claim order, due from now on. Successors under a lease are passed over, as they may be
-- ending at this very moment; see docs/decisions/0001-ordered-rails.md.
-- Locks: the rows given and the successors of those that end. For: the other functions.
create or replace function symphony.settle_outbox_leases(
  p_outbox_ids            uuid[],
  p_states                symphony.outbox_attempt_state[],
  p_rail_references       text[],
  p_rail_codes            text[],
  p_error_codes           text[],
  p_error_messages        text[],
  p_latencies_ms          int[],
  p_retry_delays_seconds  int[])
  returns table (outbox_id uuid, attempt_no int, state symphony.outbox_attempt_state, next_attempt_at timestamptz, worker_id text)
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
  v_outbox_ids    uuid[];
  v_attempt_nos   int[];
  v_states        symphony.outbox_attempt_state[];
  v_again_ats     timestamptz[];
  v_worker_ids    text[];
  -- What ended on ordered rails, in parallel.
  v_participants  text[];
  v_rails         text[];
  v_sequence_ids  bigint[];
  -- Whether a row was put back into the claim order, or a seat of a capped rail is free again.
  v_waiting       boolean := false;
  v_seat_free     boolean;
begin
  with given as (
    select *
    from unnest(p_outbox_ids, p_states, p_rail_references, p_rail_codes, p_error_codes, p_error_messages,
                p_latencies_ms, p_retry_delays_seconds)
      as g (outbox_id, state, rail_reference, rail_code, error_code, error_message, latency_ms, retry_delay_seconds)
  ),
  held as materialized (
    select p.ctid as place, p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key, p.rail_type,
           p.payload, p.claimed_at, p.claimed_by, p.created_at, p.next_attempt_at,
           g.state as outcome, g.rail_reference, g.rail_code, g.error_code, g.error_message, g.latency_ms, g.retry_delay_seconds,
           r.backoff_base_seconds, r.backoff_cap_seconds, r.ordered, r.max_in_flight,
           n.attempt_no,
           case
             when g.state in ('RETRYABLE', 'ZOMBIE_REQUEUE') and n.attempt_no >= r.max_attempts then 'FAILED'
             else g.state
           end as state
    from given g
    cross join lateral (
      select p.ctid, p.*
      from payment_outbox_pending p
      where p.outbox_id = g.outbox_id
      limit 1
    ) p
    cross join lateral (
      select r.max_attempts, r.backoff_base_seconds, r.backoff_cap_seconds, r.ordered, r.max_in_flight
      from payment_rails r
      where r.rail_type = p.rail_type
      limit 1
    ) r
    cross join lateral (
      select coalesce(max(a.attempt_no), 0) + 1 as attempt_no
      from payment_outbox_attempts a
      where a.outbox_id = g.outbox_id
      limit 1
    ) n
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
           case when s.exhausted then concat_ws(': ', s.error_code, c.error_message) else c.error_message end,
           s.latency_ms, s.claimed_by, s.created_at
    from settled s
    left join lateral (
      select clean_error_text(s.error_message) as error_message
      where s.error_message is not null
    ) c on true
  ),
  ended as (
    delete from payment_outbox_pending p
    using settled s
    where p.ctid = s.place
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
    where p.ctid = s.place
      and s.again_at is not null
  )
  select array_agg(s.outbox_id), array_agg(s.attempt_no), array_agg(s.state), array_agg(s.again_at), array_agg(s.claimed_by),
         array_agg(s.participant_id) filter (where s.ordered and s.again_at is null),
         array_agg(s.rail_type) filter (where s.ordered and s.again_at is null),
         array_agg(s.sequence_id) filter (where s.ordered and s.again_at is null),
         bool_or(s.max_in_flight is not null)
  into v_outbox_ids, v_attempt_nos, v_states, v_again_ats, v_worker_ids, v_participants, v_rails, v_sequence_ids, v_seat_free
  from settled s;

  if v_participants is not null then
    with successors as (
      select n.outbox_id
      from unnest(v_participants, v_rails, v_sequence_ids) as e (participant_id, rail_type, sequence_id)
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
    v_waiting := found;
  end if;
  if v_waiting or v_seat_free then
    -- Work has become claimable that nobody inserts.
    perform wake_sleepers('outbox_pending');
  end if;

  return query
    select *
    from unnest(v_outbox_ids, v_attempt_nos, v_states, v_again_ats, v_worker_ids);
end
$$;

comment on function symphony.settle_outbox_leases(uuid[], symphony.outbox_attempt_state[], text[], text[], text[], text[], int[], int[]) is
  'Ends leases the caller has locked: one ledger row each, and the row goes or is scheduled again.';
