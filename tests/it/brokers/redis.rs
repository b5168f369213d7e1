//! Streams of a real redis-server.

use std::{net::SocketAddr, process::Command};

use super::{
    Received, all_done, assert_bodies, assert_numbered, on_sqlite, program, program::Program, retried, send_bodies,
    send_numbered, setup,
};
use crate::support::TestStore;

struct Redis {
    program: Program,
    address: SocketAddr,
}

/// The id of an entry, and its fields.
type Entry = (String, Vec<(String, Vec<u8>)>);

impl Redis {
    async fn start(store: &TestStore) -> Option<Self> {
        let binary = program::find(&["redis-server"])?;
        let address = program::free_address();
        let (port, folder) = (address.port().to_string(), store.folder().to_owned());
        let make = move || {
            let mut command = Command::new(&binary);
            command
                .args([
                    "--port",
                    &port,
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--appendonly",
                    "yes",
                ])
                .args(["--requirepass", "right", "--dir"])
                .arg(&folder);
            command
        };
        Some(Self {
            program: Program::start("redis", store, address, make).await,
            address,
        })
    }

    fn handler(&self, more: &str) -> String {
        format!("kind = \"redis\"\nurl = \"redis://:right@{}/1\"\n{more}", self.address)
    }

    async fn run<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        let client = redis::Client::open(format!("redis://:right@{}/1", self.address)).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut words = command.iter();
        let mut command = redis::cmd(words.next().unwrap());
        for word in words {
            command.arg(word);
        }
        command.query_async(&mut connection).await.unwrap()
    }

    async fn all(&self, stream: &str) -> Vec<Received> {
        let entries: Vec<Entry> = self.run(&["XRANGE", stream, "-", "+"]).await;
        let received = entries.into_iter().map(|(_, fields)| {
            let body = fields.iter().find(|(name, _)| name == "payload").unwrap().1.clone();
            let headers = fields
                .into_iter()
                .filter(|(name, _)| name != "payload")
                .map(|(name, value)| (name, String::from_utf8(value).unwrap()));
            Received {
                headers: headers.collect(),
                body,
            }
        });
        received.collect()
    }
}

#[test]
fn every_event_is_in_the_stream_once() {
    on_sqlite(async |store: TestStore| {
        let Some(redis) = Redis::start(&store).await else {
            return;
        };
        let server = setup(&store, &redis.handler("stream = \"hooks:{provider}\""))
            .start()
            .await;
        send_bodies(&server).await;
        assert_bodies(&redis.all("hooks:github").await);
    });
}

#[test]
fn a_killed_server_loses_nothing() {
    on_sqlite(async |store: TestStore| {
        let Some(mut redis) = Redis::start(&store).await else {
            return;
        };
        let server = setup(&store, &redis.handler("stream = \"hooks\"")).start().await;
        send_numbered(&server, 0..20).await;
        redis.program.kill();
        send_numbered(&server, 20..40).await;
        retried(&server, "39").await;
        redis.program.restart().await;
        all_done(&server, 0..40).await;
        assert_numbered(&redis.all("hooks").await, 40);
    });
}

#[test]
fn a_key_that_is_no_stream_and_a_wrong_password_are_tried_again() {
    on_sqlite(async |store: TestStore| {
        let Some(redis) = Redis::start(&store).await else {
            return;
        };
        let _: () = redis.run(&["SET", "hooks", "text"]).await;
        let wrong = format!(
            "[[handler]]\nname = \"wrong\"\nevents = [\"stripe\"]\nkind = \"redis\"\nstream = \"hooks\"\n\
             url = \"redis://:hunter2@{}/1\"\nretry = {{ attempts = 2, base = \"100ms\", cap = \"100ms\" }}\n",
            redis.address
        );
        let server = setup(&store, &redis.handler("stream = \"hooks\""))
            .with(&wrong)
            .start()
            .await;
        server.github("1", b"{}").await;
        let said = retried(&server, "1").await;
        assert!(said.contains("WRONGTYPE"), "{said}");
        let _: () = redis.run(&["DEL", "hooks"]).await;
        server.wait_for("github", "1", "done").await;
        server.stripe("evt_1").await;
        let event = server.wait_for("stripe", "evt_1", "failed").await;
        let said = event.to_string();
        assert!(said.contains("cannot connect"), "{said}");
        assert!(!said.contains("hunter2") && !server.log().contains("hunter2"), "{said}");
    });
}

#[test]
fn a_declared_length_trims_the_stream() {
    on_sqlite(async |store: TestStore| {
        let Some(redis) = Redis::start(&store).await else {
            return;
        };
        let handler = redis.handler("stream = \"hooks\"\nmax_length = 1");
        let server = setup(&store, &handler).start().await;
        // Redis trims whole nodes only.
        let _: () = redis.run(&["CONFIG", "SET", "stream-node-max-entries", "5"]).await;
        send_numbered(&server, 0..40).await;
        all_done(&server, 0..40).await;
        let length: usize = redis.run(&["XLEN", "hooks"]).await;
        assert!((1..=10).contains(&length), "{length}");
    });
}
