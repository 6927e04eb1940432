-- Publishes to the event lane how payments ended, in the transaction that ends them, for rails with publish_outcomes.
--
-- The caller has written the terminal ledger rows of these outboxes, or a resolution of one, in this transaction, and
-- calls it once for each. So there is one event for each ending and for each resolution that changes what the producer
-- was told, or none where the transaction rolls back. Outboxes of rails without publish_outcomes are left out.
--
-- The event is payment.dispatched, payment.failed, payment.outcome_unknown for a failure that may have been paid, or
-- payment.cancelled for the error code CANCELLED. With p_resolution it is payment.dispatched for PAID and payment.failed
-- for NOT_PAID. Its aggregate is the instruction, so the events of one instruction keep their order. The payload has ids,
-- state, codes and times, and nothing of the payment's own payload nor of error messages.
--
-- The body names the event lane, which may not be installed: PostgreSQL looks the name up when this runs.
-- Locks: nothing. Raises: 55000 without the event lane. For: record_terminal_attempts, record_attempts,
-- resolve_payment_outbox.
create or replace function symphony.publish_payment_outcomes(p_outbox_ids uuid[], p_resolution text default null)
  returns void
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  v_outcome record;
begin
  for v_outcome in
    select a.instruction_id,
           case
             when p_resolution = 'PAID' then 'payment.dispatched'
             when p_resolution = 'NOT_PAID' then 'payment.failed'
             when a.state = 'DISPATCHED' then 'payment.dispatched'
             when a.error_code = 'CANCELLED' then 'payment.cancelled'
             when a.error_code in (select u.error_code from unknown_outcome_codes u) then 'payment.outcome_unknown'
             else 'payment.failed'
           end as event_type,
           jsonb_build_object(
             'outbox_id', a.outbox_id, 'instruction_id', a.instruction_id, 'idempotency_key', a.idempotency_key,
             'participant_id', a.participant_id, 'sequence_id', a.sequence_id, 'rail_type', a.rail_type, 'state', a.state,
             'attempt_no', a.attempt_no, 'error_code', a.error_code, 'rail_code', a.rail_code, 'rail_reference', a.rail_reference,
             'resolution', p_resolution, 'completed_at', a.completed_at) as payload
    from unnest(p_outbox_ids) with ordinality as g (outbox_id, place)
    cross join lateral (
      select a.*
      from payment_outbox_attempts a
      where a.outbox_id = g.outbox_id
        and a.state in ('DISPATCHED', 'FAILED')
      limit 1
    ) a
    join payment_rails r on r.rail_type = a.rail_type
    where r.publish_outcomes
    order by g.place
  loop
    if not event_lane_is_installed() then
      raise exception 'the event lane is not installed, so the outcome of instruction % cannot be published', v_outcome.instruction_id
        using errcode = '55000',
              hint = 'Install it with: symphony install --lane event. Or set publish_outcomes of the rail to false.';
    end if;
    perform m10_recovery.publish_outbox('payment', v_outcome.instruction_id, v_outcome.event_type, v_outcome.payload);
  end loop;
end
$$;

comment on function symphony.publish_payment_outcomes(uuid[], text) is
  'Publishes to the event lane how payments ended, in the transaction that ends them, for rails with publish_outcomes.';
