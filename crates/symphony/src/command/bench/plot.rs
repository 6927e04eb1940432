//! Plots as inline SVG, so that the page needs no script: bars, and latency curves by percentile.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
/// Height of a bar with its gap.
const ROW: f64 = 24.0;
/// Width of the bars' names and of their values.
const NAMES: f64 = 250.0;
const VALUES: f64 = 80.0;
/// Size of a plot with curves, and of its axes.
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 28.0;
/// Distinct line styles of curves; further curves repeat them.
pub(super) const KINDS: usize = 8;
/// Percentiles that are marked on the axis.
const MARKS: [(f64, &str); 5] =
    [(0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")];

/// A bar per name, as long as its value.
pub(super) fn bars(of: &str, values: &[(String, f64)]) -> String {
    let most = values.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let rows = values.iter().fold(0.0, |rows, _| rows + ROW);
    let mut svg = opening(of, rows + 4.0);
    let mut top = 2.0;
    for (name, value) in values {
        let (length, middle) = ((WIDTH - NAMES - VALUES) * value / most, top + ROW / 2.0 + 4.0);
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<text class=\"name\" x=\"{:.1}\" y=\"{middle:.1}\">{}</text><rect x=\"{NAMES:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/><text x=\"{:.1}\" y=\"{middle:.1}\">{value:.0}</text>",
            NAMES - 8.0,
            escaped(name),
            top + 3.0,
            length.max(1.0),
            ROW - 6.0,
            NAMES + length + 6.0,
        );
        top += ROW;
    }
    svg + "</svg>"
}

/// A latency curve per measurement. Both axes are logarithmic: x is the percentile, y is the latency.
pub(super) fn curves(of: &str, curves: &[&[(f64, f64)]]) -> String {
    let points = || curves.iter().flat_map(|curve| curve.iter()).filter(|(_, millis)| *millis > 0.0);
    let low = points().map(|(_, millis)| millis.log10().floor()).fold(f64::INFINITY, f64::min);
    let high = points().map(|(_, millis)| millis.log10().ceil()).fold(f64::NEG_INFINITY, f64::max).max(low + 1.0);
    let last = points().map(|(quantile, _)| depth(*quantile)).fold(1.0, f64::max).ceil();
    let x = |quantile: f64| LEFT + (WIDTH - LEFT - 20.0) * depth(quantile).min(last) / last;
    let y = |log: f64| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 12.0) * (log - low) / (high - low);
    let mut svg = opening(of, HEIGHT);
    let mut decade = low;
    while decade <= high && decade.is_finite() {
        let (height, millis) = (y(decade), 10_f64.powf(decade));
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{height:.1}\" y2=\"{height:.1}\"/><text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{millis} ms</text>",
            WIDTH - 20.0,
            LEFT - 6.0,
            height + 4.0
        );
        decade += 1.0;
    }
    for (quantile, name) in MARKS.iter().filter(|(quantile, _)| depth(*quantile) <= last) {
        let place = x(*quantile);
        let _ = write!(
            svg,
            "<line x1=\"{place:.1}\" x2=\"{place:.1}\" y1=\"12\" y2=\"{:.1}\"/><text class=\"mark\" x=\"{place:.1}\" y=\"{:.1}\">{name}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - 8.0
        );
    }
    for (number, curve) in curves.iter().enumerate() {
        let place = |(quantile, millis): &(f64, f64)| {
            format!("{:.1},{:.1}", x(*quantile), y(millis.max(1e-3).log10().max(low)))
        };
        let places: Vec<_> = curve.iter().map(place).collect();
        let _ = write!(svg, "<polyline class=\"k{}\" points=\"{}\"/>", number % KINDS, places.join(" "));
    }
    svg + "</svg>"
}

/// Position of a quantile on the x axis: the number of nines, at most six.
fn depth(quantile: f64) -> f64 {
    -(1.0 - quantile).max(1e-6).log10()
}

fn opening(of: &str, height: f64) -> String {
    let of = escaped(of);
    format!(
        "<svg class=\"plot\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" aria-label=\"{of}\"><title>{of}</title>"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of an attribute, in order.
    fn numbers(svg: &str, attribute: &str) -> Vec<f64> {
        let before = format!(" {attribute}=\"");
        let values = svg.split(&before).skip(1);
        values.map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn every_bar_is_drawn_in_proportion_and_names_cannot_break_out() {
        let svg = bars("a second", &[("one \"<&>\"".to_owned(), 50.0), ("two".to_owned(), 100.0)]);
        let widths = numbers(&svg, "width");
        assert_eq!(widths.len(), 2);
        assert!((widths[0] * 2.0 - widths[1]).abs() < 0.2, "{widths:?}");
        assert!(svg.contains("one &quot;&lt;&amp;>&quot;"), "{svg}");
        assert!(bars("nothing", &[]).ends_with("</svg>"));
    }

    #[test]
    fn curves_stay_within_the_picture() {
        let curve = [(0.0, 0.002), (0.5, 1.0), (0.99, 80.0), (1.0, 4321.0)];
        let svg = curves("time", &[&curve, &[(1.0, 0.0)]]);
        assert_eq!(svg.matches("<polyline").count(), 2);
        for pair in svg.split("points=\"").skip(1).flat_map(|rest| rest.split('"').next().unwrap().split(' ')) {
            let (x, y) = pair.split_once(',').unwrap();
            assert!(
                (0.0..=WIDTH).contains(&x.parse().unwrap()) && (0.0..=HEIGHT).contains(&y.parse().unwrap()),
                "{pair}"
            );
        }
        assert!(svg.contains("99.9 %") && svg.contains("1000 ms"), "{svg}");
        assert!(curves("nothing", &[]).ends_with("</svg>"));
    }
}
