-- Every event and when it may be claimed, for relayers: without the payload and the processor id that completes a claim.
--
-- A relayer reads when the next event is due, and whether an earlier event of an aggregate is still unprocessed.
create or replace view m10_recovery.outbox_schedule as
select o.id, o.aggregate_type, o.aggregate_id, o.processed_at, o.process_after, o.claimed_at
from m10_recovery.outbox o;

comment on view m10_recovery.outbox_schedule is 'Every event with its aggregate and its schedule, without payload and processor id.';
