//! The rails and their policies.

use tokio_postgres::GenericClient;

use crate::error::DatabaseError;
use crate::payment::{Rail, rail};

const RAILS: &str = "\
    select rail_type, max_attempts, backoff_base_seconds, backoff_cap_seconds, ordered, max_in_flight, paused, \
           on_unknown, key_memory_seconds, updated_by, updated_at, retired_at, on_epoch_change, held_since_epoch, \
           publish_outcomes, on_failure, max_per_second, confirm_every_seconds \
    from symphony.payment_rail_policies \
    order by rail_type";

/// All rails by name, including retired ones.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn rails(client: &impl GenericClient) -> Result<Vec<Rail>, DatabaseError> {
    let rows = client.query_typed(RAILS, &[]).await?;
    rows.iter().map(|row| Ok(rail::from_row(row)?)).collect()
}
