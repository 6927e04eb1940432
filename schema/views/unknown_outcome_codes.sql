-- The error codes that leave open whether a payment was made. The one place that says so.
--
-- A worker says it with OUTCOME_UNKNOWN; a lease that ran out says it by itself.
create or replace view symphony.unknown_outcome_codes (error_code) as
values ('OUTCOME_UNKNOWN'), ('LEASE_EXPIRED');

comment on view symphony.unknown_outcome_codes is 'Error codes after which nobody knows whether the payment was made.';
