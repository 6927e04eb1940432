//! Time, moved by the owner: no proof waits for a clock.

use tokio_postgres::{Client, Error};

/// Moves time: the lease of this outbox, if it has one, ran out a second ago.
pub(super) async fn expire(owner: &Client, outbox_id: &str) -> Result<bool, Error> {
    let update = "update symphony.payment_outbox_pending set lease_expires_at = now() - interval '1 second'
                  where outbox_id = $1::text::uuid and lease_token is not null";
    Ok(owner.execute(update, &[&outbox_id]).await? == 1)
}

/// Moves time: every lease there is ran out a second ago.
pub(super) async fn expire_all(owner: &Client) -> Result<u64, Error> {
    let update = "update symphony.payment_outbox_pending set lease_expires_at = now() - interval '1 second'
                  where lease_token is not null";
    owner.execute(update, &[]).await
}

/// Moves time: whatever is scheduled for later is due.
pub(super) async fn make_due(owner: &Client) -> Result<(), Error> {
    let update =
        "update symphony.payment_outbox_pending set next_attempt_at = now() where next_attempt_at > now()";
    owner.execute(update, &[]).await.map(drop)
}
