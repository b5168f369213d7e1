//! Where commands write. Everything returns the write's error, so that a closed pipe ends a command quietly instead of
//! panicking as `println!` does.

use std::{
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
};

use comfy_table::{Cell, Color, ContentArrangement, Table, TableStyle};
use serde::Serialize;

/// Standard output, in the form asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Out {
    /// One JSON object a line, for programs.
    pub(super) json: bool,
    pub(super) terminal: bool,
    color: bool,
}

impl Out {
    pub(super) fn new(json: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        Self {
            json,
            terminal,
            color: terminal && std::env::var_os("NO_COLOR").is_none(),
        }
    }

    pub(super) fn line(self, text: impl AsRef<str>) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_ref().as_bytes())?;
        stdout.write_all(b"\n")?;
        stdout.flush()
    }

    /// Bytes as they are, with nothing added.
    pub(super) fn bytes(self, bytes: &[u8]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()
    }

    pub(super) fn object(self, value: &impl Serialize) -> anyhow::Result<()> {
        Ok(self.line(serde_json::to_string(value)?)?)
    }

    pub(super) fn table(self, table: &Table) -> io::Result<()> {
        for line in table.lines() {
            self.line(line.trim_end())?;
        }
        Ok(())
    }

    /// `text` in a colour, on terminals only.
    pub(super) fn paint(self, color: Color, text: impl AsRef<str>) -> String {
        let text = text.as_ref();
        let code = match color {
            Color::Red => 31,
            Color::Green => 32,
            Color::Yellow => 33,
            Color::Cyan => 36,
            Color::DarkGrey => 90,
            _ => return text.to_owned(),
        };
        if self.color {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// A table without lines around its cells. On a terminal, cells wrap; nothing is ever cut.
pub(super) fn table(headers: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(TableStyle::new())
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(headers.iter().map(|text| Cell::new(text).fg(Color::DarkGrey)));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// The colour in which an outcome is shown.
pub(super) fn color_of(status: &str) -> Color {
    match status {
        "done" => Color::Green,
        "failed" | "dead" | "lost" => Color::Red,
        "pending" | "ready" | "claimed" | "blocked" | "retry" => Color::Yellow,
        "unrouted" | "discarded" => Color::DarkGrey,
        _ => Color::Reset,
    }
}

pub(super) fn status_cell(status: &str) -> Cell {
    Cell::new(status).fg(color_of(status))
}

/// A line on standard error; a closed one is nobody's loss.
pub(super) fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

pub(super) fn code(success: bool) -> ExitCode {
    if success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `1,234,567`
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
