//! One line for each event, so that a first run shows something: who sent what, never the body.
//!
//! The writing is done by a thread of its own, because a terminal or a pipe that is not read would stop a runtime thread.
//! Its queue is bounded: when it is full, attempts wait.

use std::{
    fmt::Write as _,
    io::{self, BufWriter, Write},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::{Failure, Handler, Outgoing};

/// Lines that wait to be written.
const QUEUE: usize = 4_096;
/// How long the end of the process waits for the last lines.
const LAST: Duration = Duration::from_secs(1);

/// Prints one line for each event.
pub struct LogHandler {
    lines: Option<mpsc::Sender<String>>,
    /// Closes when the thread has written everything.
    written: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl LogHandler {
    /// Prints to standard output.
    #[must_use]
    pub fn stdout() -> Self {
        Self::to(io::stdout())
    }

    /// Prints to any writer. A write that fails is not an attempt that fails: nobody reads there any more.
    #[must_use]
    pub fn to(out: impl Write + Send + 'static) -> Self {
        let (lines, mut queue) = mpsc::channel::<String>(QUEUE);
        let (end, written) = std::sync::mpsc::channel::<()>();
        thread::spawn(move || {
            let _end = end;
            let mut out = BufWriter::with_capacity(64 << 10, out);
            while let Some(line) = queue.blocking_recv() {
                let _ = out.write_all(line.as_bytes());
                while let Ok(line) = queue.try_recv() {
                    let _ = out.write_all(line.as_bytes());
                }
                let _ = out.flush();
            }
        });
        Self {
            lines: Some(lines),
            written: written.into(),
        }
    }
}

impl Handler for LogHandler {
    fn handle<'a>(&'a self, outgoing: &'a Outgoing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let Some(lines) = &self.lines else { return Ok(()) };
            lines
                .send(line(outgoing))
                .await
                .map_err(|_| Failure::Retry("the log's writer is gone".into()))
        })
    }
}

impl Drop for LogHandler {
    fn drop(&mut self) {
        self.lines = None;
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = written.recv_timeout(LAST);
    }
}

fn line(outgoing: &Outgoing<'_>) -> String {
    let claim = outgoing.claim;
    let event = &claim.event;
    let mut line = String::with_capacity(128);
    for (name, value) in [
        ("provider=", &*event.provider),
        (" id=", &event.provider_event_id),
        (" type=", event.event_type.as_deref().unwrap_or("-")),
    ] {
        line.push_str(name);
        plain(&mut line, value);
    }
    let _ = writeln!(
        line,
        " size={} handler={} attempt={}",
        outgoing.body.len(),
        claim.handler,
        claim.attempt
    );
    line
}

/// Ids and types come from outside: what could end the line or steer a terminal is escaped.
fn plain(line: &mut String, value: &str) {
    for c in value.chars() {
        if c == ' ' {
            line.extend(c.escape_unicode());
        } else if c.is_control() || c == '\\' {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::handlers::testing::claim;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn an_event_is_one_line_without_its_body() {
        let page = Page::default();
        let log = LogHandler::to(page.clone());
        log.handle(&Outgoing::raw(&claim("evt_1", "{\"secret\":1}")))
            .await
            .unwrap();
        log.handle(&Outgoing::raw(&claim("a b\n\u{1b}[31m", "x")))
            .await
            .unwrap();
        drop(log);
        let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        assert_eq!(
            text,
            "provider=stripe id=evt_1 type=invoice.paid size=12 handler=h attempt=2\n\
             provider=stripe id=a\\u{20}b\\n\\u{1b}[31m type=invoice.paid size=1 handler=h attempt=2\n"
        );
    }

    #[tokio::test]
    async fn a_closed_output_does_not_fail_the_attempt() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
        let log = LogHandler::to(Closed);
        for _ in 0..10 {
            log.handle(&Outgoing::raw(&claim("evt_1", "{}"))).await.unwrap();
        }
    }
}
