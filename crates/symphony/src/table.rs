//! Text tables with aligned columns. Cells are sanitized, so that none can send control characters to the terminal.

use symphony_console::sanitize::plain;

/// Rows of cells; the first row is the heading.
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    pub(crate) fn new<const N: usize>(heading: [&str; N]) -> Self {
        Self(vec![heading.map(str::to_owned).to_vec()])
    }

    pub(crate) fn push<const N: usize>(&mut self, row: [String; N]) {
        self.0.push(row.iter().map(|cell| plain(cell)).collect());
    }

    /// The first column is a name and is aligned left; the others are aligned right.
    pub(crate) fn render(&self) -> String {
        let columns = self.0.first().map_or(0, Vec::len);
        let width = |column: usize| {
            self.0.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.0 {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
                let width = *width;
                if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_left_and_numbers_right() {
        let mut table = Table::new(["rail", "due"]);
        table.push(["sepa".into(), "7".into()]);
        table.push(["ach".into(), "12000".into()]);
        assert_eq!(table.render(), "rail    due\nsepa      7\nach   12000\n");
    }

    #[test]
    fn no_cell_steers_the_terminal_or_breaks_its_row() {
        let mut table = Table::new(["rail", "by"]);
        table.push(["se\u{1b}[2Jpa".into(), "ana\nbob".into()]);
        assert_eq!(table.render(), "rail           by\nse\u{fffd}[2Jpa  ana\u{fffd}bob\n");
    }
}
