//! Parses the command line, runs it, prints what went wrong, and chooses the exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    cerca::cli::main()
}
