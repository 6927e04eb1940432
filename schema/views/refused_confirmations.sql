-- Refused confirmations, the newest first, for operators and auditors.
create or replace view symphony.refused_confirmations as
select c.refusal_id, c.kind, c.rail_type, c.idempotency_key, c.outcome, c.outbox_id, c.rail_reference, c.rail_code, c.confirmation_id, c.endpoint,
       c.worker_id, c.database_user, c.created_at
from symphony.payment_refused_confirmations c
order by c.refusal_id desc;

comment on view symphony.refused_confirmations is
  'Confirmations of rails that were refused, because they contradict the ledger or fit no payment: compare each with the bank.';
