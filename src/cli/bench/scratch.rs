//! A store of the configured kind, in its place, that is removed afterwards: a folder beside the SQLite file, or a
//! database of its own on the PostgreSQL server. The operator's own data is not touched.

use std::{
    path::{Path, PathBuf},
    str::FromStr as _,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, postgres::PgConnectOptions,
};

use super::{super::context::sqlite_path, disk};

/// Rows that are committed one by one to learn what a commit takes.
const COMMITS: usize = 100;

pub(super) enum Scratch {
    Sqlite {
        folder: PathBuf,
    },
    Postgres {
        server: Box<PgConnectOptions>,
        name: String,
        url: String,
        shown: String,
    },
}

impl Scratch {
    /// `shown` is the URL without its password.
    ///
    /// # Errors
    /// The folder or the database cannot be made.
    pub(super) async fn new(url: &str, shown: &str) -> anyhow::Result<Self> {
        let name = format!("cerca_bench_{:016x}", rand::random::<u64>());
        if url.starts_with("sqlite:") {
            let file = sqlite_path(url).context("a database in memory says nothing of durable events")?;
            let parent = Path::new(file).parent().filter(|parent| !parent.as_os_str().is_empty());
            let folder = parent.map_or_else(|| PathBuf::from(name.as_str()), |parent| parent.join(&name));
            std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            return Ok(Self::Sqlite { folder });
        }
        let server = PgConnectOptions::from_str(url)?;
        let mut db = server
            .connect()
            .await
            .with_context(|| format!("cannot reach {shown}"))?;
        db.execute(AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .await
            .with_context(|| format!("cannot create a scratch database at {shown}"))?;
        db.close().await?;
        let mut scratch = reqwest::Url::parse(url)?;
        scratch.set_path(&name);
        Ok(Self::Postgres {
            server: Box::new(server),
            name,
            url: scratch.into(),
            shown: shown.to_owned(),
        })
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite { .. } => "sqlite",
            Self::Postgres { .. } => "postgres",
        }
    }

    /// Where it is, for people.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Sqlite { folder } => match folder.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.display().to_string(),
                _ => "this folder".to_owned(),
            },
            Self::Postgres { shown, .. } => shown.clone(),
        }
    }

    pub(super) fn url(&self) -> String {
        match self {
            Self::Sqlite { folder } => format!("sqlite:{}", folder.join("bench.db").display()),
            Self::Postgres { url, .. } => url.clone(),
        }
    }

    /// The least that an acknowledgement can take here.
    ///
    /// # Errors
    /// The place cannot be written.
    pub(super) async fn sync_time(&self) -> anyhow::Result<Duration> {
        match self {
            Self::Sqlite { folder } => {
                let folder = folder.clone();
                Ok(tokio::task::spawn_blocking(move || disk::sync_time(&folder)).await??)
            }
            Self::Postgres { url, .. } => commit_time(&PgConnectOptions::from_str(url)?).await,
        }
    }

    /// # Errors
    /// Something of it is left, which the error names.
    pub(super) async fn remove(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Sqlite { folder } => {
                std::fs::remove_dir_all(&*folder).with_context(|| format!("{} is left behind", folder.display()))
            }
            Self::Postgres { server, name, .. } => {
                let mut db = server.connect().await?;
                db.execute(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)")))
                    .await
                    .with_context(|| format!("the database {name} is left behind"))?;
                Ok(db.close().await?)
            }
        }
    }
}

async fn commit_time(options: &PgConnectOptions) -> anyhow::Result<Duration> {
    let mut db: PgConnection = options.connect().await?;
    db.execute("CREATE TABLE bench_commits (n int)").await?;
    let mut times = Vec::with_capacity(COMMITS);
    for _ in 0..COMMITS {
        let begun = Instant::now();
        sqlx::query("INSERT INTO bench_commits VALUES (1)")
            .execute(&mut db)
            .await?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    db.execute("DROP TABLE bench_commits").await?;
    db.close().await?;
    Ok(times[COMMITS / 2])
}
