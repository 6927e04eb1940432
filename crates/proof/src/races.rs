//! Concurrent claims, completions and repairs of the same rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::clock::{expire_all, make_due};
use super::evidence::{Evidence, Failure, Recorder, require, sqlstate};
use super::server_state::{all_wait_for_locks, pid};
use super::sessions::{
    Lease, Outcome, Payment, Sessions, claim, complete, connect_many, count, enqueue, enqueue_batch, repair,
    set_rail,
};
use symphony_testkit::test_database::Database;

/// Proof 12: `of_racing_completions_with_one_token_exactly_one_succeeds`.
pub(super) async fn one_completion_wins(database: &Database) -> Result<Evidence, Failure> {
    const RACERS: usize = 16;
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "bank", "{}").await?;
    let racers =
        connect_many(database, "symphony_executor", RACERS).await?.into_iter().map(Arc::new).collect::<Vec<_>>();
    let mut pids = Vec::new();
    for racer in &racers {
        pids.push(pid(racer).await?);
    }
    let watcher = database.connect().await?;
    let mut tallies: BTreeMap<String, usize> = BTreeMap::new();
    let all = [Outcome::DISPATCHED, Outcome::REJECTED, Outcome::RETRY_NOW];
    let mixes: [&[Outcome<'static>]; 4] = [&all[..1], &all[1..2], &all[2..], &all];
    for (round, outcomes) in mixes.iter().cycle().take(8).enumerate() {
        enqueue(&sessions.ingest, &Payment::new(format!("{round}"), "alice", "bank")).await?;
        let newest = "update symphony.payment_outbox_pending set next_attempt_at = now() + interval '1 day' where instruction_id <> $1";
        sessions.owner.execute(newest, &[&format!("instruction-{round}")]).await?;
        let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
        // All of them wait for the row lock before any of them gets it.
        sessions.owner.batch_execute("begin").await?;
        sessions
            .owner
            .execute(
                "select from symphony.payment_outbox_pending where outbox_id = $1::text::uuid for update",
                &[&lease.outbox_id],
            )
            .await?;
        let mut tasks = JoinSet::new();
        for (number, racer) in racers.iter().enumerate() {
            let (racer, lease, outcome) = (Arc::clone(racer), lease.clone(), outcomes[number % outcomes.len()]);
            tasks.spawn(async move { complete(&racer, &lease, outcome).await });
        }
        all_wait_for_locks(&watcher, &pids).await?;
        sessions.owner.batch_execute("commit").await?;
        let mut won = 0;
        while let Some(done) = tasks.join_next().await {
            let happened = match done? {
                Ok(_) => {
                    won += 1;
                    "recorded".to_owned()
                }
                Err(error) => sqlstate(&error).to_owned(),
            };
            *tallies.entry(happened).or_default() += 1;
        }
        require(|| format!("{RACERS} completions of one lease, round {round}"), 1, won)?;
        let rows = "select count(*) from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid";
        require(
            || format!("counting its ledger rows, round {round}"),
            1,
            count(&sessions.owner, rows, &[&lease.outbox_id]).await?,
        )?;
    }
    let others: usize = ["P7001", "P7002"].iter().filter_map(|refusal| tallies.get(*refusal)).sum();
    recorder.check(
        format!("{RACERS} sessions complete one lease at once with equal and different outcomes, 8 times"),
        "8 recorded, 120 refused with P7001 or P7002, one ledger row each time",
        format!("{tallies:?}"),
        tallies.get("recorded") == Some(&8) && others == 120,
    )?;
    Ok(recorder.finish())
}

/// Proof 13: `many_claimers_lease_no_row_twice_and_skip_none`.
pub(super) async fn claims_do_not_overlap(database: &Database) -> Result<Evidence, Failure> {
    const CLAIMERS: usize = 16;
    const ROWS: usize = 600;
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    for (rail, policy) in
        [("plain", "{}"), ("ordered", r#"{"ordered": true}"#), ("capped", r#"{"max_in_flight": 1000}"#)]
    {
        set_rail(&sessions.operator, rail, policy).await?;
    }
    let payments: Vec<Payment> = (0..ROWS)
        .map(|number| {
            Payment::new(
                format!("{number}"),
                &format!("participant-{number}"),
                ["plain", "ordered", "capped"][number % 3],
            )
        })
        .collect();
    for payments in payments.chunks(300) {
        enqueue_batch(&sessions.ingest, payments).await?;
    }
    // Some of them have expired leases of a worker that died.
    let zombies = claim(&sessions.executor, 60, "dead").await?;
    require(|| "leaving zombies".into(), 60, expire_all(&sessions.owner).await?)?;

    let barrier = Arc::new(Barrier::new(CLAIMERS));
    let mut tasks = JoinSet::new();
    for (number, client) in connect_many(database, "symphony_executor", CLAIMERS).await?.into_iter().enumerate() {
        let barrier = Arc::clone(&barrier);
        tasks.spawn(async move {
            let worker = format!("worker-{number}");
            let mut held = Vec::new();
            barrier.wait().await;
            loop {
                let leases = claim(&client, 7, &worker).await?;
                if leases.is_empty() {
                    return Ok::<Vec<Lease>, Failure>(held);
                }
                held.extend(leases);
            }
        });
    }
    let mut held = Vec::new();
    let mut busy = 0;
    while let Some(done) = tasks.join_next().await {
        let mine = done??;
        busy += usize::from(!mine.is_empty());
        held.extend(mine);
    }
    // Rows that SKIP LOCKED skipped, if any.
    let raced = held.len();
    held.extend(claim(&sessions.executor, 1000, "last").await?);
    let rows: BTreeSet<_> = held.iter().map(|lease| &lease.outbox_id).collect();
    let tokens: BTreeSet<_> = held.iter().map(|lease| &lease.token).collect();
    recorder.check(
        format!(
            "{CLAIMERS} claimers at once over {ROWS} rows on 3 rails, {} of them with expired leases",
            zombies.len()
        ),
        format!("{ROWS} leases on {ROWS} rows under {ROWS} tokens"),
        format!(
            "{} leases on {} rows under {} tokens, {raced} of them in the race, by {busy} claimers",
            held.len(),
            rows.len(),
            tokens.len()
        ),
        held.len() == ROWS && rows.len() == ROWS && tokens.len() == ROWS,
    )?;
    let agreed = "select count(*) from symphony.payment_outbox_pending p
                  join unnest(($1::text[])::uuid[], ($2::text[])::uuid[], $3::text[]) as l (outbox_id, token, worker)
                    on l.outbox_id = p.outbox_id and l.token = p.lease_token and l.worker = p.claimed_by";
    let ids: Vec<_> = held.iter().map(|lease| &lease.outbox_id).collect();
    let tokens: Vec<_> = held.iter().map(|lease| &lease.token).collect();
    let workers: Vec<_> = held.iter().map(|lease| &lease.worker).collect();
    let agreed = count(&sessions.owner, agreed, &[&ids, &tokens, &workers]).await?;
    recorder.check_equal(
        "comparing the results of the claims with the table",
        "leases that agree",
        600,
        agreed,
    )?;
    let ended = "select count(*) from symphony.payment_outbox_attempts where state = 'ZOMBIE_REQUEUE' and worker_id = 'dead' and attempt_no = 1";
    recorder.check_equal(
        "looking for the expired leases in the ledger",
        "ended once",
        60,
        count(&sessions.owner, ended, &[]).await?,
    )?;
    let all = count(&sessions.owner, "select count(*) from symphony.payment_outbox_attempts", &[]).await?;
    recorder.check_equal("counting the whole ledger", "rows", 60, all)?;
    Ok(recorder.finish())
}

/// Proof 14: `repairers_at_once_end_each_expired_lease_once`.
pub(super) async fn repairs_do_not_overlap(database: &Database) -> Result<Evidence, Failure> {
    const ROWS: usize = 300;
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "bank", "{}").await?;
    set_rail(&sessions.operator, "paused", "{}").await?;
    let payments: Vec<Payment> = (0..ROWS)
        .map(|number| {
            Payment::new(format!("{number}"), &format!("participant-{number}"), ["bank", "paused"][number % 2])
        })
        .collect();
    enqueue_batch(&sessions.ingest, &payments).await?;
    // In the second round claimers take over expired leases at the same time.
    for (round, claimers) in [(1_i32, 0), (2, 6)] {
        require(|| "claiming everything".into(), ROWS, claim(&sessions.executor, 1000, "dead").await?.len())?;
        require(|| "expiring every lease".into(), 300, expire_all(&sessions.owner).await?)?;
        let barrier = Arc::new(Barrier::new(8 + claimers));
        let mut tasks = JoinSet::new();
        for (number, client) in
            connect_many(database, "symphony_executor", 8 + claimers).await?.into_iter().enumerate()
        {
            let barrier = Arc::clone(&barrier);
            tasks.spawn(async move {
                let mut found = (0, 0);
                barrier.wait().await;
                loop {
                    let some = if number < 8 {
                        let repaired = repair(&client, 5).await?.len();
                        found.0 += repaired;
                        repaired
                    } else {
                        let taken = claim(&client, 9, "next").await?.len();
                        found.1 += taken;
                        taken
                    };
                    if some == 0 {
                        return Ok::<(usize, usize), Failure>(found);
                    }
                }
            });
        }
        let (mut repaired, mut taken) = (0, 0);
        while let Some(done) = tasks.join_next().await {
            let (more, others) = done??;
            repaired += more;
            taken += others;
        }
        repaired += repair(&sessions.executor, 1000).await?.len();
        let once = "select count(*) from (select from symphony.payment_outbox_attempts
                    where state = 'ZOMBIE_REQUEUE' and worker_id = 'dead' group by outbox_id having count(*) = $1) o";
        let once = count(&sessions.owner, once, &[&i64::from(round)]).await?;
        let all = count(&sessions.owner, "select count(*) from symphony.payment_outbox_attempts", &[]).await?;
        recorder.check(
            format!("8 repairers and {claimers} claimers at once over {ROWS} expired leases"),
            format!("{ROWS} leases ended, each once: {} ledger rows in all", 300 * round),
            format!("{repaired} repaired and {taken} taken over; {once} rows with {round} ZOMBIE_REQUEUE, {all} ledger rows in all"),
            repaired + taken == ROWS && once == 300 && all == i64::from(300 * round),
        )?;
        if round == 1 {
            make_due(&sessions.owner).await?;
        }
    }
    Ok(recorder.finish())
}
