-- Every entry as it is now, for people: without its metadata, and without the token of its claim.
create or replace view symphony.metadata_outbox_entries as
select o.id, o.entity_type, o.entity_id, o.status, o.retry_count, o.max_retries, o.last_error,
       o.next_retry_at, o.processing_started_at, o.claimed_by, o.processed_at, o.created_at, o.updated_at
from symphony.metadata_outbox o;

comment on view symphony.metadata_outbox_entries is 'Entries of the metadata lane without their metadata. Dead ones: where status = ''DLQ''.';
