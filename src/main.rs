//! Parses the command line, runs it, prints what went wrong, and chooses the exit code.

use std::process::ExitCode;

/// Events are allocated by one thread and freed by another, which glibc's allocator makes slow.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cerca::cli::main()
}
