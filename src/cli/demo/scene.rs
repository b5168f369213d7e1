//! The scratch folder: a configuration with made-up secrets, and a database with a table for the effects.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::Arc,
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::handlers::{Action, LogHandler, Route};

/// Who sends, and the form of their secrets.
const PROVIDERS: &[(&str, Secret)] = &[
    ("stripe", Secret::Whsec),
    ("github", Secret::Hex),
    ("shopify", Secret::Hex),
    ("slack", Secret::Hex),
    ("asaas", Secret::Hex),
    ("twilio", Secret::Hex),
];

#[derive(Clone, Copy)]
enum Secret {
    Whsec,
    Hex,
}

/// The name of the handler whose effects are counted.
pub(super) const PAYMENTS: &str = "payments";

/// The handler that prints.
const NOTIFY: &str = "notify";

pub(super) struct Scene {
    pub(super) folder: PathBuf,
    pub(super) config: PathBuf,
    pub(super) text: String,
    /// What the handler of kind `log` prints.
    pub(super) log: PathBuf,
    database: PathBuf,
}

impl Scene {
    /// Makes the folder and writes the configuration.
    pub(super) fn new(listen: Option<SocketAddr>, admin: Option<SocketAddr>) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("cerca-demo-{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let config = folder.join("cerca.toml");
        let database = folder.join("demo.db");
        let listen = listen.map_or_else(|| free_port(8080), Ok)?;
        let admin = admin.map_or_else(|| free_port(8081), Ok)?;
        let mut text = format!(
            "# Made up by `cerca demo`.\n\n[server]\nlisten = \"{listen}\"\n\n[admin]\nlisten = \"{admin}\"\n\n\
             [store]\nurl = \"sqlite:{}\"\n\n",
            database.display()
        );
        for (name, form) in PROVIDERS {
            text.push_str(&format!(
                "[[provider]]\nname = \"{name}\"\nsecrets = [\"{}\"]\n\n",
                form.make_up()
            ));
        }
        text.push_str(HANDLERS);
        fs::write(&config, &text).with_context(|| format!("cannot write {}", config.display()))?;
        Ok(Self {
            log: folder.join("notify.log"),
            folder,
            config,
            text,
            database,
        })
    }

    /// Sends the lines of the log handler to a file, because standard output shows the account.
    pub(super) fn log_to_file(&self, routes: &mut [Route]) -> anyhow::Result<()> {
        let file = fs::File::create(&self.log).with_context(|| format!("cannot write {}", self.log.display()))?;
        if let Some(route) = routes.iter_mut().find(|route| &*route.name == NOTIFY) {
            route.action = Action::Outside(Arc::new(LogHandler::to(file)));
        }
        Ok(())
    }

    /// The table of the effects, as an application beside Cerca would have it. It has no unique column: an event that
    /// had its effect twice would show.
    pub(super) fn create_payments(&self) -> anyhow::Result<()> {
        self.connection()?
            .execute_batch("create table if not exists payments (key text not null, provider text not null, type text)")
            .context("cannot make the table payments")
    }

    pub(super) fn count_payments(&self) -> anyhow::Result<u64> {
        let count: i64 = self
            .connection()?
            .query_row("select count(*) from payments", (), |row| row.get(0))?;
        Ok(u64::try_from(count)?)
    }

    fn connection(&self) -> anyhow::Result<rusqlite::Connection> {
        let connection = rusqlite::Connection::open(&self.database)?;
        connection.busy_timeout(std::time::Duration::from_secs(10))?;
        Ok(connection)
    }

    pub(super) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Twilio's events are left to nobody on purpose: they are stored all the same.
const HANDLERS: &str = r#"# An effect in the store's own database commits together with the note that it is done.
[[handler]]
name = "payments"
events = ["stripe:*", "asaas:*", "shopify:*"]
kind = "sql"
statement = "insert into payments (key, provider, type) values ($1, $2, $3)"
params = ["event:idempotency_key", "event:provider", "event:event_type"]

[[handler]]
name = "notify"
events = ["github:*", "slack:*"]
kind = "log"
"#;

impl Secret {
    fn make_up(self) -> String {
        match self {
            Self::Whsec => format!("whsec_{}", STANDARD.encode(rand::random::<[u8; 24]>())),
            Self::Hex => hex::encode(rand::random::<[u8; 16]>()),
        }
    }
}

/// The usual port where it is free, else any. It is given back before the server takes it, which only a race can spoil.
fn free_port(usual: u16) -> anyhow::Result<SocketAddr> {
    let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let listener = TcpListener::bind(local(usual)).or_else(|_| TcpListener::bind(local(0)))?;
    Ok(listener.local_addr()?)
}
