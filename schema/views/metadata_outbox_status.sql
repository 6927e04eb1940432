-- One row of totals over unpublished entries, and the same for the hundred entity types with the most of them. Counting
-- stops at 10,000 entries of a kind, but not in the DLQ; see metadata_backlog, which can also count all.
create or replace view symphony.metadata_outbox_status as
select b.due,
       b.processing,
       b.stuck,
       b.scheduled,
       b.dlq,
       b.oldest_pending_age_seconds,
       b.oldest_due_age_seconds,
       b.entity_types,
       b.by_entity_type,
       b.more_due,
       b.more_processing,
       b.more_stuck,
       b.more_scheduled,
       b.estimate
from symphony.metadata_backlog(p_max_dlq => null) b;

comment on view symphony.metadata_outbox_status is
  'Totals over entries that are not published (due, processing, stuck, scheduled, dlq, the age of the oldest and of the oldest due), and in by_entity_type the same for the hundred types with most. Counts other than dlq stop at 10,000 of a kind: more_… says which, and estimate is then PostgreSQL''s estimate of all pending entries.';
