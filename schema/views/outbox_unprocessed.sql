-- Every unprocessed event with its location, whether a claim may take it now, and whether it is parked.
-- This is the one definition of both.
--
-- PostgreSQL expands the view into the query that uses it, so the partial indexes of the table apply. Granted to no role.
create or replace view m10_recovery.outbox_unprocessed as
select o.ctid as row_id,
       o.id,
       o.aggregate_type,
       o.aggregate_id,
       o.retry_count,
       o.process_after,
       o.claimed_at,
       (o.claimed_at is null or o.claimed_at < now() - symphony.event_claim_timeout())
       and (o.process_after is null or o.process_after <= now()) as is_claimable,
       o.claimed_at is null and o.process_after = to_timestamp(0) as is_parked
from m10_recovery.outbox o
where o.processed_at is null;

comment on view m10_recovery.outbox_unprocessed is 'Unprocessed events, and whether each may be claimed now. For the claim functions.';
