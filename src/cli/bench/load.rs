//! The senders: requests signed beforehand, over connections that stay open, each sending its next one after the answer.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use sha2::Sha256;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

/// Known to nobody else for longer than a run.
pub(super) const SECRET: &str = "whsec_of_a_measurement";

/// No answer of ours is longer.
const LONGEST_ANSWER: usize = 16 << 10;

/// Requests that wait to be sent.
pub(super) struct Load {
    requests: Arc<Vec<Vec<u8>>>,
}

/// What the senders saw.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    /// Acknowledged events a second.
    pub(super) rate: f64,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    /// Answers other than 200.
    pub(super) refused: usize,
}

impl Load {
    /// Signs so many events of about `size` bytes, whose ids begin with `prefix`.
    pub(super) fn new(events: u32, size: usize, prefix: &str) -> anyhow::Result<Self> {
        let now = Timestamp::now().as_second();
        let requests = (0..events)
            .map(|n| request(n, size, prefix, now))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            requests: Arc::new(requests),
        })
    }

    /// # Errors
    /// A connection that breaks.
    pub(super) async fn send(&self, address: SocketAddr, connections: u16) -> anyhow::Result<Outcome> {
        let next = Arc::new(AtomicUsize::new(0));
        let mut senders = JoinSet::new();
        let begun = Instant::now();
        for _ in 0..connections {
            senders.spawn(sender(address, Arc::clone(&self.requests), Arc::clone(&next)));
        }
        let (mut times, mut refused) = (Vec::with_capacity(self.requests.len()), 0);
        while let Some(sender) = senders.join_next().await {
            let (some, no) = sender??;
            times.extend(some);
            refused += no;
        }
        let elapsed = begun.elapsed();
        times.sort_unstable();
        let at = |share: f64| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
            let index = (times.len() as f64 * share) as usize;
            times
                .get(index.min(times.len().saturating_sub(1)))
                .copied()
                .unwrap_or_default()
        };
        Ok(Outcome {
            rate: (times.len() - refused) as f64 / elapsed.as_secs_f64(),
            p50: at(0.5),
            p99: at(0.99),
            refused,
        })
    }
}

/// One connection; gives the times of its answers, and how many were no acknowledgement.
async fn sender(
    address: SocketAddr,
    requests: Arc<Vec<Vec<u8>>>,
    next: Arc<AtomicUsize>,
) -> anyhow::Result<(Vec<Duration>, usize)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut times, mut refused) = (Vec::new(), 0);
    let mut buffer = Vec::with_capacity(4096);
    while let Some(request) = requests.get(next.fetch_add(1, Relaxed)) {
        let begun = Instant::now();
        stream.write_all(request).await?;
        let status = answer(&mut stream, &mut buffer).await?;
        times.push(begun.elapsed());
        refused += usize::from(status != 200);
    }
    Ok((times, refused))
}

/// Reads one answer; gives its status.
async fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> anyhow::Result<u16> {
    buffer.clear();
    loop {
        if let Some(head) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let text = std::str::from_utf8(&buffer[..head])?;
            let status = text.get(9..12).and_then(|status| status.parse().ok());
            let length = text.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.trim().parse().ok())?
            });
            let end = head + 4 + length.unwrap_or(0_usize);
            while buffer.len() < end {
                more(stream, buffer).await?;
            }
            return status.context("the server gave an answer without a status");
        }
        more(stream, buffer).await?;
    }
}

async fn more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> anyhow::Result<()> {
    anyhow::ensure!(buffer.len() < LONGEST_ANSWER, "the server's answer does not end");
    let read = stream.read_buf(buffer).await?;
    anyhow::ensure!(read > 0, "the server closed a connection");
    Ok(())
}

/// One event as Stripe would send it.
fn request(n: u32, size: usize, prefix: &str, now: i64) -> anyhow::Result<Vec<u8>> {
    let mut body = format!(
        "{{\"id\":\"evt_{prefix}_{n:08}\",\"object\":\"event\",\"created\":{now},\"type\":\"payment_intent.succeeded\",\
         \"data\":{{\"object\":{{\"id\":\"pi_{n:08}\",\"amount\":{},\"currency\":\"eur\",\"customer\":\"cus_{:04}\"}}}},\"note\":\"",
        1000 + n % 9000,
        n % 1000
    );
    let mut random = n;
    while body.len() + 2 < size {
        // Words, so that it compresses as text does.
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let word = [
            "alpha", "payment", "order", "customer", "invoice", "paid", "from", "with",
        ][random as usize >> 29];
        write!(body, "{word} {} ", (random >> 20) % 97)?;
    }
    body.truncate(size.saturating_sub(2).max(200));
    body.push_str("\"}");
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes())?;
    mac.update(format!("{now}.{body}").as_bytes());
    let signature = hex::encode(mac.finalize().into_bytes());
    Ok(format!(
        "POST /webhooks/stripe HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nUser-Agent: Stripe/1.0\r\n\
         Stripe-Signature: t={now},v1={signature}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes())
}
