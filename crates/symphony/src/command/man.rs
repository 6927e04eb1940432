//! `symphony man`: the manual, made from the same words as `--help`.

use std::{fs, io, path::PathBuf};

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use super::{Cli, with_examples};
use crate::{
    failure::{Answer, Failure},
    output,
};

/// Print the manual page, or write those of every command to a folder; needs no database
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony man | man -l -\n  symphony man --to ~/.local/share/man/man1 && man symphony-status",
))]
pub(crate) struct Arguments {
    /// Write a page for each command to this folder, which is made if it is not there
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        // Built, every command knows its whole name and the options that all of them have.
        let mut program = Cli::command().disable_help_subcommand(true);
        program.build();
        let Some(folder) = &self.to else {
            let page = page(&program).map_err(|error| Failure::because("the page cannot be made", error))?;
            output::line(&String::from_utf8_lossy(&page))?;
            return Ok(Answer::Yes);
        };
        let mut pages = Vec::new();
        write(&program, folder, &mut pages).map_err(|error| {
            Failure::because(format!("cannot write pages to {}", folder.display()), error)
                .hint("name a folder that you may write in")
        })?;
        output::line(&pages.join("\n"))?;
        Ok(Answer::Yes)
    }
}

/// Writes the page of a command and of those below it, and adds their paths.
fn write(command: &Command, folder: &PathBuf, pages: &mut Vec<String>) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("{}.1", name(command)));
    fs::write(&path, page(command)?)?;
    pages.push(path.display().to_string());
    // What is hidden is for this program alone.
    let mut shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    shown.try_for_each(|below| write(below, folder, pages))
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).title(name(command)).section("1").manual("Symphony").render(&mut page)?;
    Ok(page)
}

/// As the page is called: symphony-dlq-list.
fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}
