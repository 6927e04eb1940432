-- The policy of each rail, for roles that may not read the table.
create or replace view symphony.payment_rail_policies as
select r.rail_type, r.max_attempts, r.backoff_base_seconds, r.backoff_cap_seconds, r.ordered, r.max_in_flight, r.paused,
       r.on_unknown, r.key_memory_seconds, r.updated_by, r.updated_at, r.retired_at, r.on_epoch_change, r.held_since_epoch,
       r.publish_outcomes, r.on_failure, r.max_per_second, confirm_every_seconds
from symphony.payment_rails r;

comment on view symphony.payment_rail_policies is 'The policy of each rail, retired rails included.';
