//! Closes connections that have gone silent in the middle of a request's head.
//!
//! actix-http times the head of a connection's first request only. After that, a client that sends half a head and
//! stops, or vanishes without a word, would keep its connection for ever, and a few thousand of those keep everybody
//! else out.

use std::{
    net::{Shutdown, TcpStream},
    os::fd::AsFd as _,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use actix_web::{
    dev::{Extensions, ServiceRequest},
    rt::net::TcpStream as ActixStream,
};
use tokio_util::sync::CancellationToken;

/// The open connections of a server.
pub(super) struct Connections {
    open: Mutex<Vec<Weak<Connection>>>,
    /// Longest time from the start of one request to the start of the next.
    limit: Duration,
    since: Instant,
}

/// Lives as long as its connection.
struct Connection {
    /// A second handle, only for closing: actix has none to offer.
    socket: TcpStream,
    /// When its last request began, in milliseconds of [`Connections::since`].
    last_request: AtomicU64,
    since: Instant,
}

impl Connections {
    pub(super) fn new(limit: Duration) -> Arc<Self> {
        Arc::new(Self {
            open: Mutex::default(),
            limit,
            since: Instant::now(),
        })
    }

    /// Remembers a new connection; for `HttpServer::on_connect`.
    pub(super) fn opened(&self, io: &dyn std::any::Any, data: &mut Extensions) {
        let socket = io
            .downcast_ref::<ActixStream>()
            .and_then(|io| io.as_fd().try_clone_to_owned().ok());
        if let Some(socket) = socket {
            let connection = Arc::new(Connection {
                socket: socket.into(),
                last_request: AtomicU64::new(millis(self.since)),
                since: self.since,
            });
            let weak = Arc::downgrade(&connection);
            data.insert(connection);
            self.open.lock().unwrap_or_else(PoisonError::into_inner).push(weak);
        }
    }

    /// Closes what is overdue, now and then, until `stop`.
    pub(super) async fn sweep(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(self.limit / 8 + Duration::from_millis(1));
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            self.close_overdue();
        }
    }

    fn close_overdue(&self) {
        let limit = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
        let now = millis(self.since);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|connection| {
            let Some(connection) = connection.upgrade() else {
                return false;
            };
            if now.saturating_sub(connection.last_request.load(Ordering::Relaxed)) > limit {
                // It is closed already where this fails.
                let _ = connection.socket.shutdown(Shutdown::Both);
            }
            true
        });
    }
}

/// Notes that a request begins.
pub(super) fn note(request: &ServiceRequest) {
    if let Some(connection) = request.conn_data::<Arc<Connection>>() {
        connection
            .last_request
            .store(millis(connection.since), Ordering::Relaxed);
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
