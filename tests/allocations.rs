//! How often the pure part of a request asks for memory. A change that makes the hot path dearer fails here, on any
//! machine; nothing is timed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../benches/support/subject.rs"]
#[allow(dead_code, reason = "measurements use more of it")]
mod subject;

use subject::Subject;

/// Requests that are looked at, so that what happens once does not count.
const REQUESTS: u64 = 16;

fn of(subject: &Subject) -> u64 {
    let counted = allocation_counter::measure(|| (0..REQUESTS).for_each(|_| subject.run()));
    counted.count_total / REQUESTS
}

#[test]
fn verifying_and_reading_an_event_allocates_little() {
    for (adapter, secret, most) in [
        ("stripe", "whsec_measured", 24),
        ("github", "measured", 24),
        ("standardwebhooks", "whsec_bWVhc3VyZWQgbWVhc3VyZWQgbWVhc3VyZWQ=", 24),
        ("gitlab", "measured", 24),
    ] {
        let small = of(&Subject::new(adapter, secret, 200));
        let large = of(&Subject::new(adapter, secret, 20 << 10));
        println!("{adapter}: {small} allocations, {large} with a large body");
        assert!(small <= most, "{adapter}: {small}");
        assert_eq!(small, large, "{adapter}: the body must not be copied piece by piece");
    }
}
