-- Refuses changes of the history of retention and of epochs, for every role, superusers included.

create or replace trigger retention_policies_are_append_only
  before update or delete or truncate on symphony.retention_policies
  for each statement execute function symphony.refuse_change('the history of retention is append-only');
alter table symphony.retention_policies enable always trigger retention_policies_are_append_only;
comment on trigger retention_policies_are_append_only on symphony.retention_policies is 'The history of retention takes INSERT and nothing else.';

create or replace trigger retention_policies_never_change
  before update or delete on symphony.retention_policies
  for each row execute function symphony.refuse_change('the history of retention is append-only');
alter table symphony.retention_policies enable always trigger retention_policies_never_change;
comment on trigger retention_policies_never_change on symphony.retention_policies is 'The same for each row, through a parent table or a subscription.';

create or replace trigger retention_removals_are_append_only
  before update or delete or truncate on symphony.retention_removals
  for each statement execute function symphony.refuse_change('the history of retention is append-only');
alter table symphony.retention_removals enable always trigger retention_removals_are_append_only;
comment on trigger retention_removals_are_append_only on symphony.retention_removals is 'The history of removals takes INSERT and nothing else.';

create or replace trigger retention_removals_never_change
  before update or delete on symphony.retention_removals
  for each row execute function symphony.refuse_change('the history of retention is append-only');
alter table symphony.retention_removals enable always trigger retention_removals_never_change;
comment on trigger retention_removals_never_change on symphony.retention_removals is 'The same for each row, through a parent table or a subscription.';

create or replace trigger epochs_are_append_only
  before update or delete or truncate on symphony.epoch
  for each statement execute function symphony.refuse_change('the history of epochs is append-only');
alter table symphony.epoch enable always trigger epochs_are_append_only;
comment on trigger epochs_are_append_only on symphony.epoch is 'The history of epochs takes INSERT and nothing else.';

create or replace trigger epochs_never_change
  before update or delete on symphony.epoch
  for each row execute function symphony.refuse_change('the history of epochs is append-only');
alter table symphony.epoch enable always trigger epochs_never_change;
comment on trigger epochs_never_change on symphony.epoch is 'The same for each row, through a parent table or a subscription.';
