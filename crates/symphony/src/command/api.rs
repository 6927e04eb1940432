//! `symphony api`: prints the description of the console's API.

use super::with_examples;
use crate::{
    console::api,
    failure::{Answer, Failure},
    output,
};

/// Print the description of the HTTP API of symphony run, in OpenAPI 3.1
#[derive(clap::Args)]
#[command(after_help = with_examples("  symphony api > openapi.json"))]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(self) -> Result<Answer, Failure> {
        let text = serde_json::to_string_pretty(&api::description())
            .map_err(|error| Failure::because("the API cannot be described", error))?;
        output::line(&format!("{text}\n"))?;
        Ok(Answer::Yes)
    }
}
