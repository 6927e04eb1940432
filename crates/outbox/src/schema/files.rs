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
    /// Applied once each, in this order.
    pub(super) migrations: &'static [File],
    /// Applied at every install, in this order.
    pub(super) current: &'static [File],
}

/// Creates the roles, as the installer itself.
pub(super) const ROLES: &File = &files!["roles.sql"][0];
/// Becomes the owner of all that follows.
pub(super) const OWN: &File = &files!["own.sql"][0];
/// Who may do what.
pub(super) const GRANTS: &File = &files!["grants.sql"][0];
/// Stops being the owner.
pub(super) const DISOWN: &File = &files!["disown.sql"][0];
/// Reads the facts that an install decides.
pub(super) const CATALOGUE: &File = &files!["catalogue.sql"][0];

/// What every lane needs.
pub(super) const CORE: Lot = Lot {
    name: "core",
    migrations: files!["migrations/core/0001_migrations.sql"],
    current: files![
        "functions/core/arm_wakeup.sql",
        "functions/core/check_argument.sql",
        "functions/core/check_isolation.sql",
        "functions/core/check_range.sql",
        "functions/core/refuse_change.sql",
        "functions/core/uuidv7.sql",
        "functions/core/wakeup_lock.sql",
        "functions/core/wake_sleepers.sql",
        "views/schema_status.sql",
    ],
};

/// What `lane` needs beyond that.
pub(super) const fn lot(lane: Lane) -> &'static Lot {
    match lane {
        Lane::Payment => &PAYMENT,
    }
}

static PAYMENT: Lot = Lot {
    name: "payment",
    migrations: files!["migrations/payment/0001_tables.sql"],
    current: files![
        "functions/payment/advise_on_unknown_outcome.sql",
        "functions/payment/bump_participant_outbox_seq.sql",
        "functions/payment/caller_traceparent.sql",
        "functions/payment/check_enqueue.sql",
        "functions/payment/claim_floor.sql",
        "functions/payment/claim_outbox_batch.sql",
        "functions/payment/claim_rooms.sql",
        "functions/payment/complete_outbox_attempt.sql",
        "functions/payment/complete_outbox_batch.sql",
        "functions/payment/end_expired_leases.sql",
        "functions/payment/enqueue_payment_outbox.sql",
        "functions/payment/enqueue_payment_outbox_batch.sql",
        "functions/payment/free_rail_seats.sql",
        "functions/payment/hold_outbox_leases.sql",
        "functions/payment/insist_on_durability.sql",
        "functions/payment/next_outbox_due.sql",
        "functions/payment/notify_outbox_pending.sql",
        "functions/payment/outbox_key_lock.sql",
        "functions/payment/outbox_resolution.sql",
        "functions/payment/park_waiting_outboxes.sql",
        "functions/payment/pause_or_resume_rail.sql",
        "functions/payment/pause_payment_rail.sql",
        "functions/payment/rail_policy_lock.sql",
        "functions/payment/redrive_payment_outbox.sql",
        "functions/payment/refuse_key_reuse.sql",
        "functions/payment/release_outbox_leases.sql",
        "functions/payment/remember_claim_floor.sql",
        "functions/payment/renew_outbox_leases.sql",
        "functions/payment/repair_expired_leases.sql",
        "functions/payment/resolve_payment_outbox.sql",
        "functions/payment/resume_payment_rail.sql",
        "functions/payment/set_payment_rail.sql",
        "functions/payment/settle_outbox_leases.sql",
        "functions/payment/take_rail_policy_lock.sql",
        "functions/payment/terminal_failure.sql",
        "triggers/payment.sql",
        "views/unknown_outcome_codes.sql",
        "views/outbox_operational_status.sql",
        "views/payment_outbox_dlq.sql",
        "views/payment_outbox_events.sql",
        "views/payment_outbox_operations_log.sql",
        "views/payment_rail_policies.sql",
        "views/supervisor_outbox_status.sql",
    ],
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
            [ROLES, OWN, GRANTS, DISOWN, CATALOGUE].into_iter().map(|file| file.path.to_owned()).collect();
        for lot in [&CORE].into_iter().chain(Lane::ALL.map(lot)) {
            listed.extend(lot.migrations.iter().chain(lot.current).map(|file| file.path.to_owned()));
        }
        assert_eq!(there, listed);
    }

    #[test]
    fn a_function_stands_in_the_file_of_its_name_and_alone() {
        for lot in [&CORE].into_iter().chain(Lane::ALL.map(lot)) {
            for file in lot.current.iter().filter(|file| file.path.starts_with("functions/")) {
                assert_eq!(file.text.matches("create or replace function").count(), 1, "{}", file.path);
                assert!(
                    file.text.contains(&format!("create or replace function symphony.{}(", file.stem())),
                    "{}",
                    file.path
                );
            }
        }
    }
}
