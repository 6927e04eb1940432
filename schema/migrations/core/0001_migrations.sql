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
