//! Who may do what: every right of every role on every object, read from the catalogue and tried.
//!
//! The objects come from the catalogue, so that nothing new goes untested; what is expected is written out in
//! `expected`, so that nothing is right because it is so.

mod expected;
mod objects;

use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::crew::{count, text};
use super::evidence::{Evidence, Failure, Trial, code, require, words};
use crate::kit::scratch::Database;
use expected::{ROLES, allowed};
use objects::{Right, SCHEMAS, rights};

/// Somebody who tries everything.
struct Actor {
    client: Client,
    /// The role it holds, or none.
    role: Option<&'static str>,
    words: String,
}

/// Proof 20.
pub(super) async fn are_exact(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = Trial::default();
    let superuser = database.connect().await?;
    let rights = rights(&superuser).await?;
    expected_objects_exist(&rights, &mut trial)?;
    as_the_catalogue_says(&superuser, &rights, &mut trial).await?;
    roles_are_apart(&superuser, &mut trial).await?;

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
        // A place of its own, for what can only be tried by creating something.
        let user = text(&actor.client, "select current_user::text", &[]).await?;
        superuser.batch_execute(&format!("create schema own_{number} authorization {user}")).await?;
        actor.client.batch_execute(&format!("set search_path = own_{number}")).await?;
    }
    let rights = std::sync::Arc::new(rights);
    let mut tasks = JoinSet::new();
    for actor in actors {
        let rights = std::sync::Arc::clone(&rights);
        tasks.spawn(async move { try_everything(&actor, &rights).await.map(|tally| (actor.words, tally)) });
    }
    let mut tallies = Vec::new();
    while let Some(done) = tasks.join_next().await {
        tallies.push(done??);
    }
    tallies.sort();
    for (who, (granted, refused)) in tallies {
        let all = rights.len();
        trial.holds(
            format!("trying each of {all} rights {who}"),
            "each as in the contract's table",
            format!("{granted} allowed, {refused} refused, as expected"),
            granted + refused == all,
        )?;
    }
    Ok(trial.evidence())
}

async fn login(database: &Database, role: Option<&'static str>) -> Result<Actor, Failure> {
    let client = database.connect_as_login(role.as_slice()).await?;
    let words =
        role.map_or("as a login without a role".into(), |role| format!("as a login that was granted {role}"));
    Ok(Actor { client, role, words })
}

/// An expectation about something that is not there would prove nothing.
fn expected_objects_exist(rights: &[Right], trial: &mut Trial) -> Result<(), Failure> {
    let mut objects = 0;
    for (kind, name) in expected::objects() {
        let there = rights.iter().any(|right| right.kind == kind && right.object == name);
        require(|| format!("looking for {kind} {name}"), true, there)?;
        objects += 1;
    }
    trial.holds(
        "looking for the objects that the contract speaks of",
        "all of them",
        format!("{objects} are there, and {} rights on everything in the schemas", rights.len()),
        objects > 20,
    )
}

/// Compares what the catalogue says of each role with the table.
async fn as_the_catalogue_says(superuser: &Client, rights: &[Right], trial: &mut Trial) -> Result<(), Failure> {
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
    trial.holds(
        "reading from the catalogue what each role may do",
        "as in the contract's table",
        format!("{compared} of {compared} are so"),
        compared == rights.len() * ROLES.len(),
    )?;
    let passed_on = format!(
        "select count(*) from (
        select (aclexplode(relacl)).* from pg_class where relnamespace = any ({SCHEMAS})
        union all select (aclexplode(proacl)).* from pg_proc where pronamespace = any ({SCHEMAS})
        union all select (aclexplode(attacl)).* from pg_attribute a join pg_class c on c.oid = a.attrelid where c.relnamespace = any ({SCHEMAS})
        union all select (aclexplode(nspacl)).* from pg_namespace where oid = any ({SCHEMAS})) g
      where g.is_grantable and g.grantee <> 'symphony_control'::regrole"
    );
    let passed_on = count(superuser, &passed_on, &[]).await?;
    trial.same("looking for rights that their holder may pass on", "rights", 0, passed_on)
}

/// No role is a way to another, and none can be logged in as.
async fn roles_are_apart(superuser: &Client, trial: &mut Trial) -> Result<(), Failure> {
    // By name: a server may have logins of others whose names begin as ours do.
    let special = "select string_agg(rolname, ', ') from pg_roles
                   where rolname = any ($1::text[] || 'symphony_control'::text)
                   and (rolcanlogin or rolsuper or rolcreaterole or rolcreatedb or rolreplication or rolbypassrls)";
    let special = text(superuser, special, &[&ROLES.as_slice()]).await?;
    trial.same("looking for a role that can log in or has an attribute", "roles", "none".to_owned(), special)?;
    let members =
        "select string_agg(format('%s of %s', m.member::regrole, m.roleid::regrole), ', ') from pg_auth_members m
                   where m.member::regrole::text = any ($1::text[] || 'symphony_control'::text)";
    let members = text(superuser, members, &[&ROLES.as_slice()]).await?;
    trial.same("looking for a role that is a member of any other", "memberships", "none".to_owned(), members)
}

/// Tries each right; returns how many were allowed and refused, all of them as expected.
async fn try_everything(actor: &Actor, rights: &[Right]) -> Result<(usize, usize), Failure> {
    let (mut granted, mut refused) = (0, 0);
    for right in rights {
        actor.client.batch_execute("begin").await?;
        let result = actor.client.batch_execute(&right.statement).await;
        actor.client.batch_execute("rollback").await?;
        let expected = allowed(actor.role, right);
        let happened = result.as_ref().err().map_or("allowed", |error| code(error));
        let holds = match happened {
            // Nothing that is allowed is refused for want of a right, and nothing else for another reason.
            "42501" => !expected,
            "allowed" => expected,
            other if other.starts_with("P7") => expected,
            // What nobody can do to an object of this kind is refused before rights are looked at.
            other => !expected && right.impossible.contains(&other),
        };
        if !holds {
            return Err(Failure {
                tried: format!(
                    "{} on {} {} {}: {}",
                    right.what, right.kind, right.object, actor.words, right.statement
                ),
                expected: if expected { "allowed".into() } else { "refused with 42501".into() },
                happened: result.err().map_or("it was allowed".into(), |error| words(&error)),
            });
        }
        if expected { granted += 1 } else { refused += 1 }
    }
    Ok((granted, refused))
}
