//! For `benches/gateway`: an upstream (`--serve ADDRESS`), or a load generator that sends POSTs on keep-alive connections
//! and prints one JSON line. `--keys fresh` gives each request a key of its own, `one` the same to all, `none` none.

use std::{
    collections::HashMap,
    env,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use actix_web::{App, HttpResponse, HttpServer, rt, web};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

type Failure = Box<dyn std::error::Error>;

#[actix_web::main]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = env::args().skip(1).collect();
    let said: HashMap<&str, &str> = words.chunks(2).filter_map(|pair| Some((&*pair[0], &**pair.get(1)?))).collect();
    match said.get("--serve") {
        Some(address) => serve(address).await,
        None => load(&said).await,
    }
}

async fn serve(address: &str) -> Result<(), Failure> {
    let create = |body: web::Bytes| async move {
        HttpResponse::Created()
            .insert_header(("location", "/orders/1"))
            .content_type("application/json")
            .body(format!("{{\"id\":\"1\",\"size\":{}}}", body.len()))
    };
    let app = move || App::new().default_service(web::to(create));
    HttpServer::new(app).workers(1).bind(address)?.run().await?;
    Ok(())
}

/// What all connections share.
struct Run {
    head: String,
    body: String,
    keys: String,
    prefix: u128,
    requests: usize,
    next: AtomicUsize,
    errors: AtomicUsize,
}

async fn load(said: &HashMap<&str, &str>) -> Result<(), Failure> {
    let word = |name: &str, default: &str| said.get(name).copied().unwrap_or(default).to_owned();
    let url = word("--url", "");
    let rest = url.strip_prefix("http://").ok_or("--url http://HOST:PORT/PATH is needed")?;
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (requests, connections): (usize, usize) = (word("-n", "10000").parse()?, word("-c", "16").parse()?);
    let size: usize = word("--body", "512").parse()?;
    let body = format!("{{\"item\":\"{}\"}}", "x".repeat(size.saturating_sub(11)));
    let run = Arc::new(Run {
        head: format!(
            "POST /{path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
            word("--auth", "Bearer bench"),
            body.len()
        ),
        body,
        keys: word("--keys", "fresh"),
        prefix: SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos(),
        requests,
        next: AtomicUsize::new(0),
        errors: AtomicUsize::new(0),
    });
    if run.keys == "one" {
        // The first request under the key is not what is measured.
        let mut stream = TcpStream::connect(address).await?;
        exchange(&mut stream, &run, 0, &mut Vec::new()).await?;
    }
    let start = Instant::now();
    let tasks: Vec<_> = (0..connections)
        .map(|_| rt::spawn(connection(address.to_owned(), Arc::clone(&run))))
        .collect();
    let mut took: Vec<u64> = Vec::with_capacity(requests);
    for task in tasks {
        took.extend(task.await?);
    }
    let seconds = start.elapsed().as_secs_f64();
    took.sort_unstable();
    let at = |share: f64| took.get((took.len() as f64 * share) as usize).copied().unwrap_or(0);
    println!(
        "{}",
        serde_json::json!({
            "rps": took.len() as f64 / seconds, "ok": took.len(), "errors": run.errors.load(Relaxed),
            "p50_us": at(0.5), "p99_us": at(0.99),
        })
    );
    Ok(())
}

async fn connection(address: String, run: Arc<Run>) -> Vec<u64> {
    let mut took = Vec::new();
    let mut buffer = Vec::new();
    let Ok(mut stream) = TcpStream::connect(&address).await else {
        run.errors.fetch_add(1, Relaxed);
        return took;
    };
    let _ = stream.set_nodelay(true);
    loop {
        let nth = run.next.fetch_add(1, Relaxed);
        if nth >= run.requests {
            return took;
        }
        let begun = Instant::now();
        match exchange(&mut stream, &run, nth, &mut buffer).await {
            Ok(201) => took.push(begun.elapsed().as_micros() as u64),
            Ok(_) => drop(run.errors.fetch_add(1, Relaxed)),
            Err(_) => {
                run.errors.fetch_add(1, Relaxed);
                return took;
            }
        }
    }
}

/// One request; gives the status.
async fn exchange(stream: &mut TcpStream, run: &Run, nth: usize, buffer: &mut Vec<u8>) -> Result<u16, Failure> {
    let key = match &*run.keys {
        "none" => String::new(),
        "one" => format!("Idempotency-Key: {:x}\r\n", run.prefix),
        _ => format!("Idempotency-Key: {:x}-{nth}\r\n", run.prefix),
    };
    stream.write_all(format!("{}{key}\r\n{}", run.head, run.body).as_bytes()).await?;
    buffer.clear();
    let head = loop {
        if stream.read_buf(buffer).await? == 0 {
            return Err("closed".into());
        }
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let text = String::from_utf8_lossy(&buffer[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.map_or(Ok(0), |length| length.trim().parse())?;
    while buffer.len() < head + length {
        if stream.read_buf(buffer).await? == 0 {
            return Err("closed".into());
        }
    }
    Ok(text.get(9..12).unwrap_or_default().parse()?)
}
