-- Orphaned outcomes, the newest first, without lease tokens.
create or replace view symphony.orphaned_outcomes as
select p.orphan_id, p.kind, p.outbox_id, p.instruction_id, p.participant_id, p.idempotency_key, p.rail_type, p.endpoint, p.state, p.rail_reference,
       p.rail_code, p.error_code, p.error_message, p.latency_ms, p.epoch, p.claimed_at, p.worker_id, p.database_user, p.created_at,
       symphony.is_open_orphan(p.rail_type, p.claimed_at, p.created_at) as is_open
from symphony.payment_orphans p
order by p.orphan_id desc;

comment on view symphony.orphaned_outcomes is
  'Outcomes of payments whose history this database has lost, for operators and auditors; compare each with the bank.';
