-- The error codes of an unknown outcome: the payment may have been made. The only list of them.
--
-- A worker records OUTCOME_UNKNOWN, and AWAITING_CONFIRMATION for a payment that the rail has accepted and not executed yet. The
-- database records LEASE_EXPIRED for an expired lease.
create or replace view symphony.unknown_outcome_codes (error_code) as
values ('OUTCOME_UNKNOWN'), ('LEASE_EXPIRED'), ('AWAITING_CONFIRMATION');

comment on view symphony.unknown_outcome_codes is 'Error codes of an unknown outcome: the payment may have been made.';
