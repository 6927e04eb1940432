-- The metadata lane: its status, its table, constraints and indexes. Which statuses may follow each other is in
-- functions/metadata/metadata_move_is_legal.sql, and triggers/metadata.sql enforces it.

create type symphony.metadata_status as enum ('PENDING', 'PROCESSING', 'PUBLISHED', 'FAILED', 'DLQ');

comment on type symphony.metadata_status is 'The status of a metadata entry. PUBLISHED and DLQ are terminal.';

-- Each page keeps free space: a row is inserted once and then updated at least twice, by a claim and a completion.
create table symphony.metadata_outbox (
  id                    uuid                     not null,
  entity_id             text                     not null,
  entity_type           text                     not null,
  metadata              jsonb                    not null,
  status                symphony.metadata_status not null default 'PENDING',
  retry_count           integer                  not null default 0,
  max_retries           integer                  not null,
  last_error            text,
  next_retry_at         timestamptz,
  processing_started_at timestamptz,
  claim_token           uuid,
  claimed_by            text,
  processed_at          timestamptz,
  created_at            timestamptz              not null,
  updated_at            timestamptz              not null,
  epoch                 bigint                   not null default 1,
  constraint metadata_outbox_pkey primary key (id),
  constraint metadata_outbox_retry_count_is_not_negative check (retry_count >= 0),
  constraint metadata_outbox_max_retries_is_bounded check (max_retries between 1 and 100),
  constraint metadata_outbox_last_error_is_bounded check (char_length(last_error) between 1 and 2000),
  constraint metadata_outbox_token_is_of_a_claim check ((claim_token is not null) = (status = 'PROCESSING')),
  constraint metadata_outbox_claim_has_a_holder check (status <> 'PROCESSING' or num_nulls(claimed_by, processing_started_at) = 0),
  constraint metadata_outbox_processed_is_published check ((processed_at is not null) = (status = 'PUBLISHED')),
  constraint metadata_outbox_failure_has_an_error check (status not in ('FAILED', 'DLQ') or last_error is not null),
  constraint metadata_outbox_retry_is_of_a_failure check (next_retry_at is null or status = 'FAILED'),
  constraint metadata_outbox_failure_is_scheduled check (status <> 'FAILED' or retry_count >= max_retries or next_retry_at is not null)
) with (
  fillfactor = 70,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0.05
);

-- Each row is in exactly one of six indexes by its status, so that a claim finds the few that it may take beside any number of
-- ended, scheduled and claimed ones, and the console can list what ended lately. None holds the time of day: what is due is a range of an index.
create index metadata_outbox_fresh
  on symphony.metadata_outbox (created_at, id)
  where status = 'PENDING';

create index metadata_outbox_retries
  on symphony.metadata_outbox (next_retry_at, id)
  where status = 'FAILED' and retry_count < max_retries;

create index metadata_outbox_exhausted
  on symphony.metadata_outbox (updated_at, id)
  where status = 'FAILED' and retry_count >= max_retries;

create index metadata_outbox_claims
  on symphony.metadata_outbox (processing_started_at, id)
  where status = 'PROCESSING';

create index metadata_outbox_dead
  on symphony.metadata_outbox (updated_at, id)
  where status = 'DLQ';

create index metadata_outbox_published
  on symphony.metadata_outbox (processed_at, id)
  where status = 'PUBLISHED';

-- The versions of an entity, the latest at the end. Unique, so that no two writes of one entity can be taken for the same.
create unique index metadata_outbox_entities
  on symphony.metadata_outbox (entity_type, entity_id, created_at);

comment on table symphony.metadata_outbox is 'Metadata of entities on its way to a second store, each entry with its status.';
comment on column symphony.metadata_outbox.id is 'The entry: a UUIDv7.';
comment on column symphony.metadata_outbox.entity_id is 'Which entity of its type.';
comment on column symphony.metadata_outbox.entity_type is 'What kind of entity it is.';
comment on column symphony.metadata_outbox.metadata is 'What the second store is to hold about it.';
comment on column symphony.metadata_outbox.status is 'Makes five legal moves only; see metadata_move_is_legal.';
comment on column symphony.metadata_outbox.retry_count is 'Failures so far.';
comment on column symphony.metadata_outbox.max_retries is 'Failures after which it is not retried.';
comment on column symphony.metadata_outbox.last_error is 'Why it failed last, or why it is in the DLQ, cleaned by symphony.clean_error_text.';
comment on column symphony.metadata_outbox.next_retry_at is 'When it may be claimed again; null unless it failed and has retries left.';
comment on column symphony.metadata_outbox.processing_started_at is 'When it was claimed last.';
comment on column symphony.metadata_outbox.claim_token is 'Proves the claim under which it is PROCESSING.';
comment on column symphony.metadata_outbox.claimed_by is 'Worker that claimed it last.';
comment on column symphony.metadata_outbox.processed_at is 'When it was published.';
comment on column symphony.metadata_outbox.created_at is 'When it was created. Within an entity it rises in the order of commits, and with the epoch it is the version; see metadata_version.';
comment on column symphony.metadata_outbox.updated_at is 'When its status changed last.';
comment on column symphony.metadata_outbox.epoch is 'The epoch in which it was created, or after a promotion the one that the next claim opened.';
comment on index symphony.metadata_outbox_fresh is 'Entries that were never claimed, the oldest first.';
comment on index symphony.metadata_outbox_retries is 'Entries that failed and have retries left, by when they are due.';
comment on index symphony.metadata_outbox_exhausted is 'Entries that failed, have no retries left and are not in the DLQ yet.';
comment on index symphony.metadata_outbox_claims is 'Entries under a claim, the oldest claim first.';
comment on index symphony.metadata_outbox_dead is 'Entries in the DLQ, in the order in which they got there.';
comment on index symphony.metadata_outbox_published is 'Published entries, in the order in which they were.';
comment on index symphony.metadata_outbox_entities is 'The entries of an entity, by version. No two have the same.';

-- One row per entity, rewritten by each entry that is created: free space on the page keeps that update heap-only.
create table symphony.metadata_entities (
  entity_type    text collate "C" not null,
  entity_id      text collate "C" not null,
  newest_version timestamptz      not null,
  constraint metadata_entities_pkey primary key (entity_type, entity_id)
) with (fillfactor = 50);

comment on table symphony.metadata_entities is
  'The newest version of each entity. Its row lock puts the writers of one entity in order; touched by next_metadata_version alone.';
comment on column symphony.metadata_entities.entity_type is 'What kind of entity it is.';
comment on column symphony.metadata_entities.entity_id is 'Which entity of its type.';
comment on column symphony.metadata_entities.newest_version is 'created_at of its newest entry; kept when that entry is deleted.';
