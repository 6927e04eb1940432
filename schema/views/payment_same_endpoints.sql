-- The endpoints that operators declared to be the same bank, for roles that may not read the table.
create or replace view symphony.payment_same_endpoints as
select a.rail_type, a.endpoint, a.same_as, a.declared_by, a.reason, a.declared_at
from symphony.payment_endpoint_aliases a;

comment on view symphony.payment_same_endpoints is 'The pairs of endpoints that operators declared to be the same bank, by rail.';
