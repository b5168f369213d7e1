//! `cerca send`: one key for an operation, whatever is killed, and one effect at a server that honours keys.

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::Stdio,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::support::{Place, Ran};

/// What arrived: key, body, and the value of `Authorization`.
type Arrived = (String, String, String);

/// A server that counts keys. What it answers is decided by the number of requests before and by the body.
struct Api {
    address: SocketAddr,
    arrived: Arc<Mutex<Vec<Arrived>>>,
}

impl Api {
    fn start(answer: impl Fn(usize, &str) -> String + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), answer)
    }

    fn on(listener: TcpListener, answer: impl Fn(usize, &str) -> String + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().unwrap();
        let arrived = Arc::<Mutex<Vec<Arrived>>>::default();
        let (kept, answer) = (Arc::clone(&arrived), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &kept, &*answer));
            }
        });
        Self { address, arrived }
    }

    fn url(&self) -> String {
        format!("http://{}/orders", self.address)
    }

    fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, arrived: &Mutex<Vec<Arrived>>, answer: &(dyn Fn(usize, &str) -> String + Sync)) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut key, mut authorization, mut length) = (String::new(), String::new(), 0);
        loop {
            let mut line = String::new();
            if !matches!(reader.read_line(&mut line), Ok(n) if n > 0) {
                return;
            }
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                if line.trim_end().is_empty() {
                    break;
                }
                continue;
            };
            match name.to_ascii_lowercase().as_str() {
                "idempotency-key" => key = value.to_owned(),
                "authorization" => authorization = value.to_owned(),
                "content-length" => length = value.parse().unwrap(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let body = String::from_utf8(body).unwrap();
        let before = {
            let mut arrived = arrived.lock().unwrap();
            arrived.push((key, body.clone(), authorization));
            arrived.len() - 1
        };
        let answer = answer(before, &body);
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn says(status: &str, headers: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: 2\r\n\r\nok")
}

/// One command that is killed again and again, and in the end is let finish.
#[test]
fn a_killed_command_never_changes_a_key() {
    const LINES: usize = 40;
    let place = Place::new();
    let api = Api::start(|n, _| {
        std::thread::sleep(Duration::from_millis(20));
        match n % 7 {
            3 => says("503 Unavailable", ""),
            5 => says("409 Conflict", "Retry-After: 0\r\n"),
            _ => says("201 Created", ""),
        }
    });
    let lines: String = (0..LINES).map(|n| format!("{{\"order\":{n}}}\n")).collect();
    fs::write(place.path().join("orders.ndjson"), lines).unwrap();
    let url = api.url();
    let arguments = [
        "send",
        "orders.ndjson",
        "--url",
        &url,
        "--base",
        "10ms",
        "--cap",
        "20ms",
    ];
    for round in 1..=4 {
        let mut child = place
            .command(&arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while api.arrived().len() < round * 8 {
            assert!(Instant::now() < deadline, "nothing is sent");
            std::thread::sleep(Duration::from_millis(2));
        }
        // SIGKILL, at whatever it is doing.
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let ran = place.run(&arguments).ok();
    assert!(ran.stderr.contains("goes on under its keys"), "{}", ran.stderr);

    let mut keys: HashMap<String, HashSet<String>> = HashMap::new();
    for (key, body, _) in api.arrived() {
        keys.entry(body).or_default().insert(key);
    }
    assert_eq!(keys.len(), LINES);
    assert!(
        keys.values().all(|keys| keys.len() == 1),
        "an operation had two keys: {keys:?}"
    );
    let all: HashSet<&String> = keys.values().flatten().collect();
    assert_eq!(all.len(), LINES, "two operations had one key");
    let list = place.run(&["send", "--list", "--json"]).ok().objects();
    assert!(
        list.len() == LINES && list.iter().all(|one| one["state"] == "done"),
        "{list:?}"
    );
    // Finished, so the same again is meant anew.
    place.run(&arguments).ok();
    assert_eq!(place.run(&["send", "--list", "--json"]).ok().objects().len(), 2 * LINES);
}

#[test]
fn a_server_that_is_away_is_waited_for() {
    let place = Place::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    fs::write(place.path().join("order.json"), "{\"order\":1}").unwrap();
    let url = format!("http://{address}/orders");
    let pace = ["--base", "20ms", "--cap", "100ms"];
    let first = [&["send", "order.json", "--url", &url, "--attempts", "2"], &pace[..]].concat();
    place.run(&first).fails(1, "left in the spool");
    let list = place.run(&["send", "--list", "--json"]).ok().objects();
    assert_eq!(
        (&list[0]["state"], &list[0]["attempts"]),
        (&"waiting".into(), &2.into())
    );
    let key = list[0]["key"].as_str().unwrap().to_owned();

    let patient = [&["send", "--resume", "--attempts", "2000"], &pace[..]].concat();
    let child = place
        .command(&patient)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A second one leaves it alone.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !place.path().join("cerca-send.db.lock").exists() {
        assert!(Instant::now() < deadline, "the command does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    let api = Api::on(TcpListener::bind(address).unwrap(), |_, _| says("200 OK", ""));
    let ran = Ran::of(&child.wait_with_output().unwrap()).ok();
    assert!(
        ran.stdout.contains("Sent 1 operation; 0 failed, 0 still in"),
        "{}",
        ran.stdout
    );
    assert_eq!(api.arrived(), [(key, "{\"order\":1}".to_owned(), String::new())]);
    let again = place.run(&["send", "--resume", "--json"]).ok().objects();
    assert_eq!(again[0]["done"], 0);
}

#[test]
fn a_variable_that_is_not_set_loses_nothing() {
    let place = Place::new();
    let api = Api::start(|_, _| says("201 Created", ""));
    fs::write(place.path().join("order.json"), "{}").unwrap();
    let send = [
        "send",
        "order.json",
        "--url",
        &api.url(),
        "-H",
        "Authorization: env:NO_SUCH_TOKEN",
    ];
    place.run(&send).fails(1, "NO_SUCH_TOKEN is not set");
    assert!(api.arrived().is_empty());
    let list = place.run(&["send", "--list", "--json"]).ok().objects();
    assert_eq!(list[0]["state"], "waiting");
    let mut command = place.command(&["send", "--resume"]);
    let output = command.env("NO_SUCH_TOKEN", "Bearer t").output().unwrap();
    Ran::of(&output).ok();
    assert_eq!(api.arrived()[0].2, "Bearer t");
}

#[test]
fn a_final_answer_is_reported_and_the_next_goes_on() {
    let place = Place::new();
    let api = Api::start(|_, body| {
        if body.contains("bad") {
            return "HTTP/1.1 422 Unprocessable\r\nContent-Length: 16\r\n\r\nno \x1b[31msuch order".to_owned();
        }
        says("200 OK", "")
    });
    let url = api.url();
    let mut child = place
        .command(&[
            "send",
            "-",
            "--lines",
            "--url",
            &url,
            "--key",
            "batch",
            "-H",
            "Authorization: env:API_TOKEN",
        ])
        .env("API_TOKEN", "Bearer t0ken")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    { input }.write_all(b"{\"id\":\"bad\"}\n\n{\"id\":\"good\"}\n").unwrap();
    let ran = Ran::of(&child.wait_with_output().unwrap());
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("batch-1: the server answered 422") && !ran.stderr.contains('\x1b'));
    let arrived = api.arrived();
    let keys: Vec<&str> = arrived.iter().map(|(key, ..)| key.as_str()).collect();
    assert_eq!(keys, ["batch-1", "batch-3"]);
    assert!(
        arrived
            .iter()
            .all(|(.., authorization)| authorization == "Bearer t0ken")
    );
    for file in fs::read_dir(place.path()).unwrap() {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        assert!(
            !bytes.windows(5).any(|window| window == b"t0ken"),
            "the secret is on disk"
        );
    }
    let list = place.run(&["send", "--list"]).ok().stdout;
    assert!(
        list.contains("failed") && list.contains("422") && !list.contains('\x1b'),
        "{list}"
    );
    // By hand, under the key that it had.
    let ran = place
        .command(&["send", "--resume", "--retry-failed"])
        .env("API_TOKEN", "x")
        .output()
        .unwrap();
    assert_eq!(Ran::of(&ran).code, 1);
    assert_eq!(api.arrived()[2].0, "batch-1");
}

#[test]
fn what_is_not_meant_is_refused_before_anything_is_sent() {
    let place = Place::new();
    let api = Api::start(|_, _| says("200 OK", ""));
    let url = api.url();
    fs::write(place.path().join("bad.ndjson"), "{\"a\":1}\n{oops\n").unwrap();
    fs::write(place.path().join("one.json"), "{}").unwrap();
    place
        .run(&["send", "bad.ndjson", "--url", &url])
        .fails(1, "line 2: not JSON");
    place
        .run(&["send", "none.json", "--url", &url])
        .fails(1, "cannot read none.json");
    place
        .run(&["send", "one.json", "--url", "ftp://x"])
        .fails(1, "--url must be http");
    place.run(&["send", "one.json"]).fails(2, "--url");
    place
        .run(&["send", "one.json", "--url", &url, "--key", "a b"])
        .fails(1, "is not 1 to 255 printable");
    let header = ["send", "one.json", "--url", &url, "-H", "Idempotency-Key: x"];
    place.run(&header).fails(1, "--key sets the Idempotency-Key");
    place
        .run(&["send", "--resume", "--spool", "other.db"])
        .fails(1, "there is no spool");
    assert!(api.arrived().is_empty());
    place.run(&["send", "one.json", "--url", &url, "--key", "k"]).ok();
    place.run(&["send", "one.json", "--url", &url, "--key", "k"]).ok();
    assert_eq!(api.arrived().len(), 1, "a key that is done is not sent again");
    place
        .run(&["send", "bad.ndjson", "--url", &url, "--lines=false"])
        .fails(2, "lines");
    fs::write(place.path().join("one.json"), "{\"other\":1}").unwrap();
    place
        .run(&["send", "one.json", "--url", &url, "--key", "k"])
        .fails(1, "belongs to another operation");
}
