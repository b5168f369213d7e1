//! The account of a demo: a line a request while it runs, then the sums, and where to look.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use comfy_table::Color;
use serde_json::json;

use super::{
    super::{
        output::{Out, color_of},
        sender::Reply,
    },
    scene::{PAYMENTS, Scene},
    stream::Act,
};
use crate::{domain::EventStatus, ingest::Bad, store::Store};

/// One request, or several at once, and what came of it.
pub(super) struct Line {
    pub(super) provider: &'static str,
    pub(super) event_type: &'static str,
    pub(super) act: Act,
    pub(super) reason: Option<&'static str>,
    pub(super) replies: Vec<Reply>,
    pub(super) handled: Option<(EventStatus, Duration)>,
}

pub(super) struct Account<'a> {
    out: Out,
    scene: &'a Scene,
    public: SocketAddr,
    admin: SocketAddr,
    sent: u64,
    acknowledged: u64,
    duplicates: u64,
    refused: BTreeMap<&'static str, u64>,
    /// Answers that were not what they should be.
    surprises: u64,
    /// New events that the handler `payments` wants.
    owed: u64,
}

impl<'a> Account<'a> {
    pub(super) fn new(out: Out, scene: &'a Scene, public: SocketAddr, admin: SocketAddr) -> Self {
        Self {
            out,
            scene,
            public,
            admin,
            sent: 0,
            acknowledged: 0,
            duplicates: 0,
            refused: BTreeMap::new(),
            surprises: 0,
            owed: 0,
        }
    }

    pub(super) fn is_watched(&self) -> bool {
        self.out.terminal && !self.out.json
    }

    pub(super) fn open(&self) -> anyhow::Result<()> {
        if self.out.json {
            return Ok(());
        }
        self.out
            .line(format!("Cerca takes webhooks at http://{}/webhooks/…", self.public))?;
        self.out
            .line("Six senders call it. Some repeat themselves, some lie.")?;
        self.out.line("")?;
        let head = format!(
            "{:<8} {:<24} {:<18} {:<6} {}",
            "SENDER", "EVENT", "SENT", "ANSWER", "THEN"
        );
        Ok(self.out.line(self.out.paint(Color::DarkGrey, head))?)
    }

    /// Counts a request and prints its line.
    pub(super) fn add(&mut self, line: &Line) -> anyhow::Result<()> {
        let copies = line.replies.len() as u64;
        let right = |reply: &Reply| match line.act {
            Act::Bad(_) => reply.status == 401,
            _ => reply.status == 200,
        };
        self.sent += copies;
        self.surprises += line.replies.iter().filter(|reply| !right(reply)).count() as u64;
        match line.act {
            Act::Bad(_) => *self.refused.entry(line.reason.unwrap_or("not refused")).or_default() += copies,
            Act::Again => self.duplicates += copies,
            Act::New | Act::AtOnce => {
                self.duplicates += copies - 1;
                self.owed += u64::from(matches!(line.provider, "stripe" | "asaas" | "shopify"));
            }
        }
        self.acknowledged += line.replies.iter().filter(|reply| reply.status == 200).count() as u64;
        if self.out.json {
            self.json_line(line)
        } else {
            self.text_line(line)
        }
    }

    fn text_line(&self, line: &Line) -> anyhow::Result<()> {
        let out = self.out;
        let status = line.replies.first().map_or(0, |reply| reply.status);
        let answer = match line.replies.len() {
            1 => status.to_string(),
            copies => format!("{copies}x {status}"),
        };
        let (then, color) = match (line.handled, line.reason) {
            (Some((EventStatus::Unrouted, _)), _) => ("stored; no handler".to_owned(), color_of("unrouted")),
            (Some((status, took)), _) => {
                let copies = if line.act == Act::AtOnce { " once" } else { "" };
                (
                    format!("{status}{copies} in {:.0} ms", took.as_secs_f64() * 1000.0),
                    color_of(status.as_str()),
                )
            }
            (None, Some(reason)) => (reason.to_owned(), Color::Red),
            (None, None) => ("known already".to_owned(), Color::DarkGrey),
        };
        let answer = format!("{answer:<6}");
        let shown = if status == 200 {
            out.paint(Color::Green, &answer)
        } else {
            out.paint(Color::Red, &answer)
        };
        out.line(format!(
            "{:<8} {:<24} {:<18} {shown} {}",
            line.provider,
            line.event_type,
            words(line.act),
            out.paint(color, then)
        ))?;
        Ok(())
    }

    fn json_line(&self, line: &Line) -> anyhow::Result<()> {
        self.out.object(&json!({
            "provider": line.provider,
            "sample": line.event_type,
            "sent": words(line.act),
            "answers": line.replies.iter().map(|reply| reply.status).collect::<Vec<_>>(),
            "status": line.handled.map(|(status, _)| status.as_str()),
            "reason": line.reason,
        }))
    }

    /// Prints the sums and holds them against the database: whether each event had its effect once.
    pub(super) async fn close(&self, store: &dyn Store) -> anyhow::Result<bool> {
        store.flush().await?;
        let stats = store.stats().await?;
        let effects = self.scene.count_payments()?;
        let once = effects == self.owed && self.surprises == 0;
        let stored_right = stats.events == self.acknowledged - self.duplicates;
        let right = once && stored_right;
        if self.out.json {
            self.out.object(&json!({
                "sent": self.sent,
                "acknowledged": self.acknowledged,
                "duplicates": self.duplicates,
                "refused": self.refused,
                "stored": stats.events,
                "unrouted": stats.unrouted,
                "payments_expected": self.owed,
                "payments": effects,
                "right": right,
                "config": self.scene.config,
            }))?;
            return Ok(right);
        }
        let refused: u64 = self.refused.values().sum();
        let reasons: Vec<String> = self
            .refused
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        let rows = [
            ("sent", self.sent, String::new()),
            ("acknowledged", self.acknowledged, "200 means: on disk".to_owned()),
            (
                "  duplicates",
                self.duplicates,
                "acknowledged again, stored once".to_owned(),
            ),
            ("refused", refused, reasons.join(", ")),
            (
                "stored",
                stats.events,
                "rows of webhook_events: acknowledged - duplicates".to_owned(),
            ),
            (
                "  unrouted",
                stats.unrouted,
                "nobody wanted them yet; kept, replayable".to_owned(),
            ),
            (
                "effects",
                effects,
                format!("rows of {PAYMENTS}, for {} payment events stored", self.owed),
            ),
        ];
        self.out.line("")?;
        for (name, count, note) in rows {
            self.out
                .line(format!("{name:<14} {count:>4}   {}", self.out.paint(Color::DarkGrey, note)).trim_end())?;
        }
        self.out.line("")?;
        self.out.line(if right {
            self.out
                .paint(Color::Green, "Every event was stored once and had its effect once.")
        } else {
            self.out
                .paint(Color::Red, "The sums do not agree: this is a bug; please report it.")
        })?;
        Ok(right)
    }

    /// Commands to go on with, for the folder of this demo.
    pub(super) fn where_to_look(&self) -> anyhow::Result<()> {
        if self.out.json {
            return Ok(());
        }
        let config = self.scene.config.display();
        let admin = self.admin;
        let cerca = program();
        self.out.line("")?;
        self.out.line("Look around:")?;
        let page = format!("http://{admin}/");
        self.out.line(format!("  {}", self.out.paint(Color::Cyan, page)))?;
        for line in [
            format!("curl -s 'http://{admin}/api/v1/events?status=unrouted'"),
            format!("curl -s http://{admin}/api/v1/stats"),
            format!("curl -s http://{admin}/metrics"),
            format!("export CERCA_CONFIG={config}"),
            format!("{cerca} events list"),
            format!("{cerca} events reprocess --status unrouted --handler notify"),
            format!("cat {}", self.scene.log.display()),
            format!("{cerca} trigger stripe --bad duplicate"),
            format!("{cerca} trigger github push --bad tampered"),
        ] {
            self.out.line(format!("  {}", self.out.paint(Color::Cyan, line)))?;
        }
        Ok(self.out.line("")?)
    }
}

fn words(act: Act) -> &'static str {
    match act {
        Act::New => "new",
        Act::Again => "again",
        Act::AtOnce => "5 times at once",
        Act::Bad(Bad::Stale) => "an hour too late",
        Act::Bad(Bad::Tampered) => "changed on the way",
        Act::Bad(_) => "forged",
    }
}

/// This program as the shell knows it: by its path where it was called by one, as `cargo run` does.
fn program() -> String {
    let called = std::env::args().next().unwrap_or_default();
    if called.contains('/') {
        called
    } else {
        "cerca".to_owned()
    }
}
