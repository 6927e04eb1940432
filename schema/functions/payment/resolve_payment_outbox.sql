-- Resolves a terminal failure: records what an operator found out, with the evidence as the reason.
--
-- PAID: the money moved, and the payment can never be redriven. NOT_PAID: it did not, and the payment may be redriven.
-- SKIPPED: a failure with known outcome needs no action. NOT_PAID can be followed by PAID or SKIPPED, which only prevent a
-- payment; every other second resolution is refused.
--
-- On an ordered rail with on_failure HOLD, PAID and SKIPPED release the later payments of the participant. NOT_PAID does
-- not: a redrive is to take the place of the failure first. A resolution that changes what the producer was told is published
-- on a rail with publish_outcomes: PAID, and NOT_PAID of an unknown outcome.
-- Locks: the key, then the hold and the next row of the stream. Raises: P7003, P7005, 25000 outside READ COMMITTED. For: symphony_operator.
create or replace function symphony.resolve_payment_outbox(
  p_outbox_id      uuid,
  p_resolution     text,
  p_actor          text,
  p_reason         text,
  out operation_id uuid,
  out resolved_at  timestamptz)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
#variable_conflict use_column
declare
  v_failure payment_outbox_attempts;
  v_before  text;
begin
  if p_resolution is null or p_resolution not in ('PAID', 'NOT_PAID', 'SKIPPED') then
    raise exception 'p_resolution must be PAID, NOT_PAID or SKIPPED, not %', coalesce(left(p_resolution, 40), 'null')
      using errcode = 'P7005';
  end if;
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  v_failure := lock_terminal_failure(p_outbox_id);

  v_before := outbox_resolution(p_outbox_id);
  if v_before is not null and not (v_before = 'NOT_PAID' and p_resolution in ('PAID', 'SKIPPED')) then
    raise exception 'outbox % was resolved as % already', p_outbox_id, v_before using errcode = 'P7003';
  elsif p_resolution = 'SKIPPED' and v_before is null and coalesce(v_failure.error_code in (select u.error_code from unknown_outcome_codes u), false) then
    raise exception 'the outcome of outbox % is unknown: it may have been paid', p_outbox_id
      using errcode = 'P7003',
            hint = 'Ask the bank, then resolve it as PAID or NOT_PAID: a failure with unknown outcome cannot be skipped before.';
  end if;

  insert into payment_outbox_operations as o (operation_id, operation, outbox_id, resolution, rail_type, actor, reason)
  values (uuidv7(), 'RESOLVE', p_outbox_id, p_resolution, v_failure.rail_type, p_actor, p_reason)
  returning o.operation_id, o.created_at
  into operation_id, resolved_at;
  if p_resolution <> 'NOT_PAID' then
    perform release_stream_hold(v_failure, true);
  end if;
  if p_resolution = 'PAID' or p_resolution = 'NOT_PAID' and v_failure.error_code in (select u.error_code from unknown_outcome_codes u) then
    perform publish_payment_outcomes(array[p_outbox_id], p_resolution);
  end if;
end
$$;

comment on function symphony.resolve_payment_outbox(uuid, text, text, text) is
  'Records what an operator found out about a terminal failure: PAID, NOT_PAID or SKIPPED.';
