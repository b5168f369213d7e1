//! Senders that remember what was acknowledged.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use super::{Server, stripe, stripe_body, wait_until};

/// Unique Stripe events, sent on several connections until told to stop.
pub struct Load {
    acknowledged: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    senders: JoinSet<()>,
}

impl Load {
    /// Ids begin with `prefix`. A sender whose connection breaks, or that is told 503, goes on with its next event.
    pub fn start(server: &Server, prefix: &str, connections: usize) -> Self {
        let mut load = Self {
            acknowledged: Arc::default(),
            stop: Arc::default(),
            senders: JoinSet::new(),
        };
        let url = format!("http://{}/webhooks/stripe", server.public());
        for connection in 0..connections {
            let sender = Sender {
                client: server.client.clone(),
                url: url.clone(),
                prefix: format!("{prefix}_{connection}"),
                acknowledged: load.acknowledged.clone(),
                stop: load.stop.clone(),
            };
            load.senders.spawn(sender.run());
        }
        load
    }

    /// Waits until this many events are acknowledged.
    pub async fn reaches(&self, count: usize) {
        wait_until(&format!("{count} events are acknowledged"), async || {
            self.acknowledged.lock().unwrap().len() >= count
        })
        .await;
    }

    /// Stops the senders and gives the ids that were acknowledged.
    pub async fn stop(mut self) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.senders.join_next().await {
            ended.unwrap();
        }
        let acknowledged = self.acknowledged.lock().unwrap();
        acknowledged.clone()
    }
}

struct Sender {
    client: reqwest::Client,
    url: String,
    prefix: String,
    acknowledged: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
}

impl Sender {
    async fn run(self) {
        for n in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let id = format!("{}_{n}", self.prefix);
            let body = stripe_body(&id);
            let mut request = self.client.post(&self.url);
            for (name, value) in stripe(&body) {
                request = request.header(name, value);
            }
            match request.body(body).send().await.map(|reply| reply.status().as_u16()) {
                Ok(200) => self.acknowledged.lock().unwrap().push(id),
                Ok(503) | Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                Ok(status) => panic!("an honest event was answered {status}"),
            }
        }
    }
}
