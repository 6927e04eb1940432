-- Which events there are and when each may be claimed, for relayers: no payload, and not the name that completes a claim.
--
-- A relayer asks when the next event is due, and whether an earlier event of an aggregate is still unprocessed.
create or replace view m10_recovery.outbox_schedule as
select o.id, o.aggregate_type, o.aggregate_id, o.processed_at, o.process_after, o.claimed_at
from m10_recovery.outbox o;

comment on view m10_recovery.outbox_schedule is 'Every event with its aggregate and its schedule, without its payload and without who claimed it.';
