//! The real binary, with a configuration of the test's own.

use std::{
    fs::File,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::Duration,
};

use serde_json::Value;

use super::{GITHUB_SECRET, STRIPE_SECRET, Signal, TestStore, wait_until};

/// What the configuration file of a test says beyond the defaults of [`Setup::new`].
#[derive(Clone)]
pub struct Setup {
    store: TestStore,
    server: String,
    store_lines: String,
    worker: String,
    sections: String,
    providers: bool,
    role: Option<&'static str>,
    adapters: bool,
    /// Another program than the binary, with variables of its own.
    program: Option<(PathBuf, Vec<(&'static str, String)>)>,
    stripe: String,
    environment: Vec<(&'static str, &'static str)>,
    token: Option<&'static str>,
}

impl Setup {
    /// Providers `stripe` and `github`, leases of 2 s, no handler.
    pub fn new(store: &TestStore) -> Self {
        Self {
            store: store.clone(),
            server: String::new(),
            store_lines: String::new(),
            worker: "lease = \"2s\"\n".into(),
            sections: String::new(),
            providers: true,
            role: None,
            adapters: false,
            program: None,
            stripe: String::new(),
            environment: Vec::new(),
            token: None,
        }
    }

    /// `token` of `[admin]`; the server's own client knows it.
    pub fn admin_token(mut self, token: &'static str) -> Self {
        self.token = Some(token);
        self
    }

    /// Runs a program that has Cerca in it, instead of the binary.
    pub fn program(mut self, program: PathBuf, variables: &[(&'static str, String)]) -> Self {
        self.program = Some((program, variables.to_vec()));
        self
    }

    /// Leaves out the usual providers.
    pub fn without_providers(mut self) -> Self {
        self.providers = false;
        self
    }

    /// Further lines of the provider `stripe`.
    pub fn stripe_lines(mut self, lines: &str) -> Self {
        self.stripe = lines.to_owned();
        self
    }

    /// A variable of the server's environment.
    pub fn environment(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// `serve --role`.
    pub fn role(mut self, role: &'static str) -> Self {
        self.role = Some(role);
        self
    }

    /// Adds an adapter folder of the test's own, found through `--providers`.
    pub fn adapter(mut self, name: &str, manifest: &str) -> Self {
        let folder = self.store.folder().join("adapters").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("adapter.toml"), manifest).unwrap();
        self.adapters = true;
        self
    }

    /// Lines of `[server]`.
    pub fn server(mut self, lines: &str) -> Self {
        self.server.push_str(lines);
        self.server.push('\n');
        self
    }

    /// `seal_key` of `[store]`.
    pub fn seal_key(mut self, key: &str) -> Self {
        self.store_lines = format!("seal_key = \"{key}\"\n");
        self
    }

    /// `lease` of `[worker]`.
    pub fn lease(mut self, lease: &str) -> Self {
        self.worker = format!("lease = \"{lease}\"\n");
        self
    }

    /// Further tables: `[[provider]]`, `[[handler]]`, …
    pub fn with(mut self, toml: &str) -> Self {
        self.sections.push_str(toml);
        self.sections.push('\n');
        self
    }

    /// An http handler for everything, with short retries.
    pub fn http(self, name: &str, url: &str) -> Self {
        self.with(&format!(
            "[[handler]]\nname = \"{name}\"\nevents = [\"*\"]\nkind = \"http\"\nurl = \"{url}\"\n\
             retry = {{ attempts = 5, base = \"50ms\", cap = \"200ms\" }}\n"
        ))
    }

    /// A sql handler for everything that writes one row of `effects` for each event. See [`Server::create_effects`].
    pub fn sql(self, name: &str) -> Self {
        self.with(&format!(
            "[[handler]]\nname = \"{name}\"\nevents = [\"*\"]\nkind = \"sql\"\n\
             statement = \"insert into effects (id) values ($1)\"\nparams = [\"body:/id\"]\n\
             retry = {{ attempts = 20, base = \"100ms\", cap = \"300ms\" }}\n"
        ))
    }

    /// An exec handler for everything that runs a line of shell.
    pub fn exec(self, name: &str, script: &str, more: &str) -> Self {
        self.with(&format!(
            "[[handler]]\nname = \"{name}\"\nevents = [\"*\"]\nkind = \"exec\"\n\
             command = [\"/bin/sh\", \"-c\", '''{script}''']\n{more}\n"
        ))
    }

    /// Writes the configuration and starts a server, without waiting for it.
    pub fn spawn(&self) -> Server {
        let config = self.write_config();
        let log = config.with_extension("log");
        let mut command = match &self.program {
            Some((program, variables)) => {
                let mut command = clean(Command::new(program));
                command.envs(variables.iter().map(|(name, value)| (*name, value)));
                command
            }
            None => cerca(),
        };
        command.args(["serve", "--config"]).arg(&config);
        if let Some(role) = self.role {
            command.args(["--role", role]);
        }
        if self.adapters {
            command.arg("--providers").arg(self.store.folder().join("adapters"));
        }
        // Both append: a handle with a place of its own would write over what the other said.
        let append = || File::options().create(true).append(true).open(&log).unwrap();
        let child = command
            .envs(self.environment.iter().copied())
            .current_dir(self.store.folder())
            .stdin(Stdio::null())
            .stdout(append())
            .stderr(append())
            .spawn()
            .unwrap();
        Server {
            client: reqwest::Client::builder()
                .no_proxy()
                .timeout(Duration::from_secs(40))
                .redirect(reqwest::redirect::Policy::none())
                .default_headers(self.token.map(bearer).unwrap_or_default())
                .build()
                .unwrap(),
            child,
            addresses: None,
            config,
            log,
            store: self.store.clone(),
        }
    }

    /// Starts a server and waits until it is ready.
    pub async fn start(&self) -> Server {
        let mut server = self.spawn();
        let ready = server.becomes_ready().await;
        assert!(ready, "the server ended:\n{}", server.log());
        server
    }

    /// Writes the configuration file and gives its path.
    pub fn write_config(&self) -> PathBuf {
        let providers = if self.providers {
            format!(
                "[[provider]]\nname = \"stripe\"\nsecrets = [\"{STRIPE_SECRET}\"]\n{}\n\n\
                 [[provider]]\nname = \"github\"\nsecrets = [\"{GITHUB_SECRET}\"]\n\n",
                self.stripe
            )
        } else {
            String::new()
        };
        let token = self.token.map(|token| format!("token = \"{token}\"\n"));
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\npublic_url = \"https://hooks.example.com\"\n{}\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n{}\n\
             [log]\nformat = \"json\"\n\n[store]\nurl = \"{}\"\n{}\n[worker]\n{}\n{providers}{}",
            self.server,
            token.unwrap_or_default(),
            self.store.url,
            self.store_lines,
            self.worker,
            self.sections
        );
        let path = self
            .store
            .folder()
            .join(format!("cerca-{:016x}.toml", rand::random::<u64>()));
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// A running server; killed when dropped.
pub struct Server {
    pub client: reqwest::Client,
    child: Child,
    /// Public and admin, once it has said them.
    addresses: Option<(SocketAddr, SocketAddr)>,
    config: PathBuf,
    log: PathBuf,
    store: TestStore,
}

impl Server {
    /// Where webhooks go.
    pub fn public(&self) -> SocketAddr {
        self.addresses.expect("the server is ready").0
    }

    /// Where the API is.
    pub fn admin(&self) -> SocketAddr {
        self.addresses.expect("the server is ready").1
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn signal(&self, signal: Signal) {
        signal.send(self.pid());
    }

    /// Ends it as a power cut would.
    pub fn kill(mut self) {
        self.signal(Signal::Kill);
        self.child.wait().unwrap();
    }

    /// Asks it to stop, and waits until it has.
    pub async fn stop(mut self) -> ExitStatus {
        self.signal(Signal::Term);
        self.wait_for_exit().await
    }

    pub async fn wait_for_exit(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the server exits", async || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }

    /// Makes the table that [`Setup::sql`] writes to.
    pub async fn create_effects(&self) {
        self.store.execute("create table effects (id text not null)").await;
    }

    /// Starts a command of the binary with the server's own configuration.
    pub fn start_cli(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Runs a command of the binary with the server's own configuration.
    pub fn cli(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The same, of a machine that finds the server at the address of its configuration.
    pub fn cli_at_server(&self, arguments: &[&str]) -> Output {
        let listen = self.admin().to_string();
        self.command(arguments)
            .env("CERCA_ADMIN__LISTEN", listen)
            .output()
            .unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = cerca();
        command.args(arguments).arg("--config").arg(&self.config);
        command.current_dir(self.store.folder()).stdin(Stdio::null());
        command
    }

    /// Waits for readiness; `false` when the process ends first.
    pub async fn becomes_ready(&mut self) -> bool {
        let mut alive = true;
        wait_until("the server is ready", async || {
            alive = self.is_running();
            if self.addresses.is_none() {
                self.addresses = addresses(&self.log());
            }
            let Some((_, admin)) = self.addresses else {
                return !alive;
            };
            let url = format!("http://{admin}/readyz");
            !alive || matches!(self.client.get(url).send().await, Ok(reply) if reply.status() == 200)
        })
        .await;
        alive
    }
}

fn bearer(token: &str) -> reqwest::header::HeaderMap {
    let value = format!("Bearer {token}").parse().unwrap();
    [(reqwest::header::AUTHORIZATION, value)].into_iter().collect()
}

/// The addresses that the line "ready" of the log names. A worker takes no webhooks and says none for them.
fn addresses(log: &str) -> Option<(SocketAddr, SocketAddr)> {
    let line = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|line| line["message"] == "ready")?;
    let address = |field: &str| line[field].as_str()?.split('/').nth(2)?.parse().ok();
    let admin = address("admin")?;
    Some((address("public").unwrap_or(admin), admin))
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let tail = log.len().saturating_sub(6000);
            let tail = (tail..=log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(0);
            eprintln!("--- log of the server:\n{}", &log[tail..]);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The binary under test, in an environment that configures nothing.
pub fn cerca() -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_cerca")))
}

/// A program in such an environment.
#[allow(
    clippy::disallowed_methods,
    reason = "what the environment says must not reach the binary"
)]
pub fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CERCA_") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command
}
