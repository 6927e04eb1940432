//! The catalogue: one signature and one search_path per function, nothing for PUBLIC, a comment on every object.

use super::evidence::{Evidence, Failure, Recorder, require, sqlstate};
use super::sessions::{Sessions, count, text};
use symphony_testkit::test_database::Database;

/// The functions of the contract: each must be SECURITY DEFINER.
const CONTRACT_FUNCTIONS: [&str; 25] = [
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
    "erase_payment_payload",
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

/// Every object that must have a comment, with its comment.
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
      -- A partition has the columns, indexes and triggers of its table, and their comments are there.
      and not c.relispartition
    union all
    select format('index %s', c.relname), obj_description(c.oid, 'pg_class')
    from pg_class c
    where c.relnamespace = any (array['symphony', 'm10_recovery']::regnamespace[]) and c.relkind in ('i', 'I') and not c.relispartition
      and not exists (select from pg_index x join pg_class t on t.oid = x.indrelid and t.relispartition where x.indexrelid = c.oid)
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
    where c.relnamespace = any (array['symphony', 'm10_recovery']::regnamespace[]) and not t.tgisinternal
      and not c.relispartition";

/// Proof 22: `every_function_has_one_signature_a_fixed_search_path_and_no_public_right`.
pub(super) async fn is_in_order(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let owner = Sessions::connect(database).await?.owner;
    let all = count(&owner, &format!("select count(*) {FUNCTIONS}"), &[]).await?;
    let found = format!("select count(distinct f.proname) {FUNCTIONS} and f.proname = any ($1)");
    let found = count(&owner, &found, &[&CONTRACT_FUNCTIONS.as_slice()]).await?;
    recorder.check(
        "reading the functions of schemas symphony and m10_recovery from the catalogue",
        "the 25 functions of the contracts, and their helpers",
        format!("{all} functions, {found} of them in the contracts"),
        found == 25 && all > 25,
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
            "looking for a function with a parsed body (BEGIN ATOMIC), which symphony verify does not compare",
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
            "looking for a function of the contracts that is not SECURITY DEFINER",
            format!(
                "select string_agg(f.proname, ', ') {FUNCTIONS} and f.proname = any ('{{{}}}') and not f.prosecdef",
                CONTRACT_FUNCTIONS.join(",")
            ),
        ),
        (
            "looking for a trigger function that is SECURITY DEFINER",
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
        recorder.check_equal(tried, "found", "none".to_owned(), text(&owner, &question, &[]).await?)?;
    }
    let described = count(&owner, &format!("select count(*) from ({COMMENTS}) c"), &[]).await?;
    recorder.check(
        "counting the objects with a comment",
        "more than 100",
        described.to_string(),
        described > 100,
    )?;

    // A login without any role calls each of them.
    let login = database.connect_as_login(&[]).await?;
    database.connect().await?.batch_execute("grant usage on schema symphony, m10_recovery to public").await?;
    let calls = format!(
        "select format('select %I.%I(%s)', f.pronamespace::regnamespace, f.proname,
           (select string_agg(format('null::%s', format_type(t.t, null)), ', ' order by t.place) from unnest(f.proargtypes) with ordinality as t (t, place)))
         {FUNCTIONS}"
    );
    let mut refused = 0;
    for row in owner.query(&calls, &[]).await? {
        let call: String = row.get(0);
        let result = login.batch_execute(&call).await;
        let happened = result.err().map_or("allowed".to_owned(), |error| sqlstate(&error).to_owned());
        require(|| format!("{call}; as PUBLIC with USAGE of the schemas"), "42501".to_owned(), happened)?;
        refused += 1;
    }
    recorder.check_equal(
        "calling each as a login without any role, with USAGE of the schemas",
        "refused with 42501",
        all,
        refused,
    )?;
    Ok(recorder.finish())
}
