//! One run: starts the relayers of a scenario, does what the scenario says, and checks the end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use symphony_relay::simulation::set_jitter;
use symphony_relay::stop::StopHandle;
use symphony_relay::{Engine, Summary};
use symphony_testkit::seeded_rng::SeededRng;
use tokio::task::{AbortHandle, JoinError};
use tokio::time::{Instant, advance, sleep, sleep_until};

use super::invariants::{Invariant, Violation};
use super::lane::{SwarmLane, SwarmListener};
use super::scenario::{Action, Scenario, ms};
use super::state::{Shared, State};
use super::trace::{Event, Step};

/// How long an engine may take to claim after every row, dispatch and call has ended.
const CLAIM_WITHIN: Duration = Duration::from_secs(12);
/// The interval at which the end of a phase is checked.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// What a seed led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) trace: Vec<Step>,
    pub(crate) violation: Option<Violation>,
}

/// Runs a seed on the paused clock of this thread.
pub(crate) fn run(seed: u64) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let mut jitter = SeededRng::new(seed, 2);
    set_jitter(move || u32::try_from(jitter.below(1024)).unwrap_or(0));
    runtime.expect("a runtime").block_on(async {
        let scenario = Arc::new(Scenario::from_seed(seed));
        let run = Run { state: Shared::new(Arc::clone(&scenario), seed), relayers: Arc::default() };
        run.play(&scenario).await;
        let state = &mut *run.state.lock();
        Report { trace: std::mem::take(&mut state.trace), violation: state.violation.take() }
    })
}

/// The engine that runs in a relayer now.
struct Running {
    engine: usize,
    stop: StopHandle,
    task: AbortHandle,
}

#[derive(Clone)]
struct Run {
    state: Shared,
    relayers: Arc<Mutex<Vec<Option<Running>>>>,
}

impl Run {
    async fn play(&self, scenario: &Scenario) {
        let started = Instant::now();
        self.with_relayers(|relayers| relayers.extend(scenario.relayers.iter().map(|_| None)));
        (0..scenario.relayers.len()).for_each(|relayer| self.start(relayer));
        for (at, action) in &scenario.actions {
            sleep_until(started + *at).await;
            if self.is_violated() {
                return;
            }
            self.act(action).await;
        }
        sleep_until(started + scenario.calm_after).await;
        self.with_state(|state| {
            state.calm = true;
            state.database.refuses_poison = false;
            state.record(None, Event::FaultsStop);
        });
        if self.every_row_ends().await
            && self.is_quiet_in_time(scenario).await
            && self.every_engine_claims(scenario).await
        {
            self.drain().await;
        }
    }

    async fn act(&self, action: &Action) {
        match action {
            Action::Enqueue(rows) => rows.iter().for_each(|row| self.state.lock().enqueue(*row)),
            Action::Stop(relayer) => self.stop(*relayer),
            Action::StopTwice(relayer) => {
                self.stop(*relayer);
                self.stop(*relayer);
            }
            Action::Kill(relayer) => {
                let engine = self.with_relayers(|relayers| {
                    relayers[*relayer].as_ref().map(|running| (running.engine, running.task.clone()))
                });
                if let Some((engine, task)) = engine {
                    self.state.lock().killed(engine);
                    task.abort();
                }
            }
            Action::Stall(time) => {
                self.with_state(|state| {
                    state.record(None, Event::Stalled(*time));
                    state.stall = Some((state.now(), state.now() + *time));
                    state.stalled_for += *time;
                });
                advance(*time).await;
            }
            Action::StepClock { milliseconds } => self.with_state(|state| {
                state.clock_stepped = true;
                state.record(None, Event::ClockStepped { milliseconds: *milliseconds });
                let by = Duration::from_millis(milliseconds.unsigned_abs());
                let clock = state.database.clock;
                state.database.clock = if *milliseconds > 0 { clock + by } else { clock.saturating_sub(by) };
            }),
            Action::DisconnectListeners => self.state.lock().disconnect_listeners(),
        }
    }

    /// Starts an engine in a relayer, and another one after it has ended.
    fn start(&self, relayer: usize) {
        let state = &mut *self.state.lock();
        let engine = state.engine_started(relayer);
        let settings = state.engines[engine].settings.clone();
        let lane = SwarmLane {
            state: self.state.clone(),
            engine,
            relayer,
            term: state.scenario.term,
            call_timeout: settings.call_timeout,
            records_abandoned: state.scenario.records_abandoned,
        };
        let listens = state.scenario.relayers[relayer].listens;
        let listener = listens.then(|| SwarmListener { lane: lane.clone(), notifications: None });
        let (stop, stop_signal) = StopHandle::new();
        let running = Engine::new(Arc::new(lane.clone()), settings).expect("settings in range");
        let task = tokio::spawn(running.with_meter(Arc::new(lane)).run(listener, stop_signal));
        let handle = task.abort_handle();
        self.with_relayers(|relayers| relayers[relayer] = Some(Running { engine, stop, task: handle }));
        let run = self.clone();
        tokio::spawn(async move { run.ended(relayer, engine, task.await).await });
    }

    async fn ended(self, relayer: usize, engine: usize, summary: Result<Summary, JoinError>) {
        let restart_after = {
            let state = &mut *self.state.lock();
            if summary.as_ref().is_err_and(JoinError::is_panic) {
                state.violate(Invariant::NoPanic, format!("engine {engine} panicked"));
            }
            state.engine_ended(engine, summary.ok());
            state.restart_delay()
        };
        self.with_relayers(|relayers| relayers[relayer] = None);
        sleep(restart_after).await;
        if !self.state.lock().finishing && !self.is_violated() {
            self.start(relayer);
        }
    }

    fn stop(&self, relayer: usize) {
        let stopped = self.with_relayers(|relayers| {
            relayers[relayer].as_ref().map(|running| (running.engine, running.stop.clone()))
        });
        if let Some((engine, stop)) = stopped {
            self.state.lock().stop_requested(engine);
            stop.request_stop();
        }
    }

    async fn every_row_ends(&self) -> bool {
        while !self.is_violated() {
            if self.with_state(State::check_progress) {
                return true;
            }
            sleep(CHECK_EVERY).await;
            self.with_state(State::check_running);
        }
        false
    }

    /// Waits until the dispatches and calls of before have ended.
    async fn is_quiet_in_time(&self, scenario: &Scenario) -> bool {
        let until = self.state.lock().now() + CLAIM_WITHIN + scenario.term.length() * 4;
        while !self.is_violated() {
            let (is_quiet, now) = self.with_state(|state| (state.is_quiet(), state.now()));
            if is_quiet {
                return true;
            }
            if now > until {
                let seen = "a dispatch, a call or a lease does not end".to_owned();
                self.with_state(|state| state.violate(Invariant::NothingHeld, seen));
            }
            sleep(CHECK_EVERY).await;
            self.with_state(State::check_running);
        }
        false
    }

    /// Waits until each engine has claimed once more, after every breaker could have been half-open.
    async fn every_engine_claims(&self, scenario: &Scenario) -> bool {
        let longest = scenario.relayers.iter().map(|relayer| relayer.settings.breaker.max_open_for).max();
        sleep(longest.unwrap_or_default() + ms(50)).await;
        let since = self.state.lock().now();
        loop {
            if self.is_violated() {
                return false;
            }
            let engines = self.running_engines();
            let claimed =
                engines.iter().all(|engine| self.with_state(|state| state.check_capacity(*engine, since)));
            if claimed && engines.len() == scenario.relayers.len() {
                return !self.is_violated();
            }
            self.with_state(|state| {
                if state.now() > since + CLAIM_WITHIN {
                    state.violate(Invariant::CapacityReturned, "an engine claims no more".to_owned());
                }
            });
            sleep(CHECK_EVERY).await;
        }
    }

    /// Drains every engine. Nothing is left to do, so none leaves a lease behind.
    async fn drain(&self) {
        self.state.lock().finishing = true;
        let relayers = self.with_relayers(|relayers| relayers.len());
        (0..relayers).for_each(|relayer| self.stop(relayer));
        while !self.is_violated() && !self.running_engines().is_empty() {
            sleep(CHECK_EVERY).await;
            self.with_state(State::check_running);
        }
    }

    fn running_engines(&self) -> Vec<usize> {
        let engines: Vec<_> =
            self.with_relayers(|relayers| relayers.iter().flatten().map(|running| running.engine).collect());
        engines.into_iter().filter(|engine| self.state.lock().is_running(*engine)).collect()
    }

    fn is_violated(&self) -> bool {
        self.state.lock().violation.is_some()
    }

    fn with_state<T>(&self, read: impl FnOnce(&mut State) -> T) -> T {
        read(&mut self.state.lock())
    }

    fn with_relayers<T>(&self, change: impl FnOnce(&mut Vec<Option<Running>>) -> T) -> T {
        change(&mut self.relayers.lock().expect("nothing panics while it holds the lock"))
    }
}
