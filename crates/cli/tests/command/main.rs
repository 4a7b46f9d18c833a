//! The command as its users meet it: arguments and files in; stdout, stderr, files and exit status
//! out.

mod atlas;
mod common;
mod errors;
mod files;
mod hostile;
mod kernel_files;
mod kernels;
mod layouts;
mod numbers;
mod packs;
mod recorded;
mod reports;
mod run;
mod shell;
