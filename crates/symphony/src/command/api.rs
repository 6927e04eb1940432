//! `symphony api`: prints the OpenAPI description of the console's API.

use super::with_examples;
use crate::{
    failure::{ExitStatus, Failure},
    output,
};

/// Print the OpenAPI 3.1 description of the HTTP API that symphony run serves
#[derive(clap::Args)]
#[command(after_help = with_examples("  symphony api > openapi.json"))]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitStatus, Failure> {
        let text = serde_json::to_string_pretty(&symphony_console::api_description())
            .map_err(|error| Failure::because("cannot print the API description", error))?;
        output::print_line(&format!("{text}\n"))?;
        Ok(ExitStatus::Success)
    }
}
