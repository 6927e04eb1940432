-- Records the outcomes of many attempts in one statement, each by its own right.
--
-- A row whose lease is not held, or whose outcome makes no sense, is refused with the SQLSTATE that
-- complete_outbox_attempt would raise, in the column refusal; the others are recorded all the same.
-- Returns a row for each, in the order given. The same outbox twice: the first is recorded, the second
-- finds the lease gone.
-- Locks: the rows it completes, in the order of their ids. Raises: P7005 for arrays that do not fit
-- together, 25000 outside READ COMMITTED. For: symphony_executor.
create or replace function symphony.complete_outbox_batch(
  p_outbox_ids           uuid[],
  p_lease_tokens         uuid[],
  p_worker_id            text,
  p_states               text[],
  p_rail_references      text[] default null,
  p_rail_codes           text[] default null,
  p_error_codes          text[] default null,
  p_error_messages       text[] default null,
  p_latencies_ms         int[]  default null,
  p_retry_delays_seconds int[]  default null)
  returns table (
    "position"      int,
    outbox_id       uuid,
    attempt_no      int,
    state           symphony.outbox_attempt_state,
    next_attempt_at timestamptz,
    refusal         text,
    refusal_message text)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_count    constant int := coalesce(cardinality(p_outbox_ids), 0);
  -- By position: what is wrong with the outcome itself.
  v_refusals text[];
  v_messages text[];
  -- The outboxes with whose outcome nothing is wrong, null elsewhere.
  v_sound    uuid[];
  -- The outcomes whose lease is held, in parallel.
  v_outbox_ids           uuid[];
  v_states               symphony.outbox_attempt_state[];
  v_rail_references      text[];
  v_rail_codes           text[];
  v_error_codes          text[];
  v_error_messages       text[];
  v_latencies_ms         int[];
  v_retry_delays_seconds int[];
  v_places               bigint[];
  -- What became of them.
  v_attempt_nos          int[];
  v_recorded             symphony.outbox_attempt_state[];
  v_again_ats            timestamptz[];
begin
  perform check_argument('p_worker_id', p_worker_id, 200);
  perform check_range('the number of outcomes', v_count, 1, 1000);
  if cardinality(p_lease_tokens) is distinct from v_count
     or cardinality(p_states) is distinct from v_count
     or coalesce(cardinality(p_rail_references), v_count) <> v_count
     or coalesce(cardinality(p_rail_codes), v_count) <> v_count
     or coalesce(cardinality(p_error_codes), v_count) <> v_count
     or coalesce(cardinality(p_error_messages), v_count) <> v_count
     or coalesce(cardinality(p_latencies_ms), v_count) <> v_count
     or coalesce(cardinality(p_retry_delays_seconds), v_count) <> v_count then
    raise exception 'the arrays must have the same number of elements' using errcode = 'P7005';
  end if;

  perform check_isolation();
  perform insist_on_durability();
  perform pg_advisory_xact_lock_shared(rail_policy_lock());

  select array_agg(c.refusal order by c.place), array_agg(c.message order by c.place),
         array_agg(case when c.refusal is null then c.outbox_id end order by c.place)
  into v_refusals, v_messages, v_sound
  from (
    select g.place, g.outbox_id, w.message,
           case when w.message like 'p_state %' then 'P7003' when w.message is not null then 'P7005' end as refusal
    from unnest(p_outbox_ids, p_lease_tokens, p_states, p_rail_references, p_rail_codes, p_error_codes, p_error_messages,
                p_latencies_ms, p_retry_delays_seconds) with ordinality
      as g (outbox_id, lease_token, state, rail_reference, rail_code, error_code, error_message, latency_ms, retry_delay_seconds, place)
    cross join lateral (
      select case
        when g.outbox_id is null then 'p_outbox_id must not be null'
        when g.lease_token is null then 'p_lease_token must not be null'
        when g.state is null or g.state not in ('DISPATCHED', 'FAILED', 'RETRYABLE')
          then format('p_state must be DISPATCHED, FAILED or RETRYABLE, not %s', coalesce(left(g.state, 40), 'null'))
        when char_length(g.rail_reference) > 200 then 'p_rail_reference must have at most 200 characters'
        when char_length(g.rail_code) > 200 then 'p_rail_code must have at most 200 characters'
        when char_length(g.error_code) > 200 then 'p_error_code must have at most 200 characters'
        when g.error_code !~ '[^[:space:]]' then 'p_error_code must not be blank'
        when g.error_code ~ '^[[:space:]]|[[:space:]]$' then 'p_error_code must not begin or end with a blank'
        when g.error_code = 'LEASE_EXPIRED' then 'p_error_code LEASE_EXPIRED is for the database to say; an outcome that is not known is OUTCOME_UNKNOWN'
        when char_length(g.error_message) > 4000 then 'p_error_message must have at most 4000 characters'
        when g.latency_ms < 0 then 'p_latency_ms must not be negative'
        when g.retry_delay_seconds not between 0 and 2592000 then 'p_retry_delay_seconds must be from 0 to 2592000'
      end as message
    ) w
  ) c;

  select array_agg(h.outbox_id), array_agg(h.state), array_agg(h.rail_reference), array_agg(h.rail_code), array_agg(h.error_code),
         array_agg(h.error_message), array_agg(h.latency_ms), array_agg(h.retry_delay_seconds), array_agg(h.place)
  into v_outbox_ids, v_states, v_rail_references, v_rail_codes, v_error_codes,
       v_error_messages, v_latencies_ms, v_retry_delays_seconds, v_places
  from (
    select distinct on (h.outbox_id)
           h.outbox_id, h.place, g.state::symphony.outbox_attempt_state as state, g.rail_reference, g.rail_code, g.error_code,
           g.error_message, g.latency_ms, g.retry_delay_seconds
    from hold_outbox_leases(v_sound, p_lease_tokens, p_worker_id) h
    join unnest(p_states, p_rail_references, p_rail_codes, p_error_codes, p_error_messages, p_latencies_ms, p_retry_delays_seconds)
      with ordinality
      as g (state, rail_reference, rail_code, error_code, error_message, latency_ms, retry_delay_seconds, place)
      on g.place = h.place
    where (
      select true
      from payment_outbox_attempts a
      where a.outbox_id = h.outbox_id
        and a.state in ('DISPATCHED', 'FAILED')
      limit 1) is null
    order by h.outbox_id, h.place
  ) h;

  if v_outbox_ids is not null then
    select array_agg(s.attempt_no order by h.ordinality), array_agg(s.state order by h.ordinality),
           array_agg(s.next_attempt_at order by h.ordinality)
    into v_attempt_nos, v_recorded, v_again_ats
    from settle_outbox_leases(v_outbox_ids, v_states, v_rail_references, v_rail_codes, v_error_codes,
                              v_error_messages, v_latencies_ms, v_retry_delays_seconds) s
    join unnest(v_outbox_ids) with ordinality as h (outbox_id, ordinality) on h.outbox_id = s.outbox_id;
  end if;

  return query
    select g.place::int, g.outbox_id, r.attempt_no, r.state, r.again_at,
           case when r.place is null then coalesce(g.refusal, case when t.state is null then 'P7002' else 'P7001' end) end,
           case when r.place is null then coalesce(g.message,
             case when t.state is null then format('worker %s holds no lease on outbox %s with this token', p_worker_id, g.outbox_id)
                  else format('outbox %s has ended as %s already', g.outbox_id, t.state) end) end
    from unnest(p_outbox_ids, v_refusals, v_messages) with ordinality as g (outbox_id, refusal, message, place)
    left join unnest(v_places, v_attempt_nos, v_recorded, v_again_ats) as r (place, attempt_no, state, again_at)
      on r.place = g.place
    left join lateral (
      select a.state
      from payment_outbox_attempts a
      where r.place is null
        and a.outbox_id = g.outbox_id
        and a.state in ('DISPATCHED', 'FAILED')
      limit 1
    ) t on true
    order by g.place;
end
$$;

comment on function symphony.complete_outbox_batch(uuid[], uuid[], text, text[], text[], text[], text[], text[], int[], int[]) is
  'Records the outcomes of many attempts, with a result or a refusal for each.';
