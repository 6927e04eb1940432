//! A stacked bar chart as SVG, rendered by the server so that pages need no script for it.

use std::fmt::Write as _;

use symphony_db::payment::reader::StatsBucket;

const WIDTH: i64 = 600;
const HEIGHT: i64 = 100;

/// One stacked bar per part: dispatched at the bottom, then retried, then failed.
pub(crate) fn bars(parts: &[StatsBucket], title: &str) -> String {
    let most = parts.iter().map(|part| part.dispatched + part.retried + part.failed).max().unwrap_or(0).max(1);
    let count = i64::try_from(parts.len()).unwrap_or(1).max(1);
    let step = WIDTH / count;
    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{title}: at most {most} in one bar of {count}\">"
    );
    for (index, part) in (0..).zip(parts) {
        let mut top = HEIGHT;
        for (class, value) in [("ok", part.dispatched), ("retry", part.retried), ("bad", part.failed)] {
            // At least one pixel, so that a small count stays visible.
            let height = if value == 0 { 0 } else { (value * (HEIGHT - 4) / most).max(1) };
            if height == 0 {
                continue;
            }
            top -= height;
            // Writing to a String cannot fail.
            let _ = write!(
                svg,
                "<rect class=\"{class}\" x=\"{}\" y=\"{top}\" width=\"{}\" height=\"{height}\"/>",
                index * step,
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
    fn every_count_above_zero_is_drawn_within_the_chart() {
        let parts = [
            StatsBucket { dispatched: 1000, failed: 1, retried: 0 },
            StatsBucket { dispatched: 0, failed: 0, retried: 0 },
            StatsBucket { dispatched: 0, failed: 0, retried: 3 },
        ];
        let svg = bars(&parts, "attempts");
        assert_eq!(svg.matches("<rect").count(), 3);
        assert!(svg.contains("class=\"bad\"") && svg.contains("class=\"retry\""));
        assert!(!svg.contains("y=\"-"), "{svg}");
        assert!(bars(&[], "attempts").contains("<svg"));
    }
}
