//! `symphony token`: makes a token for the console.

use serde::Serialize;

use super::with_examples;
use crate::{
    console::access,
    failure::{Answer, Failure},
    output::Form,
};

/// Make a token for the API and the dashboard of symphony run
///
/// The token is shown once and kept nowhere: hand it to whoever is to use it. The settings hold its hash.
#[derive(clap::Args)]
#[command(after_help = with_examples("  symphony token ana --scope operate\n  symphony token grafana"))]
pub(crate) struct Arguments {
    /// Whose it is: the name that the log of operations shows
    #[arg(value_name = "NAME")]
    name: String,
    /// What it allows; may be repeated
    #[arg(long = "scope", value_name = "read|operate|audit", value_parser = ["read", "operate", "audit"], default_value = "read")]
    scopes: Vec<String>,
    #[command(flatten)]
    form: Form,
}

#[derive(Serialize)]
struct Minted {
    name: String,
    token: String,
    hash: String,
    scopes: Vec<String>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Answer, Failure> {
        let (token, hash) = access::mint()?;
        let minted = Minted { name: self.name, token, hash, scopes: self.scopes };
        self.form.print(&minted, || {
            // Written as TOML and as JSON alike.
            let quoted = |text: &str| serde_json::Value::from(text).to_string();
            let scopes: Vec<_> = minted.scopes.iter().map(|scope| quoted(scope)).collect();
            format!(
                "{}\n\nThat is the token; it is not shown again. Add this to the settings:\n\n\
                 [[console.tokens]]\nname = {}\nhash = {}\nscopes = [{}]",
                minted.token,
                quoted(&minted.name),
                quoted(&minted.hash),
                scopes.join(", ")
            )
        })?;
        Ok(Answer::Yes)
    }
}
