-- What may never happen to the rows of the metadata lane, whoever tries.
--
-- The triggers are ENABLE ALWAYS, so that session_replication_role = replica does not switch them off. The one on status fires wherever the
-- status is set, to the same value too: staying is no move. What is set beside it, such as a time, is left to the owner.

create or replace trigger metadata_begins_as_pending
  before insert on symphony.metadata_outbox
  for each row execute function symphony.check_metadata_move();
alter table symphony.metadata_outbox enable always trigger metadata_begins_as_pending;
comment on trigger metadata_begins_as_pending on symphony.metadata_outbox is 'An entry can only be inserted as PENDING.';

create or replace trigger metadata_moves_along_the_arrows
  before update of status on symphony.metadata_outbox
  for each row execute function symphony.check_metadata_move();
alter table symphony.metadata_outbox enable always trigger metadata_moves_along_the_arrows;
comment on trigger metadata_moves_along_the_arrows on symphony.metadata_outbox is 'The status moves along five arrows and no other.';

create or replace trigger metadata_ends_for_good
  before update on symphony.metadata_outbox
  for each row
  when (old.status in ('PUBLISHED', 'DLQ'))
  execute function symphony.check_metadata_move();
alter table symphony.metadata_outbox enable always trigger metadata_ends_for_good;
comment on trigger metadata_ends_for_good on symphony.metadata_outbox is 'What has ended stays as it is.';

create or replace trigger metadata_keeps_what_was_created
  before update of id, entity_type, entity_id, metadata, created_at
  on symphony.metadata_outbox
  for each row
  when (
    (old.id, old.entity_type, old.entity_id, old.metadata::text, old.created_at)
    is distinct from
    (new.id, new.entity_type, new.entity_id, new.metadata::text, new.created_at))
  execute function symphony.refuse_change('what was created cannot change');
alter table symphony.metadata_outbox enable always trigger metadata_keeps_what_was_created;
comment on trigger metadata_keeps_what_was_created on symphony.metadata_outbox is 'Id, entity, metadata and version are what was committed.';

create or replace trigger metadata_never_counts_down
  before update of retry_count on symphony.metadata_outbox
  for each row
  when (new.retry_count < old.retry_count)
  execute function symphony.refuse_change('retry_count never falls');
alter table symphony.metadata_outbox enable always trigger metadata_never_counts_down;
comment on trigger metadata_never_counts_down on symphony.metadata_outbox is 'Failures that were counted stay counted.';

create or replace trigger metadata_is_kept_until_it_ends
  before delete on symphony.metadata_outbox
  for each row
  when (old.status not in ('PUBLISHED', 'DLQ'))
  execute function symphony.refuse_change('an entry is kept until it ends');
alter table symphony.metadata_outbox enable always trigger metadata_is_kept_until_it_ends;
comment on trigger metadata_is_kept_until_it_ends on symphony.metadata_outbox is 'What has not ended cannot be deleted.';

create or replace trigger metadata_is_never_truncated
  before truncate on symphony.metadata_outbox
  for each statement execute function symphony.refuse_change('committed entries are never dropped');
alter table symphony.metadata_outbox enable always trigger metadata_is_never_truncated;
comment on trigger metadata_is_never_truncated on symphony.metadata_outbox is 'Nothing committed is lost by TRUNCATE.';

create or replace trigger metadata_wakes_sleepers
  after insert on symphony.metadata_outbox
  for each statement execute function symphony.wake_on_insert('metadata_outbox');
comment on trigger metadata_wakes_sleepers on symphony.metadata_outbox is 'A new entry wakes a relayer that sleeps.';

create or replace trigger metadata_entities_are_kept
  before delete or truncate on symphony.metadata_entities
  for each statement execute function symphony.refuse_change('a version that was used is never used again');
alter table symphony.metadata_entities enable always trigger metadata_entities_are_kept;
comment on trigger metadata_entities_are_kept on symphony.metadata_entities is 'The newest version of an entity is remembered.';

create or replace trigger metadata_entities_are_kept_row_by_row
  before delete on symphony.metadata_entities
  for each row execute function symphony.refuse_change('a version that was used is never used again');
alter table symphony.metadata_entities enable always trigger metadata_entities_are_kept_row_by_row;
comment on trigger metadata_entities_are_kept_row_by_row on symphony.metadata_entities is 'The same where no statement names this table: through a parent, or by replication.';
