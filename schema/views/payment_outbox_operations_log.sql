-- The audit log of operations, for roles that may not read the table.
create or replace view symphony.payment_outbox_operations_log as
select o.operation_id, o.operation, o.outbox_id, o.new_outbox_id, o.resolution, o.rail_type, o.policy_before, o.policy_after,
       o.actor, o.reason, o.database_user, o.created_at
from symphony.payment_outbox_operations o;

comment on view symphony.payment_outbox_operations_log is 'The audit log: redrives, resolutions, cancellations, repairs, erasures, and changes of rails, endpoints, retention, ledger partitions and epochs, with actor and reason.';
