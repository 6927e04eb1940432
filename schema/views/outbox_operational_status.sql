-- The status of each pending outbox, with its latest attempt.
--
-- The counts and ages are those of supervisor_outbox_status, for one row: sum() of the counts and max() of the ages over
-- any selection of rows are its totals. Each row is counted once: due and unleased, leased, with an expired lease, or
-- none of these, which is scheduled.
create or replace view symphony.outbox_operational_status as
select p.outbox_id,
       p.instruction_id,
       p.participant_id,
       p.sequence_id,
       p.idempotency_key,
       p.rail_type,
       case
         when p.lease_expires_at > now() then 'LEASED'
         when p.lease_expires_at <= now() then 'LEASE_EXPIRED'
         when r.paused then 'PAUSED'
         when r.held_since_epoch is not null then 'HELD'
         when r.on_failure = 'HOLD' and exists (
           select from symphony.payment_stream_holds h
           where h.participant_id = p.participant_id
             and h.rail_type = p.rail_type
             and h.sequence_id < p.sequence_id) then 'HELD_BY_FAILURE'
         when w.accepted_at is not null then 'AWAITING_CONFIRMATION'
         when r.ordered and exists (
           select from symphony.payment_outbox_pending e
           where e.participant_id = p.participant_id
             and e.rail_type = p.rail_type
             and e.sequence_id < p.sequence_id) then 'PARKED'
         when p.next_attempt_at > now() then 'SCHEDULED'
         else 'DUE'
       end as status,
       p.attempt_count,
       p.next_attempt_at,
       p.created_at,
       p.claimed_by,
       p.claimed_at,
       p.lease_expires_at,
       p.redrive_of,
       a.attempt_no as last_attempt_no,
       a.state as last_state,
       a.completed_at as last_completed_at,
       a.rail_code as last_rail_code,
       a.error_code as last_error_code,
       a.error_message as last_error_message,
       coalesce(a.error_code in (select u.error_code from symphony.unknown_outcome_codes u), false)
         or (p.epoch <> r.epoch and a.epoch is distinct from r.epoch) as outcome_unknown,
       (p.lease_token is null and p.next_attempt_at <= now())::int as due_unleased_count,
       coalesce(p.lease_expires_at > now(), false)::int as leased_count,
       coalesce(p.lease_expires_at <= now(), false)::int as expired_lease_count,
       greatest(extract(epoch from now() - greatest(p.created_at, p.not_before)), 0)::numeric(20, 3) as oldest_pending_age_seconds,
       case
         when p.lease_token is null then greatest(extract(epoch from now() - p.next_attempt_at), 0)
         else 0
       end::numeric(20, 3) as oldest_due_age_seconds,
       w.accepted_at
from symphony.payment_outbox_pending p
join symphony.payment_rails r on r.rail_type = p.rail_type
left join symphony.payment_awaiting_confirmation w on w.outbox_id = p.outbox_id
left join lateral (
  select l.attempt_no, l.state, l.completed_at, l.rail_code, l.error_code, l.error_message, l.epoch
  from symphony.payment_outbox_attempts l
  where l.outbox_id = p.outbox_id
  order by l.attempt_no desc
  limit 1
) a on true;

comment on view symphony.outbox_operational_status is
  'One row per pending outbox: LEASED, LEASE_EXPIRED, PAUSED, HELD since a new epoch, HELD_BY_FAILURE of its participant, AWAITING_CONFIRMATION of the rail that has accepted it, PARKED behind an earlier row of its participant, SCHEDULED or DUE. Its counts are 0 or 1, so that they add up to supervisor_outbox_status.';
