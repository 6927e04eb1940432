-- Grants of the metadata lane. Follows core.sql, which revokes all earlier grants. No role may read or change the table:
-- its rows contain claim tokens.
revoke all on type symphony.metadata_status from public;

grant execute on function
  symphony.create_metadata_entry
to symphony_ingest;

grant execute on function
  symphony.claim_metadata_batch,
  symphony.claim_metadata_by_store,
  symphony.claim_newest_metadata,
  symphony.complete_metadata_batch,
  symphony.mark_metadata_dlq,
  symphony.mark_metadata_failed,
  symphony.mark_metadata_published,
  symphony.next_metadata_due,
  symphony.repair_metadata_entries
to symphony_executor;

grant execute on function
  symphony.mark_metadata_dlq
to symphony_operator;

grant execute on function
  symphony.remove_ended_metadata
to symphony_executor, symphony_operator;

grant execute on function
  symphony.find_metadata_by_entity
to symphony_ingest, symphony_executor, symphony_operator, symphony_readonly, symphony_auditor;

grant execute on function
  symphony.metadata_backlog,
  symphony.metadata_recent_stats,
  symphony.search_metadata_entries
to symphony_operator, symphony_readonly, symphony_auditor;

-- As the payloads of the other lanes: for auditors alone.
grant execute on function
  symphony.read_metadata
to symphony_auditor;

-- What a relayer reads for its gauges. PostgreSQL calls the functions of a view as the role that reads it.
grant execute on function
  symphony.metadata_backlog
to symphony_executor;

grant select on
  symphony.metadata_outbox_status
to symphony_executor;

grant select on
  symphony.metadata_outbox_entries,
  symphony.metadata_outbox_status
to symphony_operator, symphony_readonly, symphony_auditor;
