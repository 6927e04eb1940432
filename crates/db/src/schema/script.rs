//! The SQL script that installs or upgrades in one transaction; a DBA can read and run the same text.
//!
//! Each migration has its own condition, so the script works on an empty, an older and a current database.

mod statement;

use std::time::Duration;

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
    format!("{}begin;\n{}{}\ncommit;\n", heading(lanes), prelude(limit), body(lanes, limit))
}

/// The same as one statement, for a migration tool, which runs it in its own transaction.
#[must_use]
pub fn statement_within(lanes: &[Lane], limit: Duration) -> String {
    heading(lanes) + &statement::of(&[prelude_sections(limit), body_sections(lanes, limit)].concat())
}

fn heading(lanes: &[Lane]) -> String {
    let names: Vec<_> = sorted(lanes).iter().map(|lane| lane.name()).collect();
    format!(
        "-- Symphony, schema version {VERSION}, lanes {}.\n\
         -- Creates or upgrades; safe to run again. Needs PostgreSQL 15 or later, and either a superuser, or a\n\
         -- user with CREATEROLE and CREATE on the database, or membership in symphony_control.\n",
        names.join(", "),
    )
}

/// The script that creates Symphony's roles on a server, and nothing else: before a dump is restored there.
#[must_use]
pub fn roles_script() -> String {
    format!("begin;\n{}\ncommit;\n", roles_sections().concat())
}

/// The same as one statement, for a migration tool.
#[must_use]
pub fn roles_statement() -> String {
    statement::of(&roles_sections())
}

fn roles_sections() -> Vec<String> {
    vec![PIN.to_owned(), section(files::ROLES)]
}

/// Pins the search_path, takes the install lock, and runs the guard. Nothing else in the schemas is read before the
/// guard.
pub(super) fn prelude(limit: Duration) -> String {
    prelude_sections(limit).concat()
}

fn prelude_sections(limit: Duration) -> Vec<String> {
    let first = format!("set local client_min_messages = warning;\n{PIN}{}", lock::take_exclusive(limit));
    vec![first, section(files::GUARD)]
}

/// The statements after [`prelude`].
pub(super) fn body(lanes: &[Lane], limit: Duration) -> String {
    body_sections(lanes, limit).concat()
}

fn body_sections(lanes: &[Lane], limit: Duration) -> Vec<String> {
    let mut script = vec![format!("{PIN}set local check_function_bodies = on;\n"), section(files::ROLES)];
    become_owner(&mut script, lanes);
    script.push(lock::take_relations(limit));
    refuse_foreign_database(&mut script, lanes);
    for component in components(lanes) {
        script.extend(component.migrations.iter().map(|migration| apply_once(component, migration)));
        script.extend(component.repeatable.iter().map(section));
    }
    script.extend(components(lanes).map(|component| section(component.grants)));
    script.extend(components(lanes).filter_map(|component| component.partitions).map(section));
    script.push(section(files::RESET_OWNER_ROLE));
    script
}

/// Checks a database that seems current: it is not newer, and had the migrations that this build knows. Run it in a
/// transaction that is rolled back.
pub(super) fn check(lanes: &[Lane]) -> String {
    let mut script = vec![PIN.to_owned()];
    become_owner(&mut script, lanes);
    refuse_foreign_database(&mut script, lanes);
    for component in components(lanes) {
        script.extend(component.migrations.iter().map(|migration| apply_once(component, migration)));
    }
    script.concat()
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
fn become_owner(script: &mut Vec<String>, lanes: &[Lane]) {
    script.push(section(files::ASSUME_OWNER_ROLE));
    script.extend(components(lanes).filter_map(|component| component.schema_file).map(section));
    script.push("\nset local role symphony_control;\n".to_owned());
}

/// Stops the script on a database that it must not change. The schemas exist by now, so no other login can create them
/// after the guard; their contents are read only after the guard.
fn refuse_foreign_database(script: &mut Vec<String>, lanes: &[Lane]) {
    script.extend([section(files::GUARD), refuse_newer(), refuse_missing_lanes(lanes)]);
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

fn section(file: &File) -> String {
    format!("\n-- {}\n{}", file.path, file.text)
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
