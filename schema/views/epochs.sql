-- The epochs, for roles that may not read the table. The row with the highest counter is the current one.
create or replace view symphony.epochs as
select e.counter, e.system_identifier, e.timeline, e.opened_at, e.reason, e.database_user
from symphony.epoch e;

comment on view symphony.epochs is 'The epochs: which server each was opened on, when and why. The highest counter is the current one.';
