//! How long the pure parts of a request take: `cargo bench --bench parts`. No server, no store.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

#[path = "support/subject.rs"]
mod subject;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sha2::{Digest as _, Sha256};
use subject::Subject;

/// Bodies in bytes: a small event, a usual one, a large one.
const SIZES: [usize; 3] = [200, 2 << 10, 20 << 10];

/// Verification and identification by one kind of template each.
fn verify_and_identify(c: &mut Criterion) {
    let mut group = c.benchmark_group("verify and identify");
    for (what, adapter, secret) in [
        ("timestamp and body (stripe)", "stripe", "whsec_measured"),
        ("body (github)", "github", "measured"),
        (
            "id, timestamp and body (standardwebhooks)",
            "standardwebhooks",
            "whsec_bWVhc3VyZWQgbWVhc3VyZWQgbWVhc3VyZWQ=",
        ),
        ("version, timestamp and body (slack)", "slack", "measured"),
        ("token (gitlab)", "gitlab", "measured"),
    ] {
        for size in SIZES {
            let subject = Subject::new(adapter, secret, size);
            group.throughput(Throughput::Bytes(subject.body().len() as u64));
            group.bench_function(BenchmarkId::new(what, size), |b| b.iter(|| subject.run()));
        }
    }
    group.finish();
}

/// The same events without their signatures.
fn identify(c: &mut Criterion) {
    let mut group = c.benchmark_group("identify");
    for adapter in ["stripe", "github"] {
        for size in SIZES {
            let subject = Subject::unsigned(adapter, size);
            group.throughput(Throughput::Bytes(subject.body().len() as u64));
            group.bench_function(BenchmarkId::new(adapter, size), |b| b.iter(|| subject.run()));
        }
    }
    group.finish();
}

/// What no implementation can do without: one hash for the signature, one for the ledger.
fn hash(c: &mut Criterion) {
    let mut group = c.benchmark_group("sha256");
    for size in SIZES {
        let body = vec![b'x'; size];
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::from_parameter(size), |b| {
            b.iter(|| black_box(Sha256::digest(&body)))
        });
    }
    group.finish();
}

criterion_group!(benches, verify_and_identify, identify, hash);
criterion_main!(benches);
