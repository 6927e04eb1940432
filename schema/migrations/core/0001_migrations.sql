-- What was applied to this database, and from which build. Everything else the installer needs to know
-- it reads from the catalogue.
create table symphony.schema_migrations (
  lane           text        not null,
  migration      text        not null,
  sha256         text        not null,
  schema_version int         not null,
  applied_by     text        not null default session_user,
  applied_at     timestamptz not null default clock_timestamp(),
  constraint schema_migrations_pkey primary key (lane, migration),
  constraint schema_migrations_sha256_is_hex check (sha256 ~ '^[0-9a-f]{64}$'),
  constraint schema_migrations_version_is_positive check (schema_version > 0)
);

comment on schema symphony is 'Symphony: a transactional outbox. Tables are private to symphony_control; the functions are the interface.';
comment on table symphony.schema_migrations is 'Which migrations this database has had, from which build of Symphony.';
comment on column symphony.schema_migrations.lane is 'The lane that the migration belongs to, or core.';
comment on column symphony.schema_migrations.migration is 'File name of the migration, without its ending.';
comment on column symphony.schema_migrations.sha256 is 'Hash of its text when it was applied: a released migration never changes.';
comment on column symphony.schema_migrations.schema_version is 'Schema version of the build that applied it; an older build refuses to touch a newer database.';
comment on column symphony.schema_migrations.applied_by is 'Login that ran the install.';
comment on column symphony.schema_migrations.applied_at is 'When it was applied.';

-- How long ended rows are kept. Each change is a new row, so that the table is its own history.
create table symphony.retention_policies (
  policy_no     bigint      generated always as identity,
  kept          text        not null,
  keep_days     int,
  actor         text        not null,
  reason        text        not null,
  database_user text        not null default session_user,
  created_at    timestamptz not null default clock_timestamp(),
  constraint retention_policies_pkey primary key (policy_no),
  constraint retention_policies_kept_is_known check (kept in ('payment_ledger', 'payment_keys', 'events', 'metadata')),
  constraint retention_policies_keep_days_in_range check (keep_days between 1 and 36500),
  constraint retention_policies_actor_is_a_name check (actor ~ '\S' and char_length(actor) <= 200),
  constraint retention_policies_reason_is_given check (reason ~ '\S' and char_length(reason) <= 2000)
);

create index retention_policies_newest
  on symphony.retention_policies (kept, policy_no);

comment on table symphony.retention_policies is 'How long ended rows are kept: the newest row of each kind applies, and without one they are kept for ever. Append-only.';
comment on column symphony.retention_policies.policy_no is 'Number of the change.';
comment on column symphony.retention_policies.kept is 'What is kept: payment_ledger, payment_keys, events or metadata.';
comment on column symphony.retention_policies.keep_days is 'For how many days; null is for ever.';
comment on column symphony.retention_policies.actor is 'Who changed it, in their own words.';
comment on column symphony.retention_policies.reason is 'Why they changed it.';
comment on column symphony.retention_policies.database_user is 'The login that changed it.';
comment on column symphony.retention_policies.created_at is 'When it was changed, by the clock, not when the transaction began.';
comment on sequence symphony.retention_policies_policy_no_seq is 'The next number of a change.';
comment on index symphony.retention_policies_newest is 'The newest policy of each kind.';

-- What retention removed. The ledger is not here: its partitions are archived first; see payment_ledger_archives.
create table symphony.retention_removals (
  removal_no     bigint      generated always as identity,
  kept           text        not null,
  removed_rows   bigint      not null,
  removed_before timestamptz not null,
  database_user  text        not null default session_user,
  removed_at     timestamptz not null default clock_timestamp(),
  constraint retention_removals_pkey primary key (removal_no),
  constraint retention_removals_kept_is_known check (kept in ('payment_keys', 'events', 'metadata')),
  constraint retention_removals_removed_some check (removed_rows >= 1)
);

comment on table symphony.retention_removals is 'What was removed at the end of its retention, a row for each batch. Append-only.';
comment on column symphony.retention_removals.removal_no is 'Number of the removal.';
comment on column symphony.retention_removals.kept is 'What was removed: payment_keys, events or metadata.';
comment on column symphony.retention_removals.removed_rows is 'How many rows.';
comment on column symphony.retention_removals.removed_before is 'They had ended, or been used, before this time.';
comment on column symphony.retention_removals.database_user is 'The login that removed them.';
comment on column symphony.retention_removals.removed_at is 'When they were removed, by the clock.';
comment on sequence symphony.retention_removals_removal_no_seq is 'The next number of a removal.';

-- Which history of the data this is. A failover with loss, a restore or a clone forks it, and the server's identity shows most of that; see
-- docs/decisions/0013-epochs.md. The newest row is the current epoch.
create table symphony.epoch (
  counter           bigint      not null,
  system_identifier bigint      not null,
  timeline          int         not null,
  opened_at         timestamptz not null default clock_timestamp(),
  reason            text        not null,
  database_user     text        not null default session_user,
  constraint epoch_pkey primary key (counter),
  -- The numbers of an epoch begin at (counter - 1) * 10^12, and must fit into a bigint.
  constraint epoch_counter_in_range check (counter between 1 and 9000000),
  constraint epoch_reason_is_given check (reason ~ '\S' and char_length(reason) <= 2000)
);

comment on table symphony.epoch is 'The epochs: histories of the data that may have forked from each other. The row with the highest counter is the current one. Append-only.';
comment on column symphony.epoch.counter is 'Number of the epoch. It rises, and may skip numbers.';
comment on column symphony.epoch.system_identifier is 'The database cluster, as pg_control_system() names it, when the epoch was opened.';
comment on column symphony.epoch.timeline is 'The timeline of its WAL when the epoch was opened: a promotion begins a new one.';
comment on column symphony.epoch.opened_at is 'When it was opened, by the clock of that server.';
comment on column symphony.epoch.reason is 'Why it was opened.';
comment on column symphony.epoch.database_user is 'The login whose call opened it.';

insert into symphony.epoch (counter, system_identifier, timeline, reason)
select 1, s.system_identifier, ('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::int, 'installed'
from pg_catalog.pg_control_system() s;

-- The system identifier of this server, as read after its last start. To read it from its file takes longer than the rest of a small claim, and it
-- cannot change while the server runs. A copy of this table on another server has another start time.
create table symphony.epoch_server (
  is_only_row       boolean     not null default true,
  started_at        timestamptz not null,
  system_identifier bigint      not null,
  constraint epoch_server_pkey primary key (is_only_row),
  constraint epoch_server_has_one_row check (is_only_row)
);

insert into symphony.epoch_server (started_at, system_identifier)
select pg_catalog.pg_postmaster_start_time(), s.system_identifier
from pg_catalog.pg_control_system() s;

comment on table symphony.epoch_server is 'The system identifier of the server, as read after its last start. Touched by ensure_epoch alone.';
comment on column symphony.epoch_server.is_only_row is 'Always true: the table has one row.';
comment on column symphony.epoch_server.started_at is 'pg_postmaster_start_time() of the server whose system identifier this is.';
comment on column symphony.epoch_server.system_identifier is 'Its system identifier, as pg_control_system() names it.';
