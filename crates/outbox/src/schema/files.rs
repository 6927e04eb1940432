//! The files of the schema, compiled in, in the order in which they are installed.
//!
//! The order is written out because it matters: views stand on views. A test compares these lists with
//! the folder, so that no file is forgotten.

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
        &[$(File { path: $path, text: include_str!(concat!("../../../../schema/", $path)) }),+]
    };
}

/// What one lane is made of.
pub(super) struct Lot {
    /// Its name in the table of migrations.
    pub(super) name: &'static str,
    /// The schema that it lives in.
    pub(super) schema: &'static str,
    /// Creates that schema, as the installer, where the owner's own does not do.
    pub(super) home: Option<&'static File>,
    /// Applied once each, in this order.
    pub(super) migrations: &'static [File],
    /// Applied at every install, in this order.
    pub(super) current: &'static [File],
    /// Who may do what, applied once everything of every lot is there.
    pub(super) grants: &'static File,
}

/// Creates the roles, as the installer itself.
pub(super) const ROLES: &File = &files!["roles.sql"][0];
/// Makes sure that the owner can be acted as, and has its schema.
pub(super) const OWN: &File = &files!["own.sql"][0];
/// Stops being the owner.
pub(super) const DISOWN: &File = &files!["disown.sql"][0];
/// Refuses a database in which a stranger's code would run.
pub(super) const GUARD: &File = &files!["guard.sql"][0];

macro_rules! queries {
    ($($path:literal),+ $(,)?) => {
        &[$(File {
            path: $path,
            text: concat!(include_str!("../../../../schema/facts/scope.sql"), include_str!(concat!("../../../../schema/", $path))),
        }),+]
    };
}

/// Read the facts that an install decides, by kind. Each text begins with the CTEs of `facts/scope.sql`.
pub(super) const FACTS: &[File] = queries![
    "facts/relations.sql",
    "facts/functions.sql",
    "facts/types.sql",
    "facts/rights.sql",
    "facts/roles.sql",
    "facts/settings.sql",
    "facts/surroundings.sql",
];

/// What every lane needs.
pub(super) const CORE: Lot = Lot {
    name: "core",
    schema: "symphony",
    home: None,
    migrations: files!["migrations/core/0001_migrations.sql"],
    current: files![
        "functions/core/arm_wakeup.sql",
        "functions/core/check_argument.sql",
        "functions/core/check_isolation.sql",
        "functions/core/check_payload.sql",
        "functions/core/check_range.sql",
        "functions/core/claim_byte_limit.sql",
        "functions/core/clean_error_text.sql",
        "functions/core/connected_relayers.sql",
        "functions/core/decode_escape.sql",
        "functions/core/decode_escapes.sql",
        "functions/core/is_card_number.sql",
        "functions/core/mask_authorization.sql",
        "functions/core/mask_credentials.sql",
        "functions/core/mask_personal_data.sql",
        "functions/core/one_line.sql",
        "functions/core/raw_size.sql",
        "functions/core/refuse_change.sql",
        "functions/core/rows_within.sql",
        "functions/core/uuidv7.sql",
        "functions/core/uuidv7_floor.sql",
        "functions/core/uuidv7s.sql",
        "functions/core/wakeup_lock.sql",
        "functions/core/wake_sleepers.sql",
        "functions/core/wake_on_insert.sql",
        "views/applied_migrations.sql",
        "views/schema_status.sql",
    ],
    grants: &files!["grants/core.sql"][0],
};

/// What `lane` needs beyond that.
pub(super) const fn lot(lane: Lane) -> &'static Lot {
    match lane {
        Lane::Payment => &PAYMENT,
        Lane::Event => &EVENT,
        Lane::Metadata => &METADATA,
    }
}

static PAYMENT: Lot = Lot {
    name: "payment",
    schema: "symphony",
    home: None,
    migrations: files!["migrations/payment/0001_tables.sql"],
    current: files![
        "functions/payment/advise_on_unknown_outcome.sql",
        "functions/payment/apply_rail_policy.sql",
        "functions/payment/audit_export_end.sql",
        "functions/payment/bump_participant_outbox_seq.sql",
        "functions/payment/caller_traceparent.sql",
        "functions/payment/check_enqueue.sql",
        "functions/payment/check_key_redrive.sql",
        "functions/payment/check_outbox_ended.sql",
        "functions/payment/check_rail_policy.sql",
        "functions/payment/claim_floor.sql",
        "functions/payment/claim_outbox_batch.sql",
        "functions/payment/claim_rooms.sql",
        "functions/payment/complete_outbox_attempt.sql",
        "functions/payment/complete_outbox_batch.sql",
        "functions/payment/count_payment_dead_letters.sql",
        "functions/payment/end_expired_leases.sql",
        "functions/payment/end_outboxes.sql",
        "functions/payment/enqueue_payment_outbox.sql",
        "functions/payment/enqueue_payment_outbox_batch.sql",
        "functions/payment/fit_claim.sql",
        "functions/payment/free_rail_seats.sql",
        "functions/payment/free_successors.sql",
        "functions/payment/hold_outbox_leases.sql",
        "functions/payment/insist_on_durability.sql",
        "functions/payment/list_payment_dead_letters.sql",
        "functions/payment/next_outbox_due.sql",
        "functions/payment/notify_outbox_pending.sql",
        "functions/payment/outbox_content_digest.sql",
        "functions/payment/outbox_resolution.sql",
        "functions/payment/outbox_trace_contexts.sql",
        "functions/payment/park_waiting_outboxes.sql",
        "functions/payment/pause_or_resume_rail.sql",
        "functions/payment/pause_payment_rail.sql",
        "functions/payment/payment_backlog.sql",
        "functions/payment/payment_leases.sql",
        "functions/payment/payment_pulse.sql",
        "functions/payment/quarantine_outbox.sql",
        "functions/payment/quarantined_outboxes_total.sql",
        "functions/payment/redrive_payment_outbox.sql",
        "functions/payment/refuse_key_reuse.sql",
        "functions/payment/register_payment_rail.sql",
        "functions/payment/registered_rail.sql",
        "functions/payment/release_outbox_leases.sql",
        "functions/payment/remember_claim_floor.sql",
        "functions/payment/renew_outbox_leases.sql",
        "functions/payment/repair_expired_leases.sql",
        "functions/payment/repair_payment_rail.sql",
        "functions/payment/resolve_payment_outbox.sql",
        "functions/payment/resume_payment_rail.sql",
        "functions/payment/retire_payment_rail.sql",
        "functions/payment/search_payment_outboxes.sql",
        "functions/payment/set_payment_rail.sql",
        "functions/payment/settle_outbox_leases.sql",
        "functions/payment/take_outbox_sequences.sql",
        "functions/payment/take_rail_policy_lock.sql",
        "functions/payment/terminal_failure.sql",
        "functions/payment/walk_payment_failures.sql",
        "triggers/payment.sql",
        "views/unknown_outcome_codes.sql",
        "views/outbox_operational_status.sql",
        "views/payment_outbox_dlq.sql",
        "views/payment_outbox_events.sql",
        "views/payment_outbox_operations_log.sql",
        "views/payment_outboxes.sql",
        "views/payment_participants.sql",
        "views/payment_rail_policies.sql",
        "views/quarantined_outboxes.sql",
        "views/supervisor_outbox_status.sql",
    ],
    grants: &files!["grants/payment.sql"][0],
};

static EVENT: Lot = Lot {
    name: "event",
    schema: "m10_recovery",
    home: Some(&files!["schemas/event.sql"][0]),
    migrations: files!["migrations/event/0001_tables.sql"],
    current: files![
        "functions/event/claim_outbox_events.sql",
        "functions/event/complete_outbox_event.sql",
        "functions/event/publish_outbox.sql",
        "triggers/event.sql",
        "views/outbox_schedule.sql",
        "views/outbox_status.sql",
    ],
    grants: &files!["grants/event.sql"][0],
};

static METADATA: Lot = Lot {
    name: "metadata",
    schema: "symphony",
    home: None,
    migrations: files!["migrations/metadata/0001_tables.sql"],
    current: files![
        "functions/metadata/metadata_move_is_legal.sql",
        "functions/metadata/check_metadata_move.sql",
        "functions/metadata/metadata_version.sql",
        "functions/metadata/publish_metadata_claims.sql",
        "functions/metadata/settle_metadata_claim.sql",
        "functions/metadata/end_metadata_claim.sql",
        "functions/metadata/claim_metadata_batch.sql",
        "functions/metadata/complete_metadata_batch.sql",
        "functions/metadata/create_metadata_entry.sql",
        "functions/metadata/find_metadata_by_entity.sql",
        "functions/metadata/mark_metadata_dlq.sql",
        "functions/metadata/mark_metadata_failed.sql",
        "functions/metadata/mark_metadata_published.sql",
        "functions/metadata/metadata_backlog.sql",
        "functions/metadata/metadata_pulse.sql",
        "functions/metadata/next_metadata_due.sql",
        "functions/metadata/next_metadata_version.sql",
        "functions/metadata/read_metadata.sql",
        "functions/metadata/repair_metadata_entries.sql",
        "triggers/metadata.sql",
        "views/metadata_outbox_entries.sql",
        "functions/metadata/search_metadata_entries.sql",
        "views/metadata_outbox_status.sql",
    ],
    grants: &files!["grants/metadata.sql"][0],
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
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema");
        let mut there = BTreeSet::new();
        sql_files(&folder, &folder, &mut there);

        let mut listed: BTreeSet<String> =
            [ROLES, OWN, DISOWN, GUARD].into_iter().chain(FACTS).map(|file| file.path.to_owned()).collect();
        listed.insert("facts/scope.sql".into());
        for lot in [&CORE].into_iter().chain(Lane::ALL.map(lot)) {
            let files = lot.home.into_iter().chain(lot.migrations).chain(lot.current).chain([lot.grants]);
            listed.extend(files.map(|file| file.path.to_owned()));
        }
        assert_eq!(there, listed);
    }

    #[test]
    fn a_function_stands_in_the_file_of_its_name_and_alone() {
        for lot in [&CORE].into_iter().chain(Lane::ALL.map(lot)) {
            for file in lot.current.iter().filter(|file| file.path.starts_with("functions/")) {
                assert_eq!(file.text.matches("create or replace function").count(), 1, "{}", file.path);
                let begins = format!("create or replace function {}.{}(", lot.schema, file.stem());
                assert!(file.text.contains(&begins), "{}", file.path);
            }
        }
    }
}
