//! Progress of long work: one line on stderr that the next one overwrites, and nothing unless stderr is a terminal.

use std::io::{self, IsTerminal as _, Write as _};

/// The characters of a progress bar.
#[cfg(feature = "dev-tools")]
const BAR_WIDTH: usize = 20;

/// Shows a line in place of the last one.
pub(crate) fn show(line: &str) {
    let mut terminal = io::stderr();
    if terminal.is_terminal() {
        // A closed terminal must not end the work.
        let _ = write!(terminal, "\r\x1b[K{line}").and_then(|()| terminal.flush());
    }
}

/// Shows that step `number` of `all` runs, with a bar.
#[cfg(feature = "dev-tools")]
pub(crate) fn show_step(number: usize, all: usize, name: &str) {
    show(&format!("{} {number} of {all}: {name}", bar(number.saturating_sub(1), all)));
}

/// Clears the line.
pub(crate) fn clear() {
    show("");
}

#[cfg(feature = "dev-tools")]
fn bar(done: usize, all: usize) -> String {
    let full = (BAR_WIDTH * done.min(all)).checked_div(all).unwrap_or(BAR_WIDTH);
    format!("[{}{}]", "#".repeat(full), ".".repeat(BAR_WIDTH - full))
}

#[cfg(all(test, feature = "dev-tools"))]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_the_work_is_done() {
        assert_eq!(bar(0, 24), "[....................]");
        assert_eq!(bar(12, 24), "[##########..........]");
        assert_eq!(bar(24, 24), "[####################]");
        assert_eq!(bar(30, 24), bar(24, 24));
        assert_eq!(bar(0, 0), bar(24, 24));
    }
}
