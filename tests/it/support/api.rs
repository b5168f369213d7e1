//! A stand-in for the API of a sender: answers GET requests as the test says, and remembers them.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// A question.
#[derive(Debug, Clone)]
pub struct Asked {
    pub path: String,
    pub query: HashMap<String, String>,
    /// Names in lower case.
    pub headers: HashMap<String, String>,
}

impl Asked {
    pub fn query(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }
}

/// An answer.
pub struct Said {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

impl Said {
    pub fn json(value: &Value) -> Self {
        Self {
            status: 200,
            headers: vec![("Content-Type", "application/json".into())],
            body: value.to_string(),
        }
    }

    pub fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: "{\"error\":\"as the test says\"}".into(),
        }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

type Script = dyn Fn(&Asked, usize) -> Said + Send + Sync;

/// A running stand-in; stops with the test's runtime.
#[derive(Clone)]
pub struct Api {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Api {
    /// Answers as the function says; it is given the question and how many came before.
    pub async fn with(script: impl Fn(&Asked, usize) -> Said + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = Self {
            address: listener.local_addr().unwrap(),
            asked: Arc::default(),
        };
        let (serving, script): (Self, Arc<Script>) = (api.clone(), Arc::new(script));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, serving.clone(), script.clone()));
            }
        });
        api
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, api: Api, script: Arc<Script>) {
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            match stream.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        };
        let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
        buffer.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let target = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
        let url = reqwest::Url::parse(&format!("http://api{target}")).unwrap();
        let asked = Asked {
            path: url.path().to_owned(),
            query: url.query_pairs().into_owned().collect(),
            headers: lines
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                .collect(),
        };
        let said = {
            let mut all = api.asked.lock().unwrap();
            let said = script(&asked, all.len());
            all.push(asked);
            said
        };
        let headers: String = said
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let response = format!(
            "HTTP/1.1 {} Scripted\r\n{headers}Content-Length: {}\r\n\r\n{}",
            said.status,
            said.body.len(),
            said.body
        );
        if stream.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}
