//! The last acknowledged commits of a worker, and what follows if the database has lost one.

use std::time::Duration;

use symphony_db::payment::worker::{Claimed, Commit, check_history, complete, release, repair};
use symphony_db::{BatchSize, epoch};

use crate::fixture::{Fixture, LEASE, completion, dispatched, worker};

impl Fixture {
    /// The epoch after a check of this commit, and whether the check opened it.
    async fn checked(&self, seen: i64, commit: Commit) -> (i64, bool) {
        let checked = check_history(&self.root, &worker(), Some(seen), &[commit]).await.unwrap();
        (checked.epoch, checked.opened_epoch.is_some())
    }

    /// Restores the row as it was before its lease, as a failover that loses the claim does.
    async fn lose_claim(&self, claimed: &Claimed) {
        let lose = "update symphony.payment_outbox_pending
                    set claimed_by = null, claimed_at = null, lease_token = null, lease_expires_at = null, claimed_epoch = null
                    where outbox_id = $1";
        assert_eq!(self.root.execute(lose, &[&claimed.outbox_id.0]).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_commit_that_is_there_opens_no_epoch_whatever_became_of_its_lease() {
    let fixture = Fixture::new().await;
    let none = check_history(&fixture.root, &worker(), None, &[]).await.unwrap();
    assert_eq!((none.epoch, none.opened_epoch), (1, None));
    let completed = fixture.claimed(1).await;
    let claim = Commit::of_claim(&completed, LEASE);
    assert_eq!(fixture.checked(1, claim).await, (1, false), "leased");
    complete(&fixture.root, &worker(), &completion(&completed, dispatched())).await.unwrap();
    assert_eq!(fixture.checked(1, claim).await, (1, false), "completed");
    assert_eq!(fixture.checked(1, claim.completed()).await, (1, false), "completed");
    let expired = Commit::of_claim(&fixture.claimed(2).await, LEASE);
    fixture.let_leases_expire().await;
    repair(&fixture.root, &"another".into(), BatchSize::MAX).await.unwrap();
    assert_eq!(fixture.checked(1, expired).await, (1, false), "expired and repaired by another worker");
    // A part of a second in the length of a lease is rounded up, here as there.
    assert_eq!(Commit::of_claim(&completed, LEASE - Duration::from_millis(1)), claim);
}

#[tokio::test]
async fn a_commit_that_is_missing_opens_an_epoch_once_and_the_payment_is_inquired_about() {
    let fixture = Fixture::new().await;
    let claimed = fixture.claimed(1).await;
    let claim = Commit::of_claim(&claimed, LEASE);
    assert_eq!(fixture.checked(1, claim.completed()).await, (2, true), "a completion that is not in the ledger");
    assert_eq!(fixture.checked(2, claim).await, (2, false));
    fixture.lose_claim(&claimed).await;
    assert_eq!(fixture.checked(2, claim).await, (3, true), "a claim without its lease");
    assert_eq!(fixture.checked(2, claim).await, (3, false), "another relayer has noticed it too");
    let epoch = epoch::current(&fixture.root).await.unwrap().unwrap();
    let outbox_id = claimed.outbox_id.to_string();
    assert!(epoch.reason.contains("worker-1") && epoch.reason.contains(&outbox_id), "{}", epoch.reason);
    assert!(fixture.claim().await[0].outcome_unknown);
}

#[tokio::test]
async fn a_commit_in_an_archived_partition_opens_no_epoch() {
    let fixture = Fixture::new().await;
    let archived = fixture.claimed(1).await;
    let completed = Commit::of_claim(&archived, LEASE).completed();
    let next = uuid::Uuid::from_u128(archived.outbox_id.0.as_u128() + 1);
    // The record of a partition that was dropped: of its rows nothing is left to ask for.
    let insert = "insert into symphony.payment_ledger_archives
                    (archive_id, archive_name, partition_name, partition_oid, from_id, to_id, row_count, content_digest, manifest_digest,
                     location, actor, reason)
                  values (gen_random_uuid(), 'a', 'p', 1, $1, $2, 1, decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex'), 'l', 'a', 'r')";
    fixture.root.execute(insert, &[&archived.outbox_id.0, &next]).await.unwrap();
    assert_eq!(fixture.checked(1, completed).await, (1, false));
    let later = fixture.claimed(2).await;
    assert_eq!(fixture.checked(1, Commit::of_claim(&later, LEASE).completed()).await, (2, true), "outside of it");
}

#[tokio::test]
async fn a_released_lease_is_no_evidence() {
    let fixture = Fixture::new().await;
    let claimed = fixture.claimed(1).await;
    release(&fixture.root, &worker(), &[claimed.lease()], None).await.unwrap();
    let claim = Commit::of_claim(&claimed, LEASE);
    assert!(claim.granted(&claimed.lease()), "so the worker knows which to forget");
    assert_eq!(fixture.checked(1, claim).await, (2, true));
}
