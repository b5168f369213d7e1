use jiff::Timestamp;

use super::{NewOperation, Operation, Spool, SpoolError, State};

fn operation(key: Option<&str>, body: &str) -> Result<NewOperation, SpoolError> {
    Ok(NewOperation {
        key: key.map(str::to_owned),
        method: "POST".into(),
        url: "http://h/orders".into(),
        headers: vec![("Authorization".into(), "env:TOKEN".into())],
        body: body.into(),
    })
}

fn all(spool: &Spool) -> Vec<Operation> {
    let mut all = Vec::new();
    spool
        .each(|operation| {
            all.push(operation);
            Ok(())
        })
        .unwrap();
    all
}

#[test]
fn each_operation_gets_a_key_once_and_an_unfinished_input_is_taken_up_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool.db");
    let mut spool = Spool::open(&path).unwrap();
    let input = || [operation(None, "a"), operation(None, "a"), operation(None, "b")];
    assert_eq!(spool.add(input()).unwrap().new, 3);
    let keys: Vec<String> = all(&spool).into_iter().map(|operation| operation.key).collect();
    assert!(keys.iter().all(|key| key.len() == 36) && keys[0] != keys[1]);

    drop(spool);
    let mut spool = Spool::open(&path).unwrap();
    let again = spool.add(input()).unwrap();
    assert!(again.is_resumed && again.new == 0);
    assert_eq!(
        all(&spool)
            .into_iter()
            .map(|operation| operation.key)
            .collect::<Vec<_>>(),
        keys
    );
    // Once it is finished, the same input is meant anew.
    for operation in all(&spool) {
        spool
            .tried(operation.id, State::Done, Timestamp::now(), Some(200), None)
            .unwrap();
    }
    assert_eq!(spool.add(input()).unwrap().new, 3);
    assert_eq!(spool.waiting().unwrap(), 3);
}

#[test]
fn a_key_stands_for_one_operation() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(&folder.path().join("spool.db")).unwrap();
    spool.add([operation(Some("k"), "a")]).unwrap();
    let other = spool
        .add([operation(None, "x"), operation(Some("k"), "b")])
        .unwrap_err();
    assert!(matches!(other, SpoolError::Taken(key) if key == "k"));
    for wrong in ["", "a b", "é", &"k".repeat(256)] {
        assert!(matches!(
            spool.add([operation(Some(wrong), "a")]),
            Err(SpoolError::Key(_))
        ));
    }
    let broken = spool.add([operation(None, "x"), Err(SpoolError::Input("line 2".into()))]);
    assert!(broken.is_err());
    assert_eq!(all(&spool).len(), 1, "a refused input leaves nothing");
    spool.tried(1, State::Done, Timestamp::now(), Some(200), None).unwrap();
    assert_eq!(spool.add([operation(Some("k"), "a")]).unwrap().known, 1);
    assert_eq!(spool.waiting().unwrap(), 0);
}

#[test]
fn one_process_sends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool.db");
    let (one, two) = (Spool::open(&path).unwrap(), Spool::open(&path).unwrap());
    let lock = one.lock().unwrap();
    assert!(matches!(two.lock(), Err(SpoolError::Busy(_))));
    drop(lock);
    assert!(two.lock().is_ok());
}
