//! The middleware with its own transaction, through a real program (`examples/orders`): the key, the effect and the answer
//! are there together or not at all, whenever the program is killed.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use futures_util::future::join_all;
use serde_json::Value;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::{
    gateway::Reply,
    support::{Engine, Setup, Signal, TestStore, clean, on_both_stores, wait_until},
};

on_both_stores!(
    killed_before_the_effect_nothing_is_there_and_the_request_runs,
    killed_between_the_effect_and_the_commit_nothing_is_there_and_the_request_runs,
    killed_between_the_commit_and_the_answer_the_answer_is_given_again,
    killed_at_any_moment_each_key_has_one_order_and_one_event,
    a_hundred_at_once_make_one_order,
    an_order_that_is_undone_keeps_nothing,
);

/// The program; killed when dropped.
struct Orders {
    client: reqwest::Client,
    child: Child,
    address: SocketAddr,
}

/// `cargo test` and `tests/run` build it with the tests.
fn program() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let program = deps.parent().and_then(Path::parent).unwrap().join("examples/orders");
    assert!(
        program.exists(),
        "{} is not there: run `cargo build --example orders`",
        program.display()
    );
    program
}

impl Orders {
    async fn start(store: &TestStore) -> Self {
        let log = store
            .folder()
            .join(format!("orders-{:016x}.log", rand::random::<u64>()));
        let mut child = clean(Command::new(program()))
            .env("ORDERS_STORE", &store.url)
            .env("ORDERS_LISTEN", "127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(File::create(&log).unwrap())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut address = None;
        wait_until("the program listens", async || {
            assert!(child.try_wait().unwrap().is_none(), "the program ended");
            let said = std::fs::read_to_string(&log).unwrap();
            address = said
                .trim()
                .strip_prefix("listening on http://")
                .and_then(|a| a.parse().ok());
            address.is_some()
        })
        .await;
        Self {
            client: reqwest::Client::new(),
            child,
            address: address.unwrap(),
        }
    }

    async fn try_order(&self, key: &str) -> Result<Reply, reqwest::Error> {
        let response = self
            .client
            .post(format!("http://{}/orders", self.address))
            .header("authorization", "Bearer ana")
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .body(body(key))
            .send()
            .await?;
        Ok(Reply {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.bytes().await?.to_vec(),
        })
    }

    async fn order(&self, key: &str) -> Reply {
        self.try_order(key).await.unwrap()
    }

    /// Sends a request whose answer nobody will read.
    async fn order_and_forget(&self, key: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let body = body(key);
        let request = format!(
            "POST /orders HTTP/1.1\r\nHost: orders\r\nAuthorization: Bearer ana\r\nContent-Type: application/json\r\n\
             Idempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    fn signal(&self, signal: Signal) {
        signal.send(self.child.id());
    }

    fn kill(mut self) {
        self.signal(Signal::Kill);
        self.child.wait().unwrap();
    }
}

impl Drop for Orders {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An order that names its key.
fn body(key: &str) -> String {
    format!("{{\"item\":\"{key}\",\"quantity\":2}}")
}

/// What is kept of an answer, byte for byte.
fn kept(reply: &Reply) -> (u16, HashMap<String, Vec<u8>>, Vec<u8>) {
    let headers = reply.headers.iter().filter(|(name, _)| {
        let of_the_moment = ["date", "idempotent-replayed"];
        !of_the_moment.contains(&name.as_str())
    });
    let headers = headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
    (reply.status, headers.collect(), reply.body.clone())
}

async fn end_leases(store: &TestStore) {
    store
        .execute("update api_idempotency_keys set locked_until = created_at where status = 'processing'")
        .await;
}

async fn orders(store: &TestStore) -> i64 {
    store.number("select count(*) from orders").await
}

/// Kills the program in the middle of the transaction of an order, where statements of this kind stall.
async fn killed_where(store: &TestStore, when: &str, table: &str, condition: &str) {
    // Makes the tables.
    Orders::start(store).await.kill();
    store.stall(when, table, condition).await;
    loop {
        let program = Orders::start(store).await;
        let (reply, ()) = tokio::join!(program.try_order("k"), async {
            wait_until("the key is there", async || {
                store.number("select count(*) from api_idempotency_keys").await == 1
            })
            .await;
            // On SQLite any write looks like this for a moment.
            let mut looks = 0;
            wait_until("the transaction stalls", async || {
                looks = if store.is_stalled().await { looks + 1 } else { 0 };
                looks > 4
            })
            .await;
            program.signal(Signal::Kill);
        });
        match reply {
            Err(_) => break,
            // The transaction was out of time before it could be killed.
            Ok(reply) => assert_eq!(reply.status, 500),
        }
    }
    store.go_on(table).await;
    assert_eq!(orders(store).await, 0);
    assert_eq!(store.number("select count(*) from outbox").await, 0);

    let program = Orders::start(store).await;
    let early = program.order("k").await;
    assert_eq!(
        (early.status, early.code().as_str()),
        (409, "request_in_progress"),
        "its lease holds"
    );
    end_leases(store).await;
    let first = program.order("k").await;
    assert_eq!((first.status, first.is_replay()), (201, false));
    let again = program.order("k").await;
    assert!(again.is_replay());
    assert_eq!(kept(&again), kept(&first));
    assert_eq!(orders(store).await, 1);
    assert_eq!(store.number("select count(*) from outbox").await, 1);
}

async fn killed_before_the_effect_nothing_is_there_and_the_request_runs(store: TestStore) {
    killed_where(&store, "before insert", "orders", "true").await;
}

async fn killed_between_the_effect_and_the_commit_nothing_is_there_and_the_request_runs(store: TestStore) {
    // The order is written, and so is the answer.
    killed_where(
        &store,
        "after update",
        "api_idempotency_keys",
        "new.status = 'completed'",
    )
    .await;
}

async fn killed_between_the_commit_and_the_answer_the_answer_is_given_again(store: TestStore) {
    let program = Orders::start(&store).await;
    if store.engine == Engine::Postgres {
        // The commit itself takes a while, and the program stands still when it comes back.
        store
            .execute(
                "create function linger() returns trigger language plpgsql as
                     $$ begin perform pg_sleep(2); return null; end $$;
                 create constraint trigger linger after insert on orders deferrable initially deferred
                     for each row execute function linger()",
            )
            .await;
    }
    let unread = program.order_and_forget("k").await;
    if store.engine == Engine::Postgres {
        wait_until("the commit is under way", async || store.is_stalled().await).await;
        program.signal(Signal::Stop);
    }
    wait_until("it is committed", async || {
        store
            .number("select count(*) from api_idempotency_keys where status = 'completed'")
            .await
            == 1
    })
    .await;
    program.kill();
    drop(unread);

    let program = Orders::start(&store).await;
    let first = program.order("k").await;
    assert_eq!((first.status, first.is_replay()), (201, true));
    let order: Value = serde_json::from_slice(&first.body).unwrap();
    assert_eq!(
        first.header("location"),
        format!("/orders/{}", order["id"].as_str().unwrap())
    );
    // From the memory of the process, and from the disk.
    assert_eq!(kept(&program.order("k").await), kept(&first));
    program.kill();
    let program = Orders::start(&store).await;
    assert_eq!(kept(&program.order("k").await), kept(&first));
    assert_eq!(orders(&store).await, 1);
}

async fn killed_at_any_moment_each_key_has_one_order_and_one_event(store: TestStore) {
    const ROUNDS: usize = 3;
    const KEYS: usize = 40;
    let mut acknowledged = HashMap::new();
    for round in 0..ROUNDS {
        let program = Orders::start(&store).await;
        let before = orders(&store).await;
        let keys: Vec<String> = (0..KEYS).map(|n| format!("{round}-{n}")).collect();
        let (replies, ()) = tokio::join!(
            join_all(keys.iter().map(async |key| (key.clone(), program.try_order(key).await))),
            async {
                wait_until("some are committed", async || {
                    orders(&store).await >= before + 1 + 8 * round as i64
                })
                .await;
                program.signal(Signal::Kill);
            }
        );
        for (key, reply) in replies {
            if let Ok(reply) = reply {
                assert_eq!(reply.status, 201, "{key}");
                acknowledged.insert(key, kept(&reply));
            }
        }
    }
    end_leases(&store).await;
    let program = Orders::start(&store).await;
    for round in 0..ROUNDS {
        for n in 0..KEYS {
            let key = format!("{round}-{n}");
            let reply = program.order(&key).await;
            assert_eq!(reply.status, 201, "{key}");
            if let Some(first) = acknowledged.get(&key) {
                assert!(reply.is_replay(), "{key}");
                assert_eq!(&kept(&reply), first, "{key}");
            }
        }
    }
    program.kill();
    let all = (ROUNDS * KEYS) as i64;
    assert_eq!(orders(&store).await, all);
    assert_eq!(store.number("select count(distinct item) from orders").await, all);

    // What the transactions wrote to the outbox becomes events: of every order one, and of none that was undone.
    let server = Setup::new(&store).start().await;
    wait_until("the outbox is empty", async || {
        store.number("select count(*) from outbox").await == 0
    })
    .await;
    let events = server.all_events("outbox").await;
    let ids: HashSet<&str> = events
        .iter()
        .filter_map(|event| event["provider_event_id"].as_str())
        .collect();
    assert_eq!((events.len(), ids.len()), (ROUNDS * KEYS, ROUNDS * KEYS));
    let known = "select count(*) from webhook_events e join orders o on o.id = e.provider_event_id";
    assert_eq!(store.number(known).await, all);
}

async fn a_hundred_at_once_make_one_order(store: TestStore) {
    let program = Orders::start(&store).await;
    let replies = join_all((0..100).map(|_| program.order("k"))).await;
    let mut firsts = Vec::new();
    for reply in &replies {
        match reply.status {
            201 if !reply.is_replay() => firsts.push(kept(reply)),
            201 => {}
            409 => {
                assert_eq!(reply.code(), "request_in_progress");
                assert!(reply.header("retry-after").parse::<u64>().is_ok());
            }
            status => panic!("{status}"),
        }
    }
    assert_eq!(firsts.len(), 1);
    for reply in replies.iter().filter(|reply| reply.is_replay()) {
        assert_eq!(kept(reply), firsts[0]);
    }
    assert_eq!(kept(&program.order("k").await), firsts[0]);
    assert_eq!(orders(&store).await, 1);
    assert_eq!(store.number("select count(*) from outbox").await, 1);
}

async fn an_order_that_is_undone_keeps_nothing(store: TestStore) {
    let program = Orders::start(&store).await;
    store.execute("alter table outbox rename to elsewhere").await;
    let failed = program.order("k").await;
    assert_eq!(failed.status, 500);
    assert_eq!(failed.header("content-type"), "application/problem+json");
    assert!(
        !String::from_utf8_lossy(&failed.body).contains("outbox"),
        "what the database says is not the client's"
    );
    assert_eq!(orders(&store).await, 0);
    store.execute("alter table elsewhere rename to outbox").await;
    // The key is free.
    wait_until("the order is made", async || {
        let reply = tokio::time::timeout(Duration::from_secs(10), program.order("k"))
            .await
            .unwrap();
        reply.status == 201
    })
    .await;
    assert_eq!(orders(&store).await, 1);
}
