-- Every metadata entry without its metadata and its claim token, for the console and operators.
create or replace view symphony.metadata_outbox_entries as
select o.id, o.entity_type, o.entity_id, o.status, o.retry_count, o.max_retries, o.last_error,
       o.next_retry_at, o.processing_started_at, o.claimed_by, o.processed_at, o.created_at, o.updated_at
from symphony.metadata_outbox o;

comment on view symphony.metadata_outbox_entries is 'Entries of the metadata lane without their metadata. Dead letters: where status = ''DLQ''.';
