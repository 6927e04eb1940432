//! `symphony man`: manual pages, generated from `--help`.

use std::{fs, io, path::PathBuf};

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use super::{Cli, with_examples};
use crate::{
    failure::{ExitStatus, Failure},
    output,
};

/// Print the manual page, or write the pages of all commands to a folder; needs no database
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony man | man -l -\n  symphony man --to ~/.local/share/man/man1 && man symphony-status",
))]
pub(crate) struct Arguments {
    /// Write a page per command to this folder, and create it if needed
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<ExitStatus, Failure> {
        // Only a built command knows its full name and the global options.
        let mut program = Cli::command().disable_help_subcommand(true);
        program.build();
        let Some(folder) = &self.to else {
            let page = page(&program).map_err(|error| Failure::because("cannot render the manual page", error))?;
            output::print_line(&String::from_utf8_lossy(&page))?;
            return Ok(ExitStatus::Success);
        };
        let mut pages = Vec::new();
        write(&program, folder, &mut pages).map_err(|error| {
            Failure::because(format!("cannot write pages to {}", folder.display()), error)
                .hint("name a folder that you may write to")
        })?;
        output::print_line(&pages.join("\n"))?;
        Ok(ExitStatus::Success)
    }
}

/// Writes the page of a command and of those below it, and adds their paths.
fn write(command: &Command, folder: &PathBuf, pages: &mut Vec<String>) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("{}.1", name(command)));
    fs::write(&path, page(command)?)?;
    pages.push(path.display().to_string());
    // Hidden commands are started by this program alone.
    let mut shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    shown.try_for_each(|below| write(below, folder, pages))
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).title(name(command)).section("1").manual("Symphony").render(&mut page)?;
    Ok(page)
}

/// The name of the page, such as symphony-dlq-list.
fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}
