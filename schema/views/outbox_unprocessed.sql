-- Every unprocessed event with its location, and whether a claim may take it now: the one definition of "claimable".
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
       and (o.process_after is null or o.process_after <= now()) as is_claimable
from m10_recovery.outbox o
where o.processed_at is null;

comment on view m10_recovery.outbox_unprocessed is 'Unprocessed events, and whether each may be claimed now. For the claim functions.';
