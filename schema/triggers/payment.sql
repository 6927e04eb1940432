-- Refuses changes that must never happen to the rows of the payment lane, for every role, superusers included.
--
-- The triggers are ENABLE ALWAYS, so that session_replication_role = replica does not switch them off. They
-- fire per statement where no row need exist for the attempt to be refused, and per row as well: a statement on a parent table
-- and the apply worker of a subscription change rows without firing the former. Those on pending name their
-- columns: a lease is granted without firing any.

-- The ids that the functions give, for rows that are written without them. Set here, because the function comes after the tables.
alter table symphony.payment_outbox_pending alter column outbox_id set default symphony.uuidv7();
alter table symphony.payment_outbox_attempts alter column attempt_id set default symphony.uuidv7();
-- The same for the epoch.
alter table symphony.payment_outbox_pending alter column epoch set default symphony.current_epoch();
alter table symphony.payment_outbox_attempts alter column epoch set default symphony.current_epoch();

-- Every column but the payload: that one an erasure replaces, which only a trigger per row can tell.
create or replace trigger ledger_is_append_only
  before delete or truncate or update of
    attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_no, state, claimed_at, completed_at,
    rail_reference, rail_code, error_code, error_message, latency_ms, worker_id, created_at, database_user, epoch, endpoint,
    confirmation_id
  on symphony.payment_outbox_attempts
  for each statement execute function symphony.refuse_change('the ledger is append-only');
alter table symphony.payment_outbox_attempts enable always trigger ledger_is_append_only;
comment on trigger ledger_is_append_only on symphony.payment_outbox_attempts is 'The ledger takes INSERT, and no change but the erasure of a payload.';

create or replace trigger ledger_rows_never_change
  before update or delete on symphony.payment_outbox_attempts
  for each row execute function symphony.check_payload_erasure('the ledger is append-only');
alter table symphony.payment_outbox_attempts enable always trigger ledger_rows_never_change;
comment on trigger ledger_rows_never_change on symphony.payment_outbox_attempts is
  'The same for each row, through a parent table or a subscription, but for the erasure of a payload. Every partition has it too; the one above it gets from create_ledger_partition.';

create or replace trigger operations_are_append_only
  before update or delete or truncate on symphony.payment_outbox_operations
  for each statement execute function symphony.refuse_change('the operations log is append-only');
alter table symphony.payment_outbox_operations enable always trigger operations_are_append_only;
comment on trigger operations_are_append_only on symphony.payment_outbox_operations is 'The operations log takes INSERT and nothing else.';

create or replace trigger operations_never_change
  before update or delete on symphony.payment_outbox_operations
  for each row execute function symphony.refuse_change('the operations log is append-only');
alter table symphony.payment_outbox_operations enable always trigger operations_never_change;
comment on trigger operations_never_change on symphony.payment_outbox_operations is 'The same for each row, through a parent table or a subscription.';

create or replace trigger quarantine_is_append_only
  before delete or truncate or update of
    quarantine_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_count, created_at, redrive_of, claimed_by,
    claimed_at, lease_expires_at, epoch, claimed_epoch, claimed_endpoint, ledger_attempt_no, ledger_state, ledger_completed_at, database_user,
    quarantined_at
  on symphony.payment_outbox_quarantine
  for each statement execute function symphony.refuse_change('the quarantine is append-only');
alter table symphony.payment_outbox_quarantine enable always trigger quarantine_is_append_only;
comment on trigger quarantine_is_append_only on symphony.payment_outbox_quarantine is 'The quarantine takes INSERT, and no change but the erasure of a payload.';

create or replace trigger quarantined_rows_never_change
  before update or delete on symphony.payment_outbox_quarantine
  for each row execute function symphony.check_payload_erasure('the quarantine is append-only');
alter table symphony.payment_outbox_quarantine enable always trigger quarantined_rows_never_change;
comment on trigger quarantined_rows_never_change on symphony.payment_outbox_quarantine is
  'The same for each row, through a parent table or a subscription, but for the erasure of a payload.';

create or replace trigger orphans_are_append_only
  before update or delete or truncate on symphony.payment_orphans
  for each statement execute function symphony.refuse_change('the record of orphaned outcomes is append-only');
alter table symphony.payment_orphans enable always trigger orphans_are_append_only;
comment on trigger orphans_are_append_only on symphony.payment_orphans is 'The record of orphaned outcomes takes INSERT and nothing else.';

create or replace trigger orphans_never_change
  before update or delete on symphony.payment_orphans
  for each row execute function symphony.refuse_change('the record of orphaned outcomes is append-only');
alter table symphony.payment_orphans enable always trigger orphans_never_change;
comment on trigger orphans_never_change on symphony.payment_orphans is 'The same for each row, through a parent table or a subscription.';

create or replace trigger refused_confirmations_are_append_only
  before update or delete or truncate on symphony.payment_refused_confirmations
  for each statement execute function symphony.refuse_change('the record of refused confirmations is append-only');
alter table symphony.payment_refused_confirmations enable always trigger refused_confirmations_are_append_only;
comment on trigger refused_confirmations_are_append_only on symphony.payment_refused_confirmations is
  'The record of refused confirmations takes INSERT and nothing else.';

create or replace trigger refused_confirmations_never_change
  before update or delete on symphony.payment_refused_confirmations
  for each row execute function symphony.refuse_change('the record of refused confirmations is append-only');
alter table symphony.payment_refused_confirmations enable always trigger refused_confirmations_never_change;
comment on trigger refused_confirmations_never_change on symphony.payment_refused_confirmations is
  'The same for each row, through a parent table or a subscription.';

create or replace trigger erasures_are_append_only
  before update or delete or truncate on symphony.payment_payload_erasures
  for each statement execute function symphony.refuse_change('the record of erasures is append-only');
alter table symphony.payment_payload_erasures enable always trigger erasures_are_append_only;
comment on trigger erasures_are_append_only on symphony.payment_payload_erasures is 'The record of erasures takes INSERT and nothing else.';

create or replace trigger erasures_never_change
  before update or delete on symphony.payment_payload_erasures
  for each row execute function symphony.refuse_change('the record of erasures is append-only');
alter table symphony.payment_payload_erasures enable always trigger erasures_never_change;
comment on trigger erasures_never_change on symphony.payment_payload_erasures is 'The same for each row, through a parent table or a subscription.';

create or replace trigger rails_stay_registered
  before delete or truncate on symphony.payment_rails
  for each statement execute function symphony.refuse_change('a rail is never deleted; retire it instead');
alter table symphony.payment_rails enable always trigger rails_stay_registered;
comment on trigger rails_stay_registered on symphony.payment_rails is 'Pending rows and the ledger name their rail: it cannot be deleted.';

create or replace trigger rail_rows_stay_registered
  before delete on symphony.payment_rails
  for each row execute function symphony.refuse_change('a rail is never deleted; retire it instead');
alter table symphony.payment_rails enable always trigger rail_rows_stay_registered;
comment on trigger rail_rows_stay_registered on symphony.payment_rails is 'The same for each row, through a parent table or a subscription.';

create or replace trigger rails_keep_their_name
  before update of rail_type on symphony.payment_rails
  for each row
  when (old.rail_type <> new.rail_type)
  execute function symphony.refuse_change('a rail keeps its name; register another instead');
alter table symphony.payment_rails enable always trigger rails_keep_their_name;
comment on trigger rails_keep_their_name on symphony.payment_rails is 'Pending rows and the ledger name their rail: it cannot change.';

create or replace trigger sequences_are_kept
  before delete or truncate on symphony.participant_outbox_sequences
  for each statement execute function symphony.refuse_change('a participant keeps its sequence');
alter table symphony.participant_outbox_sequences enable always trigger sequences_are_kept;
comment on trigger sequences_are_kept on symphony.participant_outbox_sequences is 'A deleted counter would allocate its numbers again.';

create or replace trigger sequence_rows_are_kept
  before delete on symphony.participant_outbox_sequences
  for each row execute function symphony.refuse_change('a participant keeps its sequence');
alter table symphony.participant_outbox_sequences enable always trigger sequence_rows_are_kept;
comment on trigger sequence_rows_are_kept on symphony.participant_outbox_sequences is 'The same for each row, through a parent table or a subscription.';

create or replace trigger pending_is_never_truncated
  before truncate on symphony.payment_outbox_pending
  for each statement execute function symphony.refuse_change('committed instructions are never dropped');
alter table symphony.payment_outbox_pending enable always trigger pending_is_never_truncated;
comment on trigger pending_is_never_truncated on symphony.payment_outbox_pending is 'Nothing committed is lost by TRUNCATE.';

create or replace trigger pending_goes_when_it_has_ended
  after delete on symphony.payment_outbox_pending
  referencing old table as deleted
  for each statement execute function symphony.check_outbox_ended();
alter table symphony.payment_outbox_pending enable always trigger pending_goes_when_it_has_ended;
comment on trigger pending_goes_when_it_has_ended on symphony.payment_outbox_pending is
  'A pending row can be deleted only if its outbox has a terminal ledger row. Checked once per statement, which costs a completion next to nothing.';

-- The apply worker of a subscription fires no trigger per statement: this one is for it alone (ENABLE REPLICA), and costs other sessions nothing. Because it
-- names a transition table, PostgreSQL refuses to make pending the child or partition of another table, where the one above would not fire.
create or replace trigger pending_rows_go_when_they_have_ended
  after delete on symphony.payment_outbox_pending
  referencing old table as deleted
  for each row execute function symphony.check_outbox_ended();
alter table symphony.payment_outbox_pending enable replica trigger pending_rows_go_when_they_have_ended;
comment on trigger pending_rows_go_when_they_have_ended on symphony.payment_outbox_pending is
  'The same for rows that a subscription deletes. Its transition table also prevents that pending becomes the child of another table.';

create or replace trigger pending_keeps_its_identity
  before update of outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, created_at, redrive_of, epoch,
    not_before
  on symphony.payment_outbox_pending
  for each row
  when (
    (old.outbox_id, old.instruction_id, old.participant_id, old.sequence_id, old.idempotency_key, old.rail_type,
     old.payload::text, old.created_at, old.redrive_of, old.epoch, old.not_before)
    is distinct from
    (new.outbox_id, new.instruction_id, new.participant_id, new.sequence_id, new.idempotency_key, new.rail_type,
     new.payload::text, new.created_at, new.redrive_of, new.epoch, new.not_before))
  execute function symphony.refuse_change('what identifies an outbox cannot change');
alter table symphony.payment_outbox_pending enable always trigger pending_keeps_its_identity;
comment on trigger pending_keeps_its_identity on symphony.payment_outbox_pending is 'Ids, keys, sequence, rail, payload, epoch and the producer''s schedule never change.';

create or replace trigger pending_never_counts_down
  before update of attempt_count on symphony.payment_outbox_pending
  for each row
  when (new.attempt_count < old.attempt_count)
  execute function symphony.refuse_change('attempt_count never falls');
alter table symphony.payment_outbox_pending enable always trigger pending_never_counts_down;
comment on trigger pending_never_counts_down on symphony.payment_outbox_pending is 'attempt_count never falls.';

create or replace trigger pending_notifies_idle_relayers
  after insert on symphony.payment_outbox_pending
  for each statement execute function symphony.notify_outbox_pending();
comment on trigger pending_notifies_idle_relayers on symphony.payment_outbox_pending is 'A new payment notifies an idle relayer.';

create or replace trigger keys_are_never_truncated
  before truncate on symphony.payment_outbox_keys
  for each statement execute function symphony.refuse_change('a key that was used stays registered');
alter table symphony.payment_outbox_keys enable always trigger keys_are_never_truncated;
comment on trigger keys_are_never_truncated on symphony.payment_outbox_keys is 'A payment whose key was deleted could be paid twice.';

create or replace trigger keys_are_kept
  before delete on symphony.payment_outbox_keys
  for each row execute function symphony.check_key_removal();
alter table symphony.payment_outbox_keys enable always trigger keys_are_kept;
comment on trigger keys_are_kept on symphony.payment_outbox_keys is
  'A key can be deleted only past its retention, when its outbox is neither pending nor in the ledger. For each row, through a parent table or a subscription too.';

create or replace trigger keys_change_by_redrive_or_erasure
  before update on symphony.payment_outbox_keys
  for each row execute function symphony.check_key_change();
alter table symphony.payment_outbox_keys enable always trigger keys_change_by_redrive_or_erasure;
comment on trigger keys_change_by_redrive_or_erasure on symphony.payment_outbox_keys is
  'A redrive points the key at its new outbox, an erasure salts its digest; no other change is allowed.';

create or replace trigger archives_are_append_only
  before update or delete or truncate on symphony.payment_ledger_archives
  for each statement execute function symphony.refuse_change('the record of archives is append-only');
alter table symphony.payment_ledger_archives enable always trigger archives_are_append_only;
comment on trigger archives_are_append_only on symphony.payment_ledger_archives is 'The record of archives takes INSERT and nothing else.';

create or replace trigger archives_never_change
  before update or delete on symphony.payment_ledger_archives
  for each row execute function symphony.refuse_change('the record of archives is append-only');
alter table symphony.payment_ledger_archives enable always trigger archives_never_change;
comment on trigger archives_never_change on symphony.payment_ledger_archives is 'The same for each row, through a parent table or a subscription.';
