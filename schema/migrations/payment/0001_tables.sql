-- The payment lane: its tables, types, constraints and indexes.

create type symphony.outbox_attempt_state as enum ('DISPATCHED', 'FAILED', 'RETRYABLE', 'ZOMBIE_REQUEUE');

comment on type symphony.outbox_attempt_state is
  'How an attempt ended. DISPATCHED and FAILED are terminal; RETRYABLE and ZOMBIE_REQUEUE are followed by another attempt.';

-- A domain rather than a CHECK of the hot table: those run again at every update of a row, lease or not,
-- and this one would have to fetch a large payload from its TOAST table each time. A value from another table may be compressed: what
-- it takes decompressed is what counts, and the path '{}' is the value itself, decompressed.
create domain symphony.payload_object as jsonb
  constraint payload_is_an_object check (jsonb_typeof(value) = 'object')
  constraint payload_is_of_bounded_size check (
    pg_column_size(value) <= 262144 and (pg_column_compression(value) is null or pg_column_size(value #> '{}') <= 262144))
  constraint payload_is_of_bounded_depth check (
    pg_column_size(value) < 800 and pg_column_compression(value) is null or not jsonb_path_exists(value, '$.**{101 to last}'));

comment on domain symphony.payload_object is 'jsonb that is an object of at most 256 KiB, decompressed, and of at most 100 levels; see check_payload.';

-- Domains for the same reason: a CHECK of the table is read, compiled and run anew by every statement that
-- writes to it, one of a domain only where the value itself is written. Names are compared byte by byte: in indexes that is several times as fast as
-- by the rules of a language.
create domain symphony.short_text as text collate "C"
  -- A regular expression costs as much as an index entry, and most values begin with a visible character.
  constraint short_text_is_neither_blank_nor_long check ((value >= '!' or value ~ '\S') and char_length(value) <= 200);

comment on domain symphony.short_text is 'A name or key: not blank, at most 200 characters, compared byte by byte.';

create domain symphony.sequence_number as bigint
  constraint sequence_number_starts_at_one check (value >= 1);

comment on domain symphony.sequence_number is 'A place in the order of a participant: 1, 2, 3, …; in a later epoch from (epoch - 1) * 10^12 + 1 on.';

create domain symphony.attempt_count as int
  constraint attempt_count_is_in_range check (value between 0 and 20);

comment on domain symphony.attempt_count is 'Attempts of an outbox so far: 0 to 20.';

create domain symphony.w3c_traceparent as text
  constraint traceparent_is_w3c check (value ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$');

comment on domain symphony.w3c_traceparent is 'A W3C trace context.';

create domain symphony.sha256_digest as bytea
  constraint sha256_digest_has_32_bytes check (octet_length(value) = 32);

comment on domain symphony.sha256_digest is 'A SHA-256 digest: 32 bytes.';

-- One row per participant, rewritten at every enqueue: free space on the page keeps that update heap-only.
create table symphony.participant_outbox_sequences (
  participant_id   symphony.short_text      not null,
  next_sequence_id symphony.sequence_number not null,
  constraint participant_outbox_sequences_pkey primary key (participant_id)
) with (fillfactor = 50);

comment on table symphony.participant_outbox_sequences is
  'The next sequence number of each participant. Touched by bump_participant_outbox_seq and allocate_outbox_sequences alone.';
comment on column symphony.participant_outbox_sequences.participant_id is 'The party whose instructions are sequenced.';
comment on column symphony.participant_outbox_sequences.next_sequence_id is 'The number that the next enqueue takes.';

create table symphony.payment_rails (
  rail_type            text        not null,
  max_attempts         int         not null default 20,
  backoff_base_seconds int         not null default 5,
  backoff_cap_seconds  int         not null default 3600,
  ordered              boolean     not null default false,
  max_in_flight        int,
  paused               boolean     not null default false,
  on_unknown           text        not null default 'INQUIRE',
  key_memory_seconds   int,
  on_epoch_change      text        not null default 'INQUIRE',
  confirm_every_seconds int        not null default 300,
  held_since_epoch     bigint,
  publish_outcomes     boolean     not null default false,
  on_failure           text        not null default 'CONTINUE',
  max_per_second       int,
  epoch                bigint      not null,
  epoch_timeline       int         not null,
  updated_by           text        not null,
  updated_at           timestamptz not null default clock_timestamp(),
  retired_at           timestamptz,
  constraint payment_rails_pkey primary key (rail_type),
  constraint payment_rails_rail_type_is_a_name check (rail_type ~ '\S' and char_length(rail_type) <= 200),
  constraint payment_rails_max_attempts_in_range check (max_attempts between 1 and 20),
  constraint payment_rails_backoff_base_seconds_in_range check (backoff_base_seconds between 1 and 86400),
  constraint payment_rails_backoff_cap_seconds_in_range check (backoff_cap_seconds between backoff_base_seconds and 2592000),
  constraint payment_rails_max_in_flight_is_positive check (max_in_flight >= 1),
  constraint payment_rails_max_per_second_in_range check (max_per_second between 1 and 1000000),
  constraint payment_rails_on_unknown_is_a_policy check (on_unknown in ('INQUIRE', 'RESEND', 'STOP')),
  constraint payment_rails_key_memory_seconds_is_positive check (key_memory_seconds >= 1),
  constraint payment_rails_on_epoch_change_is_a_policy check (on_epoch_change in ('INQUIRE', 'HOLD')),
  constraint payment_rails_on_failure_is_a_policy check (on_failure in ('CONTINUE', 'HOLD')),
  constraint payment_rails_only_an_ordered_rail_holds check (ordered or on_failure = 'CONTINUE'),
  constraint payment_rails_confirm_every_seconds_in_range check (confirm_every_seconds between 1 and 2592000),
  constraint payment_rails_updated_by_is_a_name check (updated_by ~ '\S' and char_length(updated_by) <= 200)
);

comment on table symphony.payment_rails is 'The policy of each rail, held where it is enforced. An enqueue to a rail that is not registered, or was retired, is refused.';
comment on column symphony.payment_rails.rail_type is 'Name of the rail.';
comment on column symphony.payment_rails.max_attempts is 'Attempts after which a retryable outcome is recorded as FAILED.';
comment on column symphony.payment_rails.backoff_base_seconds is 'Delay after the first retryable attempt; each further one doubles it.';
comment on column symphony.payment_rails.backoff_cap_seconds is 'The longest delay that doubling can reach.';
comment on column symphony.payment_rails.ordered is 'Whether the instructions of one participant leave strictly in sequence.';
comment on column symphony.payment_rails.max_in_flight is 'In-flight limit: the maximum of leases at one time over all relayers; null is no limit.';
comment on column symphony.payment_rails.paused is 'Whether claims skip this rail.';
comment on column symphony.payment_rails.on_unknown is 'What to do when an outcome is unknown and the rail cannot say: INQUIRE first, RESEND or STOP.';
comment on column symphony.payment_rails.key_memory_seconds is 'How long the rail remembers an idempotency key; null is for ever.';
comment on column symphony.payment_rails.on_epoch_change is 'What to do with the payments of earlier epochs when a new one opens: INQUIRE about each before it is sent, or HOLD the rail.';
comment on column symphony.payment_rails.confirm_every_seconds is 'How long after an attempt that awaits confirmation the next inquiry is due. max_attempts bounds how often.';
comment on column symphony.payment_rails.held_since_epoch is 'The epoch that held the rail: claims skip it until recover_epoch. Null: it is not held.';
comment on column symphony.payment_rails.publish_outcomes is 'Whether the transaction that ends a payment also publishes the outcome to the event lane; see publish_payment_outcomes.';
comment on column symphony.payment_rails.on_failure is 'What a failure on an ordered rail does to the later payments of its participant: CONTINUE with the next one, or HOLD them until an operator has acted.';
comment on column symphony.payment_rails.max_per_second is 'Rate limit: how many leases claims of all relayers may grant per second, with bursts of one second''s worth; null is no limit.';
comment on column symphony.payment_rails.epoch is 'The newest epoch: the same on all rails, and kept here because every enqueue and every claim reads a rail anyway.';
comment on column symphony.payment_rails.epoch_timeline is 'The timeline of the newest epoch.';
comment on column symphony.payment_rails.updated_by is 'Who changed the policy last.';
comment on column symphony.payment_rails.updated_at is 'When the policy was changed last.';
comment on column symphony.payment_rails.retired_at is 'When the rail was retired: nothing more can be enqueued to it. Null while it is registered.';

-- One row per idempotency key, written by the enqueue that uses it first. The primary key decides which of two concurrent enqueues is the first,
-- and outlives pending and ledger rows. The key comes first: a bank names a payment by its key alone. Lengths are bounded by the pending row, which is
-- written in the same transaction.
create table symphony.payment_outbox_keys (
  idempotency_key text collate "C"       not null,
  instruction_id  text collate "C"       not null,
  outbox_id       uuid                   not null,
  content_digest  symphony.sha256_digest not null,
  created_at      timestamptz            not null default now(),
  digest_salt     bytea,
  constraint payment_outbox_keys_pkey primary key (idempotency_key, instruction_id)
);

-- By the text and not by its hash: the instructions of a service are often numbered, and so are next to each other in the index.
create index payment_outbox_keys_by_instruction
  on symphony.payment_outbox_keys (instruction_id);

comment on table symphony.payment_outbox_keys is
  'The registry of idempotency keys: which outbox a key of an instruction has. A redrive moves it to the new outbox, an erasure salts its digest; nothing else changes a row, and retention alone removes it.';
comment on column symphony.payment_outbox_keys.idempotency_key is 'The idempotency key.';
comment on column symphony.payment_outbox_keys.instruction_id is 'The instruction that the key was used for.';
comment on column symphony.payment_outbox_keys.outbox_id is 'The newest outbox of this key; older ones follow from the redrives in payment_outbox_operations.';
comment on column symphony.payment_outbox_keys.content_digest is 'SHA-256 of key, instruction, participant, rail and payload; see outbox_content_digest. With digest_salt, SHA-256 of the salt and that.';
comment on column symphony.payment_outbox_keys.created_at is 'When the key was used first.';
comment on column symphony.payment_outbox_keys.digest_salt is 'The salt of content_digest since the payload was erased; null before.';
comment on index symphony.payment_outbox_keys_by_instruction is 'Finds the keys of an instruction.';

-- The hot table. Every row is inserted once, leased by an update, and deleted soon after. The lease
-- columns are in no index and in no index predicate, so that with more than half of each page kept free a lease
-- is a heap-only update, though it makes the row longer; see docs/decisions/0002-leases-without-an-index.md.
create table symphony.payment_outbox_pending (
  outbox_id        uuid                     not null,
  instruction_id   symphony.short_text      not null,
  participant_id   symphony.short_text      not null,
  sequence_id      symphony.sequence_number not null,
  idempotency_key  symphony.short_text      not null,
  rail_type        symphony.short_text      not null,
  payload          symphony.payload_object  not null,
  attempt_count    symphony.attempt_count   not null default 0,
  next_attempt_at  timestamptz              not null default now(),
  created_at       timestamptz              not null default now(),
  claimed_by       text,
  claimed_at       timestamptz,
  lease_token      uuid,
  lease_expires_at timestamptz,
  redrive_of       uuid,
  traceparent      symphony.w3c_traceparent,
  parked           boolean                  not null default false,
  epoch            bigint                   not null,
  claimed_epoch    bigint,
  claimed_endpoint text,
  not_before       timestamptz,
  constraint payment_outbox_pending_pkey primary key (outbox_id),
  constraint payment_outbox_pending_sequence_is_unique unique (participant_id, sequence_id),
  constraint payment_outbox_pending_lease_is_whole_or_absent check (
    num_nulls(claimed_by, claimed_at, lease_token, lease_expires_at) in (0, 4)
    and not (parked and lease_token is not null) and not (lease_token is null and claimed_endpoint is not null))
) with (
  fillfactor = 45,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0.05
);

-- Due rows in claim order. The rail comes first, so that a paused rail or a rail at its in-flight limit can have any
-- number of rows without slowing claims of the others. Parked rows are apart, to be counted. An index with a predicate would cost each enqueue its compilation.
create index payment_outbox_pending_claim_order
  on symphony.payment_outbox_pending (rail_type, parked, next_attempt_at, created_at);

comment on table symphony.payment_outbox_pending is 'Instructions that have not ended yet, each with its lease while a worker holds one.';
comment on column symphony.payment_outbox_pending.outbox_id is 'UUIDv7 of this outbox row.';
comment on column symphony.payment_outbox_pending.instruction_id is 'The order to pay.';
comment on column symphony.payment_outbox_pending.participant_id is 'The party whose instructions are sequenced.';
comment on column symphony.payment_outbox_pending.sequence_id is 'Place in the order of that participant: 1, 2, 3, … without gaps within an epoch; see number_floor.';
comment on column symphony.payment_outbox_pending.idempotency_key is 'The name under which the rail must not pay twice; the same on every attempt.';
comment on column symphony.payment_outbox_pending.rail_type is 'The rail that carries it.';
comment on column symphony.payment_outbox_pending.payload is 'What the rail is given: a JSON object.';
comment on column symphony.payment_outbox_pending.attempt_count is 'Attempts in the ledger so far: a cache that never falls and decides nothing.';
comment on column symphony.payment_outbox_pending.next_attempt_at is 'When it may be claimed next: the only field that schedules.';
comment on column symphony.payment_outbox_pending.created_at is 'When it was enqueued.';
comment on column symphony.payment_outbox_pending.claimed_by is 'Worker that holds the lease.';
comment on column symphony.payment_outbox_pending.claimed_at is 'When the lease was granted.';
comment on column symphony.payment_outbox_pending.lease_token is 'Proof of the lease: fresh and random for each claim.';
comment on column symphony.payment_outbox_pending.lease_expires_at is 'When the lease ends unless it is renewed.';
comment on column symphony.payment_outbox_pending.redrive_of is 'The terminal failure that this row tries again.';
comment on column symphony.payment_outbox_pending.traceparent is 'W3C trace context of the caller, from the setting symphony.traceparent.';
comment on column symphony.payment_outbox_pending.parked is 'Parked: claims skip it because an earlier row of its participant on an ordered rail is pending.';
comment on column symphony.payment_outbox_pending.epoch is 'The epoch in which it was enqueued.';
comment on column symphony.payment_outbox_pending.claimed_epoch is 'The epoch in which its newest lease was granted; null before the first. Stays when the lease ends.';
comment on column symphony.payment_outbox_pending.claimed_endpoint is 'Where the worker that holds the lease sends to: the endpoint that it named when it claimed; null if it named none.';
comment on column symphony.payment_outbox_pending.not_before is 'The producer''s schedule: next_attempt_at is never moved before this. Null: due since its enqueue.';
comment on index symphony.payment_outbox_pending_claim_order is
  'Rows of a rail in claim order, parked rows apart from the others.';
comment on index symphony.payment_outbox_pending_sequence_is_unique is 'Rows of one participant in sequence: for ordered rails too, whose look-ups begin at payment_stream_low_marks.';

-- Where the look-ups of an ordered rail begin, for participants with many pending rows on other rails. An index by participant, rail and sequence
-- would need no such table, but would cost every enqueue as much as a third of its rows; see docs/decisions/0001-ordered-rails.md.
create table symphony.payment_stream_low_marks (
  participant_id text collate "C" not null,
  rail_type      text collate "C" not null,
  sequence_id    bigint           not null,
  constraint payment_stream_low_marks_pkey primary key (participant_id, rail_type)
);

comment on table symphony.payment_stream_low_marks is
  'No row of this participant on this ordered rail with a lower sequence number is pending, now or later, because sequence order is commit order. Written by save_stream_low_marks alone.';
comment on column symphony.payment_stream_low_marks.participant_id is 'The participant.';
comment on column symphony.payment_stream_low_marks.rail_type is 'The ordered rail.';
comment on column symphony.payment_stream_low_marks.sequence_id is 'The sequence number of the head that a claim found after many rows of other rails.';

-- The failures that hold the streams of their participants on ordered rails with on_failure HOLD. A hold stands in the place of the failed row, so that
-- claims, which look for an earlier pending row, look here for an earlier failure; see docs/decisions/0001-ordered-rails.md.
create table symphony.payment_stream_holds (
  participant_id text collate "C" not null,
  rail_type      text collate "C" not null,
  sequence_id    bigint           not null,
  outbox_id      uuid             not null,
  held_at        timestamptz      not null default clock_timestamp(),
  constraint payment_stream_holds_pkey primary key (participant_id, rail_type, sequence_id)
);

comment on table symphony.payment_stream_holds is
  'Failures that hold the later payments of their participant on an ordered rail. Written by hold_payment_streams; removed when an operator redrives, resolves or skips the failure, or the rail no longer holds.';
comment on column symphony.payment_stream_holds.participant_id is 'The participant.';
comment on column symphony.payment_stream_holds.rail_type is 'The ordered rail.';
comment on column symphony.payment_stream_holds.sequence_id is 'The sequence number of the failure: later ones are held.';
comment on column symphony.payment_stream_holds.outbox_id is 'The failure.';
comment on column symphony.payment_stream_holds.held_at is 'When it failed.';

-- The ledger, partitioned by the time of the enqueue, which a UUIDv7 begins with: all attempts of an outbox are in one partition, so an index of that
-- partition keeps them unique. extend_payment_ledger makes the partitions; see docs/decisions/0009-ledger-partitions.md.
create table symphony.payment_outbox_attempts (
  attempt_id      uuid                          not null,
  outbox_id       uuid                          not null,
  instruction_id  text collate "C"              not null,
  participant_id  text collate "C"              not null,
  sequence_id     bigint                        not null,
  idempotency_key text collate "C"              not null,
  rail_type       text collate "C"              not null,
  payload         jsonb                         not null,
  attempt_no      int                           not null,
  state           symphony.outbox_attempt_state not null,
  claimed_at      timestamptz,
  completed_at    timestamptz                   not null default clock_timestamp(),
  rail_reference  text,
  rail_code       text,
  error_code      text,
  error_message   text,
  latency_ms      int,
  worker_id       text                          not null,
  created_at      timestamptz                   not null,
  database_user   text collate "C"              not null default session_user,
  epoch           bigint                        not null,
  endpoint        text collate "C",
  confirmation_id text collate "C",
  constraint payment_outbox_attempts_pkey primary key (outbox_id, attempt_no),
  constraint payment_outbox_attempts_number_in_range check (attempt_no between 1 and 20),
  constraint payment_outbox_attempts_latency_is_positive check (latency_ms >= 0),
  constraint payment_outbox_attempts_without_a_lease_say_why check (
    claimed_at is not null or confirmation_id is not null or error_code is not distinct from 'CANCELLED')
) partition by range (outbox_id);

create unique index payment_outbox_attempts_one_terminal_per_outbox
  on symphony.payment_outbox_attempts (outbox_id)
  where state in ('DISPATCHED', 'FAILED');

-- The dead letters, without reading the ledger.
create index payment_outbox_attempts_failures
  on symphony.payment_outbox_attempts (completed_at, outbox_id)
  include (rail_type, error_code)
  where state = 'FAILED';

comment on table symphony.payment_outbox_attempts is 'The ledger: how each lease ended, each confirmation of the rail, and each cancellation. Append-only. Partitioned by time of enqueue.';
comment on column symphony.payment_outbox_attempts.attempt_id is 'UUIDv7 of this ledger row: unique by construction, without an index.';
comment on column symphony.payment_outbox_attempts.outbox_id is 'The outbox row that was attempted.';
comment on column symphony.payment_outbox_attempts.instruction_id is 'Its instruction, as it was.';
comment on column symphony.payment_outbox_attempts.participant_id is 'Its participant, as it was.';
comment on column symphony.payment_outbox_attempts.sequence_id is 'Its sequence number, as it was.';
comment on column symphony.payment_outbox_attempts.idempotency_key is 'Its idempotency key, as it was.';
comment on column symphony.payment_outbox_attempts.rail_type is 'Its rail, as it was.';
comment on column symphony.payment_outbox_attempts.payload is 'Its payload, as it was; a tombstone once it has been erased.';
comment on column symphony.payment_outbox_attempts.attempt_no is 'The last number of this outbox in the ledger plus 1.';
comment on column symphony.payment_outbox_attempts.state is 'How the attempt ended.';
comment on column symphony.payment_outbox_attempts.claimed_at is 'When the lease of this attempt was granted; null for a cancellation, and for a confirmation that ended no lease.';
comment on column symphony.payment_outbox_attempts.completed_at is 'When the outcome was recorded, by the clock, not when its transaction began.';
comment on column symphony.payment_outbox_attempts.rail_reference is 'The rail''s own reference of the payment.';
comment on column symphony.payment_outbox_attempts.rail_code is 'The rail''s own code of the outcome.';
comment on column symphony.payment_outbox_attempts.error_code is 'What went wrong, by a fixed word.';
comment on column symphony.payment_outbox_attempts.error_message is 'What went wrong, in a sentence without personal data.';
comment on column symphony.payment_outbox_attempts.latency_ms is 'How long the rail took.';
comment on column symphony.payment_outbox_attempts.worker_id is 'Worker that held the lease; of a confirmation without a lease, the relayer that received it; of a cancellation, the word cancellation.';
comment on column symphony.payment_outbox_attempts.created_at is 'When the outbox row was enqueued, as it was.';
comment on column symphony.payment_outbox_attempts.database_user is 'The login that recorded it: the worker''s, or the one that repaired or took over its lease.';
comment on column symphony.payment_outbox_attempts.epoch is 'The epoch in which the lease of this attempt was granted, or the confirmation arrived.';
comment on column symphony.payment_outbox_attempts.endpoint is 'Where the worker of this attempt sends to, as it said when it claimed: a name and a digest of what identifies the bank there. Null if it named none.';
comment on column symphony.payment_outbox_attempts.confirmation_id is 'The id of the message by which the rail confirmed the outcome; null if the worker of the lease recorded it. See confirm_payment_outbox.';
comment on index symphony.payment_outbox_attempts_one_terminal_per_outbox is
  'Invariant: an outbox ends once. The lease is what prevents a second ending; this index is the backstop, and a violation of it is an alarm.';
comment on index symphony.payment_outbox_attempts_failures is 'Terminal failures in the order in which they happened.';

create table symphony.payment_outbox_operations (
  operation_id  uuid        not null,
  operation     text        not null,
  outbox_id     uuid,
  new_outbox_id uuid,
  resolution    text,
  rail_type     text,
  policy_before jsonb,
  policy_after  jsonb,
  actor         text        not null,
  reason        text        not null,
  database_user text        not null default session_user,
  -- Not now(): a transaction that has been open for an hour would date its operation an hour back, behind an export.
  created_at    timestamptz not null default clock_timestamp(),
  constraint payment_outbox_operations_pkey primary key (operation_id),
  constraint payment_outbox_operations_is_known check (operation in (
    'REDRIVE', 'RESOLVE', 'CANCEL', 'REGISTER_RAIL', 'SET_RAIL', 'RETIRE_RAIL', 'PAUSE_RAIL', 'RESUME_RAIL', 'REPAIR', 'MAKE_DUE', 'ERASE',
    'SET_RETENTION', 'ARCHIVE_PARTITION', 'DROP_PARTITION', 'OPEN_EPOCH', 'RECOVER_EPOCH', 'DECLARE_SAME_ENDPOINT',
    'REVOKE_SAME_ENDPOINT', 'RECONCILE')),
  constraint payment_outbox_operations_resolution_is_known check (resolution in ('PAID', 'NOT_PAID', 'SKIPPED')),
  constraint payment_outbox_operations_is_complete check (
    case operation
      when 'REDRIVE' then num_nulls(outbox_id, new_outbox_id) = 0
      when 'RESOLVE' then num_nulls(outbox_id, resolution) = 0
      when 'CANCEL' then num_nulls(outbox_id) = 0 and num_nonnulls(new_outbox_id, resolution, policy_before, policy_after) = 0
      when 'ERASE' then num_nulls(outbox_id) = 0 and num_nonnulls(new_outbox_id, resolution, policy_before, policy_after) = 0
      when 'REPAIR' then num_nonnulls(outbox_id, new_outbox_id, resolution, policy_after) = 0
      when 'REVOKE_SAME_ENDPOINT' then policy_before is not null and policy_after is null
      when 'MAKE_DUE' then num_nonnulls(outbox_id, new_outbox_id, resolution, policy_before, policy_after) = 0
      else policy_after is not null
    end),
  constraint payment_outbox_operations_has_a_rail check (
    (rail_type is null) = (operation in ('SET_RETENTION', 'ARCHIVE_PARTITION', 'DROP_PARTITION', 'OPEN_EPOCH'))),
  constraint payment_outbox_operations_actor_is_a_name check (actor ~ '\S' and char_length(actor) <= 200),
  constraint payment_outbox_operations_reason_is_given check (reason ~ '\S' and char_length(reason) <= 2000)
);

create index payment_outbox_operations_by_outbox
  on symphony.payment_outbox_operations (outbox_id, created_at)
  where outbox_id is not null;

create index payment_outbox_operations_by_new_outbox
  on symphony.payment_outbox_operations (new_outbox_id)
  where new_outbox_id is not null;

create index payment_outbox_operations_reconciliations
  on symphony.payment_outbox_operations (rail_type, created_at)
  where operation = 'RECONCILE';

create index payment_outbox_operations_by_time
  on symphony.payment_outbox_operations (created_at, operation_id);

comment on table symphony.payment_outbox_operations is 'The audit log: redrives, resolutions, cancellations, repairs, erasures, and changes of rails, endpoints, retention, ledger partitions and epochs, and reconciliations. Append-only.';
comment on column symphony.payment_outbox_operations.operation_id is 'UUIDv7 of this operation.';
comment on column symphony.payment_outbox_operations.operation is 'What was done.';
comment on column symphony.payment_outbox_operations.outbox_id is 'The terminal failure it was done to, the outbox that was cancelled, or the one whose payload was erased.';
comment on column symphony.payment_outbox_operations.new_outbox_id is 'The outbox that a redrive made.';
comment on column symphony.payment_outbox_operations.resolution is 'What an operator found out: PAID, NOT_PAID, or SKIPPED for a failure with known outcome that needs no action.';
comment on column symphony.payment_outbox_operations.rail_type is 'The rail concerned; null where it is about retention, a partition or an epoch.';
comment on column symphony.payment_outbox_operations.policy_before is 'The policy of the rail, the retention or the epoch before a change; the key of a failure that was redriven under another; the two endpoints of a declaration that was revoked. Null when a rail was registered.';
comment on column symphony.payment_outbox_operations.policy_after is 'The policy of the rail, the retention or the epoch after a change; the two endpoints that were declared the same; of a partition: what was archived or dropped; of a reconciliation: its period and counts; of a redrive under a new key: that key, and whether the payload is new.';
comment on column symphony.payment_outbox_operations.actor is 'Who did it, in their own words.';
comment on column symphony.payment_outbox_operations.reason is 'Why they did it.';
comment on column symphony.payment_outbox_operations.database_user is 'The login that did it.';
comment on column symphony.payment_outbox_operations.created_at is 'When they did it, by the clock, not when their transaction began.';
comment on index symphony.payment_outbox_operations_by_outbox is 'What was done to an outbox.';
comment on index symphony.payment_outbox_operations_reconciliations is 'When a rail was last compared with its bank.';
comment on index symphony.payment_outbox_operations_by_time is 'What was done during a time, in order.';
comment on index symphony.payment_outbox_operations_by_new_outbox is 'Which failure an outbox tries again.';

-- What operators declared about endpoints that are the same bank. The audit log keeps every declaration and revocation.
create table symphony.payment_endpoint_aliases (
  rail_type   text        not null,
  endpoint    text        not null,
  same_as     text        not null,
  declared_by text        not null,
  reason      text        not null,
  declared_at timestamptz not null default clock_timestamp(),
  constraint payment_endpoint_aliases_pkey primary key (rail_type, endpoint, same_as),
  constraint payment_endpoint_aliases_endpoint_is_a_name check (endpoint ~ '\S' and char_length(endpoint) <= 200),
  constraint payment_endpoint_aliases_same_as_is_a_name check (same_as ~ '\S' and char_length(same_as) <= 200),
  constraint payment_endpoint_aliases_are_two check (endpoint <> same_as),
  constraint payment_endpoint_aliases_declared_by_is_a_name check (declared_by ~ '\S' and char_length(declared_by) <= 200),
  constraint payment_endpoint_aliases_reason_is_given check (reason ~ '\S' and char_length(reason) <= 2000)
);

comment on table symphony.payment_endpoint_aliases is
  'Pairs of endpoints of a rail that an operator declared to be the same bank. Written by declare_same_endpoint and revoke_same_endpoint alone; see is_same_endpoint.';
comment on column symphony.payment_endpoint_aliases.rail_type is 'The rail.';
comment on column symphony.payment_endpoint_aliases.endpoint is 'An endpoint, as the ledger names it; unnamed stands for attempts without one.';
comment on column symphony.payment_endpoint_aliases.same_as is 'Another endpoint of the same bank, with the same memory of idempotency keys.';
comment on column symphony.payment_endpoint_aliases.declared_by is 'Who declared it, in their own words.';
comment on column symphony.payment_endpoint_aliases.reason is 'How they know.';
comment on column symphony.payment_endpoint_aliases.declared_at is 'When they declared it.';

-- What could not be unparked, because a cancellation had locked the row: rarely a row.
create table symphony.payment_unpark_requests (
  request_id uuid not null,
  outbox_id  uuid not null,
  constraint payment_unpark_requests_pkey primary key (request_id)
);

comment on table symphony.payment_unpark_requests is
  'Parked rows whose predecessor ended while another session had them locked; the next repair unparks them. Written by unpark_successors and apply_rail_policy, emptied by unpark_requested_rows.';
comment on column symphony.payment_unpark_requests.request_id is 'UUIDv7 of this request.';
comment on column symphony.payment_unpark_requests.outbox_id is 'The row to unpark.';

-- The leases in flight on rails with max_in_flight. Claims write it under the lock of the rail's row; policy changes and
-- retirements write it under the lock of payment_rails. A row whose lease is no longer live does not count.
create table symphony.payment_rail_in_flight (
  rail_type   text not null,
  lease_token uuid not null,
  outbox_id   uuid not null,
  constraint payment_rail_in_flight_pkey primary key (rail_type, lease_token)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);

comment on table symphony.payment_rail_in_flight is 'Leases in flight on rails with max_in_flight, so that a claim can count them without reading the queue.';
comment on column symphony.payment_rail_in_flight.rail_type is 'The rail with max_in_flight.';
comment on column symphony.payment_rail_in_flight.lease_token is 'The lease in flight.';
comment on column symphony.payment_rail_in_flight.outbox_id is 'The row under that lease.';

-- The token buckets of rails with max_per_second: a lease takes one token. Claims write it under the lock of the rail's row. One row per rail, updated by
-- nearly every claim: free space on the page keeps that update heap-only.
create table symphony.payment_rail_tokens (
  rail_type    text        not null,
  micro_tokens bigint      not null,
  refilled_at  timestamptz not null default clock_timestamp(),
  constraint payment_rail_tokens_pkey primary key (rail_type),
  constraint payment_rail_tokens_micro_tokens_is_not_negative check (micro_tokens >= 0)
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);

comment on table symphony.payment_rail_tokens is
  'Token buckets of rails with max_per_second. Written by rail_claim_capacity, claim_outbox_batch and apply_rail_policy alone.';
comment on column symphony.payment_rail_tokens.rail_type is 'The rail with max_per_second.';
comment on column symphony.payment_rail_tokens.micro_tokens is 'Tokens at refilled_at, in millionths, so that no rounding adds up.';
comment on column symphony.payment_rail_tokens.refilled_at is 'When the tokens were counted last, by the clock.';

-- The payments that await confirmation, so that they can be counted without reading the queue. The ledger decides what is one: see record_attempts.
create table symphony.payment_awaiting_confirmation (
  outbox_id   uuid        not null,
  rail_type   text        not null,
  accepted_at timestamptz not null default clock_timestamp(),
  constraint payment_awaiting_confirmation_pkey primary key (outbox_id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);

create index payment_awaiting_confirmation_by_age
  on symphony.payment_awaiting_confirmation (rail_type, accepted_at);

comment on table symphony.payment_awaiting_confirmation is
  'Pending payments that the rail has accepted and whose outcome it has not confirmed yet. Written where leases end; see record_attempts.';
comment on column symphony.payment_awaiting_confirmation.outbox_id is 'The outbox.';
comment on column symphony.payment_awaiting_confirmation.rail_type is 'Its rail.';
comment on column symphony.payment_awaiting_confirmation.accepted_at is 'When the acceptance was recorded.';
comment on index symphony.payment_awaiting_confirmation_by_age is 'The payments of a rail that await confirmation, the oldest first.';

-- What a bank said about a payment and could not be recorded as its outcome: each is a case for an operator.
create table symphony.payment_refused_confirmations (
  refusal_id      uuid             not null,
  kind            text             not null,
  rail_type       text collate "C" not null,
  idempotency_key text collate "C" not null,
  outcome         text             not null,
  outbox_id       uuid,
  rail_reference  text,
  rail_code       text,
  confirmation_id text collate "C" not null,
  endpoint        text collate "C",
  worker_id       text             not null,
  database_user   text             not null default session_user,
  created_at      timestamptz      not null default clock_timestamp(),
  constraint payment_refused_confirmations_pkey primary key (refusal_id),
  constraint payment_refused_confirmations_are_recorded_once unique nulls not distinct (idempotency_key, rail_type, kind, outcome, outbox_id),
  constraint payment_refused_confirmations_kind_is_known check (kind in (
    'CONTRADICTS_OUTCOME', 'AFTER_UNKNOWN_OUTCOME', 'OTHER_ENDPOINT', 'NEVER_SENT', 'UNKNOWN_KEY', 'AMBIGUOUS_KEY')),
  constraint payment_refused_confirmations_outcome_is_known check (outcome in ('EXECUTED', 'REFUSED'))
);

comment on table symphony.payment_refused_confirmations is
  'Confirmations that were refused because they contradict the ledger or fit no payment. Append-only, written by confirm_payment_outbox alone.';
comment on column symphony.payment_refused_confirmations.refusal_id is 'UUIDv7 of this row.';
comment on column symphony.payment_refused_confirmations.kind is
  'CONTRADICTS_OUTCOME: the payment ended otherwise. AFTER_UNKNOWN_OUTCOME: it ended with an unknown outcome, and an operator has to resolve it. OTHER_ENDPOINT: another bank may have it. NEVER_SENT: it was never sent. UNKNOWN_KEY: no payment of the rail has the key. AMBIGUOUS_KEY: several have.';
comment on column symphony.payment_refused_confirmations.rail_type is 'The rail whose bank said so.';
comment on column symphony.payment_refused_confirmations.idempotency_key is 'The key by which the bank names the payment.';
comment on column symphony.payment_refused_confirmations.outcome is 'What the bank said: EXECUTED or REFUSED.';
comment on column symphony.payment_refused_confirmations.outbox_id is 'The newest outbox of that key; null if none or several have it.';
comment on column symphony.payment_refused_confirmations.rail_reference is 'The rail''s own reference of the payment.';
comment on column symphony.payment_refused_confirmations.rail_code is 'The rail''s own code of the outcome.';
comment on column symphony.payment_refused_confirmations.confirmation_id is 'The id of the first message that said so.';
comment on column symphony.payment_refused_confirmations.endpoint is 'The bank that said so, by its endpoint.';
comment on column symphony.payment_refused_confirmations.worker_id is 'The relayer that received it.';
comment on column symphony.payment_refused_confirmations.database_user is 'The login that recorded it.';
comment on column symphony.payment_refused_confirmations.created_at is 'When it was recorded.';

-- Pending rows whose outbox already had a terminal ledger row: evidence of a bad restore or of a write past the functions.
create table symphony.payment_outbox_quarantine (
  quarantine_id       uuid                          not null,
  outbox_id           uuid                          not null,
  instruction_id      text collate "C"              not null,
  participant_id      text collate "C"              not null,
  sequence_id         bigint                        not null,
  idempotency_key     text collate "C"              not null,
  rail_type           text collate "C"              not null,
  payload             jsonb                         not null,
  attempt_count       int                           not null,
  created_at          timestamptz                   not null,
  redrive_of          uuid,
  claimed_by          text,
  claimed_at          timestamptz,
  lease_expires_at    timestamptz,
  epoch               bigint                        not null,
  claimed_epoch       bigint,
  claimed_endpoint    text,
  ledger_attempt_no   int                           not null,
  ledger_state        symphony.outbox_attempt_state not null,
  ledger_completed_at timestamptz                   not null,
  database_user       text                          not null default session_user,
  quarantined_at      timestamptz                   not null default clock_timestamp(),
  constraint payment_outbox_quarantine_pkey primary key (quarantine_id)
);

comment on table symphony.payment_outbox_quarantine is
  'Pending rows whose outbox already had a terminal ledger row, moved here by quarantine_outbox. Append-only.';
comment on column symphony.payment_outbox_quarantine.quarantine_id is 'UUIDv7 of this row.';
comment on column symphony.payment_outbox_quarantine.outbox_id is 'The outbox.';
comment on column symphony.payment_outbox_quarantine.instruction_id is 'Its instruction, as the pending row had it.';
comment on column symphony.payment_outbox_quarantine.participant_id is 'Its participant, as the pending row had it.';
comment on column symphony.payment_outbox_quarantine.sequence_id is 'Its sequence number, as the pending row had it.';
comment on column symphony.payment_outbox_quarantine.idempotency_key is 'Its idempotency key, as the pending row had it.';
comment on column symphony.payment_outbox_quarantine.rail_type is 'Its rail, as the pending row had it.';
comment on column symphony.payment_outbox_quarantine.payload is 'Its payload, as the pending row had it; a tombstone once it has been erased.';
comment on column symphony.payment_outbox_quarantine.attempt_count is 'Its attempts, as the pending row had them.';
comment on column symphony.payment_outbox_quarantine.created_at is 'When it was enqueued, as the pending row had it.';
comment on column symphony.payment_outbox_quarantine.redrive_of is 'The terminal failure that it tried again.';
comment on column symphony.payment_outbox_quarantine.claimed_by is 'Worker that held its lease, or claimed it when it was found.';
comment on column symphony.payment_outbox_quarantine.claimed_at is 'When that lease was granted.';
comment on column symphony.payment_outbox_quarantine.lease_expires_at is 'When that lease would have ended or did.';
comment on column symphony.payment_outbox_quarantine.epoch is 'The epoch in which it was enqueued, as the pending row had it.';
comment on column symphony.payment_outbox_quarantine.claimed_epoch is 'The epoch of its newest lease, as the pending row had it.';
comment on column symphony.payment_outbox_quarantine.claimed_endpoint is 'Where the worker that held its lease would have sent it.';
comment on column symphony.payment_outbox_quarantine.ledger_attempt_no is 'The attempt by which the ledger says it ended.';
comment on column symphony.payment_outbox_quarantine.ledger_state is 'How the ledger says it ended.';
comment on column symphony.payment_outbox_quarantine.ledger_completed_at is 'When the ledger says it ended.';
comment on column symphony.payment_outbox_quarantine.database_user is 'The login whose call found it.';
comment on column symphony.payment_outbox_quarantine.quarantined_at is 'When it was found.';

-- Outcomes that prove that the database has lost history: what a worker knows about a payment, and no row here does. The last evidence of it.
create table symphony.payment_orphans (
  orphan_id       uuid                          not null,
  kind            text                          not null,
  outbox_id       uuid                          not null,
  lease_token     uuid                          not null,
  state           symphony.outbox_attempt_state not null,
  rail_reference  text,
  rail_code       text,
  error_code      text,
  error_message   text,
  latency_ms      int,
  instruction_id  text collate "C",
  participant_id  text collate "C",
  idempotency_key text collate "C",
  rail_type       text collate "C",
  endpoint        text collate "C",
  epoch           bigint,
  claimed_at      timestamptz,
  worker_id       text                          not null,
  database_user   text                          not null default session_user,
  created_at      timestamptz                   not null default clock_timestamp(),
  constraint payment_orphans_pkey primary key (orphan_id),
  constraint payment_orphans_are_recorded_once unique (outbox_id, lease_token, kind),
  constraint payment_orphans_kind_is_known check (kind in ('UNKNOWN_OUTBOX', 'REPLAYED_FIRST_ATTEMPT')),
  constraint payment_orphans_latency_is_positive check (latency_ms >= 0)
);

create index payment_orphans_by_key
  on symphony.payment_orphans (idempotency_key);

comment on table symphony.payment_orphans is
  'Outcomes of payments that this database has lost, in part or in whole: a failover or a restore lost commits. Append-only, written by record_payment_orphan alone.';
comment on column symphony.payment_orphans.orphan_id is 'UUIDv7 of this row.';
comment on column symphony.payment_orphans.kind is 'UNKNOWN_OUTBOX: the database has no row of the outbox. REPLAYED_FIRST_ATTEMPT: the bank had executed the key before the first attempt that the ledger has.';
comment on column symphony.payment_orphans.outbox_id is 'The outbox, as the worker had claimed it.';
comment on column symphony.payment_orphans.lease_token is 'The lease under which the worker dispatched it.';
comment on column symphony.payment_orphans.state is 'The outcome, as the worker reported it.';
comment on column symphony.payment_orphans.rail_reference is 'The rail''s own reference of the payment.';
comment on column symphony.payment_orphans.rail_code is 'The rail''s own code of the outcome.';
comment on column symphony.payment_orphans.error_code is 'What went wrong, by a fixed word; OUTCOME_UNKNOWN if the worker does not know the outcome.';
comment on column symphony.payment_orphans.error_message is 'What went wrong, in a sentence without personal data.';
comment on column symphony.payment_orphans.latency_ms is 'How long the rail took.';
comment on column symphony.payment_orphans.instruction_id is 'Its instruction, as the worker had claimed it; null if the worker did not say. So are the next columns.';
comment on column symphony.payment_orphans.participant_id is 'Its participant.';
comment on column symphony.payment_orphans.idempotency_key is 'The idempotency key that the bank was given.';
comment on column symphony.payment_orphans.rail_type is 'Its rail.';
comment on column symphony.payment_orphans.endpoint is 'Where the worker sent it.';
comment on column symphony.payment_orphans.epoch is 'The epoch in which its lease was granted.';
comment on column symphony.payment_orphans.claimed_at is 'When its lease was granted, by the clock of the server that was lost.';
comment on column symphony.payment_orphans.worker_id is 'The worker that reported it.';
comment on column symphony.payment_orphans.database_user is 'The login that reported it.';
comment on column symphony.payment_orphans.created_at is 'When it was recorded.';
comment on index symphony.payment_orphans_by_key is 'Finds the orphans of an idempotency key.';

-- One row per outbox whose payload was erased. The salt makes the digest in the tombstone useless for guessing a payload, so no runtime role may read
-- this table.
create table symphony.payment_payload_erasures (
  outbox_id    uuid        not null,
  operation_id uuid        not null,
  salt         bytea       not null,
  erased_at    timestamptz not null default clock_timestamp(),
  constraint payment_payload_erasures_pkey primary key (outbox_id),
  constraint payment_payload_erasures_salt_has_32_bytes check (octet_length(salt) = 32)
);

comment on table symphony.payment_payload_erasures is
  'The outboxes whose payloads were erased, each with its salt. Append-only, written by erase_payment_payload alone.';
comment on column symphony.payment_payload_erasures.outbox_id is 'The outbox.';
comment on column symphony.payment_payload_erasures.operation_id is 'The ERASE in payment_outbox_operations, with actor and reason.';
comment on column symphony.payment_payload_erasures.salt is '32 random bytes before the digest of the payment; see salt_digest.';
comment on column symphony.payment_payload_erasures.erased_at is 'When it was erased first, as the tombstone says.';

-- ANALYZE copies values of a column into the statistics, where an erasure does not reach them. No search is by payload.
alter table symphony.payment_outbox_pending alter column payload set statistics 0;
alter table symphony.payment_outbox_attempts alter column payload set statistics 0;
alter table symphony.payment_outbox_quarantine alter column payload set statistics 0;
alter table symphony.payment_outbox_keys alter column content_digest set statistics 0;

-- How far the sweep of repair_expired_leases has come: one row, written only while a rail has more due rows than a repair reads.
create table symphony.payment_repair_cursor (
  is_only_row boolean not null default true,
  next_page   bigint  not null default 0,
  constraint payment_repair_cursor_pkey primary key (is_only_row),
  constraint payment_repair_cursor_has_one_row check (is_only_row),
  constraint payment_repair_cursor_next_page_is_not_negative check (next_page >= 0)
) with (fillfactor = 50);

insert into symphony.payment_repair_cursor default values;

comment on table symphony.payment_repair_cursor is
  'Where the next repair continues its sweep of payment_outbox_pending. Touched by repair_expired_leases alone.';
comment on column symphony.payment_repair_cursor.is_only_row is 'Always true: the table has one row.';
comment on column symphony.payment_repair_cursor.next_page is 'The first page of payment_outbox_pending that the next repair reads.';

-- What was archived: a partition whose rows were read back from its archive and are the same. drop_archived_partition needs a row here.
create table symphony.payment_ledger_archives (
  archive_id      uuid                   not null,
  archive_name    text                   not null,
  partition_name  text                   not null,
  partition_oid   oid                    not null,
  from_id         uuid,
  to_id           uuid                   not null,
  row_count       bigint                 not null,
  content_digest  symphony.sha256_digest not null,
  manifest_digest symphony.sha256_digest not null,
  location        text                   not null,
  actor           text                   not null,
  reason          text                   not null,
  database_user   text                   not null default session_user,
  archived_at     timestamptz            not null default clock_timestamp(),
  constraint payment_ledger_archives_pkey primary key (archive_id),
  constraint payment_ledger_archives_name_is_unique unique (archive_name),
  constraint payment_ledger_archives_row_count_is_not_negative check (row_count >= 0),
  constraint payment_ledger_archives_location_is_given check (location ~ '\S' and char_length(location) <= 2000),
  constraint payment_ledger_archives_actor_is_a_name check (actor ~ '\S' and char_length(actor) <= 200),
  constraint payment_ledger_archives_reason_is_given check (reason ~ '\S' and char_length(reason) <= 2000)
);

comment on table symphony.payment_ledger_archives is 'The archived partitions of the ledger, each with where it is and its digests. Append-only.';
comment on column symphony.payment_ledger_archives.archive_id is 'UUIDv7 of this archive.';
comment on column symphony.payment_ledger_archives.archive_name is 'The name of its folder.';
comment on column symphony.payment_ledger_archives.partition_name is 'The partition that was archived.';
comment on column symphony.payment_ledger_archives.partition_oid is 'The table that was the partition: a later one of the same name is another table.';
comment on column symphony.payment_ledger_archives.from_id is 'It holds outboxes from this id on; null: from the first.';
comment on column symphony.payment_ledger_archives.to_id is 'It holds outboxes before this id.';
comment on column symphony.payment_ledger_archives.row_count is 'How many rows it has.';
comment on column symphony.payment_ledger_archives.content_digest is 'Digest of all rows in order; see ledger_partition_digest.';
comment on column symphony.payment_ledger_archives.manifest_digest is 'SHA-256 of its manifest, which has those of the files.';
comment on column symphony.payment_ledger_archives.location is 'Where it was written.';
comment on column symphony.payment_ledger_archives.actor is 'Who archived it, in their own words.';
comment on column symphony.payment_ledger_archives.reason is 'Why they archived it.';
comment on column symphony.payment_ledger_archives.database_user is 'The login that archived it.';
comment on column symphony.payment_ledger_archives.archived_at is 'When it was recorded, after it had been read back.';

-- How far the sweep of remove_expired_keys has come: one row.
create table symphony.payment_key_cursor (
  is_only_row boolean not null default true,
  next_page   bigint  not null default 0,
  constraint payment_key_cursor_pkey primary key (is_only_row),
  constraint payment_key_cursor_has_one_row check (is_only_row),
  constraint payment_key_cursor_next_page_is_not_negative check (next_page >= 0)
) with (fillfactor = 50);

comment on table symphony.payment_key_cursor is
  'Where the next call continues its sweep of payment_outbox_keys. Touched by remove_expired_keys alone.';
comment on column symphony.payment_key_cursor.is_only_row is 'Always true: the table has one row.';
comment on column symphony.payment_key_cursor.next_page is 'The first page of payment_outbox_keys that the next call reads.';
