-- One row of totals, and the same per rail. Counting stops at 10,000 rows of a rail and kind; see payment_status, which
-- can also count all.
create or replace view symphony.supervisor_outbox_status as
select s.due_unleased_count,
       s.leased_count,
       s.expired_lease_count,
       s.scheduled_count,
       s.oldest_pending_age_seconds,
       s.oldest_due_age_seconds,
       s.dlq,
       s.dlq_unknown,
       s.rails,
       s.more_due,
       s.more_scheduled,
       s.estimate,
       s.awaiting_confirmation_count,
       s.oldest_awaiting_confirmation_age_seconds
from symphony.payment_status() s;

comment on view symphony.supervisor_outbox_status is
  'Totals over all rails, and in the column rails the same for each: due and unleased, leased, lease expired, scheduled, the age of the oldest pending row and of the oldest due row, dead letters. Counts of pending rows stop at 10,000 per rail and kind: more_due and more_scheduled say so, and estimate is then PostgreSQL''s estimate of all pending rows. Payments that await confirmation are counted among the pending ones and once more apart.';
