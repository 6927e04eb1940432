-- Refuses changes that must never happen to the rows of the event lane, for every role, superusers included.
--
-- The triggers are ENABLE ALWAYS, so that session_replication_role = replica does not switch them off.

create or replace trigger errors_are_append_only
  before update or truncate on m10_recovery.outbox_errors
  for each statement execute function symphony.refuse_change('the history of errors is append-only');
alter table m10_recovery.outbox_errors enable always trigger errors_are_append_only;
comment on trigger errors_are_append_only on m10_recovery.outbox_errors is 'The history of errors takes INSERT, and at the end of its retention DELETE.';

create or replace trigger error_rows_never_change
  before update on m10_recovery.outbox_errors
  for each row execute function symphony.refuse_change('the history of errors is append-only');
alter table m10_recovery.outbox_errors enable always trigger error_rows_never_change;
comment on trigger error_rows_never_change on m10_recovery.outbox_errors is 'The same for each row, through a parent table or a subscription.';

create or replace trigger errors_are_kept
  before delete on m10_recovery.outbox_errors
  for each row execute function symphony.check_error_removal();
alter table m10_recovery.outbox_errors enable always trigger errors_are_kept;
comment on trigger errors_are_kept on m10_recovery.outbox_errors is
  'An error can be deleted only past its retention, when its event was removed. For each row, through a parent table or a subscription too.';

create or replace trigger events_are_never_truncated
  before truncate on m10_recovery.outbox
  for each statement execute function symphony.refuse_change('committed events are never dropped');
alter table m10_recovery.outbox enable always trigger events_are_never_truncated;
comment on trigger events_are_never_truncated on m10_recovery.outbox is 'Nothing committed is lost by TRUNCATE.';

create or replace trigger events_are_kept_until_processed
  before delete on m10_recovery.outbox
  for each row
  when (old.processed_at is null)
  execute function symphony.refuse_change('an event is kept until it is processed');
alter table m10_recovery.outbox enable always trigger events_are_kept_until_processed;
comment on trigger events_are_kept_until_processed on m10_recovery.outbox is 'An unprocessed event cannot be deleted.';

create or replace trigger events_keep_what_was_published
  before update of id, aggregate_type, aggregate_id, event_type, payload, created_at
  on m10_recovery.outbox
  for each row
  when (
    (old.id, old.aggregate_type, old.aggregate_id, old.event_type, old.payload::text, old.created_at)
    is distinct from
    (new.id, new.aggregate_type, new.aggregate_id, new.event_type, new.payload::text, new.created_at))
  execute function symphony.refuse_change('what was published cannot change');
alter table m10_recovery.outbox enable always trigger events_keep_what_was_published;
comment on trigger events_keep_what_was_published on m10_recovery.outbox is 'Id, aggregate, event type and payload never change.';

create or replace trigger events_never_count_down
  before update of retry_count on m10_recovery.outbox
  for each row
  when (new.retry_count < old.retry_count)
  execute function symphony.refuse_change('retry_count never falls');
alter table m10_recovery.outbox enable always trigger events_never_count_down;
comment on trigger events_never_count_down on m10_recovery.outbox is 'retry_count never falls.';

create or replace trigger events_end_for_good
  before update on m10_recovery.outbox
  for each row
  when (old.processed_at is not null)
  execute function symphony.refuse_change('a processed event does not change');
alter table m10_recovery.outbox enable always trigger events_end_for_good;
comment on trigger events_end_for_good on m10_recovery.outbox is 'A processed event never changes.';

create or replace trigger events_notify_idle_relayers
  after insert on m10_recovery.outbox
  for each statement execute function symphony.notify_on_insert('m10_outbox');
comment on trigger events_notify_idle_relayers on m10_recovery.outbox is 'A new event notifies an idle relayer.';
