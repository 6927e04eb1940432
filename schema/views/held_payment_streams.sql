-- The streams that a failure holds, on ordered rails with on_failure HOLD: which failure it is, and what an operator has found out.
create or replace view symphony.held_payment_streams with (security_barrier) as
select h.rail_type,
       h.participant_id,
       h.sequence_id,
       h.outbox_id,
       a.instruction_id,
       a.error_code,
       coalesce(a.error_code in (select u.error_code from symphony.unknown_outcome_codes u), false) as outcome_unknown,
       (select o.resolution
        from symphony.payment_outbox_operations o
        where o.outbox_id = h.outbox_id
          and o.operation = 'RESOLVE'
        -- PAID and SKIPPED end the hold, so there is one at most.
        limit 1) as resolution,
       h.held_at
from symphony.payment_stream_holds h
left join lateral (
  select a.instruction_id, a.error_code
  from symphony.payment_outbox_attempts a
  where a.outbox_id = h.outbox_id
    and a.state = 'FAILED'
  limit 1
) a on true;

comment on view symphony.held_payment_streams is
  'The failures that hold the later payments of their participant: redrive, resolve or skip each.';
