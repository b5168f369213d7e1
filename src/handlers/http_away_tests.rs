//! Targets that do not answer, that are asked, or that are not where they should be.

use tokio::{io::AsyncReadExt as _, net::TcpListener};

use super::{
    tests::{Server, http, usual},
    *,
};
use crate::handlers::testing::claim;

/// A server that takes one request whole, or none, and closes the connection.
async fn closing(reads: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            if reads {
                let _ = stream.read(&mut buffer).await;
            }
        }
    });
    url
}

#[tokio::test]
async fn what_was_sent_and_not_answered_is_unknown() {
    for body in ["{}", ""] {
        let url = closing(true).await;
        let outcome = http(&url, |target| target)
            .handle(&Outgoing::raw(&claim("evt_1", body)))
            .await;
        let Err(Failure::Unknown(error)) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(error.starts_with("sent, but no answer came"), "{error}");
    }
}

#[tokio::test]
async fn a_target_that_never_answers_leaves_the_mark_of_what_was_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let handler = http(&url, |target| target);
    let claim = claim("evt_1", "{}");
    let outgoing = Outgoing::raw(&claim);
    assert!(!outgoing.is_sent());
    let mut buffer = vec![0; 4096];
    let seen = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seen = 0;
        while !buffer[..seen].ends_with(b"{}") {
            seen += stream.read(&mut buffer[seen..]).await.unwrap();
        }
        stream
    };
    tokio::select! {
        outcome = handler.handle(&outgoing) => panic!("{outcome:?}"),
        _ = seen => {}
    }
    assert!(outgoing.is_sent());
}

#[tokio::test]
async fn a_destination_that_is_away_is_left_alone() {
    let port = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let url = format!("http://127.0.0.1:{port}/");
    let spec = BreakerSpec {
        failures: 2,
        pause: Duration::from_secs(600),
    };
    let handler = http(&url, |target| Target {
        breaker: spec,
        ..target
    });
    let claim = claim("evt_1", "{}");
    for _ in 0..2 {
        assert_eq!(handler.room(), usize::MAX);
        let outcome = handler.handle(&Outgoing::raw(&claim)).await;
        assert!(matches!(outcome, Err(Failure::Retry(_))), "{outcome:?}");
    }
    assert_eq!(handler.room(), 0);
    let outcome = handler.handle(&Outgoing::raw(&claim)).await;
    let Err(Failure::NotNow { after, error }) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(
        after > Duration::from_secs(500) && error.contains(&format!("127.0.0.1:{port}")),
        "{error}"
    );
}

#[tokio::test]
async fn an_answer_of_any_kind_keeps_the_breaker_closed_but_a_gateways_does_not() {
    let spec = BreakerSpec {
        failures: 1,
        pause: Duration::from_secs(600),
    };
    for (answer, room) in [
        ("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", usize::MAX),
        ("HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n", usize::MAX),
        ("HTTP/1.1 429 No\r\ncontent-length: 0\r\n\r\n", usize::MAX),
        ("HTTP/1.1 502 No\r\ncontent-length: 0\r\n\r\n", 0),
        ("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", 0),
        ("HTTP/1.1 504 No\r\ncontent-length: 0\r\n\r\n", 0),
    ] {
        let server = Server::answering(answer).await;
        let handler = http(&server.url, |target| Target {
            breaker: spec,
            ..target
        });
        let _ = handler.handle(&Outgoing::raw(&claim("evt_1", "{}"))).await;
        assert_eq!(handler.room(), room, "{answer}");
    }
}

#[tokio::test]
async fn a_probe_asks_by_the_key() {
    let claim = claim("a/b c", "{}");
    for (answer, expected) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", Some(Probed::Effect)),
        (
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            Some(Probed::Nothing),
        ),
        ("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", None),
        ("HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n", None),
    ] {
        let server = Server::answering(answer).await;
        let probe = format!("{}&key={{idempotency_key}}", server.url);
        let handler = http(&server.url, |target| Target {
            probe: Some(&probe),
            ..target
        });
        match (handler.probe(&claim).await, expected) {
            (Ok(found), Some(expected)) => assert_eq!(found, expected),
            (Err(Failure::Unknown(error)), None) => assert!(error.starts_with("the probe answered"), "{error}"),
            (other, _) => panic!("{answer}: {other:?}"),
        }
        let seen = server.seen.lock().unwrap();
        let head = &seen.requests[0].0;
        assert!(
            head.starts_with("get /hooks?a=b&key=stripe%3aa%2fb%20c%3ah http/1.1\r\n"),
            "{head}"
        );
        assert!(head.contains("idempotency-key: stripe:a/b%20c:h"), "{head}");
    }
}

/// The name is looked up for each new connection, so that one which is pointed inside later is refused then.
#[tokio::test]
async fn a_public_name_that_turns_inside_is_refused() {
    let server = Server::answering("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
    let address: std::net::SocketAddr = server.url.split('/').nth(2).unwrap().parse().unwrap();
    let url = format!("http://api.example.com:{}/", address.port());
    let outcome = async |allow: Option<AllowPrivate>| {
        let target = Target {
            allow_private: allow.as_ref(),
            ..usual(&url)
        };
        let guard = Guard::new(["api.example.com"].into_iter(), target.allow_private)
            .unwrap()
            .looking_up(|_| Ok(vec![([127, 0, 0, 1], 0).into()]));
        let client = client(&target, guard).unwrap();
        let mut handler = Http::new(target).unwrap();
        handler.client = client;
        handler.handle(&Outgoing::raw(&claim("evt_1", "{}"))).await
    };
    let allowed = AllowPrivate::Networks(vec!["127.0.0.0/8".into()]);
    assert_eq!(outcome(Some(allowed)).await, Ok(()));
    assert_eq!(outcome(Some(AllowPrivate::All(true))).await, Ok(()));
    for refused in [None, Some(AllowPrivate::All(false))] {
        let Err(Failure::Retry(error)) = outcome(refused).await else {
            panic!("it should be refused")
        };
        assert!(error.contains("127.0.0.1, which is not a public address"), "{error}");
    }
    assert_eq!(server.seen.lock().unwrap().requests.len(), 2);
}
