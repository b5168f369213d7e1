//! Runs a program for each event: the event as JSON on its standard input, its exit code as the outcome.
//!
//! Exit 0 is done, 75 (`EX_TEMPFAIL`) tries again, 65 (`EX_DATAERR`) gives up; any other code tries again. A program that
//! a signal ended said nothing, so its outcome is unknown. No shell is involved. Its standard output is discarded; the end of its standard error goes into the history.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::{BoxFuture, join};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{ChildStderr, ChildStdin, Command},
    time::timeout,
};

use super::{Failure, Handler, Normalizers, Outgoing, encode, envelope, idempotency_key};

const TRY_AGAIN: i32 = 75;
const GIVE_UP: i32 = 65;
/// Characters of standard error that are kept, from its end.
const TAIL: usize = 1_000;
/// After the program has ended, one that it left behind may hold its standard error open; we wait this long for the rest.
const LAST_WORDS: Duration = Duration::from_millis(250);
/// What a program inherits of our environment; the rest may hold secrets.
const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];

pub(super) struct Exec {
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    environment: Vec<(OsString, OsString)>,
    normalizers: Arc<Normalizers>,
}

impl Exec {
    /// `command` is not empty.
    pub(super) fn new(
        command: &[String],
        folder: PathBuf,
        environment: &[(OsString, OsString)],
        normalizers: Arc<Normalizers>,
    ) -> Result<Self, String> {
        let (program, arguments) = command.split_first().ok_or("`command` is empty")?;
        if command.iter().any(|part| part.contains('\0')) {
            return Err("`command` must not contain NUL".into());
        }
        // Whose folder a relative path is relative to differs between systems; a bare name is looked up in PATH.
        let program = match program.contains('/') {
            true => folder.join(Path::new(program.strip_prefix("./").unwrap_or(program))),
            false => program.into(),
        };
        Ok(Self {
            program,
            arguments: arguments.to_vec(),
            folder,
            environment: environment
                .iter()
                .filter(|(name, _)| INHERITED.iter().any(|known| name == known))
                .cloned()
                .collect(),
            normalizers,
        })
    }

    async fn run(&self, outgoing: &Outgoing<'_>) -> Result<(), Failure> {
        let claim = outgoing.claim;
        let event = &claim.event;
        let input = input(outgoing, &self.normalizers)?;
        // As in HTTP headers, and for the same reason: a variable cannot hold every id.
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .current_dir(&self.folder)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("CERCA_PROVIDER", &*encode(&event.provider))
            .env("CERCA_EVENT_ID", &*encode(&event.provider_event_id))
            .env(
                "CERCA_EVENT_TYPE",
                &*encode(event.event_type.as_deref().unwrap_or_default()),
            )
            .env("CERCA_HANDLER", &*claim.handler)
            .env("CERCA_ATTEMPT", claim.attempt.to_string())
            .env("CERCA_IDEMPOTENCY_KEY", &*encode(&idempotency_key(claim)))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| Failure::Retry(format!("cannot start {}: {e}", self.program.display())))?;
        // From here on it may have its effect, and if it is killed nobody knows.
        outgoing.mark_sent();
        let mut group = Group(child.id());
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let tail = Mutex::default();
        let mut talk = Box::pin(join(feed(stdin, input), listen(stderr, &tail)));
        let status = tokio::select! {
            biased;
            _ = &mut talk => child.wait().await,
            status = child.wait() => {
                let _ = timeout(LAST_WORDS, &mut talk).await;
                status
            }
        };
        drop(talk);
        let status = status.map_err(|e| {
            let error = format!("cannot wait for the program: {e}; whether it had its effect is unknown");
            Failure::Unknown(error)
        })?;
        // It has ended, and its number may be given to another; what it left behind on purpose may stay.
        group.0 = None;
        judge(status, &tail.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Handler for Exec {
    fn handle<'a>(&'a self, outgoing: &'a Outgoing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.run(outgoing))
    }
}

/// Kills the program and what it started, when the attempt is dropped: timed out, or its lease lost.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let pid = self.0.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// A program may end, or close its input, without reading it: its exit code speaks for it.
async fn feed(stdin: Option<ChildStdin>, input: Vec<u8>) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(&input).await;
    }
}

async fn listen(stderr: Option<ChildStderr>, tail: &Mutex<Vec<u8>>) {
    let Some(mut stderr) = stderr else { return };
    let mut buffer = vec![0; 4 << 10];
    while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&buffer[..n]);
        // Four bytes make a character at most.
        let over = tail.len().saturating_sub(4 * TAIL);
        tail.drain(..over);
    }
}

fn judge(status: ExitStatus, tail: &[u8]) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(tail);
    let text = text.trim();
    let skip = text.chars().count().saturating_sub(TAIL);
    let text: String = text.chars().skip(skip).collect();
    let error = if text.is_empty() {
        status.to_string()
    } else {
        format!("{status}: {text}")
    };
    Err(match status.code() {
        Some(GIVE_UP) => Failure::GiveUp(error),
        Some(TRY_AGAIN | _) => Failure::Retry(error),
        // By the system when memory runs out, or by a person: it may have been done, or not.
        None => Failure::Unknown(format!("{error}; whether it had its effect is unknown")),
    })
}

fn input(outgoing: &Outgoing<'_>, normalizers: &Normalizers) -> Result<Vec<u8>, Failure> {
    let mut json = envelope::envelope(outgoing, normalizers, Some(outgoing.claim.attempt))
        .map_err(|e| Failure::Retry(format!("the event cannot be written as JSON: {e}")))?;
    json.push(b'\n');
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::testing::claim;

    fn sh(script: &str) -> Exec {
        let command = ["/bin/sh", "-c", script].map(String::from);
        let environment: Vec<(OsString, OsString)> = [("PATH", "/bin:/usr/bin"), ("CERCA_ADMIN_TOKEN", "hush")]
            .map(|(name, value)| (name.into(), value.into()))
            .into();
        Exec::new(&command, std::env::temp_dir(), &environment, Arc::default()).unwrap()
    }

    async fn outcome(script: &str) -> Result<(), Failure> {
        sh(script).handle(&Outgoing::raw(&claim("evt_1", "{}"))).await
    }

    #[tokio::test]
    async fn the_exit_code_decides() {
        assert_eq!(outcome("exit 0").await, Ok(()));
        let gave_up = outcome("echo 'no such order' >&2; exit 65").await;
        assert_eq!(gave_up, Err(Failure::GiveUp("exit status: 65: no such order".into())));
        assert_eq!(outcome("exit 75").await, Err(Failure::Retry("exit status: 75".into())));
        assert_eq!(outcome("exit 1").await, Err(Failure::Retry("exit status: 1".into())));
    }

    #[tokio::test]
    async fn of_a_program_that_was_killed_nobody_knows() {
        for (signal, name) in [("9", "signal: 9"), ("15", "signal: 15"), ("11", "signal: 11")] {
            let Err(Failure::Unknown(error)) = outcome(&format!("echo half >&2; kill -{signal} $$")).await else {
                panic!("an unknown outcome was expected")
            };
            assert!(error.starts_with(name) && error.contains(": half; whether"), "{error}");
        }
        // The shell lives on, and says how its child ended: that is an answer.
        let told = outcome("sh -c 'kill -9 $$' 2>/dev/null; exit $?").await;
        assert!(
            matches!(&told, Err(Failure::Retry(error)) if error.starts_with("exit status: 137")),
            "{told:?}"
        );
    }

    #[tokio::test]
    async fn the_event_comes_as_json_with_its_exact_digits() {
        let folder = tempfile::tempdir().unwrap();
        let command = ["/bin/sh", "-c", "cat > out"].map(String::from);
        let exec = Exec::new(
            &command,
            folder.path().into(),
            &[("PATH".into(), "/bin:/usr/bin".into())],
            Arc::default(),
        )
        .unwrap();
        let read = || std::fs::read_to_string(folder.path().join("out")).unwrap();

        exec.handle(&Outgoing::raw(&claim(
            "evt_1",
            "{\"n\": 123456789012345678901234567890}",
        )))
        .await
        .unwrap();
        let text = read();
        assert!(
            text.contains("\"payload\":{\"n\": 123456789012345678901234567890}"),
            "{text}"
        );
        assert!(text.contains("\"idempotency_key\":\"stripe:evt_1:h\""), "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["headers"]["x-trace"], "a");
        assert_eq!(value["occurred_at"], "2026-01-02T03:04:05Z");
        assert_eq!(value["attempt"], 2);
        assert!(value.as_object().unwrap().contains_key("normalized") && value["normalized"].is_null());

        exec.handle(&Outgoing::raw(&claim("evt_2", &b"\xff\0"[..])))
            .await
            .unwrap();
        let value: serde_json::Value = serde_json::from_str(&read()).unwrap();
        assert!(value["payload"].is_null());
        assert_eq!(value["payload_base64"], "/wA=");
    }

    #[tokio::test]
    async fn the_environment_is_ours_and_holds_no_secret() {
        let check = r#"test "$CERCA_EVENT_ID" = 'a%20b' && test "$CERCA_ATTEMPT" = 2 && test -z "$CERCA_ADMIN_TOKEN""#;
        assert_eq!(sh(check).handle(&Outgoing::raw(&claim("a b", "{}"))).await, Ok(()));
    }

    #[tokio::test]
    async fn a_program_that_does_not_read_is_judged_by_its_exit_code() {
        let large = claim("evt_1", vec![b'x'; 4 << 20]);
        assert_eq!(sh("exit 0").handle(&Outgoing::raw(&large)).await, Ok(()));
        assert_eq!(sh("exec <&-; exit 0").handle(&Outgoing::raw(&large)).await, Ok(()));
        let failed = sh("head -c 1 >/dev/null; exit 65").handle(&Outgoing::raw(&large)).await;
        assert_eq!(failed, Err(Failure::GiveUp("exit status: 65".into())));
    }

    #[tokio::test]
    async fn the_end_of_a_long_complaint_is_kept() {
        let Err(Failure::Retry(error)) = outcome("yes e | head -n 100000 >&2; echo last >&2; exit 1").await else {
            panic!("a retry was expected")
        };
        assert!(error.ends_with("last") && error.len() < TAIL + 50, "{error}");
    }

    #[tokio::test]
    async fn what_it_leaves_behind_does_not_hold_the_attempt() {
        assert_eq!(outcome("sleep 600 & exit 0").await, Ok(()));
    }

    #[tokio::test]
    async fn a_dropped_attempt_kills_the_whole_group() {
        let folder = tempfile::tempdir().unwrap();
        let command = ["/bin/sh", "-c", "sleep 600 & echo $! > pid.new; mv pid.new pid; wait"].map(String::from);
        let exec = Exec::new(
            &command,
            folder.path().into(),
            &[("PATH".into(), "/bin:/usr/bin".into())],
            Arc::default(),
        )
        .unwrap();
        let file = folder.path().join("pid");
        let claim = claim("evt_1", "{}");
        let outgoing = Outgoing::raw(&claim);
        let started = async {
            while !file.exists() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = exec.handle(&outgoing) => panic!("it should run on"),
            () = started => {}
        }
        let pid = std::fs::read_to_string(&file).unwrap();
        let state = format!("/proc/{}/stat", pid.trim());
        // Gone, or dead and not yet reaped by whoever inherited it.
        let gone = || std::fs::read_to_string(&state).map_or(true, |text| text.contains(") Z "));
        while !gone() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_a_retry() {
        let exec = Exec::new(&["./nope".to_owned()], "/".into(), &[], Arc::default()).unwrap();
        let Err(Failure::Retry(error)) = exec.handle(&Outgoing::raw(&claim("evt_1", "{}"))).await else {
            panic!("a retry was expected")
        };
        assert!(error.starts_with("cannot start /nope: "), "{error}");
    }
}
