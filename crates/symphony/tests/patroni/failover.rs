//! The run: a fault, a new leader, the next fault.
//!
//! `SYMPHONY_PATRONI` sets the number of faults in each mode: 2 by default, 50 for the long form.

use symphony_testkit::patroni::Replication;

use crate::audit::{self, Report};
use crate::harness::Harness;
use crate::load::Load;

const DEFAULT_FAULTS: usize = 2;
/// Payments, events and metadata entries, each, that are acknowledged between two steps.
const BETWEEN_STEPS: usize = 25;

/// What happens to the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// An operator switches over.
    SwitchOver,
    /// PostgreSQL is killed, Patroni is not.
    KillPostgres,
    /// Both are killed.
    KillNode,
    /// All processes are suspended until another node leads, and then resumed; in the synchronous cluster they are killed.
    Pause,
    /// It loses etcd and its standbys, not its clients.
    Partition,
}

/// The short form has the first two.
const FAULTS: [Fault; 5] =
    [Fault::SwitchOver, Fault::KillPostgres, Fault::Partition, Fault::Pause, Fault::KillNode];

fn fault_count() -> usize {
    std::env::var("SYMPHONY_PATRONI").map_or(DEFAULT_FAULTS, |faults| faults.parse().unwrap())
}

async fn run(replication: Replication) -> Report {
    let mut harness = Harness::start(replication).await;
    let load = harness.start_load();
    let faults = fault_count();
    for (fault, number) in FAULTS.iter().cycle().take(faults).zip(1..) {
        load.wait_for_more(BETWEEN_STEPS).await;
        println!("{replication:?}: fault {number} of {faults}: {fault:?}");
        inject(*fault, &mut harness, &load, replication).await;
        load.wait_for_more(BETWEEN_STEPS).await;
        harness.cluster.wait_until_healthy().await.unwrap();
    }
    let acknowledged = load.stop().await;
    harness.drain().await;
    let report = audit::audit(&harness, faults, &acknowledged).await;
    println!("{replication:?}: {report}");
    harness.close().await;
    report
}

/// Injects a fault into the leader, waits until another node leads, and repairs what the fault has broken.
async fn inject(fault: Fault, harness: &mut Harness, load: &Load, replication: Replication) {
    let cluster = &mut harness.cluster;
    let old = cluster.leader().await.unwrap();
    let sudden = !matches!(fault, Fault::SwitchOver | Fault::Partition);
    if sudden && replication == Replication::Asynchronous {
        // The standbys lag, so that this failover loses commits.
        cluster.stop_replication(old);
        load.wait_for_more(BETWEEN_STEPS).await;
    }
    match fault {
        Fault::SwitchOver => cluster.switch_over().await.unwrap(),
        Fault::KillPostgres => cluster.kill_postgres(old),
        Fault::KillNode => cluster.kill(old).await.unwrap(),
        Fault::Pause => cluster.pause(old),
        Fault::Partition => cluster.partition(old),
    }
    cluster.wait_for_other_leader(old).await.unwrap();
    if fault == Fault::Pause && replication == Replication::Asynchronous {
        cluster.resume(old);
    } else if fault == Fault::Pause {
        // As a watchdog does. Without one, the old leader can go on for seconds, with a standby that still follows it.
        cluster.kill(old).await.unwrap();
    }
    if !cluster.is_running(old) {
        cluster.restart(old).unwrap();
    }
    cluster.reconnect(old);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_to_the_leaders_of_an_asynchronous_cluster_nothing_is_executed_twice() {
    let report = run(Replication::Asynchronous).await;
    report.holds();
    assert!(report.lost_commits() > 0, "no failover lost a commit, so this proves nothing: {report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_to_the_leaders_of_a_synchronous_cluster_no_acknowledged_commit_is_lost() {
    let report = run(Replication::Synchronous).await;
    report.holds();
    report.lost_nothing();
}
