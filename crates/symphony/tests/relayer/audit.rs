//! The audit: placeholder until the kit's own is there.
use crate::yard::Yard;

impl Yard {
    pub(crate) async fn audit(&self, enqueued: usize) {
        self.is_done().await;
        assert_eq!(
            self.number("select count(distinct instruction_id) from symphony.payment_outbox_attempts where state in ('DISPATCHED','FAILED')").await,
            i64::try_from(enqueued).unwrap()
        );
        let mut keys: Vec<_> = self.bank.ledger().await.iter().map(|l| l["key"].to_string()).collect();
        let all = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(all, keys.len());
    }
}
