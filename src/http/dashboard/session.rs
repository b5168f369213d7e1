//! Who is logged in, which forms were sent, and who tried too often: all in memory and bounded. A restart logs everybody
//! out, and so does another replica.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

/// How long a login lasts.
pub(super) const SESSION: Duration = Duration::from_secs(12 * 3600);
/// Sessions at once; the oldest ends for a further one.
const MOST_SESSIONS: usize = 64;
/// Forms that are known to have been sent.
const MOST_FORMS: usize = 4096;
/// Logins that may be tried from one place in [`WINDOW`].
const TRIES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// Places that are remembered.
const MOST_PLACES: usize = 1024;

type Nonce = [u8; 16];

/// What the dashboard remembers.
pub(in crate::http) struct Desk {
    /// By the digest of what the browser holds, so that looking one up tells nothing of the others.
    sessions: Mutex<HashMap<[u8; 32], Session>>,
    /// Of forms for those who have no session: this machine, or a program with the token.
    own: [u8; 32],
    sent: Mutex<Sent>,
    tries: Mutex<HashMap<IpAddr, (Instant, u32)>>,
}

struct Session {
    began: Instant,
    /// What its forms are proved with.
    secret: [u8; 32],
}

#[derive(Default)]
struct Sent {
    known: HashSet<Nonce>,
    order: VecDeque<Nonce>,
}

/// What a form's token says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Ours, and it is the first time; the nonce takes it back.
    First(Nonce),
    /// Ours, sent before.
    Again,
    Foreign,
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            sessions: Mutex::default(),
            own: rand::random(),
            sent: Mutex::default(),
            tries: Mutex::default(),
        }
    }
}

impl Desk {
    pub(super) fn own_secret(&self) -> [u8; 32] {
        self.own
    }

    /// Begins a session; gives what the browser is to keep.
    pub(super) fn begin(&self) -> String {
        let held: [u8; 32] = rand::random();
        let mut sessions = lock(&self.sessions);
        sessions.retain(|_, session| session.began.elapsed() < SESSION);
        if sessions.len() >= MOST_SESSIONS
            && let Some(oldest) = sessions
                .iter()
                .min_by_key(|(_, session)| session.began)
                .map(|(key, _)| *key)
        {
            sessions.remove(&oldest);
        }
        let session = Session {
            began: Instant::now(),
            secret: rand::random(),
        };
        sessions.insert(digest(&held), session);
        URL_SAFE_NO_PAD.encode(held)
    }

    /// The secret of a session that is not over.
    pub(super) fn find(&self, held: &str) -> Option<[u8; 32]> {
        let held = URL_SAFE_NO_PAD.decode(held).ok()?;
        let sessions = lock(&self.sessions);
        let session = sessions.get(&digest(&held))?;
        (session.began.elapsed() < SESSION).then_some(session.secret)
    }

    pub(super) fn end(&self, held: &str) {
        if let Ok(held) = URL_SAFE_NO_PAD.decode(held) {
            lock(&self.sessions).remove(&digest(&held));
        }
    }

    /// Looks at a form's token, and remembers it.
    pub(super) fn take(&self, secret: &[u8; 32], token: &str) -> Form {
        let Some((nonce, mac)) = URL_SAFE_NO_PAD
            .decode(token)
            .ok()
            .and_then(|bytes| Some((Nonce::try_from(bytes.get(..16)?).ok()?, bytes[16..].to_vec())))
        else {
            return Form::Foreign;
        };
        if keyed(secret, nonce).verify_slice(&mac).is_err() {
            return Form::Foreign;
        }
        let mut sent = lock(&self.sent);
        if !sent.known.insert(nonce) {
            return Form::Again;
        }
        sent.order.push_back(nonce);
        if sent.order.len() > MOST_FORMS
            && let Some(oldest) = sent.order.pop_front()
        {
            sent.known.remove(&oldest);
        }
        Form::First(nonce)
    }

    /// The form did nothing and may be sent again.
    pub(super) fn give_back(&self, nonce: Nonce) {
        let mut sent = lock(&self.sent);
        sent.known.remove(&nonce);
        sent.order.retain(|known| *known != nonce);
    }

    /// Counts a login that is tried.
    ///
    /// # Errors
    /// How long to wait.
    pub(super) fn try_login(&self, from: IpAddr) -> Result<(), Duration> {
        let mut tries = lock(&self.tries);
        let place = place(from);
        if tries.len() >= MOST_PLACES && !tries.contains_key(&place) {
            tries.retain(|_, (began, _)| began.elapsed() < WINDOW);
            if tries.len() >= MOST_PLACES {
                return Err(WINDOW);
            }
        }
        let (began, count) = tries.entry(place).or_insert_with(|| (Instant::now(), 0));
        if began.elapsed() >= WINDOW {
            (*began, *count) = (Instant::now(), 0);
        }
        *count += 1;
        if *count > TRIES {
            return Err(WINDOW.saturating_sub(began.elapsed()));
        }
        Ok(())
    }
}

/// One who has an IPv6 address has 2^64 of them.
fn place(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let mut segments = v6.segments();
            segments[4..].fill(0);
            IpAddr::from(segments)
        }
        v4 => v4,
    }
}

/// A token for one form.
pub(super) fn form_token(secret: &[u8; 32]) -> String {
    let nonce: Nonce = rand::random();
    let mac = keyed(secret, nonce).finalize().into_bytes();
    URL_SAFE_NO_PAD.encode([&nonce[..], &mac].concat())
}

fn keyed(secret: &[u8; 32], nonce: Nonce) -> Hmac<Sha256> {
    let mut mac = Hmac::new_from_slice(secret).expect("a key of any length is good");
    mac.update(&nonce);
    mac
}

fn digest(held: &[u8]) -> [u8; 32] {
    Sha256::digest(held).into()
}

/// A panic while one of these is held leaves no half-done change behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_counts_once_and_in_its_session_only() {
        let desk = Desk::default();
        let (mine, other) = (desk.own_secret(), [7; 32]);
        let token = form_token(&mine);
        assert_eq!(desk.take(&other, &token), Form::Foreign);
        let Form::First(nonce) = desk.take(&mine, &token) else {
            panic!("it is the first time");
        };
        assert_eq!(desk.take(&mine, &token), Form::Again);
        desk.give_back(nonce);
        assert_eq!(desk.take(&mine, &token), Form::First(nonce));
        for wrong in ["", "AAAA", "!", &token[1..], &token[..30], &format!("{token}A")] {
            assert_eq!(desk.take(&mine, wrong), Form::Foreign, "{wrong}");
        }
    }

    #[test]
    fn sessions_are_found_until_they_end() {
        let desk = Desk::default();
        let first = desk.begin();
        assert!(desk.find(&first).is_some());
        assert!(desk.find("").is_none() && desk.find(&first[1..]).is_none() && desk.find("é").is_none());
        let second = desk.begin();
        assert_ne!(desk.find(&first), desk.find(&second));
        desk.end(&first);
        assert!(desk.find(&first).is_none() && desk.find(&second).is_some());
        for _ in 0..MOST_SESSIONS {
            desk.begin();
        }
        assert!(desk.find(&second).is_none(), "the oldest makes room");
        assert_eq!(lock(&desk.sessions).len(), MOST_SESSIONS);
    }

    #[test]
    fn logins_are_counted_by_place() {
        let desk = Desk::default();
        let here = IpAddr::from([192, 0, 2, 1]);
        for _ in 0..TRIES {
            assert_eq!(desk.try_login(here), Ok(()));
        }
        assert!(desk.try_login(here).is_err_and(|wait| wait <= WINDOW));
        assert_eq!(desk.try_login(IpAddr::from([192, 0, 2, 2])), Ok(()));
        let v6 = |last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]);
        for last in 0..u16::try_from(TRIES).unwrap() {
            assert_eq!(desk.try_login(v6(last)), Ok(()));
        }
        assert!(desk.try_login(v6(99)).is_err(), "one network is one place");
        assert!(desk.try_login("::ffff:192.0.2.1".parse().unwrap()).is_err());
        for n in 0..u32::try_from(2 * MOST_PLACES).unwrap() {
            let _ = desk.try_login(std::net::Ipv4Addr::from(n).into());
        }
        assert!(lock(&desk.tries).len() <= MOST_PLACES);
    }

    #[test]
    fn what_is_remembered_of_forms_is_bounded() {
        let desk = Desk::default();
        let secret = desk.own_secret();
        for _ in 0..MOST_FORMS + 10 {
            assert!(matches!(desk.take(&secret, &form_token(&secret)), Form::First(_)));
        }
        let sent = lock(&desk.sent);
        assert_eq!((sent.known.len(), sent.order.len()), (MOST_FORMS, MOST_FORMS));
    }
}
