//! The script that installs or upgrades: one transaction, the same text for us to run and for a DBA to read.
//!
//! Each migration carries its own condition, so the script can be run on an empty database, on an older
//! one and on a current one. It decides nothing else: what a file does is in the file.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::{
    Lane, VERSION,
    files::{self, File, Lot},
};

/// Number of the advisory lock that lets one install at a time into a database.
pub(super) const LOCK: i64 = 0x73_796d_7068_6f6e;

/// The script that installs `lanes`, or upgrades them.
#[must_use]
pub fn script(lanes: &[Lane]) -> String {
    let names: Vec<_> = sorted(lanes).iter().map(|lane| lane.name()).collect();
    format!(
        "-- Symphony, schema version {VERSION}, lanes: {}.\n\
         -- Creates or upgrades; safe to run again. Needs PostgreSQL 15 or later, and either a superuser, or a\n\
         -- user with CREATEROLE and CREATE on the database, or membership in symphony_control.\n\
         begin;\n\
         select pg_catalog.pg_advisory_xact_lock({LOCK});\n\
         {}\n\
         commit;\n",
        names.join(", "),
        body(lanes),
    )
}

/// What the script does inside of its transaction, once it holds the lock.
pub(super) fn body(lanes: &[Lane]) -> String {
    let mut script = String::from(
        "set local client_min_messages = warning;\n\
         set local search_path = pg_catalog;\n\
         set local check_function_bodies = on;\n",
    );
    push(&mut script, files::ROLES);
    become_owner(&mut script, lanes);
    for lot in lots(lanes) {
        for migration in lot.migrations {
            script.push_str(&apply_once(lot, migration));
        }
        for file in lot.current {
            push(&mut script, file);
        }
    }
    for lot in lots(lanes) {
        push(&mut script, lot.grants);
    }
    push(&mut script, files::DISOWN);
    script
}

/// What must be true of a database that needs nothing done: it is not newer, and had the migrations that this build knows.
/// For a transaction that is rolled back.
pub(super) fn guard(lanes: &[Lane]) -> String {
    let mut script =
        String::from("set local client_min_messages = warning;\nset local search_path = pg_catalog;\n");
    become_owner(&mut script, lanes);
    for lot in lots(lanes) {
        for migration in lot.migrations {
            script.push_str(&apply_once(lot, migration));
        }
    }
    script
}

fn sorted(lanes: &[Lane]) -> Vec<Lane> {
    let mut lanes = lanes.to_vec();
    lanes.sort_unstable();
    lanes.dedup();
    lanes
}

/// Core, and what the lanes need beyond it.
fn lots(lanes: &[Lane]) -> impl Iterator<Item = &'static Lot> {
    const CORE: &Lot = &files::CORE;
    [CORE].into_iter().chain(sorted(lanes).into_iter().map(files::lot))
}

/// From here on every object is the owner's, unless the database is one that this script must not touch.
fn become_owner(script: &mut String, lanes: &[Lane]) {
    push(script, files::OWN);
    for home in lots(lanes).filter_map(|lot| lot.home) {
        push(script, home);
    }
    script.push_str("\nset local role symphony_control;\n");
    script.push_str(&refuse_newer());
    script.push_str(&refuse_others(lanes));
}

/// Rights are given from nothing: those of a lane that is not in the script would be gone.
fn refuse_others(lanes: &[Lane]) -> String {
    let ours: Vec<_> = lots(lanes).map(|lot| format!("'{}'", lot.name)).collect();
    format!(
        "
do $guard$
declare
  v_lane text;
begin
  if to_regclass('symphony.schema_migrations') is not null then
    select min(m.lane) into v_lane from symphony.schema_migrations m where m.lane not in ({});
    if v_lane is not null then
      raise exception 'this database has the lane % as well, which is not in this script', v_lane
        using errcode = '55000', hint = 'Name every lane that the database has, with --lane for each.';
    end if;
  end if;
end
$guard$;
",
        ours.join(", ")
    )
}

fn push(script: &mut String, file: &File) {
    // Writing to a String cannot fail.
    let _ = write!(script, "\n-- {}\n{}", file.path, file.text);
}

fn refuse_newer() -> String {
    format!(
        "
do $guard$
declare
  v_version int;
begin
  if current_setting('server_version_num')::int < 150000 then
    raise exception 'PostgreSQL % is too old', current_setting('server_version')
      using errcode = '0A000', hint = 'Symphony needs PostgreSQL 15 or later.';
  end if;
  if to_regclass('symphony.schema_migrations') is not null then
    select max(m.schema_version) into v_version from symphony.schema_migrations m;
    if v_version > {VERSION} then
      raise exception 'this database has schema version %, which is newer than {VERSION}, the one of this build', v_version
        using errcode = '55000', hint = 'Install with the newer build of Symphony that was used here before.';
    end if;
  end if;
end
$guard$;
"
    )
}

fn apply_once(lot: &Lot, migration: &File) -> String {
    let (lane, name, text) = (lot.name, migration.stem(), migration.text);
    let sha256 = Sha256::digest(text).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    format!(
        "
-- {path}
do $migration$
declare
  v_sha256 text;
begin
  if to_regclass('symphony.schema_migrations') is not null then
    select m.sha256 into v_sha256 from symphony.schema_migrations m where m.lane = '{lane}' and m.migration = '{name}';
  end if;
  if v_sha256 is null then
    execute $text$
{text}$text$;
    insert into symphony.schema_migrations (lane, migration, sha256, schema_version)
    values ('{lane}', '{name}', '{sha256}', {VERSION});
  elsif v_sha256 <> '{sha256}' then
    raise exception 'migration {lane}/{name} is not the one that was applied to this database'
      using errcode = '55000', hint = 'Install with the build that was used here before, or with a released one.';
  end if;
end
$migration$;
",
        path = migration.path,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_named_twice_is_installed_once() {
        assert_eq!(script(&[Lane::Payment, Lane::Payment]), script(&[Lane::Payment]));
        assert_eq!(script(&[Lane::Metadata, Lane::Event, Lane::Payment]), script(&Lane::ALL));
    }

    #[test]
    fn no_migration_ends_its_own_quotes() {
        for lot in [&files::CORE].into_iter().chain(Lane::ALL.map(files::lot)) {
            for migration in lot.migrations {
                assert!(
                    !migration.text.contains("$text$") && !migration.text.contains("$migration$"),
                    "{}",
                    migration.path
                );
            }
        }
    }
}
