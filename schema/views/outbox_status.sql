-- One row of totals over unprocessed events, and the same for the hundred aggregate types with the most of them. Counting
-- stops at 10,000 events of a kind; see symphony.event_backlog, which can also count all.
create or replace view m10_recovery.outbox_status as
select b.due,
       b.claimed,
       b.stuck,
       b.scheduled,
       b.oldest_pending_age_seconds,
       b.oldest_due_age_seconds,
       b.aggregate_types,
       b.by_aggregate_type,
       b.more_due,
       b.more_claimed,
       b.more_stuck,
       b.more_scheduled,
       b.estimate
from symphony.event_backlog() b;

comment on view m10_recovery.outbox_status is
  'Totals over unprocessed events (due, claimed, stuck, scheduled, the age of the oldest and of the oldest due), and in by_aggregate_type the same for the hundred types with most. Counts stop at 10,000 of a kind: more_… says which, and estimate is then PostgreSQL''s estimate of all unprocessed events.';
