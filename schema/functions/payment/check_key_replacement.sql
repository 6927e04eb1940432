-- Refuses to redrive a failure under a new idempotency key unless the ledger knows that it was never paid.
--
-- A bank pays a new key whatever became of the old one. So the bank's own code must say that it refused, or the payload must
-- have been refused before it was sent. No attempt of the payment, over all its redrives, may have an unknown outcome: neither a
-- resolution nor a later answer of the bank is proof enough. An acceptance is not one of these: nothing was sent after it, and the
-- bank's code that ended the payment is its last word. Nor may the bank have said, in a callback that was refused, that it
-- has executed one of them. All of it must be of the current epoch, because an earlier one may have been redriven and paid in a
-- history that this database has lost. A redrive in the place of a failure has the number of the failure, so its number tells
-- of the same epoch.
-- Locks: nothing; the caller holds the key's row. Raises: P7003. For: redrive_payment_outbox.
create or replace function symphony.check_key_replacement(p_failure symphony.payment_outbox_attempts)
  returns void
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  v_epoch    constant bigint := epoch_of_this_server();
  v_unknown  int;
  v_earlier  boolean;
  v_executed boolean;
  v_accepted boolean;
begin
  with recursive redrives as (
    select p_failure.outbox_id
    union all
    select o.outbox_id
    from redrives r
    cross join lateral (
      select o.outbox_id
      from payment_outbox_operations o
      where o.new_outbox_id = r.outbox_id
      limit 1
    ) o
  )
  select min(a.attempt_no) filter (
           where a.error_code in (select u.error_code from unknown_outcome_codes u)
             and a.error_code <> 'AWAITING_CONFIRMATION'),
         bool_or(a.epoch is distinct from v_epoch
                 -- Enqueued in an earlier epoch: its number is not above the floor of this one; see number_floor.
                 or a.sequence_id <= (v_epoch - 1) * 1000000000000
                 -- An earlier outbox without rows was archived, with its attempts.
                 or a.outbox_id is null),
         bool_or(exists (
           select
           from payment_refused_confirmations c
           where c.idempotency_key = a.idempotency_key
             and c.rail_type = a.rail_type
             and c.outcome = 'EXECUTED')),
         bool_or(a.error_code = 'AWAITING_CONFIRMATION')
  into v_unknown, v_earlier, v_executed, v_accepted
  from redrives r
  left join payment_outbox_attempts a on a.outbox_id = r.outbox_id;

  if v_unknown is not null then
    raise exception 'outbox % cannot be redriven under a new key: the outcome of an attempt was unknown, so the old key may have been paid', p_failure.outbox_id
      using errcode = 'P7003',
            hint = 'Redrive it under its own key, which the bank pays at most once.';
  elsif v_executed then
    raise exception 'outbox % cannot be redriven under a new key: the bank has said that it executed the old one', p_failure.outbox_id
      using errcode = 'P7003',
            hint = 'Read symphony.refused_confirmations and ask the bank, then resolve it.';
  elsif (p_failure.error_code is distinct from 'INVALID_PAYLOAD' or v_accepted) and p_failure.rail_code is null then
    raise exception 'outbox % cannot be redriven under a new key: the ledger has no code of the bank that says it was refused', p_failure.outbox_id
      using errcode = 'P7003',
            hint = 'Redrive it under its own key, which the bank pays at most once.';
  elsif v_earlier is not false then
    raise exception 'outbox % cannot be redriven under a new key: it may have been redriven and paid in an earlier epoch, which this database has lost', p_failure.outbox_id
      using errcode = 'P7003',
            hint = 'Redrive it under its own key: a relayer inquires about it before it sends it.';
  end if;
end
$$;

comment on function symphony.check_key_replacement(symphony.payment_outbox_attempts) is
  'Raises P7003 for a failure that must not be redriven under a new idempotency key.';
