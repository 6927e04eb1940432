//! A payment request as text for auditors: exactly what is sent, but for its secrets and signatures.

use std::fmt::Write as _;

use reqwest::Request;

use super::target::Target;

/// Stands for a value that is not shown.
const HIDDEN: &str = "***";

/// The request as text. Values of the query of the setting `url` are hidden, since some banks want their key there.
pub(super) fn text(request: &Request, target: &Target) -> String {
    let own = target.url().query_pairs().count();
    let mut url = request.url().clone();
    if own > 0 {
        let pairs: Vec<(String, String)> = request.url().query_pairs().into_owned().collect();
        let shown = pairs
            .into_iter()
            .enumerate()
            .map(|(index, (name, value))| if index < own { (name, HIDDEN.to_owned()) } else { (name, value) });
        url.query_pairs_mut().clear().extend_pairs(shown);
    }
    let mut text = format!("{} {url}\n", request.method());
    for (name, value) in request.headers() {
        let value = if value.is_sensitive() { HIDDEN } else { value.to_str().unwrap_or(HIDDEN) };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}: {value}");
    }
    let body = request.body().and_then(|body| body.as_bytes()).unwrap_or_default();
    let _ = write!(text, "\n{}", String::from_utf8_lossy(body));
    text
}
