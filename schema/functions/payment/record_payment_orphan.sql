-- Records an outcome that proves that this database has lost history, as evidence. Returns whether this call recorded it.
--
-- A worker calls it for what it knows and could not complete: a result that was refused with P7002, or that it could not
-- deliver while its lease lasted. And for a first attempt that the rail answered as a repetition of one before. It need not
-- know whether the outcome is an orphan: the rules are here. An outcome is one
--
-- - of kind UNKNOWN_OUTBOX, if the outbox is neither pending nor in the ledger, no archive has its time, and its key is not
--   registered for it. A lease that was only lost is no orphan: its row is here, and its outcome will be inquired about.
-- - of kind REPLAYED_FIRST_ATTEMPT, if the ledger has this outbox as DISPATCHED by this worker at its first attempt, and it is
--   not a redrive: a redrive repeats a key that its bank may know.
--
-- Otherwise nothing is recorded, as for a repetition of the call. Nothing else changes, whatever was lost.
-- Locks: nothing. Raises: P7003 for ZOMBIE_REQUEUE, P7005, 25000 outside READ COMMITTED. For: symphony_executor.
create or replace function symphony.record_payment_orphan(
  p_kind            text,
  p_worker_id       text,
  p_outbox_id       uuid,
  p_lease_token     uuid,
  p_state           symphony.outbox_attempt_state,
  p_rail_reference  text        default null,
  p_rail_code       text        default null,
  p_error_code      text        default null,
  p_error_message   text        default null,
  p_latency_ms      int         default null,
  p_instruction_id  text        default null,
  p_participant_id  text        default null,
  p_idempotency_key text        default null,
  p_rail_type       text        default null,
  p_endpoint        text        default null,
  p_epoch           bigint      default null,
  p_claimed_at      timestamptz default null)
  returns boolean
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  v_argument record;
begin
  perform check_argument('p_worker_id', p_worker_id, 200);
  perform check_isolation();
  if (p_kind in ('UNKNOWN_OUTBOX', 'REPLAYED_FIRST_ATTEMPT')) is not true then
    raise exception 'p_kind must be UNKNOWN_OUTBOX or REPLAYED_FIRST_ATTEMPT, not %', coalesce(p_kind, 'null') using errcode = 'P7005';
  elsif num_nulls(p_outbox_id, p_lease_token) > 0 then
    raise exception 'p_outbox_id and p_lease_token must not be null' using errcode = 'P7005';
  elsif (p_state in ('DISPATCHED', 'FAILED', 'RETRYABLE')) is not true then
    raise exception 'p_state must be DISPATCHED, FAILED or RETRYABLE, not %', coalesce(p_state::text, 'null') using errcode = 'P7003';
  elsif p_latency_ms < 0 then
    raise exception 'p_latency_ms must not be negative' using errcode = 'P7005';
  elsif char_length(p_error_message) > 4000 then
    raise exception 'p_error_message must have at most 4000 characters' using errcode = 'P7005';
  end if;
  for v_argument in
    select n.name, n.value
    from (values
      ('p_rail_reference', p_rail_reference), ('p_rail_code', p_rail_code), ('p_error_code', p_error_code),
      ('p_instruction_id', p_instruction_id), ('p_participant_id', p_participant_id), ('p_idempotency_key', p_idempotency_key),
      ('p_rail_type', p_rail_type), ('p_endpoint', p_endpoint)) as n (name, value)
    where n.value is not null
  loop
    perform check_argument(v_argument.name, v_argument.value, 200);
  end loop;

  insert into payment_orphans
    (orphan_id, kind, outbox_id, lease_token, state, rail_reference, rail_code, error_code, error_message, latency_ms,
     instruction_id, participant_id, idempotency_key, rail_type, endpoint, epoch, claimed_at, worker_id)
  select uuidv7(), p_kind, p_outbox_id, p_lease_token, p_state, p_rail_reference, p_rail_code, p_error_code,
         clean_error_text(p_error_message), p_latency_ms, p_instruction_id, p_participant_id, p_idempotency_key, p_rail_type, p_endpoint,
         p_epoch, p_claimed_at, p_worker_id
  where case p_kind
    when 'UNKNOWN_OUTBOX' then
      (select true from payment_outbox_pending p where p.outbox_id = p_outbox_id limit 1) is null
      and (select true from payment_outbox_attempts a where a.outbox_id = p_outbox_id limit 1) is null
      -- What was archived has no row here any more.
      and (
        select true
        from payment_ledger_archives r
        where p_outbox_id < r.to_id
          and (r.from_id is null or p_outbox_id >= r.from_id)
        limit 1) is null
      and (
        select true
        from payment_outbox_keys k
        where k.idempotency_key = p_idempotency_key
          and k.outbox_id = p_outbox_id
        limit 1) is null
    else
      (
        select true
        from payment_outbox_attempts a
        where a.outbox_id = p_outbox_id
          and a.attempt_no = 1
          and a.state = 'DISPATCHED'
          and a.worker_id = p_worker_id
        limit 1)
      and (select true from payment_outbox_operations o where o.new_outbox_id = p_outbox_id limit 1) is null
  end
  on conflict (outbox_id, lease_token, kind) do nothing;
  return found;
end
$$;

comment on function symphony.record_payment_orphan(text, text, uuid, uuid, symphony.outbox_attempt_state, text, text, text, text, int, text, text, text, text, text, bigint, timestamptz) is
  'Records an outcome of a payment whose history this database has lost; returns whether this call recorded it.';
