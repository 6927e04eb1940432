//! What the login of a session may do, asked before it tries.

use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use crate::error::Fault;

const MISSING: &str = "\
    select r.name \
    from unnest($1) with ordinality as r (name, place) \
    where coalesce(not pg_has_role(current_user, (select p.oid from pg_roles p where p.rolname = r.name), 'usage'), true) \
    order by r.place";

/// Which of these roles the login cannot act as, in the order given.
///
/// # Errors
///
/// See [`Fault`].
pub async fn missing_roles(client: &impl GenericClient, roles: &[&str]) -> Result<Vec<String>, Fault> {
    let rows = client.query_typed(MISSING, &[(&roles, Type::TEXT_ARRAY)]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}
