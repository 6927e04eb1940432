//! Privileges: every privilege of every role on every object, read from the catalogue and tried.
//!
//! The objects come from the catalogue, so that a new object is tested too. `expected` lists what each role may do.

mod expected;
mod objects;

use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::evidence::{Evidence, Failure, Recorder, describe, require, sqlstate};
use super::sessions::{count, text};
use expected::{ROLES, allowed};
use objects::{Right, SCHEMAS, rights};
use symphony_testkit::test_database::Database;

/// A session that tries every privilege.
struct Actor {
    client: Client,
    /// The role that it has, or none.
    role: Option<&'static str>,
    words: String,
}

/// Proof 20: `each_role_has_exactly_the_rights_of_the_contract`.
pub(super) async fn are_exact(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let superuser = database.connect().await?;
    let rights = rights(&superuser).await?;
    expected_objects_exist(&rights, &mut recorder)?;
    equal_in_the_catalogue(&superuser, &rights, &mut recorder).await?;
    roles_are_separate(&superuser, &mut recorder).await?;

    let mut actors = vec![login(database, None).await?];
    for role in ROLES {
        actors.push(Actor {
            client: database.connect_as(role).await?,
            role: Some(role),
            words: format!("as {role}"),
        });
        actors.push(login(database, Some(role)).await?);
    }
    for (number, actor) in actors.iter().enumerate() {
        // A schema of its own, because some privileges can only be tried by creating an object.
        let user = text(&actor.client, "select current_user::text", &[]).await?;
        superuser.batch_execute(&format!("create schema own_{number} authorization {user}")).await?;
        actor.client.batch_execute(&format!("set search_path = own_{number}")).await?;
    }
    let rights = std::sync::Arc::new(rights);
    let mut tasks = JoinSet::new();
    for actor in actors {
        let rights = std::sync::Arc::clone(&rights);
        tasks.spawn(async move { try_all_rows(&actor, &rights).await.map(|tally| (actor.words, tally)) });
    }
    let mut tallies = Vec::new();
    while let Some(done) = tasks.join_next().await {
        tallies.push(done??);
    }
    tallies.sort();
    for (who, (granted, refused)) in tallies {
        let all = rights.len();
        recorder.check(
            format!("trying each of {all} privileges {who}"),
            "each as in the contract's table",
            format!("{granted} allowed, {refused} refused, as expected"),
            granted + refused == all,
        )?;
    }
    Ok(recorder.finish())
}

async fn login(database: &Database, role: Option<&'static str>) -> Result<Actor, Failure> {
    let client = database.connect_as_login(role.as_slice()).await?;
    let words =
        role.map_or("as a login without a role".into(), |role| format!("as a login that was granted {role}"));
    Ok(Actor { client, role, words })
}

/// Every object that `expected` names must exist, or the proof would prove nothing about it.
fn expected_objects_exist(rights: &[Right], recorder: &mut Recorder) -> Result<(), Failure> {
    let mut objects = 0;
    for (kind, name) in expected::objects() {
        let there = rights.iter().any(|right| right.kind == kind && right.object == name);
        require(|| format!("looking for {kind} {name}"), true, there)?;
        objects += 1;
    }
    recorder.check(
        "looking for the objects that the contract names",
        "all of them",
        format!("{objects} exist, with {} privileges on all objects of the schemas", rights.len()),
        objects > 20,
    )
}

/// Compares the privileges in the catalogue with the table of the contract.
async fn equal_in_the_catalogue(
    superuser: &Client,
    rights: &[Right],
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let mut compared = 0;
    for right in rights {
        for role in ROLES {
            let row = superuser.query_one(&right.question, &[&role]).await?;
            let tried =
                || format!("{} on {} {} for {role}, in the catalogue", right.what, right.kind, right.object);
            require(tried, allowed(Some(role), right), row.get(0))?;
            compared += 1;
        }
    }
    recorder.check(
        "reading from the catalogue what each role may do",
        "as in the contract's table",
        format!("{compared} of {compared} are equal"),
        compared == rights.len() * ROLES.len(),
    )?;
    let grantable = format!(
        "select count(*) from (
        select (aclexplode(relacl)).* from pg_class where relnamespace = any ({SCHEMAS})
        union all select (aclexplode(proacl)).* from pg_proc where pronamespace = any ({SCHEMAS})
        union all select (aclexplode(attacl)).* from pg_attribute a join pg_class c on c.oid = a.attrelid where c.relnamespace = any ({SCHEMAS})
        union all select (aclexplode(nspacl)).* from pg_namespace where oid = any ({SCHEMAS})) g
      where g.is_grantable and g.grantee <> 'symphony_control'::regrole"
    );
    let grantable = count(superuser, &grantable, &[]).await?;
    recorder.check_equal("looking for privileges WITH GRANT OPTION", "privileges", 0, grantable)
}

/// No role is a member of another, and none can log in.
async fn roles_are_separate(superuser: &Client, recorder: &mut Recorder) -> Result<(), Failure> {
    // By name: the server may have other logins with the same prefix.
    let special = "select string_agg(rolname, ', ') from pg_roles
                   where rolname = any ($1::text[] || 'symphony_control'::text)
                   and (rolcanlogin or rolsuper or rolcreaterole or rolcreatedb or rolreplication or rolbypassrls)";
    let special = text(superuser, special, &[&ROLES.as_slice()]).await?;
    recorder.check_equal(
        "looking for a role with LOGIN or another attribute",
        "roles",
        "none".to_owned(),
        special,
    )?;
    let members =
        "select string_agg(format('%s of %s', m.member::regrole, m.roleid::regrole), ', ') from pg_auth_members m
                   where m.member::regrole::text = any ($1::text[] || 'symphony_control'::text)";
    let members = text(superuser, members, &[&ROLES.as_slice()]).await?;
    recorder.check_equal(
        "looking for a role that is a member of any other",
        "memberships",
        "none".to_owned(),
        members,
    )
}

/// Tries each privilege. Returns how many were allowed and refused, all of them as expected.
async fn try_all_rows(actor: &Actor, rights: &[Right]) -> Result<(usize, usize), Failure> {
    let (mut granted, mut refused) = (0, 0);
    for right in rights {
        actor.client.batch_execute("begin").await?;
        let result = actor.client.batch_execute(&right.statement).await;
        actor.client.batch_execute("rollback").await?;
        let expected = allowed(actor.role, right);
        let happened = result.as_ref().err().map_or("allowed", |error| sqlstate(error));
        let holds = match happened {
            // 42501 is the refusal of a missing privilege.
            "42501" => !expected,
            "allowed" => expected,
            other if other.starts_with("P7") => expected,
            // PostgreSQL refuses what is impossible for this kind of object before it checks privileges.
            other => !expected && right.impossible.contains(&other),
        };
        if !holds {
            return Err(Failure {
                tried: format!(
                    "{} on {} {} {}: {}",
                    right.what, right.kind, right.object, actor.words, right.statement
                ),
                expected: if expected { "allowed".into() } else { "refused with 42501".into() },
                happened: result.err().map_or("allowed".into(), |error| describe(&error)),
            });
        }
        if expected { granted += 1 } else { refused += 1 }
    }
    Ok((granted, refused))
}
