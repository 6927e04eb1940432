//! Simulates another server: the newest epoch becomes one of another timeline, or of another system.

use tokio_postgres::{Client, Error};

/// Makes the newest epoch one of another timeline, as if this server had been promoted since. The session must be of the
/// owner or a superuser.
pub async fn change_server(owner: &Client) -> Result<(), Error> {
    owner
        .batch_execute(
            "begin;
             alter table symphony.epoch disable trigger epochs_are_append_only;
             alter table symphony.epoch disable trigger epochs_never_change;
             update symphony.epoch e set timeline = e.timeline + 1000
             where e.counter = (select max(n.counter) from symphony.epoch n);
             alter table symphony.epoch enable always trigger epochs_are_append_only;
             alter table symphony.epoch enable always trigger epochs_never_change;
             update symphony.payment_rails r set epoch_timeline = r.epoch_timeline + 1000;
             commit",
        )
        .await
}

/// Makes the newest epoch one of another system with the same timeline, as if this database were a dump, a logical copy or
/// an upgrade of it. The session must be of the owner or a superuser.
pub async fn change_system(owner: &Client) -> Result<(), Error> {
    owner
        .batch_execute(
            "begin;
             alter table symphony.epoch disable trigger epochs_are_append_only;
             alter table symphony.epoch disable trigger epochs_never_change;
             update symphony.epoch e set system_identifier = e.system_identifier - 1
             where e.counter = (select max(n.counter) from symphony.epoch n);
             alter table symphony.epoch enable always trigger epochs_are_append_only;
             alter table symphony.epoch enable always trigger epochs_never_change;
             commit",
        )
        .await
}

/// Makes the first epoch the newest again, as on an old primary that has never heard of the later ones. The session must be of the
/// owner or a superuser.
pub async fn forget_later_epochs(owner: &Client) -> Result<(), Error> {
    owner
        .batch_execute(
            "begin;
             alter table symphony.epoch disable trigger epochs_are_append_only;
             alter table symphony.epoch disable trigger epochs_never_change;
             delete from symphony.epoch where counter > 1;
             alter table symphony.epoch enable always trigger epochs_are_append_only;
             alter table symphony.epoch enable always trigger epochs_never_change;
             update symphony.payment_rails set epoch = 1;
             commit",
        )
        .await
}
