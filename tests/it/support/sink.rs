//! A target for http handlers: keeps what it is sent, and answers as the test says.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Notify,
};

/// A request that arrived.
#[derive(Debug, Clone)]
pub struct Received {
    /// Method, target and version.
    pub line: String,
    /// Names in lower case.
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
    /// When it had arrived whole.
    pub at: tokio::time::Instant,
}

impl Received {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// What to say.
#[derive(Debug, Clone)]
pub struct Answer {
    status: u16,
    delay: Duration,
    when: Option<Arc<Notify>>,
    headers: String,
    body: String,
    is_cut: bool,
}

impl Answer {
    pub fn status(status: u16) -> Self {
        Self {
            status,
            delay: Duration::ZERO,
            when: None,
            headers: String::new(),
            body: "ok".to_owned(),
            is_cut: false,
        }
    }

    /// Closes the connection without a word.
    pub fn cut() -> Self {
        Self {
            is_cut: true,
            ..Self::status(0)
        }
    }

    /// With a body of JSON.
    pub fn json(status: u16, body: &str) -> Self {
        Self {
            body: body.to_owned(),
            ..Self::status(status).header("Content-Type", "application/json")
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Only when the test says so.
    pub fn when(mut self, notify: &Arc<Notify>) -> Self {
        self.when = Some(Arc::clone(notify));
        self
    }
}

type Script = dyn Fn(&Received, usize) -> Answer + Send + Sync;

/// A running target; stops with the test's runtime.
#[derive(Clone)]
pub struct Sink {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    busy: Arc<Busy>,
    answered: Arc<AtomicUsize>,
}

/// Requests that wait for their answer, now and at most.
#[derive(Default)]
struct Busy {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Sink {
    /// Answers 200 to everything.
    pub async fn start() -> Self {
        Self::with(|_, _| Answer::status(200)).await
    }

    /// Answers with these statuses in turn, then 200.
    pub async fn answering(statuses: &'static [u16]) -> Self {
        Self::with(|_, n| Answer::status(statuses.get(n).copied().unwrap_or(200))).await
    }

    /// Answers as the function says; it is given the request and how many came before.
    pub async fn with(script: impl Fn(&Received, usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), script)
    }

    fn on(listener: TcpListener, script: impl Fn(&Received, usize) -> Answer + Send + Sync + 'static) -> Self {
        let sink = Self {
            address: listener.local_addr().unwrap(),
            received: Arc::default(),
            busy: Arc::default(),
            answered: Arc::default(),
        };
        let serving = sink.clone();
        let script: Arc<Script> = Arc::new(script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, serving.clone(), script.clone()));
            }
        });
        sink
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Everything that has arrived.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    pub fn count(&self) -> usize {
        self.received.lock().unwrap().len()
    }

    /// How many answers were written.
    pub fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }

    /// How many requests waited for their answers at once, at most.
    pub fn most_at_once(&self) -> usize {
        self.busy.most.load(Ordering::SeqCst)
    }
}

/// An address that refuses connections until it is woken.
pub struct Asleep(TcpSocket);

impl Asleep {
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        Self(socket)
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.0.local_addr().unwrap())
    }

    /// From now on it answers 200 to everything.
    pub fn wake(self) -> Sink {
        Sink::on(self.0.listen(128).unwrap(), |_, _| Answer::status(200))
    }
}

/// Requests of one connection, one after the other, until it closes or breaks.
async fn serve(mut stream: TcpStream, sink: Sink, script: Arc<Script>) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        let busy = sink.busy.now.fetch_add(1, Ordering::SeqCst) + 1;
        sink.busy.most.fetch_max(busy, Ordering::SeqCst);
        let answer = {
            let mut received = sink.received.lock().unwrap();
            let answer = script(&request, received.len());
            received.push(request);
            answer
        };
        tokio::time::sleep(answer.delay).await;
        if let Some(when) = &answer.when {
            when.notified().await;
        }
        sink.busy.now.fetch_sub(1, Ordering::SeqCst);
        if answer.is_cut {
            return;
        }
        let response = format!(
            "HTTP/1.1 {} Scripted\r\n{}Content-Length: {}\r\n\r\n{}",
            answer.status,
            answer.headers,
            answer.body.len(),
            answer.body
        );
        if stream.write_all(response.as_bytes()).await.is_err() {
            return;
        }
        sink.answered.fetch_add(1, Ordering::SeqCst);
    }
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Received> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    let headers: HashMap<_, _> = head
        .split("\r\n")
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers.get("content-length").map_or(0, |n| n.parse().unwrap());
    let body_start = head_end + 4;
    while buffer.len() < body_start + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let rest = buffer.split_off(body_start + length);
    let body = buffer.split_off(body_start);
    *buffer = rest;
    Some(Received {
        line: head.lines().next().unwrap_or_default().to_owned(),
        headers,
        body,
        at: tokio::time::Instant::now(),
    })
}
