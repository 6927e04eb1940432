//! The SQL files of the schema, compiled in, in install order.
//!
//! The order is explicit because views depend on other views. A test compares these lists with the folder.

use super::Lane;

/// A file of the folder `schema/`.
pub(super) struct File {
    /// Its path below that folder.
    pub(super) path: &'static str,
    /// Its text.
    pub(super) text: &'static str,
}

impl File {
    /// Its name without folders and ending: what it defines.
    pub(super) fn stem(&self) -> &'static str {
        let name = self.path.rsplit_once('/').map_or(self.path, |(_, name)| name);
        name.strip_suffix(".sql").unwrap_or(name)
    }
}

macro_rules! files {
    ($($path:literal),+ $(,)?) => {
        &[$(File { path: $path, text: include_str!(concat!("../../schema/", $path)) }),+]
    };
}

/// The files of one lane, or of the core that every lane needs.
pub(super) struct Component {
    /// Its name in the migrations table.
    pub(super) name: &'static str,
    /// The PostgreSQL schema of its objects.
    pub(super) schema: &'static str,
    /// Creates that schema, as the installer; none if it uses the schema of the core.
    pub(super) schema_file: Option<&'static File>,
    /// Each is applied once, in this order.
    pub(super) migrations: &'static [File],
    /// Functions, triggers and views, applied at every install in this order.
    pub(super) repeatable: &'static [File],
    /// Grants, applied after all objects of all components.
    pub(super) grants: &'static File,
    /// Makes the partitions of its tables, after all grants; none if it has no such table.
    pub(super) partitions: Option<&'static File>,
}

/// Creates the roles, as the installer.
pub(super) const ROLES: &File = &files!["roles.sql"][0];
/// Lets the installer act as the owner, and creates the owner's schema.
pub(super) const ASSUME_OWNER_ROLE: &File = &files!["assume_owner_role.sql"][0];
/// Ends acting as the owner.
pub(super) const RESET_OWNER_ROLE: &File = &files!["reset_owner_role.sql"][0];
/// Refuses a database in which another owner's code would run.
pub(super) const GUARD: &File = &files!["guard.sql"][0];

macro_rules! queries {
    ($($path:literal),+ $(,)?) => {
        &[$(File {
            path: $path,
            text: concat!(include_str!("../../schema/facts/scope.sql"), include_str!(concat!("../../schema/", $path))),
        }),+]
    };
}

/// Queries for the facts about the installed objects, by kind. Each text begins with the CTEs of `facts/scope.sql`.
pub(super) const FACTS: &[File] = queries![
    "facts/relations.sql",
    "facts/partitions.sql",
    "facts/functions.sql",
    "facts/types.sql",
    "facts/rights.sql",
    "facts/roles.sql",
    "facts/settings.sql",
    "facts/surroundings.sql",
];

/// The objects that every lane needs.
pub(super) const CORE: Component = Component {
    name: "core",
    schema: "symphony",
    schema_file: None,
    migrations: files!["migrations/core/0001_migrations.sql"],
    repeatable: files![
        "functions/core/acquire_wakeup_lock.sql",
        "functions/core/advance_epoch.sql",
        "functions/core/check_argument.sql",
        "functions/core/check_claim_routes.sql",
        "functions/core/check_isolation.sql",
        "functions/core/check_payload.sql",
        "functions/core/check_range.sql",
        "functions/core/claim_byte_limit.sql",
        "functions/core/clean_error_text.sql",
        "functions/core/connected_relayers.sql",
        "functions/core/current_epoch.sql",
        "functions/core/decode_escape.sql",
        "functions/core/decode_escapes.sql",
        "functions/core/ended_claim_sessions.sql",
        "functions/core/ensure_epoch.sql",
        "functions/core/epoch_of_this_server.sql",
        "functions/core/is_card_number.sql",
        "functions/core/longest_lock_wait.sql",
        "functions/core/mask_authorization.sql",
        "functions/core/mask_credentials.sql",
        "functions/core/mask_personal_data.sql",
        "functions/core/next_epoch.sql",
        "functions/core/normalize_error_text.sql",
        "functions/core/notify_idle_relayers.sql",
        "functions/core/notify_on_insert.sql",
        "functions/core/number_epoch.sql",
        "functions/core/number_floor.sql",
        "functions/core/open_claim_session.sql",
        "functions/core/open_epoch.sql",
        "functions/core/refuse_change.sql",
        "functions/core/retention_cutoff.sql",
        "functions/core/rows_within_byte_limit.sql",
        "functions/core/server_epoch.sql",
        "functions/core/server_timeline.sql",
        "functions/core/set_retention.sql",
        "functions/core/uncompressed_size.sql",
        "functions/core/uuidv7.sql",
        "functions/core/uuidv7_lower_bound.sql",
        "functions/core/uuidv7_time.sql",
        "functions/core/uuidv7s.sql",
        "functions/core/wait_for_writers.sql",
        "functions/core/wakeup_lock_key.sql",
        "triggers/core.sql",
        "views/applied_migrations.sql",
        "views/epochs.sql",
        "views/retention.sql",
        "views/retention_removals_log.sql",
        "views/schema_status.sql",
    ],
    grants: &files!["grants/core.sql"][0],
    partitions: None,
};

/// The component of `lane`.
pub(super) const fn component(lane: Lane) -> &'static Component {
    match lane {
        Lane::Payment => &PAYMENT,
        Lane::Event => &EVENT,
        Lane::Metadata => &METADATA,
    }
}

static PAYMENT: Component = Component {
    name: "payment",
    schema: "symphony",
    schema_file: None,
    migrations: files!["migrations/payment/0001_tables.sql"],
    repeatable: files![
        "functions/payment/advise_on_unknown_outcome.sql",
        "functions/payment/allocate_outbox_sequences.sql",
        "functions/payment/apply_rail_policy.sql",
        "functions/payment/attach_first_partition.sql",
        "functions/payment/audit_export_end.sql",
        "functions/payment/bump_participant_outbox_seq.sql",
        "functions/payment/caller_traceparent.sql",
        "functions/payment/cancel_payment_outbox.sql",
        "functions/payment/check_claim_endpoints.sql",
        "functions/payment/check_claim_limits.sql",
        "functions/payment/check_enqueue.sql",
        "functions/payment/check_key_replacement.sql",
        "functions/payment/check_key_change.sql",
        "functions/payment/check_key_removal.sql",
        "functions/payment/check_outbox_ended.sql",
        "functions/payment/check_payload_erasure.sql",
        "functions/payment/check_rail_policy.sql",
        "functions/payment/check_worker_history.sql",
        "functions/payment/claim_low_watermark.sql",
        "functions/payment/claim_outbox_batch.sql",
        "functions/payment/complete_outbox_attempt.sql",
        "functions/payment/complete_outbox_batch.sql",
        "functions/payment/confirm_payment_outbox.sql",
        "functions/payment/count_open_orphans.sql",
        "functions/payment/count_payment_dead_letters.sql",
        "functions/payment/count_refused_confirmations.sql",
        "functions/payment/create_ledger_partition.sql",
        "functions/payment/declare_same_endpoint.sql",
        "functions/payment/drop_archived_partition.sql",
        "functions/payment/end_expired_leases.sql",
        "functions/payment/endpoint_of_unknown_outcome.sql",
        "functions/payment/enqueue_payment_outbox.sql",
        "functions/payment/enqueue_payment_outbox_batch.sql",
        "functions/payment/event_lane_is_installed.sql",
        "functions/payment/hold_payment_streams.sql",
        "functions/payment/release_stream_hold.sql",
        "functions/payment/publish_payment_outcomes.sql",
        "functions/payment/erase_payment_payload.sql",
        "functions/payment/erased_payload_matches.sql",
        "functions/payment/extend_ledger_at.sql",
        "functions/payment/extend_payment_ledger.sql",
        "functions/payment/failure_has_rail_code.sql",
        "functions/payment/find_archived_outboxes.sql",
        "functions/payment/is_open_orphan.sql",
        "functions/payment/is_payload_tombstone.sql",
        "functions/payment/is_same_endpoint.sql",
        "functions/payment/ledger_partition_digest.sql",
        "functions/payment/ledger_partition_start.sql",
        "functions/payment/list_archive_blockers.sql",
        "functions/payment/list_partitions_to_archive.sql",
        "functions/payment/list_payment_dead_letters.sql",
        "functions/payment/lock_first_attempts.sql",
        "functions/payment/lock_leased_outboxes.sql",
        "functions/payment/lock_rail_policies.sql",
        "functions/payment/lock_run_followers.sql",
        "functions/payment/lock_terminal_failure.sql",
        "functions/payment/make_future_rows_due.sql",
        "functions/payment/make_payments_due.sql",
        "functions/payment/max_rows_per_rail.sql",
        "functions/payment/move_rails_to_epoch.sql",
        "functions/payment/next_outbox_due.sql",
        "functions/payment/notify_outbox_pending.sql",
        "functions/payment/outbox_content_digest.sql",
        "functions/payment/outbox_resolution.sql",
        "functions/payment/outbox_trace_contexts.sql",
        "functions/payment/park_behind_head.sql",
        "functions/payment/pause_or_resume_rail.sql",
        "functions/payment/pause_payment_rail.sql",
        "functions/payment/payload_tombstone.sql",
        "functions/payment/payment_backlog.sql",
        "functions/payment/payment_leases.sql",
        "functions/payment/payment_ledger_partitions.sql",
        "functions/payment/payment_outcome.sql",
        "functions/payment/payment_recent_stats.sql",
        "functions/payment/payment_status.sql",
        "functions/payment/quarantine_outbox.sql",
        "functions/payment/quarantined_outboxes_total.sql",
        "functions/payment/rail_claim_capacity.sql",
        "functions/payment/rail_policy_lock_holders.sql",
        "functions/payment/rails_with_due_rows.sql",
        "functions/payment/recent_payment_failures.sql",
        "functions/payment/reconcile_bank_export.sql",
        "functions/payment/record_attempts.sql",
        "functions/payment/record_ledger_archive.sql",
        "functions/payment/record_payment_orphan.sql",
        "functions/payment/record_terminal_attempts.sql",
        "functions/payment/recover_epoch.sql",
        "functions/payment/redrive_payment_outbox.sql",
        "functions/payment/refuse_key_reuse.sql",
        "functions/payment/register_payment_rail.sql",
        "functions/payment/registered_rail.sql",
        "functions/payment/release_outbox_leases.sql",
        "functions/payment/remove_expired_keys.sql",
        "functions/payment/renew_outbox_leases.sql",
        "functions/payment/repair_expired_leases.sql",
        "functions/payment/repair_payment_rail.sql",
        "functions/payment/require_synchronous_commit.sql",
        "functions/payment/resolve_payment_outbox.sql",
        "functions/payment/resume_payment_rail.sql",
        "functions/payment/retire_payment_rail.sql",
        "functions/payment/revoke_same_endpoint.sql",
        "functions/payment/salt_digest.sql",
        "functions/payment/save_claim_low_watermark.sql",
        "functions/payment/save_stream_low_marks.sql",
        "functions/payment/search_payment_outboxes.sql",
        "functions/payment/set_payment_rail.sql",
        "functions/payment/trim_claim_to_byte_limit.sql",
        "functions/payment/unpark_requested_rows.sql",
        "functions/payment/unpark_successors.sql",
        "triggers/payment.sql",
        "views/unknown_outcome_codes.sql",
        "views/archived_ledger_partitions.sql",
        "views/held_payment_streams.sql",
        "views/orphaned_outcomes.sql",
        "views/outbox_operational_status.sql",
        "views/payment_outbox_dlq.sql",
        "views/payment_outbox_events.sql",
        "views/payment_outbox_operations_log.sql",
        "views/payment_outboxes.sql",
        "views/payment_participants.sql",
        "views/payment_rail_policies.sql",
        "views/payment_same_endpoints.sql",
        "views/quarantined_outboxes.sql",
        "views/refused_confirmations.sql",
        "views/supervisor_outbox_status.sql",
    ],
    grants: &files!["grants/payment.sql"][0],
    partitions: Some(&files!["partitions/payment.sql"][0]),
};

static EVENT: Component = Component {
    name: "event",
    schema: "m10_recovery",
    schema_file: Some(&files!["schemas/event.sql"][0]),
    migrations: files!["migrations/event/0001_tables.sql"],
    repeatable: files![
        "functions/event/check_error_removal.sql",
        "functions/event/event_claim_timeout.sql",
        "functions/event/event_backlog.sql",
        "views/outbox_unprocessed.sql",
        "functions/event/unpark_next_events.sql",
        "functions/event/complete_published_events.sql",
        "functions/event/try_complete_event.sql",
        "functions/event/complete_event_batch.sql",
        "functions/event/park_events_behind.sql",
        "functions/event/unpark_stranded_events.sql",
        "functions/event/claim_events_by_sink.sql",
        "functions/event/claim_events_in_order.sql",
        "functions/event/claim_newest_event.sql",
        "functions/event/claim_outbox_events.sql",
        "functions/event/complete_outbox_event.sql",
        "functions/event/publish_outbox.sql",
        "functions/event/release_abandoned_events.sql",
        "functions/event/remove_processed_events.sql",
        "triggers/event.sql",
        "views/outbox_schedule.sql",
        "views/outbox_status.sql",
    ],
    grants: &files!["grants/event.sql"][0],
    partitions: None,
};

static METADATA: Component = Component {
    name: "metadata",
    schema: "symphony",
    schema_file: None,
    migrations: files!["migrations/metadata/0001_tables.sql"],
    repeatable: files![
        "functions/metadata/metadata_move_is_legal.sql",
        "functions/metadata/check_metadata_move.sql",
        "functions/metadata/metadata_version.sql",
        "functions/metadata/publish_metadata_claims.sql",
        "functions/metadata/try_complete_metadata_claim.sql",
        "functions/metadata/complete_metadata_claim.sql",
        "functions/metadata/claim_metadata_batch.sql",
        "functions/metadata/claim_metadata_by_store.sql",
        "functions/metadata/claim_newest_metadata.sql",
        "functions/metadata/complete_metadata_batch.sql",
        "functions/metadata/create_metadata_entry.sql",
        "functions/metadata/find_metadata_by_entity.sql",
        "functions/metadata/mark_metadata_dlq.sql",
        "functions/metadata/mark_metadata_failed.sql",
        "functions/metadata/mark_metadata_published.sql",
        "functions/metadata/metadata_backlog.sql",
        "functions/metadata/metadata_recent_stats.sql",
        "functions/metadata/next_metadata_due.sql",
        "functions/metadata/next_metadata_version.sql",
        "functions/metadata/read_metadata.sql",
        "functions/metadata/remove_ended_metadata.sql",
        "functions/metadata/repair_metadata_entries.sql",
        "triggers/metadata.sql",
        "views/metadata_outbox_entries.sql",
        "functions/metadata/search_metadata_entries.sql",
        "views/metadata_outbox_status.sql",
    ],
    grants: &files!["grants/metadata.sql"][0],
    partitions: None,
};

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    fn sql_files(folder: &Path, below: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sql_files(&path, below, found);
            } else if path.extension().is_some_and(|ending| ending == "sql") {
                found.insert(path.strip_prefix(below).unwrap().to_str().unwrap().to_owned());
            }
        }
    }

    #[test]
    fn every_file_of_the_schema_is_installed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
        let mut there = BTreeSet::new();
        sql_files(&folder, &folder, &mut there);

        let mut listed: BTreeSet<String> = [ROLES, ASSUME_OWNER_ROLE, RESET_OWNER_ROLE, GUARD]
            .into_iter()
            .chain(FACTS)
            .map(|file| file.path.to_owned())
            .collect();
        listed.insert("facts/scope.sql".into());
        for component in [&CORE].into_iter().chain(Lane::ALL.map(component)) {
            let files = component
                .schema_file
                .into_iter()
                .chain(component.migrations)
                .chain(component.repeatable)
                .chain([component.grants])
                .chain(component.partitions);
            listed.extend(files.map(|file| file.path.to_owned()));
        }
        assert_eq!(there, listed);
    }

    #[test]
    fn a_function_file_defines_one_function_of_its_name() {
        for component in [&CORE].into_iter().chain(Lane::ALL.map(component)) {
            for file in component.repeatable.iter().filter(|file| file.path.starts_with("functions/")) {
                assert_eq!(file.text.matches("create or replace function").count(), 1, "{}", file.path);
                let begins = |schema| format!("create or replace function {schema}.{}(", file.stem());
                let found =
                    [component.schema, CORE.schema].iter().any(|schema| file.text.contains(&begins(schema)));
                assert!(found, "{}", file.path);
            }
        }
    }
}
