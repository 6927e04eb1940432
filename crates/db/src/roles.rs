//! Checks the roles and privileges of a login before it is used.

use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use crate::error::DatabaseError;

const MISSING: &str = "\
    select r.name \
    from unnest($1) with ordinality as r (name, place) \
    where coalesce(not pg_has_role(current_user, (select p.oid from pg_roles p where p.rolname = r.name), 'usage'), true) \
    order by r.place";

// Covers the login and every role that it is a member of, directly or indirectly, with INHERIT or not, because SET ROLE
// is enough. The roles in $1, and their privileges, are not excess.
const EXCESS: &str = "\
    with held as ( \
      select r.oid, r.rolname, r.rolsuper, r.rolcreaterole \
      from pg_catalog.pg_roles r \
      where pg_catalog.pg_has_role(session_user, r.oid, 'member') \
    ), \
    ours as ( \
      select n.oid, n.nspname \
      from pg_catalog.pg_namespace n \
      where n.nspname in ('symphony', 'm10_recovery') \
    ), \
    excess (place, what) as ( \
      select 1, 'it is a superuser' from held h where h.rolsuper and h.rolname = session_user \
      union all \
      select 2, case \
               when h.rolname = session_user then 'it has CREATEROLE' \
               when h.rolsuper or h.rolcreaterole then pg_catalog.format('it is a member of %s, which is a superuser or has CREATEROLE', h.rolname) \
               else pg_catalog.format('it is a member of %s', h.rolname) \
             end \
      from held h \
      where not (h.rolsuper and h.rolname = session_user) \
        and (h.rolsuper or h.rolcreaterole \
             or h.rolname in ('pg_write_all_data', 'pg_write_server_files', 'pg_execute_server_program') \
             or h.rolname in ('symphony_control', 'symphony_ingest', 'symphony_executor', 'symphony_operator') and h.rolname <> all ($1)) \
      union all \
      select 3, pg_catalog.format('%s may write to %I.%I', h.rolname, n.nspname, c.relname) \
      from ours n \
      join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relkind in ('r', 'p', 'v', 'm', 'f') \
      join held h \
        on pg_catalog.has_table_privilege(h.oid, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER') \
        or pg_catalog.has_any_column_privilege(h.oid, c.oid, 'INSERT, UPDATE') \
      where h.rolname = session_user or not pg_catalog.pg_has_role(session_user, h.oid, 'usage') \
      union all \
      select 4, pg_catalog.format('%s may call %I.%I', h.rolname, n.nspname, p.proname) \
      from ours n \
      join pg_catalog.pg_proc p on p.pronamespace = n.oid \
      join held h on pg_catalog.has_function_privilege(h.oid, p.oid, 'EXECUTE') \
      where (h.rolname = session_user or not pg_catalog.pg_has_role(session_user, h.oid, 'usage')) \
        and not exists ( \
          select from pg_catalog.pg_roles n \
          where n.rolname = any ($1) and pg_catalog.has_function_privilege(n.oid, p.oid, 'EXECUTE')) \
      union all \
      select 5, pg_catalog.format('%s may create objects in schema %I', h.rolname, n.nspname) \
      from ours n \
      join held h on pg_catalog.has_schema_privilege(h.oid, n.oid, 'CREATE') \
      where h.rolname = session_user or not pg_catalog.pg_has_role(session_user, h.oid, 'usage') \
    ) \
    select e.what \
    from excess e \
    where e.place = (select min(o.place) from excess o) \
    order by e.what \
    limit 5";

/// What the login may do beyond these roles of Symphony: write to a table, call a function, or become a role that can.
///
/// Returns at most five phrases of the most severe kind; none if the login may do no more.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn excess_privileges(client: &impl GenericClient, roles: &[&str]) -> Result<Vec<String>, DatabaseError> {
    let rows = client.query_typed(EXCESS, &[(&roles, Type::TEXT_ARRAY)]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// The roles of this list that the login does not have, in the order of the list.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn missing_roles(client: &impl GenericClient, roles: &[&str]) -> Result<Vec<String>, DatabaseError> {
    let rows = client.query_typed(MISSING, &[(&roles, Type::TEXT_ARRAY)]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}
