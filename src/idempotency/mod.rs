//! `Idempotency-Key` for any HTTP API: a client may send a write as often as it likes, and it happens once.
//!
//! The rules are pure: `key` (what a key is, which requests are the same), `decision` (what becomes of a request, which
//! answers are kept). [`Layer`] joins them to the store. It has two users: [`Idempotent`], a middleware for any actix
//! app, and the gateway in front of any HTTP service ([`Gateway`], served by `http::gateway`).
//!
//! What a key stands for is decided by the unique index of its row, never by looking first. A row goes
//! `reserved → sent → completed`. Whoever crashed before `sent` did nothing, so the same request runs again; after it,
//! nothing is run again blindly: the service behind is asked where it can be ([`Probe`]), else the answer is a 409
//! that says so. [`Completer`] does the asking for clients that do not come back.

mod cache;
mod completer;
mod decision;
mod exchange;
mod gateway;
mod key;
mod layer;
mod middleware;
mod principal;
mod refusal;
mod spec;
mod transaction;
mod upstream;
mod view;

pub use completer::{Completer, Pushed};
pub use decision::{Decision, Policy, decide};
pub use exchange::{Engine, Exchanged, Outgoing};
pub use gateway::{Gateway, GatewayError, Gateways};
pub use key::{KeyError, MAX_KEY, parse_key, request_hash, scope};
pub use layer::{Ask, Entry, Layer, Run};
pub use middleware::Idempotent;
pub use principal::{Caller, Principal};
pub use refusal::Refusal;
pub use spec::{GatewaySpec, OnUpstreamDown};
pub use transaction::{Answer, KeyTransaction, Undo};
pub use upstream::Probe;
pub use view::{answer_json, key_json, stats_json};

pub(crate) use transaction::respond;
pub(crate) use upstream::{is_one_hop, named_by_connection};

/// Requests with a key, or that need one. Labels: `route`, `outcome` (first, replayed, or the `code` of a refusal).
pub const REQUESTS: &str = "cerca_idempotency_requests_total";
/// Requests with a key that run now. Labels: `route`.
pub const IN_PROGRESS: &str = "cerca_idempotency_in_progress";
/// Keys by state, read from the store at scrape. Labels: `state`.
pub const KEYS: &str = "cerca_idempotency_keys";
/// Keys that nobody ran any more. Labels: `outcome` (answered, released, `given_up`, undecided).
pub const PUSHED: &str = "cerca_idempotency_abandoned_total";

/// The header that marks an answer which was given before.
pub const REPLAYED: &str = "idempotent-replayed";
