//! Ordering against a model: any sequence of changes by one process, and several processes at once.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use cerca::{
    domain::{Claim, Outcome},
    store::{Reprocess, ReprocessScope, Store, open},
};
use futures_util::future::join_all;
use proptest::{
    collection::vec,
    prelude::{Strategy, any},
    strategy::ValueTree as _,
    test_runner::TestRunner,
};

use crate::{
    ordering::{at, on_both_ordered, options},
    people::{dead, who},
    support::{Db, request, settle},
};

on_both_ordered!(
    any_sequence_of_changes_is_as_the_model_says,
    replicas_never_run_two_of_a_key
);

/// What happens next. Numbers choose among what there is.
#[derive(Debug, Clone)]
enum Change {
    Insert { key: u8, second: i8 },
    Claim { room: u8 },
    Settle { which: u8, how: u8 },
    LoseAll,
    Reprocess { which: u8 },
    Discard { which: u8 },
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = (any::<u8>(), any::<u8>(), any::<i8>()).prop_map(|(kind, a, b)| match kind % 16 {
        0..6 => Change::Insert { key: a % 3, second: b },
        6..9 => Change::Claim { room: a % 3 + 1 },
        9..13 => Change::Settle {
            which: a,
            how: b.unsigned_abs(),
        },
        13 => Change::LoseAll,
        14 => Change::Reprocess { which: a },
        _ => Change::Discard { which: a },
    });
    vec(change, 60)
}

/// The place in the line: second, then arrival.
type Place = (i8, i64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Claimed,
    /// Claimed, and discarded when its attempt has ended.
    Leaving,
    Blocked,
    Dead,
    Discarded,
}

struct Row {
    key: u8,
    place: Place,
    state: State,
}

/// The rules in their plainest form. The handler is `hold`.
#[derive(Default)]
struct Model {
    rows: BTreeMap<i64, Row>,
}

impl Model {
    fn advance(&mut self, key: u8) {
        let first = self
            .rows
            .iter()
            .filter(|(_, row)| row.key == key && row.state != State::Discarded)
            .min_by_key(|(_, row)| row.place)
            .map(|(id, _)| *id);
        for (id, row) in &mut self.rows {
            if row.key == key && row.state == State::Ready && Some(*id) != first {
                row.state = State::Blocked;
            }
        }
        let active = |row: &Row| row.key == key && matches!(row.state, State::Ready | State::Claimed | State::Leaving);
        if !self.rows.values().any(active)
            && let Some(row) = first.and_then(|id| self.rows.get_mut(&id))
            && row.state == State::Blocked
        {
            row.state = State::Ready;
        }
    }

    fn set(&mut self, id: i64, state: State) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.state = state;
            let key = row.key;
            self.advance(key);
        }
    }

    fn remove(&mut self, id: i64) {
        if let Some(row) = self.rows.remove(&id) {
            self.advance(row.key);
        }
    }

    /// In the words of the table.
    fn shown(&self) -> Vec<String> {
        let name = |state: State| match state {
            State::Leaving => "claimed".to_owned(),
            state => format!("{state:?}").to_lowercase(),
        };
        self.rows
            .iter()
            .map(|(id, row)| format!("{id} {}", name(row.state)))
            .collect()
    }
}

async fn any_sequence_of_changes_is_as_the_model_says(db: Db) {
    let mut runner = TestRunner::default();
    for _ in 0..12 {
        let changes = changes().new_tree(&mut runner).unwrap().current();
        for table in ["deliveries", "attempts", "webhook_events"] {
            db.sql(&format!("DELETE FROM {table}")).await;
        }
        let (mut model, mut claims) = (Model::default(), Vec::new());
        for (done, change) in changes.iter().enumerate() {
            apply(&db, &mut model, &mut claims, change).await;
            db.store.flush().await.unwrap();
            let stored = db
                .texts("SELECT CAST(event_id AS text) || ' ' || state FROM deliveries ORDER BY event_id")
                .await;
            assert_eq!(stored, model.shown(), "after {:?}", &changes[..=done]);
        }
    }
}

async fn apply(db: &Db, model: &mut Model, claims: &mut Vec<Claim>, change: &Change) {
    let chosen = |which: u8, states: &[State]| {
        let of: Vec<i64> = model
            .rows
            .iter()
            .filter(|(_, r)| states.contains(&r.state))
            .map(|(id, _)| *id)
            .collect();
        (!of.is_empty()).then(|| of[usize::from(which) % of.len()])
    };
    match *change {
        Change::Insert { key, second } => {
            let name = format!("e{:016x}", rand::random::<u64>());
            let event = at(&name, "hold", &format!("k{key}"), i64::from(second));
            db.store.accept(vec![event]).await.unwrap();
            let id = db.row(&name).await.id;
            let row = Row {
                key,
                place: (second, id),
                state: State::Blocked,
            };
            model.rows.insert(id, row);
            model.advance(key);
        }
        Change::Claim { room } => {
            let ready = model.rows.values().filter(|row| row.state == State::Ready).count();
            let taken = db.claim("hold", room.into()).await;
            assert_eq!(taken.len(), ready.min(room.into()));
            for claim in &taken {
                let row = model.rows.get_mut(&claim.event.id).unwrap();
                assert_eq!(row.state, State::Ready);
                row.state = State::Claimed;
            }
            claims.extend(taken);
        }
        Change::Settle { which, how } => {
            if claims.is_empty() {
                return;
            }
            let claim = claims.remove(usize::from(which) % claims.len());
            let outcome = match how % 4 {
                0 => Outcome::Done,
                1 => Outcome::Retry {
                    after: Duration::ZERO,
                    error: "no".to_owned(),
                },
                2 => dead(),
                _ => Outcome::Released,
            };
            db.settle(&claim, outcome.clone()).await;
            let id = claim.event.id;
            let Some(state) = model.rows.get(&id).map(|row| row.state) else {
                return;
            };
            match outcome {
                _ if !matches!(state, State::Claimed | State::Leaving) => {}
                Outcome::Done => model.remove(id),
                _ if state == State::Leaving => model.set(id, State::Discarded),
                Outcome::Dead { .. } => model.set(id, State::Dead),
                _ => model.set(id, State::Ready),
            }
        }
        Change::LoseAll => {
            db.expire().await;
            db.store.sweep(Vec::new()).await.unwrap();
            claims.clear();
            let lost: Vec<(i64, State)> = model.rows.iter().map(|(id, row)| (*id, row.state)).collect();
            for (id, state) in lost {
                match state {
                    State::Claimed => model.set(id, State::Ready),
                    State::Leaving => model.set(id, State::Discarded),
                    _ => {}
                }
            }
        }
        Change::Reprocess { which } => {
            let Some(id) = chosen(which, &[State::Dead, State::Discarded, State::Leaving]) else {
                return;
            };
            let what = Reprocess {
                filter: ReprocessScope::Event {
                    provider: "p".to_owned(),
                    provider_event_id: name_of(db, id).await,
                },
                handlers: None,
                dry_run: false,
                forget_steps: false,
            };
            assert_eq!(db.store.reprocess(what, who()).await.unwrap().deliveries, 1);
            let is_leaving = model.rows[&id].state == State::Leaving;
            model.set(id, if is_leaving { State::Claimed } else { State::Blocked });
        }
        Change::Discard { which } => {
            let Some(id) = chosen(which, &[State::Ready, State::Claimed, State::Blocked, State::Dead]) else {
                return;
            };
            db.store
                .discard("p", &name_of(db, id).await, who())
                .await
                .unwrap()
                .unwrap();
            let is_claimed = model.rows[&id].state == State::Claimed;
            model.set(id, if is_claimed { State::Leaving } else { State::Discarded });
        }
    }
}

async fn name_of(db: &Db, id: i64) -> String {
    let names = db
        .texts(&format!("SELECT provider_event_id FROM webhook_events WHERE id = {id}"))
        .await;
    names.into_iter().next().unwrap()
}

/// What everyone knows of the events while several processes work on them.
#[derive(Default)]
struct World {
    running: HashMap<String, String>,
    /// Stored and flushed, and nobody has begun to end it: key → places.
    open: HashMap<String, HashSet<(i64, String)>>,
    ended: HashSet<String>,
}

const EVENTS: usize = 120;
const KEYS: usize = 4;

async fn replicas_never_run_two_of_a_key(db: Db) {
    let other = open(&db.url, options()).await.unwrap();
    let stores = [db.store.clone(), other.clone()];
    let world = Arc::new(Mutex::new(World::default()));
    let (made, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let makers = (0..4).map(|n| tokio::spawn(make(stores[n % 2].clone(), world.clone(), made.clone())));
    let makers: Vec<_> = makers.collect();
    let workers = (0..4).map(|n| tokio::spawn(work(stores[n % 2].clone(), world.clone(), stop.clone())));
    let workers: Vec<_> = workers.collect();
    for made in join_all(makers).await {
        made.unwrap();
    }
    let all_ended = async {
        while world.lock().unwrap().ended.len() < EVENTS && !workers.iter().any(tokio::task::JoinHandle::is_finished) {
            // What a sweep repairs is not what this is about; but nobody may be harmed by one.
            let _ = other.sweep(Vec::new()).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(120), all_ended).await;
    stop.store(true, SeqCst);
    for worked in join_all(workers).await {
        worked.unwrap();
    }
    assert!(in_time.is_ok(), "{} of {EVENTS}", world.lock().unwrap().ended.len());
    let left = db.number("SELECT count(*) FROM deliveries WHERE state <> 'dead'").await;
    assert_eq!(left, 0);
    other.close().await;
}

async fn make(store: Arc<dyn Store>, world: Arc<Mutex<World>>, made: Arc<AtomicUsize>) {
    loop {
        let nth = made.fetch_add(1, SeqCst);
        if nth >= EVENTS {
            return;
        }
        let (key, second) = (format!("k{}", nth % KEYS), rand::random_range(0..1_000_i64));
        let id = format!("e{nth}");
        store.accept(vec![at(&id, "skip", &key, second)]).await.unwrap();
        store.flush().await.unwrap();
        let mut world = world.lock().unwrap();
        // Somebody may have been quick.
        if !world.ended.contains(&id) {
            world.open.entry(key).or_default().insert((second, id));
        }
    }
}

async fn work(store: Arc<dyn Store>, world: Arc<Mutex<World>>, stop: Arc<AtomicBool>) {
    while !stop.load(SeqCst) {
        let known = world.lock().unwrap().open.clone();
        let claims = store.claim(request(&[("skip", 2)])).await.unwrap();
        if claims.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for claim in &claims {
            let event = &claim.event;
            let key = event.ordering_key.clone().unwrap();
            let second = event.occurred_at.unwrap().as_second() - 1_700_000_000;
            // What was stored before the claim began, is older, and was not ended meanwhile, would have had to go first.
            let now = &world.lock().unwrap().open;
            let older = known.get(&key).into_iter().flatten().find(|(other, id)| {
                *other < second && now.get(&key).is_some_and(|open| open.contains(&(*other, id.clone())))
            });
            assert_eq!(older, None, "{} at {second}", event.provider_event_id);
        }
        for claim in &claims {
            let key = claim.event.ordering_key.clone().unwrap();
            let beside = world
                .lock()
                .unwrap()
                .running
                .insert(key, claim.event.provider_event_id.clone());
            assert_eq!(beside, None, "two of a key at once");
        }
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..3))).await;
        for claim in claims {
            end(&*store, &world, &claim).await;
        }
    }
}

async fn end(store: &dyn Store, world: &Mutex<World>, claim: &Claim) {
    let event = &claim.event;
    let key = event.ordering_key.clone().unwrap();
    let second = event.occurred_at.unwrap().as_second() - 1_700_000_000;
    let outcome = match rand::random_range(0..10) {
        0..6 => Outcome::Done,
        6 => dead(),
        7 => Outcome::Released,
        _ => Outcome::Retry {
            after: Duration::ZERO,
            error: "no".to_owned(),
        },
    };
    {
        let mut world = world.lock().unwrap();
        world.running.remove(&key);
        if matches!(outcome, Outcome::Done | Outcome::Dead { .. }) {
            world.ended.insert(event.provider_event_id.clone());
            let open = world.open.entry(key).or_default();
            open.remove(&(second, event.provider_event_id.clone()));
        }
    }
    store.settle(settle(claim, outcome)).await;
    store.flush().await.unwrap();
}
