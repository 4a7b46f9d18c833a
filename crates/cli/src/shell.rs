//! `pgemm completions` and `pgemm man`: what shells and `man` know of the command.

use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;
use persistent_gemm::files;

use crate::output;
use crate::{Cli, Failure, Verdict};

/// Arguments of `pgemm completions`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm completions bash > ~/.local/share/bash-completion/completions/pgemm
  pgemm completions fish > ~/.config/fish/completions/pgemm.fish")]
pub struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub fn completions(args: &CompletionArgs) -> Result<Verdict, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "pgemm", &mut script);
    output::text(&String::from_utf8(script)?)?;
    Ok(Verdict::Fine)
}

/// Arguments of `pgemm man`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm man --out ~/.local/share/man/man1")]
pub struct ManArgs {
    /// The folder, which is made if it is missing.
    #[arg(short, long = "out", value_name = "DIR")]
    out: PathBuf,
}

pub fn man(args: &ManArgs) -> Result<Verdict, Failure> {
    files::check_folder(&args.out)?;
    let mut cli = Cli::command();
    cli.build();
    let mut pages = Vec::new();
    add_pages(&cli, "pgemm", &mut pages)?;
    for (name, page) in &pages {
        files::write(&args.out.join(format!("{name}.1")), page)?;
    }
    output::note(format_args!("{} pages are in {}", pages.len(), args.out.display()));
    Ok(Verdict::Fine)
}

/// Adds the page of a command and those of its subcommands.
fn add_pages(
    command: &clap::Command,
    name: &str,
    pages: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), Failure> {
    let mut page = Vec::new();
    // The names of commands live as long as the process: there are some thirty, written once.
    let titled = command.clone().name(name.to_owned().leak() as &str);
    clap_mangen::Man::new(titled).render(&mut page)?;
    pages.push((name.to_owned(), page));
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help")
    {
        add_pages(subcommand, &format!("{name}-{}", subcommand.get_name()), pages)?;
    }
    Ok(())
}
