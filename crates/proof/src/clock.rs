//! Changes timestamps as the owner, so that no proof waits for a clock.

use tokio_postgres::{Client, Error};

/// Lets the lease of this outbox expire a second ago. Returns whether it had one.
pub(super) async fn expire(owner: &Client, outbox_id: &str) -> Result<bool, Error> {
    let update = "update symphony.payment_outbox_pending set lease_expires_at = now() - interval '1 second'
                  where outbox_id = $1::text::uuid and lease_token is not null";
    Ok(owner.execute(update, &[&outbox_id]).await? == 1)
}

/// Lets every lease expire a second ago.
pub(super) async fn expire_all(owner: &Client) -> Result<u64, Error> {
    let update = "update symphony.payment_outbox_pending set lease_expires_at = now() - interval '1 second'
                  where lease_token is not null";
    owner.execute(update, &[]).await
}

/// Makes every scheduled row due.
pub(super) async fn make_due(owner: &Client) -> Result<(), Error> {
    let update =
        "update symphony.payment_outbox_pending set next_attempt_at = now() where next_attempt_at > now()";
    owner.execute(update, &[]).await.map(drop)
}
