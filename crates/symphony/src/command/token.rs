//! `symphony token`: generates an access token for the console.

use serde::Serialize;
use symphony_console::access::generate_token;

use super::with_examples;
use crate::{
    failure::{ExitStatus, Failure},
    output::OutputFormat,
};

/// Generate an access token for the API and the dashboard of symphony run
///
/// The token is printed once and stored nowhere: pass it to its user. The settings hold its hash.
#[derive(clap::Args)]
#[command(after_help = with_examples("  symphony token ana --scope operate\n  symphony token grafana"))]
pub(crate) struct Arguments {
    /// Name of its user, as the audit log shows it
    #[arg(value_name = "NAME")]
    name: String,
    /// Scope of the token; may be repeated
    #[arg(long = "scope", value_name = "read|operate|audit", value_parser = ["read", "operate", "audit"], default_value = "read")]
    scopes: Vec<String>,
    #[command(flatten)]
    format: OutputFormat,
}

#[derive(Serialize)]
struct NewToken {
    name: String,
    token: String,
    hash: String,
    scopes: Vec<String>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitStatus, Failure> {
        let (token, hash) = generate_token()?;
        let new = NewToken { name: self.name, token, hash, scopes: self.scopes };
        self.format.print(&new, || {
            // A JSON string is also a TOML string.
            let quoted = |text: &str| serde_json::Value::from(text).to_string();
            let scopes: Vec<_> = new.scopes.iter().map(|scope| quoted(scope)).collect();
            format!(
                "{}\n\nThat is the token; it is not shown again. Add this to the settings:\n\n\
                 [[console.tokens]]\nname = {}\nhash = {}\nscopes = [{}]",
                new.token,
                quoted(&new.name),
                quoted(&new.hash),
                scopes.join(", ")
            )
        })?;
        Ok(ExitStatus::Success)
    }
}
