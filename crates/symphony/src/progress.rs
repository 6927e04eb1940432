//! How far long work has come: a line on the terminal that is gone when the next one comes. Results go elsewhere; where stderr is
//! no terminal, nothing is shown.

use std::io::{self, IsTerminal as _, Write as _};

/// How many characters a bar has.
const WIDTH: usize = 20;

/// Says what is being done.
pub(crate) fn say(words: &str) {
    let mut terminal = io::stderr();
    if terminal.is_terminal() {
        // Nothing depends on it.
        let _ = write!(terminal, "\r\x1b[K{words}").and_then(|()| terminal.flush());
    }
}

/// Says that this part of so many is being done.
pub(crate) fn part(number: usize, all: usize, name: &str) {
    say(&format!("{} {number} of {all}: {name}", bar(number.saturating_sub(1), all)));
}

/// Takes the line away.
pub(crate) fn done() {
    say("");
}

fn bar(done: usize, all: usize) -> String {
    let full = (WIDTH * done.min(all)).checked_div(all).unwrap_or(WIDTH);
    format!("[{}{}]", "#".repeat(full), ".".repeat(WIDTH - full))
}

#[cfg(test)]
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
