-- The event lane: its tables, constraints and indexes. Names, columns and their meaning are a contract with others:
-- no column is added that would schedule or count a second time.

-- Each page keeps free space: a row is inserted once and then updated at least twice, by a claim and a completion.
create table m10_recovery.outbox (
  id             bigint      generated always as identity,
  aggregate_type text        not null,
  aggregate_id   text        not null,
  event_type     text        not null,
  payload        jsonb       not null,
  created_at     timestamptz not null default now(),
  processed_at   timestamptz,
  retry_count    integer     not null default 0,
  process_after  timestamptz,
  claimed_at     timestamptz,
  claimed_by     text,
  constraint outbox_pkey primary key (id),
  constraint outbox_retry_count_is_not_negative check (retry_count >= 0),
  constraint outbox_claim_is_whole_or_absent check (num_nulls(claimed_at, claimed_by) in (0, 2))
) with (
  fillfactor = 70,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0.05
);

-- The unprocessed rows, each in exactly one of the indexes of fresh ones, retries and claims, so that a claim finds the few that it
-- may take beside any number of processed, scheduled and claimed ones. None holds the time of day: what is due is a range of an index.
create index outbox_fresh
  on m10_recovery.outbox (id)
  where processed_at is null and claimed_at is null and process_after is null;

create index outbox_retries
  on m10_recovery.outbox (process_after, id)
  where processed_at is null and claimed_at is null and process_after is not null;

-- Events that claims in order leave out: see symphony.park_events_behind. No other index has this order, so no plan takes another.
create index outbox_parked
  on m10_recovery.outbox (aggregate_id, aggregate_type, id)
  where processed_at is null and claimed_at is null and process_after = to_timestamp(0);

create index outbox_claims
  on m10_recovery.outbox (claimed_at, id)
  where processed_at is null and claimed_at is not null;

-- What was done lately, beside any number of processed rows. It grows at its end alone, once for each event.
create index outbox_processed
  on m10_recovery.outbox (processed_at)
  where processed_at is not null;

-- The order of events within an aggregate, for claims in order.
create index outbox_aggregates
  on m10_recovery.outbox (aggregate_type, aggregate_id, id)
  where processed_at is null;

comment on schema m10_recovery is 'Symphony: the event lane. Tables are private to symphony_control; the functions are the interface.';
comment on table m10_recovery.outbox is 'Domain events, each with the claim of the processor that holds or held it.';
comment on column m10_recovery.outbox.id is 'Number of the event, and its de-duplication key. Not an order: a lower number may be committed later. The number of the sequence, plus (epoch - 1) * 10^12.';
comment on column m10_recovery.outbox.aggregate_type is 'What kind of thing the event comes from.';
comment on column m10_recovery.outbox.aggregate_id is 'Which one of that kind.';
comment on column m10_recovery.outbox.event_type is 'What kind of event it is.';
comment on column m10_recovery.outbox.payload is 'Its data.';
comment on column m10_recovery.outbox.created_at is 'When it was published.';
comment on column m10_recovery.outbox.processed_at is 'When it was completed; null until then.';
comment on column m10_recovery.outbox.retry_count is 'Failures so far.';
comment on column m10_recovery.outbox.process_after is 'When it may be claimed again after a failure: the only field that schedules. Null: at once. 1970: at once too, but parked for claims in order.';
comment on column m10_recovery.outbox.claimed_at is 'When it was claimed. A claim that is older than 5 minutes may be taken over.';
comment on column m10_recovery.outbox.claimed_by is 'Processor that claimed it. Stays once the event is processed.';
comment on sequence m10_recovery.outbox_id_seq is 'The next number of an event.';
comment on index m10_recovery.outbox_fresh is 'Unclaimed events that have not failed, by id.';
comment on index m10_recovery.outbox_retries is 'Unclaimed events that have failed, by when they are due.';
comment on index m10_recovery.outbox_parked is 'Parked events of an aggregate, by number.';
comment on index m10_recovery.outbox_claims is 'Events under a claim, the oldest claim first.';
comment on index m10_recovery.outbox_processed is 'Processed events, in the order in which they were.';
comment on index m10_recovery.outbox_aggregates is 'Unprocessed events of an aggregate, by number.';

create table m10_recovery.outbox_errors (
  error_id     bigint      generated always as identity,
  event_id     bigint      not null,
  retry_count  integer     not null,
  succeeded    boolean     not null,
  processor_id text        not null,
  error        text        not null,
  created_at   timestamptz not null default clock_timestamp(),
  constraint outbox_errors_pkey primary key (error_id),
  constraint outbox_errors_is_bounded check (char_length(error) between 1 and 2000)
);

create index outbox_errors_of_an_event
  on m10_recovery.outbox_errors (event_id, error_id);

comment on table m10_recovery.outbox_errors is 'Errors that processors reported, without personal data. Append-only until its event is removed at the end of its retention.';
comment on column m10_recovery.outbox_errors.error_id is 'Number of the entry.';
comment on column m10_recovery.outbox_errors.event_id is 'The event that it is about.';
comment on column m10_recovery.outbox_errors.retry_count is 'Failures of the event with this one counted.';
comment on column m10_recovery.outbox_errors.succeeded is 'Whether the event was completed all the same.';
comment on column m10_recovery.outbox_errors.processor_id is 'Processor that reported it.';
comment on column m10_recovery.outbox_errors.error is 'The error, cleaned by symphony.clean_error_text.';
comment on column m10_recovery.outbox_errors.created_at is 'When it was reported, by the clock, not when its transaction began.';
comment on sequence m10_recovery.outbox_errors_error_id_seq is 'The next number of an entry.';
comment on index m10_recovery.outbox_errors_of_an_event is 'The errors of one event, in order.';
