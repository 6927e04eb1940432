-- Records the outcomes of many attempts in one statement; the refusal of one never undoes the outcome of another.
--
-- A refused outcome has in the column refusal the SQLSTATE that complete_outbox_attempt would raise. Returns one row
-- per outcome, in the order given. If an outbox is given twice, the first outcome is recorded and the second is
-- refused with P7002. A row whose outbox already has a terminal ledger row is quarantined, and refused with P7001.
--
-- record_terminal_attempts writes the ledger if every outcome is terminal; otherwise record_attempts does.
-- Locks: the rows it completes, in the order of their ids; payment_rails in ROW SHARE mode.
-- Raises: P7005 for arrays of different length, 25000 outside READ COMMITTED. For: symphony_executor.
create or replace function symphony.complete_outbox_batch(
  p_outbox_ids           uuid[],
  p_lease_tokens         uuid[],
  p_worker_id            text,
  p_states               symphony.outbox_attempt_state[],
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
  v_count        constant int := coalesce(cardinality(p_outbox_ids), 0);
  -- Invalid outcomes: their positions and messages. v_valid_ids has the outbox ids of the others.
  v_invalid        int[];
  v_messages     text[];
  v_valid_ids        uuid[] := p_outbox_ids;
  v_place        int;
  v_all_recorded         boolean := false;
  -- The outcomes whose lease the worker holds: their positions and rows.
  v_leased         int[];
  v_pending_rows tid[];
  -- The recorded outcomes: their positions and results.
  v_recorded     int[];
  v_attempt_nos  int[];
  v_states       symphony.outbox_attempt_state[];
  v_retry_ats    timestamptz[];
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
  -- The code below counts positions from 1.
  if exists (
    select
    from unnest(array[
      array_dims(p_outbox_ids), array_dims(p_lease_tokens), array_dims(p_states), array_dims(p_rail_references), array_dims(p_rail_codes),
      array_dims(p_error_codes), array_dims(p_error_messages), array_dims(p_latencies_ms), array_dims(p_retry_delays_seconds)]) as a (dims)
    where a.dims <> format('[1:%s]', v_count)) then
    raise exception 'the arrays must have one dimension that begins at 1' using errcode = 'P7005';
  end if;

  perform check_isolation();
  perform require_synchronous_commit();
  -- Keeps rail policies constant during the call; see lock_rail_policies.
  lock table payment_rails in row share mode;

  select array_agg(g.place), array_agg(w.message)
  into v_invalid, v_messages
  from unnest(p_outbox_ids, p_lease_tokens, p_states, p_rail_references, p_rail_codes, p_error_codes, p_error_messages,
              p_latencies_ms, p_retry_delays_seconds) with ordinality
    as g (outbox_id, lease_token, state, rail_reference, rail_code, error_code, error_message, latency_ms, retry_delay_seconds, place)
  cross join lateral (
    select case
      when g.outbox_id is null then 'p_outbox_id must not be null'
      when g.lease_token is null then 'p_lease_token must not be null'
      when g.state is null or g.state not in ('DISPATCHED', 'FAILED', 'RETRYABLE')
        then format('p_state must be DISPATCHED, FAILED or RETRYABLE, not %s', coalesce(g.state::text, 'null'))
      when char_length(g.rail_reference) > 200 then 'p_rail_reference must have at most 200 characters'
      when char_length(g.rail_code) > 200 then 'p_rail_code must have at most 200 characters'
      when char_length(g.error_code) > 200 then 'p_error_code must have at most 200 characters'
      when g.error_code !~ '[^[:space:]]' then 'p_error_code must not be blank'
      when g.error_code ~ '^[[:space:]]|[[:space:]]$' then 'p_error_code must not begin or end with a blank'
      when g.error_code = 'LEASE_EXPIRED' then 'p_error_code LEASE_EXPIRED is reserved for the database; use OUTCOME_UNKNOWN for an unknown outcome'
      when char_length(g.error_message) > 4000 then 'p_error_message must have at most 4000 characters'
      when g.latency_ms < 0 then 'p_latency_ms must not be negative'
      when g.retry_delay_seconds not between 0 and 2592000 then 'p_retry_delay_seconds must be from 0 to 2592000'
    end as message
  ) w
  where w.message is not null;

  -- The fast path, if every outcome is terminal.
  if v_invalid is null and 'RETRYABLE' <> all (p_states) then
    begin
      select e.places, e.attempt_nos
      into v_recorded, v_attempt_nos
      from record_terminal_attempts(p_outbox_ids, p_lease_tokens, p_worker_id, p_states, p_rail_references, p_rail_codes,
                        p_error_codes, p_error_messages, p_latencies_ms) e;
      v_states := array(select p_states[r.place] from unnest(v_recorded) as r (place));
      v_all_recorded := true;
    exception when unique_violation then
      -- An outbox already has a terminal ledger row: the slow path finds it, and records the others.
      v_recorded := null;
    end;
  end if;

  if not v_all_recorded then
    foreach v_place in array coalesce(v_invalid, '{}') loop
      v_valid_ids[v_place] := null;
    end loop;

    -- If an outbox is given twice: the first outcome with a valid lease.
    select array_agg(h.place order by h.place), array_agg(h.pending_row order by h.place)
    into v_leased, v_pending_rows
    from (
      select distinct on (h.outbox_id) h.place::int as place, h.pending_row
      from lock_leased_outboxes(v_valid_ids, p_lease_tokens, p_worker_id) h
      order by h.outbox_id, h.place
    ) h;

    if v_leased is not null then
      select array_agg(v_leased[s.place] order by s.place), array_agg(s.attempt_no order by s.place), array_agg(s.state order by s.place),
             array_agg(s.next_attempt_at order by s.place)
      into v_recorded, v_attempt_nos, v_states, v_retry_ats
      from record_attempts(
        v_pending_rows,
        array(select p_states[h.place] from unnest(v_leased) as h (place)),
        array(select p_rail_references[h.place] from unnest(v_leased) as h (place)),
        array(select p_rail_codes[h.place] from unnest(v_leased) as h (place)),
        array(select p_error_codes[h.place] from unnest(v_leased) as h (place)),
        array(select p_error_messages[h.place] from unnest(v_leased) as h (place)),
        array(select p_latencies_ms[h.place] from unnest(v_leased) as h (place)),
        array(select p_retry_delays_seconds[h.place] from unnest(v_leased) as h (place))) s;
    end if;
  end if;

  if cardinality(v_recorded) = v_count then
    return query
      select r.place::int, r.outbox_id, r.attempt_no, r.state, r.retry_at, null::text, null::text
      from unnest(p_outbox_ids, v_attempt_nos, v_states, v_retry_ats) with ordinality as r (outbox_id, attempt_no, state, retry_at, place);
    return;
  end if;
  return query
    select g.place::int, g.outbox_id, v_attempt_nos[r.place], v_states[r.place], v_retry_ats[r.place],
           case
             when r.place is not null then null
             when w.message like 'p_state %' then 'P7003'
             when w.message is not null then 'P7005'
             when t.state is null then 'P7002'
             else 'P7001'
           end,
           case
             when r.place is not null then null
             when w.message is not null then w.message
             when t.state is null then format('worker %s holds no lease on outbox %s with this token', p_worker_id, g.outbox_id)
             else format('outbox %s has ended as %s already', g.outbox_id, t.state)
           end
    from unnest(p_outbox_ids) with ordinality as g (outbox_id, place)
    cross join lateral (select array_position(v_recorded, g.place::int) as place) r
    cross join lateral (select v_messages[array_position(v_invalid, g.place::int)] as message) w
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

comment on function symphony.complete_outbox_batch(uuid[], uuid[], text, symphony.outbox_attempt_state[], text[], text[], text[], text[], int[], int[]) is
  'Records the outcomes of many attempts, with a result or a refusal for each.';
