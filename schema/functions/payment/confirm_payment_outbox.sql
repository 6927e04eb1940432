-- Records what a rail says about a payment by itself, in a callback: it was executed, or it was refused and will not be.
--
-- The bank names the payment by its idempotency key; the newest outbox of the key on this rail is meant. result is
--
-- - SETTLED: the outbox has ended with it, as DISPATCHED or FAILED. It need not await confirmation: the callback may come before the
--   worker has recorded the acceptance, or after a worker died. A lease of it ends with this outcome, so its worker is refused with
--   P7001; no other ledger row of that lease exists. Without a lease the ledger row has no claimed_at.
-- - REPLAYED: the database knows it already, by this message or by another.
-- - a kind of payment_refused_confirmations: nothing was changed, and an operator has to look. See that table for the kinds.
--
-- A payment that was never sent cannot be confirmed, but for two cases. One of an earlier epoch may have been sent by an attempt that was
-- lost. A redrive under the same key is the same payment at the bank: that it was executed settles it, so that it is not sent
-- again; that it was refused is old news of the outbox that it redrives. A redrive under a new key is another payment there.
--
-- p_confirmation_id is the id of the message. A message that has settled an earlier outbox of the key is a replay for ever, so one that
-- is delivered again cannot settle the redrive. p_endpoint is the bank that sent it: see endpoint_of_unknown_outcome.
-- Locks: when the server has changed, those of advance_epoch; payment_rails in ROW SHARE mode; the key, then the pending row, and
-- its successors on an ordered rail.
-- Raises: P7005, P7006, 25000 outside READ COMMITTED, 55P03 after 5 s behind a lock. For: symphony_executor.
create or replace function symphony.confirm_payment_outbox(
  p_rail_type       text,
  p_idempotency_key text,
  p_outcome         text,
  p_confirmation_id text,
  p_worker_id       text,
  p_endpoint        text default null,
  p_rail_reference  text default null,
  p_rail_code       text default null,
  p_error_code      text default 'RAIL_REFUSED',
  p_error_message   text default null,
  out result        text,
  out outbox_id     uuid,
  out attempt_no    int,
  out state         symphony.outbox_attempt_state)
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
  v_is_executed  constant boolean := p_outcome = 'EXECUTED';
  v_endpoint     constant text := coalesce(p_endpoint, 'unnamed');
  v_argument     record;
  v_instructions text[];
  v_row          record;
  v_end          record;
  v_has_attempts boolean;
  v_resolution   text;
begin
  perform check_argument('p_rail_type', p_rail_type, 200);
  perform check_argument('p_idempotency_key', p_idempotency_key, 200);
  perform check_argument('p_confirmation_id', p_confirmation_id, 200);
  perform check_argument('p_worker_id', p_worker_id, 200);
  if (p_outcome in ('EXECUTED', 'REFUSED')) is not true then
    raise exception 'p_outcome must be EXECUTED or REFUSED, not %', coalesce(left(p_outcome, 40), 'null') using errcode = 'P7005';
  elsif char_length(p_error_message) > 4000 then
    raise exception 'p_error_message must have at most 4000 characters' using errcode = 'P7005';
  elsif p_error_code in (select u.error_code from unknown_outcome_codes u) then
    raise exception 'p_error_code must be that of a known outcome, not %', p_error_code using errcode = 'P7005';
  elsif p_error_code = 'CANCELLED' then
    raise exception 'p_error_code CANCELLED is reserved for cancel_payment_outbox' using errcode = 'P7005';
  end if;
  for v_argument in
    select n.name, n.value
    from (values ('p_endpoint', p_endpoint), ('p_rail_reference', p_rail_reference), ('p_rail_code', p_rail_code)) as n (name, value)
    where n.value is not null
  loop
    perform check_argument(v_argument.name, v_argument.value, 200);
  end loop;
  perform check_argument('p_error_code', p_error_code, 200);
  perform check_isolation();
  perform require_synchronous_commit();
  -- Before the lock, as in claim_outbox_batch.
  perform ensure_epoch(p_worker_id);
  -- Keeps rail policies and the epoch constant; see lock_rail_policies.
  lock table payment_rails in row share mode;
  if not exists (select from payment_rails r where r.rail_type = p_rail_type) then
    raise exception 'there is no rail %', p_rail_type
      using errcode = 'P7006',
            hint = 'Check the spelling; symphony.payment_rail_policies lists the rails.';
  end if;

  v_instructions := array(
    select k.instruction_id
    from payment_outbox_keys k
    where k.idempotency_key = p_idempotency_key
      and p_rail_type = coalesce(
        (select p.rail_type::text from payment_outbox_pending p where p.outbox_id = k.outbox_id),
        (select a.rail_type from payment_outbox_attempts a where a.outbox_id = k.outbox_id limit 1))
    limit 2);
  if cardinality(v_instructions) = 1 then
    -- Orders concurrent confirmations of a payment, and those against its redrive and its resolution.
    select k.outbox_id
    into outbox_id
    from payment_outbox_keys k
    where k.idempotency_key = p_idempotency_key
      and k.instruction_id = v_instructions[1]
    for no key update;
  end if;
  if outbox_id is null then
    result := case when cardinality(v_instructions) > 1 then 'AMBIGUOUS_KEY' else 'UNKNOWN_KEY' end;
  end if;

  if result is null then
    -- This message, for this outbox or one before it that redrives link with it.
    select a.outbox_id, a.attempt_no, a.state
    into v_end
    from (
      with recursive redrives as (
        select confirm_payment_outbox.outbox_id as outbox_id
        union all
        select o.outbox_id
        from redrives r
        cross join lateral (
          select o.outbox_id
          from payment_outbox_operations o
          where o.new_outbox_id = r.outbox_id
            -- Under the same key.
            and o.policy_after is null
          limit 1
        ) o
      )
      select r.outbox_id
      from redrives r
    ) r
    cross join lateral (
      select a.outbox_id, a.attempt_no, a.state, a.confirmation_id
      from payment_outbox_attempts a
      where a.outbox_id = r.outbox_id
        and a.state in ('DISPATCHED', 'FAILED')
      limit 1
    ) a
    where a.confirmation_id = p_confirmation_id
    limit 1;
    if found and (v_end.state = 'DISPATCHED') = v_is_executed then
      result := 'REPLAYED';
      outbox_id := v_end.outbox_id;
      attempt_no := v_end.attempt_no;
      state := v_end.state;
    elsif found then
      result := 'CONTRADICTS_OUTCOME';
    end if;
  end if;

  if result is null then
    select p.ctid as pending_row, p.lease_token, p.claimed_endpoint, p.epoch <> r.epoch as is_of_earlier_epoch,
           exists (
             select
             from payment_outbox_operations o
             where o.new_outbox_id = p.outbox_id
               and o.policy_after is null) as redrives_the_key
    into v_row
    from payment_outbox_pending p
    join payment_rails r on r.rail_type = p.rail_type
    where p.outbox_id = confirm_payment_outbox.outbox_id
    for no key update of p;
    if found then
      v_has_attempts := exists (select from payment_outbox_attempts a where a.outbox_id = confirm_payment_outbox.outbox_id);
      if v_row.lease_token is null and not v_has_attempts and not v_row.is_of_earlier_epoch and not (v_is_executed and v_row.redrives_the_key) then
        result := case when v_row.redrives_the_key then 'REPLAYED' else 'NEVER_SENT' end;
      elsif endpoint_of_unknown_outcome(outbox_id, p_rail_type, v_endpoint) is not null
         or v_row.lease_token is not null
            and coalesce(v_row.claimed_endpoint, 'unnamed') <> v_endpoint
            and not is_same_endpoint(p_rail_type, v_endpoint, coalesce(v_row.claimed_endpoint, 'unnamed')) then
        result := 'OTHER_ENDPOINT';
      else
        select s.attempt_no, s.state
        into attempt_no, state
        from record_attempts(
          array[v_row.pending_row],
          array[case when v_is_executed then 'DISPATCHED' else 'FAILED' end::symphony.outbox_attempt_state],
          array[p_rail_reference],
          array[p_rail_code],
          array[case when not v_is_executed then p_error_code end],
          array[case when not v_is_executed then p_error_message end],
          array[null::int],
          array[null::int],
          p_confirmation_id,
          p_worker_id,
          p_endpoint) s;
        -- Not if the outbox had ended already, and its row was quarantined.
        if found then
          result := 'SETTLED';
        end if;
      end if;
    end if;
  end if;

  if result is null then
    -- It has ended: does the ledger, or what an operator found out, say the same?
    select a.attempt_no, a.state, coalesce(a.error_code in (select u.error_code from unknown_outcome_codes u), false) as is_unknown
    into v_end
    from payment_outbox_attempts a
    where a.outbox_id = confirm_payment_outbox.outbox_id
      and a.state in ('DISPATCHED', 'FAILED');
    v_resolution := outbox_resolution(outbox_id);
    attempt_no := v_end.attempt_no;
    state := v_end.state;
    result := case
      when v_end.state is null then 'UNKNOWN_KEY'
      when v_end.is_unknown and v_resolution is null then 'AFTER_UNKNOWN_OUTCOME'
      when (v_end.state = 'DISPATCHED' or coalesce(v_resolution = 'PAID', false)) = v_is_executed then 'REPLAYED'
      else 'CONTRADICTS_OUTCOME'
    end;
  end if;

  if result not in ('SETTLED', 'REPLAYED') then
    insert into payment_refused_confirmations
      (refusal_id, kind, rail_type, idempotency_key, outcome, outbox_id, rail_reference, rail_code, confirmation_id, endpoint, worker_id)
    values
      (uuidv7(), result, p_rail_type, p_idempotency_key, p_outcome, outbox_id, p_rail_reference, p_rail_code, p_confirmation_id, p_endpoint,
       p_worker_id)
    on conflict do nothing;
  end if;
end
$$;

comment on function symphony.confirm_payment_outbox(text, text, text, text, text, text, text, text, text, text) is
  'Records an outcome that a rail reports by itself: settles the payment, or says that it is known already or why it is refused.';
