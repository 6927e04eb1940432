//! Random interleavings of everything that may be done to the payment lane, against a reference model in plain Rust.
//!
//! Each case is a sequence of steps over three sessions, some of which hold transactions open across the steps of
//! others. After each step its answer is compared with the model's, and the queue as that session sees it; at the end,
//! and now and then, all that is committed. A step that would wait for another session is known to the model and left
//! out: real concurrency is for the proofs.
//!
//! The seed is printed. A failure is shrunk, told in words, and says how to repeat it:
//!
//! - `SYMPHONY_SEED=17` starts from that seed instead of a random one. Case *n* of a run has the seed of the run plus *n*,
//!   so the seed of a failure with `SYMPHONY_CASES=1` is that case alone.
//! - `SYMPHONY_CASES=20000` is a long run, of about twenty minutes.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod model;

use std::cell::{Cell, RefCell};
use std::env;
use std::hash::{BuildHasher, RandomState};

use model::run::Run;
use model::sessions::Sessions;
use model::step::sequences;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use symphony_testkit::test_database::Server;

/// Cases of an ordinary run.
const CASES: u64 = 300;
/// The longest sequence.
const STEPS: usize = 120;
/// Cases after which a fresh database is taken: a ledger only grows.
const CASES_PER_DATABASE: usize = 500;

#[test]
fn whatever_the_interleaving_the_database_does_what_the_model_says() {
    let seed = setting("SYMPHONY_SEED").unwrap_or_else(|| RandomState::new().hash_one("a seed") >> 16);
    let cases = setting("SYMPHONY_CASES").unwrap_or(CASES);
    println!("SYMPHONY_SEED={seed} SYMPHONY_CASES={cases}");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let open = || {
        runtime.block_on(async {
            let server = Server::from_env().await.unwrap();
            Sessions::open(server.database().await.unwrap()).await
        })
    };
    let sessions = RefCell::new(open());
    let played = Cell::new(0_usize);
    let calls = Cell::new(0);
    let differs = Cell::new(false);

    for case in 0..cases {
        let seed = seed.wrapping_add(case);
        let mut runner = TestRunner::new_with_rng(config(), rng(seed));
        let outcome = runner.run(&sequences(STEPS), |sequence| {
            played.set(played.get() + 1);
            if played.get().is_multiple_of(CASES_PER_DATABASE) {
                sessions.replace(open());
            }
            let mut sessions = sessions.borrow_mut();
            let run = runtime.block_on(Run::start(&mut sessions, played.get(), &sequence));
            let run = run.map_err(|timeline| {
                if !differs.replace(true) {
                    println!("case {case} of {cases} differs, now looking for a shorter one: SYMPHONY_SEED={seed} SYMPHONY_CASES=1");
                }
                TestCaseError::fail(timeline)
            })?;
            calls.set(calls.get() + run.calls);
            Ok(())
        });
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(timeline, _)) => {
                panic!(
                    "case {case} of {cases}: the database and the model differ.\n\
                     Again: SYMPHONY_SEED={seed} SYMPHONY_CASES=1\n\n{timeline}"
                );
            }
            Err(TestError::Abort(reason)) => panic!("no sequence was made: {reason}"),
        }
    }
    println!("{cases} sequences, {} calls", calls.get());
}

fn setting(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a whole number, not {value:?}")))
}

fn config() -> Config {
    Config {
        cases: 1,
        failure_persistence: None,
        max_shrink_iters: 3000,
        max_shrink_time: 60_000,
        ..Config::default()
    }
}

fn rng(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}
