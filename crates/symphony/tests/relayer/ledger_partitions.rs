//! A relayer keeps the partitions of the ledger ahead of time, in its repair pass.

use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::harness::Harness;

const AHEAD: &str = "select count(*) from symphony.payment_ledger_partitions() where starts_at > now()";

#[tokio::test]
async fn a_relayer_adds_the_partitions_that_are_missing() {
    let harness = Harness::start().await;
    let relayer = harness.start_relayer(&harness.settings().payment("repair_every", "'1s'")).await;
    let drop = "do $$ declare v_name text; begin
                  for v_name in select partition_name from symphony.payment_ledger_partitions()
                                where starts_at > now() order by starts_at desc limit 3 loop
                    execute format('drop table symphony.%I', v_name);
                  end loop;
                end $$";
    harness.superuser().await.batch_execute(drop).await.unwrap();
    until("four partitions are ahead", DEFAULT_TIMEOUT, async || harness.query_number(AHEAD).await == 4)
        .await
        .unwrap();
    harness.enqueue("after", 3).await;
    harness.wait_until_drained().await;
    relayer.stop().await;
}
