-- Records the outcomes of many attempts in one statement; the refusal of one never undoes the outcome of another.
--
-- A refused outcome has in the column refusal the SQLSTATE that complete_outbox_attempt would raise. Returns one row
-- per outcome, in the order given. If an outbox is given twice, the first outcome is recorded and the second is
-- refused: with P7001 after a terminal one, else with P7002. A row whose outbox already has a terminal ledger row is
-- quarantined, and refused with P7001.
--
-- The usual outcome, DISPATCHED at the first attempt, is recorded by one statement here. Of the outcomes that it leaves,
-- record_terminal_attempts writes the ledger if all are terminal; otherwise record_attempts does.
-- Locks: the rows it completes, in the order of their ids, so that it never deadlocks with a renewal or a release;
-- payment_rails in ROW SHARE mode.
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
  v_dims         constant text := format('[1:%s]', v_count);
  -- The positions that the first statement records.
  v_usual        int[];
  -- The outbox ids that are left after it, and null for the others; without those of invalid outcomes, whose positions and
  -- messages these are.
  v_left_ids     uuid[] := p_outbox_ids;
  v_invalid      int[];
  v_messages     text[];
  v_place        int;
  v_all_recorded boolean := false;
  -- The outcomes whose lease the worker holds: their positions and rows.
  v_leased       int[];
  v_pending_rows tid[];
  -- The recorded outcomes: their positions and results.
  v_recorded     int[];
  v_attempt_nos  int[];
  v_states       symphony.outbox_attempt_state[];
  v_retry_ats    timestamptz[];
begin
  -- One expression, because the calls take as long as the completion of a row. The functions have the rules and raise the errors.
  if (p_worker_id ~ '[^[:space:]]' and char_length(p_worker_id) <= 200 and v_count between 1 and 1000
      -- One dimension, v_count elements, positions from 1.
      and array_dims(p_outbox_ids) = v_dims and array_dims(p_lease_tokens) = v_dims and array_dims(p_states) = v_dims
      and coalesce(array_dims(p_rail_references), v_dims) = v_dims and coalesce(array_dims(p_rail_codes), v_dims) = v_dims
      and coalesce(array_dims(p_error_codes), v_dims) = v_dims and coalesce(array_dims(p_error_messages), v_dims) = v_dims
      and coalesce(array_dims(p_latencies_ms), v_dims) = v_dims and coalesce(array_dims(p_retry_delays_seconds), v_dims) = v_dims
      and current_setting('transaction_isolation') = 'read committed' and current_setting('synchronous_commit') <> 'off') is not true then
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
      where a.dims <> v_dims) then
      raise exception 'the arrays must have one dimension that begins at 1' using errcode = 'P7005';
    end if;
    perform check_isolation();
    perform require_synchronous_commit();
  end if;
  -- Keeps rail policies constant during the call; see lock_rail_policies.
  lock table payment_rails in row share mode;

  -- The usual case: DISPATCHED at the first attempt, on a rail without order and limit that publishes no outcomes. There is no earlier ledger row to count,
  -- because (outbox_id, 1) is unique; the DELETE is the lock, as in record_terminal_attempts. If an outbox is given twice, only
  -- its first outcome is considered. What this statement leaves out goes on below.
  begin
    with deleted as (
      delete from payment_outbox_pending p
      using (
        select distinct on (g.outbox_id) g.*
        from unnest(p_outbox_ids, p_lease_tokens, p_states, p_rail_references, p_rail_codes, p_error_codes, p_error_messages, p_latencies_ms,
                    p_retry_delays_seconds, uuidv7s(v_count)) with ordinality
          as g (outbox_id, lease_token, state, rail_reference, rail_code, error_code, error_message, latency_ms, retry_delay_seconds,
                attempt_id, place)
        order by g.outbox_id, g.place
        offset 0
      ) g
      -- An array of one: with an equality, a plan made for a table of one row could scan the whole primary key.
      where p.outbox_id = any (array[g.outbox_id])
        and p.lease_token = g.lease_token
        and p.claimed_by = p_worker_id
        and p.lease_expires_at > now()
        and p.attempt_count = 0
        -- An expression, so that no plan reads the claim order of these rails.
        and p.rail_type || '' = any (array(select r.rail_type from payment_rails r where not r.ordered and r.max_in_flight is null and not r.publish_outcomes))
        and g.state = 'DISPATCHED'
        -- Arguments that need neither a check nor cleaning.
        and coalesce(char_length(g.rail_reference), 0) <= 200
        and coalesce(char_length(g.rail_code), 0) <= 200
        and coalesce(g.latency_ms, 0) >= 0
        and num_nonnulls(g.error_code, g.error_message, g.retry_delay_seconds) = 0
      returning g.place, p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key, p.rail_type, p.payload,
                p.claimed_at, p.claimed_endpoint, p.created_at, g.state, g.rail_reference, g.rail_code, g.latency_ms, g.attempt_id,
                coalesce(p.claimed_epoch, p.epoch) as epoch
    ),
    appended as (
      insert into payment_outbox_attempts
        (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no,
         state, claimed_at, rail_reference, rail_code, latency_ms, worker_id, created_at, epoch, endpoint)
      select d.attempt_id, d.outbox_id, d.instruction_id, d.participant_id, d.sequence_id, d.idempotency_key, d.rail_type, d.payload, 1,
             d.state, d.claimed_at, d.rail_reference, d.rail_code, d.latency_ms, p_worker_id, d.created_at, d.epoch, d.claimed_endpoint
      from deleted d
    )
    select array_agg(d.place order by d.place)
    into v_usual
    from deleted d;
    if cardinality(v_usual) < v_count then
      -- The code below must not wait for another row now: a renewal that holds it may wait for one that was just deleted.
      perform
      from payment_outbox_pending p
      where p.outbox_id = any (p_outbox_ids)
        and p.claimed_by = p_worker_id
      for no key update nowait;
    end if;
  exception
    when unique_violation then
      -- An outbox has a ledger row already: the code below finds it, and records the others.
      v_usual := null;
    when lock_not_available then
      -- The code below locks all rows in the order of their ids, and waits.
      v_usual := null;
  end;
  if cardinality(v_usual) = v_count then
    return query
      select r.place::int, r.outbox_id, 1, r.state, null::timestamptz, null::text, null::text
      from unnest(p_outbox_ids, p_states) with ordinality as r (outbox_id, state, place);
    return;
  end if;
  foreach v_place in array coalesce(v_usual, '{}') loop
    v_left_ids[v_place] := null;
  end loop;

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
      when g.error_code = 'AWAITING_CONFIRMATION' and g.state <> 'RETRYABLE' then 'p_error_code AWAITING_CONFIRMATION needs p_state RETRYABLE'
      when g.error_code = 'CANCELLED' then 'p_error_code CANCELLED is reserved for cancel_payment_outbox'
      when char_length(g.error_message) > 4000 then 'p_error_message must have at most 4000 characters'
      when g.latency_ms < 0 then 'p_latency_ms must not be negative'
      when g.retry_delay_seconds not between 0 and 2592000 then 'p_retry_delay_seconds must be from 0 to 2592000'
    end as message
  ) w
  where w.message is not null;

  -- All that are left are terminal.
  if v_invalid is null and 'RETRYABLE' <> all (p_states) then
    begin
      select e.places, e.attempt_nos
      into v_recorded, v_attempt_nos
      from record_terminal_attempts(v_left_ids, p_lease_tokens, p_worker_id, p_states, p_rail_references, p_rail_codes,
                        p_error_codes, p_error_messages, p_latencies_ms) e;
      v_states := array(select p_states[r.place] from unnest(v_recorded) as r (place));
      v_all_recorded := true;
    exception when unique_violation then
      -- An outbox already has a terminal ledger row: the code below finds it, and records the others.
      v_recorded := null;
    end;
  end if;

  if not v_all_recorded then
    foreach v_place in array coalesce(v_invalid, '{}') loop
      v_left_ids[v_place] := null;
    end loop;

    -- If an outbox is given twice: the first outcome with a valid lease.
    select array_agg(h.place order by h.place), array_agg(h.pending_row order by h.place)
    into v_leased, v_pending_rows
    from (
      select distinct on (h.outbox_id) h.place::int as place, h.pending_row
      from lock_leased_outboxes(v_left_ids, p_lease_tokens, p_worker_id) h
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

  if v_usual is not null then
    v_recorded := v_usual || v_recorded;
    v_attempt_nos := array_fill(1, array[cardinality(v_usual)]) || v_attempt_nos;
    v_states := array_fill('DISPATCHED'::symphony.outbox_attempt_state, array[cardinality(v_usual)]) || v_states;
    v_retry_ats := array_fill(null::timestamptz, array[cardinality(v_usual)]) || v_retry_ats;
  end if;
  if cardinality(v_recorded) = v_count then
    return query
      select r.place, p_outbox_ids[r.place], r.attempt_no, r.state, r.retry_at, null::text, null::text
      from unnest(v_recorded, v_attempt_nos, v_states, v_retry_ats) as r (place, attempt_no, state, retry_at)
      order by r.place;
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
