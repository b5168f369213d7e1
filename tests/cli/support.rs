//! A folder, the binary in it, and what it gave.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

/// A folder with a configuration of its own.
pub(crate) struct Place(pub(crate) TempDir);

/// What a command gave.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) const STRIPE: &str = "[[provider]]\nname = \"stripe\"\nsecrets = [\"env:STRIPE_SECRET\"]\n\n";

impl Place {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// With ports that nobody has, and this in addition.
    pub(crate) fn with(rest: &str) -> Self {
        let place = Self::new();
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (public, admin) = (free(), free());
        let (public, admin) = (public.local_addr().unwrap(), admin.local_addr().unwrap());
        place.write(&format!(
            "[server]\nlisten = \"{public}\"\n\n[admin]\nlisten = \"{admin}\"\n\n{rest}"
        ));
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, text: &str) {
        fs::write(self.path().join("cerca.toml"), text).unwrap();
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "what the environment says must not reach the binary"
    )]
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cerca"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CERCA_") {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .current_dir(self.path())
            .env("STRIPE_SECRET", "whsec_c2VjcmV0IG9mIHRoZSB0ZXN0cw==")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(&self.command(arguments).output().unwrap())
    }

    pub(crate) fn serve(&self) -> Server {
        self.serve_with(&[])
    }

    /// With further arguments.
    pub(crate) fn serve_with(&self, arguments: &[&str]) -> Server {
        let mut child = self
            .command(&["serve"])
            .args(arguments)
            .env("CERCA_LOG__FORMAT", "json")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = lines
            .by_ref()
            .map(Result::unwrap)
            .find(|line| line.contains("\"message\":\"ready\""));
        assert!(ready.is_some(), "the server did not start");
        std::thread::spawn(move || lines.for_each(drop));
        Server(child)
    }
}

impl Ran {
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn fails(self, code: i32, text: &str) {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        let all = self.stdout + &self.stderr;
        assert!(all.contains(text), "{all}");
    }

    pub(crate) fn objects(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// Ends with a SIGTERM, and in good order.
pub(crate) struct Server(Child);

impl Server {
    pub(crate) fn stop(mut self) {
        let pid = self.0.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
