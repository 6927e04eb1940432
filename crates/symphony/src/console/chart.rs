//! Bars over time as SVG, drawn here so that a page needs no script for them.

use std::fmt::Write as _;

use symphony_outbox::payment::reading::Part;

const WIDTH: i64 = 600;
const HEIGHT: i64 = 100;

/// Stacked bars, one for each part: dispatched below, then what is tried again, then what failed.
pub(crate) fn bars(parts: &[Part], of: &str) -> String {
    let most = parts.iter().map(|part| part.dispatched + part.again + part.failed).max().unwrap_or(0).max(1);
    let count = i64::try_from(parts.len()).unwrap_or(1).max(1);
    let step = WIDTH / count;
    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{of}: at most {most} in one bar of {count}\">"
    );
    for (place, part) in (0..).zip(parts) {
        let mut top = HEIGHT;
        for (class, value) in [("ok", part.dispatched), ("again", part.again), ("bad", part.failed)] {
            // What there is can be seen, however little it is beside the rest.
            let height = if value == 0 { 0 } else { (value * (HEIGHT - 4) / most).max(1) };
            if height == 0 {
                continue;
            }
            top -= height;
            // Writing to a String cannot fail.
            let _ = write!(
                svg,
                "<rect class=\"{class}\" x=\"{}\" y=\"{top}\" width=\"{}\" height=\"{height}\"/>",
                place * step,
                (step - 2).max(1)
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_that_happened_is_drawn_and_nothing_leaves_the_picture() {
        let parts = [
            Part { dispatched: 1000, failed: 1, again: 0 },
            Part { dispatched: 0, failed: 0, again: 0 },
            Part { dispatched: 0, failed: 0, again: 3 },
        ];
        let svg = bars(&parts, "attempts");
        assert_eq!(svg.matches("<rect").count(), 3);
        assert!(svg.contains("class=\"bad\"") && svg.contains("class=\"again\""));
        assert!(!svg.contains("y=\"-"), "{svg}");
        assert!(bars(&[], "attempts").contains("<svg"));
    }
}
