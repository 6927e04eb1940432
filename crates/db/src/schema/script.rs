//! The SQL script that installs or upgrades in one transaction; a DBA can read and run the same text.
//!
//! Each migration has its own condition, so the script works on an empty, an older and a current database.

use std::{fmt::Write as _, time::Duration};

use super::{
    Lane, VERSION,
    files::{self, Component, File},
    guard::PIN,
    lock::{self, LOCK_TIMEOUT},
    migrations,
};

/// The script that installs `lanes`, or upgrades them. Waits [`LOCK_TIMEOUT`] for a lock.
#[must_use]
pub fn script(lanes: &[Lane]) -> String {
    script_within(lanes, LOCK_TIMEOUT)
}

/// The same with another timeout, for the install lock and again for the tables.
#[must_use]
pub fn script_within(lanes: &[Lane], limit: Duration) -> String {
    let names: Vec<_> = sorted(lanes).iter().map(|lane| lane.name()).collect();
    format!(
        "-- Symphony, schema version {VERSION}, lanes: {}.\n\
         -- Creates or upgrades; safe to run again. Needs PostgreSQL 15 or later, and either a superuser, or a\n\
         -- user with CREATEROLE and CREATE on the database, or membership in symphony_control.\n\
         begin;\n\
         {}{}\n\
         commit;\n",
        names.join(", "),
        prelude(limit),
        body(lanes, limit),
    )
}

/// The script that creates Symphony's roles on a server, and nothing else: before a dump is restored there.
#[must_use]
pub fn roles_script() -> String {
    let mut script = format!("begin;\n{PIN}");
    push(&mut script, files::ROLES);
    script.push_str("\ncommit;\n");
    script
}

/// Pins the search_path, takes the install lock, and runs the guard. Nothing else in the schemas is read before the
/// guard.
pub(super) fn prelude(limit: Duration) -> String {
    let mut script = format!("set local client_min_messages = warning;\n{PIN}{}", lock::take_exclusive(limit));
    push(&mut script, files::GUARD);
    script
}

/// The statements after [`prelude`].
pub(super) fn body(lanes: &[Lane], limit: Duration) -> String {
    let mut script = format!("{PIN}set local check_function_bodies = on;\n");
    push(&mut script, files::ROLES);
    become_owner(&mut script, lanes);
    script.push_str(&lock::take_relations(limit));
    refuse_foreign_database(&mut script, lanes);
    for component in components(lanes) {
        for migration in component.migrations {
            script.push_str(&apply_once(component, migration));
        }
        for file in component.repeatable {
            push(&mut script, file);
        }
    }
    for component in components(lanes) {
        push(&mut script, component.grants);
    }
    for partitions in components(lanes).filter_map(|component| component.partitions) {
        push(&mut script, partitions);
    }
    push(&mut script, files::RESET_OWNER_ROLE);
    script
}

/// Checks a database that seems current: it is not newer, and had the migrations that this build knows. Run it in a
/// transaction that is rolled back.
pub(super) fn check(lanes: &[Lane]) -> String {
    let mut script = PIN.to_owned();
    become_owner(&mut script, lanes);
    refuse_foreign_database(&mut script, lanes);
    for component in components(lanes) {
        for migration in component.migrations {
            script.push_str(&apply_once(component, migration));
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

/// The core, and the components of the lanes.
fn components(lanes: &[Lane]) -> impl Iterator<Item = &'static Component> {
    const CORE: &Component = &files::CORE;
    [CORE].into_iter().chain(sorted(lanes).into_iter().map(files::component))
}

/// The owner creates every object after this.
fn become_owner(script: &mut String, lanes: &[Lane]) {
    push(script, files::ASSUME_OWNER_ROLE);
    for file in components(lanes).filter_map(|component| component.schema_file) {
        push(script, file);
    }
    script.push_str("\nset local role symphony_control;\n");
}

/// Stops the script on a database that it must not change. The schemas exist by now, so no other login can create them
/// after the guard; their contents are read only after the guard.
fn refuse_foreign_database(script: &mut String, lanes: &[Lane]) {
    push(script, files::GUARD);
    script.push_str(&refuse_newer());
    script.push_str(&refuse_missing_lanes(lanes));
}

/// The script rebuilds all grants: a lane that is missing from it would lose its own.
fn refuse_missing_lanes(lanes: &[Lane]) -> String {
    let ours: Vec<_> = components(lanes).map(|component| format!("'{}'", component.name)).collect();
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

fn apply_once(component: &Component, migration: &File) -> String {
    let (lane, name, text) = (component.name, migration.stem(), migration.text);
    let sha256 = migrations::sha256(migration);
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
        for component in [&files::CORE].into_iter().chain(Lane::ALL.map(files::component)) {
            for migration in component.migrations {
                assert!(
                    !migration.text.contains("$text$") && !migration.text.contains("$migration$"),
                    "{}",
                    migration.path
                );
            }
        }
    }
}
