//! The demo's progress: a block of lines that is redrawn on a terminal, or a plain line per second elsewhere.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use super::lane::{LaneProgress, Row};
use crate::{failure::Failure, output::OutputFormat};

/// The interval between plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// The phase of the demo.
pub(super) enum Phase {
    /// The load generator enqueues.
    Load,
    /// The load has stopped, and pending rows are dispatched.
    Draining,
}

/// The progress of all lanes.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) elapsed: Duration,
    pub(super) kills: u32,
    /// One per lane.
    pub(super) lanes: Vec<LaneProgress>,
}

impl Progress {
    /// Rows that are not in a terminal state.
    pub(super) fn open(&self) -> i64 {
        self.lanes.iter().map(|look| look.open).sum()
    }
}

/// Whether to use colours.
#[derive(Clone, Copy)]
pub(super) struct Colours(bool);

impl Colours {
    pub(super) fn bold(self, text: &str) -> String {
        self.painted("1", text)
    }

    pub(super) fn good(self, text: &str) -> String {
        self.painted("1;32", text)
    }

    pub(super) fn bad(self, text: &str) -> String {
        self.painted("1;31", text)
    }

    fn painted(self, colour: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Shows progress on stdout, or on stderr where stdout gets JSON.
pub(super) struct View {
    /// Set for `--json`: stdout gets the result alone.
    to_stderr: bool,
    redraws: bool,
    colours: Colours,
    length: Duration,
    /// Lines of the last block, which the next one overwrites.
    drawn: usize,
    last_line: Option<Instant>,
    event: String,
}

impl View {
    pub(super) fn new(format: OutputFormat, length: Duration) -> Self {
        let terminal = if format.json { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let redraws = terminal && named("TERM").is_some_and(|term| term != "dumb");
        let colours = Colours(redraws && named("NO_COLOR").is_none());
        Self { to_stderr: format.json, redraws, colours, length, drawn: 0, last_line: None, event: String::new() }
    }

    /// Colours for the result on stdout: none for JSON.
    pub(super) fn colours(&self) -> Colours {
        Colours(self.colours.0 && !self.to_stderr)
    }

    /// Prints a message.
    pub(super) fn say(&mut self, text: &str) -> Result<(), Failure> {
        self.drawn = 0;
        self.write(&format!("{text}\n"))
    }

    /// Shows an event of the run, such as a kill.
    pub(super) fn event(&mut self, text: &str) -> Result<(), Failure> {
        if self.redraws {
            text.clone_into(&mut self.event);
            return Ok(());
        }
        self.say(text)
    }

    pub(super) fn show(&mut self, phase: &Phase, progress: &Progress) -> Result<(), Failure> {
        if self.redraws {
            let text = self.drawing(phase, progress);
            let lines = text.lines().count();
            // Moves up over the last block. Long lines are cut and not wrapped, so that the line count is right.
            let up = if self.drawn > 0 { format!("\u{1b}[{}A", self.drawn) } else { String::new() };
            self.drawn = lines;
            return self.write(&format!("{up}\u{1b}[J\u{1b}[?7l{text}\u{1b}[?7h"));
        }
        if self.last_line.is_some_and(|last| last.elapsed() < LINE_INTERVAL) && progress.open() > 0 {
            return Ok(());
        }
        self.last_line = Some(Instant::now());
        self.write(&line(phase, progress))
    }

    fn drawing(&self, phase: &Phase, progress: &Progress) -> String {
        let phase = match phase {
            Phase::Load => format!("load for {} s; Ctrl-C ends it early", self.length.as_secs()),
            Phase::Draining => format!("load ended, draining; pending: {}", progress.open()),
        };
        let row = |Row { name, number, more }: &Row| {
            format!("{}\n", format!("  {name:<15}{number:>9}   {more}").trim_end())
        };
        let mut text =
            format!("\n{} {phase}\n", self.colours.bold(&format!("{:>4} s", progress.elapsed.as_secs())));
        text.extend(progress.lanes.iter().flat_map(|look| &look.rows).map(row));
        let event = if self.event.is_empty() { String::new() } else { self.colours.bad(&self.event) };
        text.push_str(&row(&Row::new("relayers killed", progress.kills, event)));
        text
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        let written = if self.to_stderr {
            io::stderr().lock().write_all(text.as_bytes())
        } else {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        };
        match written {
            // The reader closed the pipe; the audit still runs.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            done => done.map_err(|error| Failure::new(format!("cannot print the progress: {error}"))),
        }
    }
}

/// The progress on one line.
fn line(phase: &Phase, progress: &Progress) -> String {
    let phase = match phase {
        Phase::Load => "load",
        Phase::Draining => "draining",
    };
    let words: Vec<&str> = progress.lanes.iter().map(|look| look.line.as_str()).collect();
    format!(
        "{:>3}s {phase}: {}; relayers killed {}\n",
        progress.elapsed.as_secs(),
        words.join("; "),
        progress.kills
    )
}

/// A number with thousands separators.
pub(super) fn grouped(number: impl ToString) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0
            && (digits.len() - place).is_multiple_of(3)
            && digits.starts_with(|c: char| c.is_ascii_digit())
        {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Milliseconds, as ms or s.
pub(super) fn span(millis: i64) -> String {
    let millis = millis.max(0);
    if millis < 1000 { format!("{millis} ms") } else { format!("{}.{} s", millis / 1000, millis % 1000 / 100) }
}

#[cfg(test)]
mod tests {
    use symphony_testkit::shop::{self, Numbers};

    use super::super::{events, metadata, payments};
    use super::*;
    use crate::command::bank_process;

    #[test]
    fn numbers_and_spans_are_easy_to_read() {
        assert_eq!([0, 999, 1000, 12_345, 1_234_567].map(grouped), ["0", "999", "1,000", "12,345", "1,234,567"]);
        assert_eq!([-1, 7, 999, 1000, 61_250].map(span), ["0 ms", "7 ms", "999 ms", "1.0 s", "61.2 s"]);
    }

    #[test]
    fn without_colours_a_text_stays_as_it_is() {
        assert_eq!(Colours(false).bad("x"), "x");
        assert_eq!(Colours(true).bad("x"), "\u{1b}[1;31mx\u{1b}[0m");
    }

    #[test]
    fn a_block_fits_on_a_small_terminal() {
        let view = View {
            to_stderr: false,
            redraws: true,
            colours: Colours(false),
            length: Duration::from_secs(30),
            drawn: 0,
            last_line: None,
            event: "kill -9 relayer-1.1; restarted".into(),
        };
        let much = 12_345_678;
        let payments = Numbers {
            enqueued: much,
            pending: much,
            oldest_ms: much,
            dispatched: much,
            unknown_outcomes: much,
            p50_ms: much,
            p99_ms: much,
            ..Numbers::default()
        };
        let bank = bank_process::Counts { executed: 12_345_678, inquiries: 12_345_678, refused: 12_345_678 };
        let event_counts = shop::events::Numbers { committed: 2 * much, waiting: much, oldest_ms: much };
        let entries = shop::metadata::Numbers { committed: 3 * much, waiting: much, dead: much, oldest_ms: much };
        let lanes = vec![
            payments::progress_of(&payments, &bank, [99_999; 2]),
            events::progress_of(&event_counts, 99_999),
            metadata::progress_of(&entries, 99_999),
        ];
        let progress = Progress { lanes, ..Progress::default() };
        let drawing = view.drawing(&Phase::Load, &progress);
        assert!(drawing.lines().all(|line| line.chars().count() <= 79), "{drawing}");
        assert!(drawing.lines().count() <= 20, "{drawing}");
        assert_eq!(progress.open(), 3 * much);
    }
}
