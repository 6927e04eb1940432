-- Refuses changes that must never happen to the rows of the metadata lane, for every role, superusers included.
--
-- The triggers are ENABLE ALWAYS, so that session_replication_role = replica does not switch them off. The one on status fires
-- whenever the status is set, even to the same value: staying is no move. Other columns, such as times, are not checked.

create or replace trigger metadata_begins_as_pending
  before insert on symphony.metadata_outbox
  for each row execute function symphony.check_metadata_move();
alter table symphony.metadata_outbox enable always trigger metadata_begins_as_pending;
comment on trigger metadata_begins_as_pending on symphony.metadata_outbox is 'An entry can only be inserted as PENDING.';

create or replace trigger metadata_status_moves_are_legal
  before update of status on symphony.metadata_outbox
  for each row execute function symphony.check_metadata_move();
alter table symphony.metadata_outbox enable always trigger metadata_status_moves_are_legal;
comment on trigger metadata_status_moves_are_legal on symphony.metadata_outbox is 'The status makes the five legal moves only.';

create or replace trigger metadata_ends_for_good
  before update on symphony.metadata_outbox
  for each row
  when (old.status in ('PUBLISHED', 'DLQ'))
  execute function symphony.check_metadata_move();
alter table symphony.metadata_outbox enable always trigger metadata_ends_for_good;
comment on trigger metadata_ends_for_good on symphony.metadata_outbox is 'PUBLISHED and DLQ are terminal: such an entry never changes.';

create or replace trigger metadata_keeps_what_was_created
  before update of id, entity_type, entity_id, metadata, created_at, epoch
  on symphony.metadata_outbox
  for each row
  when (
    (old.id, old.entity_type, old.entity_id, old.metadata::text, old.created_at, old.epoch)
    is distinct from
    (new.id, new.entity_type, new.entity_id, new.metadata::text, new.created_at, new.epoch))
  execute function symphony.refuse_change('what was created cannot change');
alter table symphony.metadata_outbox enable always trigger metadata_keeps_what_was_created;
comment on trigger metadata_keeps_what_was_created on symphony.metadata_outbox is 'Id, entity, metadata and version never change.';

create or replace trigger metadata_never_counts_down
  before update of retry_count on symphony.metadata_outbox
  for each row
  when (new.retry_count < old.retry_count)
  execute function symphony.refuse_change('retry_count never falls');
alter table symphony.metadata_outbox enable always trigger metadata_never_counts_down;
comment on trigger metadata_never_counts_down on symphony.metadata_outbox is 'retry_count never falls.';

create or replace trigger metadata_is_kept_until_it_ends
  before delete on symphony.metadata_outbox
  for each row
  when (old.status not in ('PUBLISHED', 'DLQ'))
  execute function symphony.refuse_change('an entry is kept until it ends');
alter table symphony.metadata_outbox enable always trigger metadata_is_kept_until_it_ends;
comment on trigger metadata_is_kept_until_it_ends on symphony.metadata_outbox is 'An entry that has not ended cannot be deleted.';

create or replace trigger metadata_is_never_truncated
  before truncate on symphony.metadata_outbox
  for each statement execute function symphony.refuse_change('committed entries are never dropped');
alter table symphony.metadata_outbox enable always trigger metadata_is_never_truncated;
comment on trigger metadata_is_never_truncated on symphony.metadata_outbox is 'Nothing committed is lost by TRUNCATE.';

create or replace trigger metadata_notifies_idle_relayers
  after insert on symphony.metadata_outbox
  for each statement execute function symphony.notify_on_insert('metadata_outbox');
comment on trigger metadata_notifies_idle_relayers on symphony.metadata_outbox is 'A new entry notifies an idle relayer.';

create or replace trigger metadata_entities_are_kept
  before delete or truncate on symphony.metadata_entities
  for each statement execute function symphony.refuse_change('a version that was used is never used again');
alter table symphony.metadata_entities enable always trigger metadata_entities_are_kept;
comment on trigger metadata_entities_are_kept on symphony.metadata_entities is 'The newest version of an entity is kept for ever.';

create or replace trigger metadata_entities_are_kept_row_by_row
  before delete on symphony.metadata_entities
  for each row execute function symphony.refuse_change('a version that was used is never used again');
alter table symphony.metadata_entities enable always trigger metadata_entities_are_kept_row_by_row;
comment on trigger metadata_entities_are_kept_row_by_row on symphony.metadata_entities is 'The same for each row, through a parent table or a subscription.';
