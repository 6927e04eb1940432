//! Moves the stored times of a test database, so that no test has to wait for a lease or a backoff.
//!
//! Only the owner of the schema or a superuser can: `Database::connect` of [`crate::test_database`] is one. Relayers
//! notice at their next poll, within half a second.

use tokio_postgres::{Client, Error};

/// Makes every scheduled payment that has no lease due now: retries and their backoff. Returns how many there were.
pub async fn make_payments_due(owner: &Client) -> Result<u64, Error> {
    let update = "update symphony.payment_outbox_pending set next_attempt_at = now()
                  where lease_token is null and next_attempt_at > now()";
    owner.execute(update, &[]).await
}

/// Makes every lease on a payment expire now, as if its worker had died. Returns how many there were.
pub async fn expire_payment_leases(owner: &Client) -> Result<u64, Error> {
    let update =
        "update symphony.payment_outbox_pending set lease_expires_at = now() where lease_token is not null";
    owner.execute(update, &[]).await
}
