//! The catalogue itself: one signature, one search_path, nothing for PUBLIC, and a comment on everything.

use super::crew::{Crew, count, text};
use super::evidence::{Evidence, Failure, Trial, code, require};
use crate::kit::scratch::Database;

/// The moves of the contract: each must run with the owner's rights.
const MOVES: [&str; 24] = [
    "enqueue_payment_outbox",
    "enqueue_payment_outbox_batch",
    "claim_outbox_batch",
    "complete_outbox_attempt",
    "complete_outbox_batch",
    "renew_outbox_leases",
    "release_outbox_leases",
    "repair_expired_leases",
    "redrive_payment_outbox",
    "resolve_payment_outbox",
    "register_payment_rail",
    "set_payment_rail",
    "retire_payment_rail",
    "pause_payment_rail",
    "resume_payment_rail",
    "publish_outbox",
    "claim_outbox_events",
    "complete_outbox_event",
    "create_metadata_entry",
    "claim_metadata_batch",
    "mark_metadata_published",
    "mark_metadata_failed",
    "mark_metadata_dlq",
    "repair_metadata_entries",
];

/// Every function of our schemas, as `f`.
const FUNCTIONS: &str =
    "from pg_proc f where f.pronamespace = any (array['symphony', 'm10_recovery']::regnamespace[])";

/// Every object that should say what it is, and whether it does.
const COMMENTS: &str = "
    select format('schema %s', n.nspname) as object, obj_description(n.oid, 'pg_namespace') as comment
    from pg_namespace n where n.nspname in ('symphony', 'm10_recovery')
    union all
    select format('relation %s', c.relname), obj_description(c.oid, 'pg_class')
    from pg_class c where c.relnamespace = any (array['symphony', 'm10_recovery']::regnamespace[]) and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f', 'c')
    union all
    select format('column %s.%s', c.relname, a.attname), col_description(c.oid, a.attnum)
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where c.relnamespace = any (array['symphony', 'm10_recovery']::regnamespace[]) and c.relkind in ('r', 'p')
    union all
    select format('index %s', c.relname), obj_description(c.oid, 'pg_class')
    from pg_class c
    where c.relnamespace = any (array['symphony', 'm10_recovery']::regnamespace[]) and c.relkind in ('i', 'I')
      and not exists (select from pg_constraint k where k.conindid = c.oid)
    union all
    select format('function %s', f.proname), obj_description(f.oid, 'pg_proc')
    from pg_proc f where f.pronamespace = any (array['symphony', 'm10_recovery']::regnamespace[])
    union all
    select format('type %s', t.typname), obj_description(t.oid, 'pg_type')
    from pg_type t where t.typnamespace = any (array['symphony', 'm10_recovery']::regnamespace[]) and t.typtype in ('e', 'd', 'r')
    union all
    select format('trigger %s', t.tgname), obj_description(t.oid, 'pg_trigger')
    from pg_trigger t join pg_class c on c.oid = t.tgrelid
    where c.relnamespace = any (array['symphony', 'm10_recovery']::regnamespace[]) and not t.tgisinternal";

/// Proof 22.
pub(super) async fn is_in_order(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = Trial::default();
    let owner = Crew::hire(database).await?.owner;
    let all = count(&owner, &format!("select count(*) {FUNCTIONS}"), &[]).await?;
    let found = format!("select count(distinct f.proname) {FUNCTIONS} and f.proname = any ($1)");
    let found = count(&owner, &found, &[&MOVES.as_slice()]).await?;
    trial.holds(
        "reading the functions of schemas symphony and m10_recovery from the catalogue",
        "the 24 moves of the contracts, and those they are made of",
        format!("{all} functions, {found} of them moves"),
        found == 24 && all > 24,
    )?;

    let questions = [
        (
            "looking for a name with more than one signature",
            format!(
                "select string_agg(d.proname, ', ') from (select f.proname {FUNCTIONS} group by f.proname having count(*) > 1) d"
            ),
        ),
        (
            "looking for a search_path that is not exactly pg_catalog, the schemas of the lane, pg_temp",
            format!(
                "select string_agg(f.proname, ', ') {FUNCTIONS} and not coalesce(
                   case when f.pronamespace = 'symphony'::regnamespace then 'search_path=pg_catalog, symphony, pg_temp'
                        else 'search_path=pg_catalog, m10_recovery, symphony, pg_temp' end = any (f.proconfig), false)"
            ),
        ),
        (
            "looking for a function whose body is kept as a parsed expression, which symphony verify does not compare",
            format!("select string_agg(f.proname, ', ') {FUNCTIONS} and f.prosqlbody is not null"),
        ),
        (
            "looking for a function that PUBLIC can execute",
            format!(
                "select string_agg(f.proname, ', ') {FUNCTIONS} and exists (
                   select from aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) e where e.grantee = 0)"
            ),
        ),
        (
            "looking for a function that symphony_control does not own",
            format!(
                "select string_agg(f.proname, ', ') {FUNCTIONS} and f.proowner <> 'symphony_control'::regrole"
            ),
        ),
        (
            "looking for a move that does not run with the owner's rights",
            format!(
                "select string_agg(f.proname, ', ') {FUNCTIONS} and f.proname = any ('{{{}}}') and not f.prosecdef",
                MOVES.join(",")
            ),
        ),
        (
            "looking for a trigger function that runs with the owner's rights",
            format!(
                "select string_agg(f.proname, ', ') {FUNCTIONS} and f.prorettype = 'trigger'::regtype and f.prosecdef"
            ),
        ),
        (
            "looking for an object without a comment",
            format!(
                "select string_agg(c.object, ', ') from ({COMMENTS}) c where coalesce(c.comment, '') !~ '[[:alpha:]]'"
            ),
        ),
        (
            "looking for a relation or type that symphony_control does not own",
            "select string_agg(c.relname, ', ') from pg_class c
             where c.relnamespace = any (array['symphony', 'm10_recovery']::regnamespace[]) and c.relowner <> 'symphony_control'::regrole"
                .to_owned(),
        ),
    ];
    for (tried, question) in questions {
        trial.same(tried, "found", "none".to_owned(), text(&owner, &question, &[]).await?)?;
    }
    let described = count(&owner, &format!("select count(*) from ({COMMENTS}) c"), &[]).await?;
    trial.holds("counting the objects with a comment", "more than 100", described.to_string(), described > 100)?;

    // By trying: somebody without any right calls each of them.
    let nobody = database.connect_as_login(&[]).await?;
    database.connect().await?.batch_execute("grant usage on schema symphony, m10_recovery to public").await?;
    let calls = format!(
        "select format('select %I.%I(%s)', f.pronamespace::regnamespace, f.proname,
           (select string_agg(format('null::%s', format_type(t.t, null)), ', ' order by t.place) from unnest(f.proargtypes) with ordinality as t (t, place)))
         {FUNCTIONS}"
    );
    let mut refused = 0;
    for row in owner.query(&calls, &[]).await? {
        let call: String = row.get(0);
        let result = nobody.batch_execute(&call).await;
        let happened = result.err().map_or("allowed".to_owned(), |error| code(&error).to_owned());
        require(|| format!("{call}; as PUBLIC, who may look into the schemas"), "42501".to_owned(), happened)?;
        refused += 1;
    }
    trial.same(
        "calling each as a login without any role, given USAGE of the schemas",
        "refused with 42501",
        all,
        refused,
    )?;
    Ok(trial.evidence())
}
