//! A ledger as it would be after many weeks: made by the same function, at earlier times.

use tokio_postgres::{Client, Error};

/// Replaces the partitions of an empty ledger by those that `weeks` weeks leave. For a superuser or the owner.
///
/// # Errors
/// When the database refuses, as it does if the ledger has rows.
pub async fn age(client: &Client, weeks: i32) -> Result<(), Error> {
    client
        .batch_execute(
            "do $$
             declare v_name text;
             begin
               if exists (select from symphony.payment_outbox_attempts) then
                 raise exception 'the ledger has rows';
               end if;
               for v_name in select partition_name from symphony.payment_ledger_partitions() loop
                 execute format('drop table symphony.%I', v_name);
               end loop;
             end $$",
        )
        .await?;
    let extend =
        "select cardinality(created) from symphony.extend_ledger_at(now() - $1 * interval '168 hours', 0)";
    for ago in (0..=weeks).rev() {
        client.query_one(extend, &[&f64::from(ago)]).await?;
    }
    Ok(())
}
