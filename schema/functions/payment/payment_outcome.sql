-- Returns what became of a payment, for the producer that enqueued it: no row for an unknown key.
--
-- It follows the key to its newest outbox, a redrive included. state is PENDING, DISPATCHED, FAILED, or ARCHIVED for one that has
-- ended and whose ledger rows were archived. A FAILED payment with outcome_unknown may have been made, until resolution says what
-- an operator found out; one with the error_code CANCELLED was never sent. The codes and last_attempt_at are those of the
-- last attempt. next_attempt_at is null while a worker holds a lease.
-- Locks: nothing. For: symphony_ingest, symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.payment_outcome(p_instruction_id text, p_idempotency_key text)
  returns table (
    outbox_id       uuid,
    state           text,
    attempts        int,
    outcome_unknown boolean,
    error_code      text,
    rail_code       text,
    rail_reference  text,
    resolution      text,
    created_at      timestamptz,
    last_attempt_at timestamptz,
    next_attempt_at timestamptz,
    ended_at        timestamptz)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
  return query
    select k.outbox_id,
           case when p.outbox_id is not null then 'PENDING' when a.state in ('DISPATCHED', 'FAILED') then a.state::text else 'ARCHIVED' end,
           coalesce(a.attempt_no - c.is_cancelled::int, 0),
           coalesce(a.error_code in (select u.error_code from unknown_outcome_codes u), false)
             or coalesce(p.epoch <> p.newest_epoch and a.epoch is distinct from p.newest_epoch, false),
           a.error_code,
           a.rail_code,
           a.rail_reference,
           outbox_resolution(k.outbox_id),
           coalesce(p.created_at, a.created_at, k.created_at),
           case when not c.is_cancelled then a.completed_at end,
           p.next_attempt_at,
           case when p.outbox_id is null then a.completed_at end
    from payment_outbox_keys k
    left join lateral (
      select p.outbox_id, p.created_at, p.epoch, r.epoch as newest_epoch,
             case when p.lease_token is null then p.next_attempt_at end as next_attempt_at
      from payment_outbox_pending p
      join payment_rails r on r.rail_type = p.rail_type
      where p.outbox_id = k.outbox_id
      limit 1
    ) p on true
    left join lateral (
      select a.state, a.attempt_no, a.error_code, a.rail_code, a.rail_reference, a.created_at, a.completed_at, a.epoch
      from payment_outbox_attempts a
      where a.outbox_id = k.outbox_id
      order by a.attempt_no desc
      limit 1
    ) a on true
    cross join lateral (select coalesce(a.error_code = 'CANCELLED', false) as is_cancelled) c
    where k.idempotency_key = p_idempotency_key
      and k.instruction_id = p_instruction_id;
end
$$;

comment on function symphony.payment_outcome(text, text) is
  'What became of a payment: its state, attempts, last codes and times, without its payload; no row for an unknown key.';
