//! A broker as a process of the test's own.

use std::{
    fs::File,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::support::{Signal, TestStore};

/// How long a server may take to start; RabbitMQ takes a minute on a busy machine.
const START: Duration = Duration::from_secs(240);

/// A running program; killed when dropped.
pub struct Program {
    make: Box<dyn Fn() -> Command>,
    child: Option<Child>,
    address: SocketAddr,
    log: PathBuf,
}

impl Program {
    /// Starts what `make` gives and waits until it listens on `address`.
    pub async fn start(
        name: &str,
        store: &TestStore,
        address: SocketAddr,
        make: impl Fn() -> Command + 'static,
    ) -> Self {
        let mut program = Self {
            make: Box::new(make),
            child: None,
            address,
            log: store.folder().join(format!("{name}-{}.log", address.port())),
        };
        program.restart().await;
        program
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            Signal::Term.send(child.id());
            child.wait().unwrap();
        }
    }

    /// Starts it again with the same files and the same address.
    pub async fn restart(&mut self) {
        self.kill();
        let out = File::options().create(true).append(true).open(&self.log).unwrap();
        let child = (self.make)()
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        let child = self.child.insert(child);
        let deadline = tokio::time::Instant::now() + START;
        while TcpStream::connect(self.address).is_err() {
            let ended = child.try_wait().unwrap();
            let late = tokio::time::Instant::now() > deadline;
            if ended.is_some() || late {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                panic!("the broker does not listen ({ended:?}):\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A free address below the range that the system gives to clients, so that it is still free after a restart.
pub fn free_address() -> SocketAddr {
    for _ in 0..1_000 {
        let address = SocketAddr::from(([127, 0, 0, 1], rand::random_range(20_000..32_000)));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no free port");
}

/// The program, wherever distributions put it. `None`: it is not there, and nobody insists on it.
#[allow(clippy::disallowed_methods, reason = "tests are told by the environment what to use")]
pub fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/bin", "/usr/local/sbin"].map(PathBuf::from));
    let folders: Vec<_> = folders.collect();
    let found = names.iter().find_map(|name| {
        let absolute = Some(Path::new(name))
            .filter(|path| path.is_absolute())
            .map(Path::to_owned);
        absolute
            .into_iter()
            .chain(folders.iter().map(|folder| folder.join(name)))
            .find(|path| path.is_file())
    });
    found.or_else(|| missing(names[0]))
}

/// The Python that has moto, which stands in for SQS.
#[allow(clippy::disallowed_methods, reason = "tests are told by the environment what to use")]
#[cfg(feature = "sqs")]
pub fn python() -> Option<PathBuf> {
    let python = std::env::var_os("CERCA_TEST_MOTO").map(PathBuf::from);
    python.or_else(|| missing("moto"))
}

#[allow(clippy::disallowed_methods, reason = "tests are told by the environment what to use")]
fn missing(name: &str) -> Option<PathBuf> {
    assert!(
        std::env::var_os("CERCA_TEST_REQUIRE_BROKERS").is_none(),
        "{name} is not installed"
    );
    eprintln!("skipped: {name} is not installed (tests/run installs it)");
    None
}
