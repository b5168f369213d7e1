//! How many instructions the pure part of a request takes, counted by valgrind: the same on every machine of a kind, and
//! not a time. Unoptimised, as tests are built: what counts is that it does not grow.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says what it counted"
)]

#[path = "../benches/support/subject.rs"]
#[allow(dead_code, reason = "measurements use more of it")]
mod subject;

use std::{env, process::Command};

use subject::Subject;

/// Says what the counted process does: adapter, secret and number of requests.
const TASK: &str = "CERCA_COUNTED";
const BODY: usize = 2 << 10;

/// The process that is counted. By itself it only shows that its subject works.
#[test]
fn counted() {
    let task = env::var(TASK).unwrap_or_else(|_| "stripe whsec_measured 1".to_owned());
    let mut words = task.split(' ');
    let mut next = || words.next().unwrap();
    let subject = Subject::new(next(), next(), BODY);
    (0..next().parse().unwrap()).for_each(|_| subject.run());
}

/// Instructions of a process with so many requests.
fn instructions(adapter: &str, secret: &str, requests: u64) -> u64 {
    let program = env::current_exe().unwrap();
    let counted = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["--exact", "counted", "--test-threads=1"])
        .env(TASK, format!("{adapter} {secret} {requests}"))
        .output()
        .unwrap_or_else(|error| panic!("valgrind is needed (Debian: valgrind): {error}"));
    let said = String::from_utf8_lossy(&counted.stderr);
    assert!(counted.status.success(), "{said}");
    let collected = said.lines().find_map(|line| line.split("Collected : ").nth(1));
    collected
        .unwrap_or_else(|| panic!("no count: {said}"))
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn an_event_takes_few_instructions() {
    const MOST: u64 = 1_000_000;
    let few = instructions("stripe", "whsec_measured", 2);
    let many = instructions("stripe", "whsec_measured", 12);
    let each = many.saturating_sub(few) / 10;
    println!("{each} instructions an event of {BODY} B");
    assert!(each > 0 && each < MOST, "{each}");
}
