//! How it is shown: a few lines that are drawn again on a terminal, a plain line now and then elsewhere.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use super::lane::{Look, Row};
use crate::{failure::Failure, output::Form};

/// How often a line is written where nothing can be drawn again.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// What is going on.
pub(super) enum Phase {
    /// The business enqueues.
    Paying,
    /// It has stopped, and what it has enqueued is carried to its end.
    Draining,
}

/// What is going on, at one moment.
#[derive(Default)]
pub(super) struct Sight {
    pub(super) elapsed: Duration,
    pub(super) kills: u32,
    /// Each lane in its turn.
    pub(super) looks: Vec<Look>,
}

impl Sight {
    /// How much is on its way.
    pub(super) fn open(&self) -> i64 {
        self.looks.iter().map(|look| look.open).sum()
    }
}

/// Whether colours are welcome.
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

/// Where it is shown.
pub(super) struct View {
    /// The result alone goes to stdout where it is JSON.
    to_stderr: bool,
    redraws: bool,
    colours: Colours,
    length: Duration,
    /// Lines of the last drawing, which the next one covers.
    drawn: usize,
    last_line: Option<Instant>,
    event: String,
}

impl View {
    pub(super) fn new(form: Form, length: Duration) -> Self {
        let terminal = if form.json { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let redraws = terminal && named("TERM").is_some_and(|term| term != "dumb");
        let colours = Colours(redraws && named("NO_COLOR").is_none());
        Self { to_stderr: form.json, redraws, colours, length, drawn: 0, last_line: None, event: String::new() }
    }

    /// For the result, which goes to stdout: none where that is JSON.
    pub(super) fn colours(&self) -> Colours {
        Colours(self.colours.0 && !self.to_stderr)
    }

    /// Something to be read once.
    pub(super) fn say(&mut self, text: &str) -> Result<(), Failure> {
        self.drawn = 0;
        self.write(&format!("{text}\n"))
    }

    /// Something that happened meanwhile.
    pub(super) fn event(&mut self, text: &str) -> Result<(), Failure> {
        if self.redraws {
            text.clone_into(&mut self.event);
            return Ok(());
        }
        self.say(text)
    }

    pub(super) fn show(&mut self, phase: &Phase, sight: &Sight) -> Result<(), Failure> {
        if self.redraws {
            let text = self.drawing(phase, sight);
            let lines = text.lines().count();
            // Up over the last drawing; lines longer than the screen are cut and not wrapped, so that this stays right.
            let up = if self.drawn > 0 { format!("\u{1b}[{}A", self.drawn) } else { String::new() };
            self.drawn = lines;
            return self.write(&format!("{up}\u{1b}[J\u{1b}[?7l{text}\u{1b}[?7h"));
        }
        if self.last_line.is_some_and(|last| last.elapsed() < LINE_EVERY) && sight.open() > 0 {
            return Ok(());
        }
        self.last_line = Some(Instant::now());
        self.write(&line(phase, sight))
    }

    fn drawing(&self, phase: &Phase, sight: &Sight) -> String {
        let phase = match phase {
            Phase::Paying => format!("paying for {} s; Ctrl-C ends it early", self.length.as_secs()),
            Phase::Draining => format!("no more is enqueued; still on their way: {}", sight.open()),
        };
        let row = |Row { name, number, more }: &Row| {
            format!("{}\n", format!("  {name:<14}{number:>9}   {more}").trim_end())
        };
        let mut text = format!("\n{} {phase}\n", self.colours.bold(&format!("{:>4} s", sight.elapsed.as_secs())));
        text.extend(sight.looks.iter().flat_map(|look| &look.rows).map(row));
        let event = if self.event.is_empty() { String::new() } else { self.colours.bad(&self.event) };
        text.push_str(&row(&Row::new("kills", sight.kills, event)));
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
            // Whoever watches has seen enough; the audit is still made.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            done => done.map_err(|error| Failure::no(format!("the view could not be printed: {error}"))),
        }
    }
}

/// The same on one line.
fn line(phase: &Phase, sight: &Sight) -> String {
    let phase = match phase {
        Phase::Paying => "paying",
        Phase::Draining => "draining",
    };
    let words: Vec<&str> = sight.looks.iter().map(|look| look.words.as_str()).collect();
    format!("{:>3}s {phase}: {}; kills {}\n", sight.elapsed.as_secs(), words.join("; "), sight.kills)
}

/// A number with its thousands apart.
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

/// Milliseconds as people say them.
pub(super) fn span(millis: i64) -> String {
    let millis = millis.max(0);
    if millis < 1000 { format!("{millis} ms") } else { format!("{}.{} s", millis / 1000, millis % 1000 / 100) }
}

#[cfg(test)]
mod tests {
    use symphony_proof::shop::{Numbers, news, profiles};

    use super::super::{events, metadata, payments};
    use super::*;

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
    fn a_drawing_fits_on_a_small_terminal() {
        let view = View {
            to_stderr: false,
            redraws: true,
            colours: Colours(false),
            length: Duration::from_secs(30),
            drawn: 0,
            last_line: None,
            event: "kill -9 relayer-1.1; started again".into(),
        };
        let much = 12_345_678;
        let payments = Numbers {
            enqueued: much,
            pending: much,
            oldest_ms: much,
            dispatched: much,
            in_doubt: much,
            p50_ms: much,
            p99_ms: much,
            ..Numbers::default()
        };
        let bank = payments::Counts { executed: 12_345_678, inquiries: 12_345_678, refused: 12_345_678 };
        let news = news::Numbers { committed: 2 * much, waiting: much, oldest_ms: much };
        let entries = profiles::Numbers { committed: 3 * much, waiting: much, dead: much, oldest_ms: much };
        let looks = vec![
            payments::look_of(&payments, &bank, [99_999; 2]),
            events::look_of(&news, 99_999),
            metadata::look_of(&entries, 99_999),
        ];
        let sight = Sight { looks, ..Sight::default() };
        let drawing = view.drawing(&Phase::Paying, &sight);
        assert!(drawing.lines().all(|line| line.chars().count() <= 79), "{drawing}");
        assert!(drawing.lines().count() <= 20, "{drawing}");
        assert_eq!(sight.open(), 3 * much);
    }
}
