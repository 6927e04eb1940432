//! `symphony completions`: prints a shell completion script.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, with_examples};
use crate::{
    failure::{ExitStatus, Failure},
    output,
};

/// Print a shell completion script; needs no database
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony completions bash > ~/.local/share/bash-completion/completions/symphony\n  \
     symphony completions zsh > \"${fpath[1]}/_symphony\"\n  \
     symphony completions fish > ~/.config/fish/completions/symphony.fish",
))]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<ExitStatus, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "symphony", &mut script);
        output::print_line(&String::from_utf8_lossy(&script))?;
        Ok(ExitStatus::Success)
    }
}
