//! What pages show and hide.

use serde_json::json;

use super::{Browser, PAGES, encoded, event_page};
use crate::support::{
    Answer, GITHUB_SECRET, STRIPE_SECRET, Setup, Sink, TestStore, on_both_stores, stripe, wait_until,
};

on_both_stores!(
    pages_show_what_there_is_and_load_nothing_foreign,
    what_strangers_wrote_is_text_and_nothing_else,
    a_body_is_on_a_page_only_when_asked_for,
    keys_are_shown_without_their_answers,
);

async fn pages_show_what_there_is_and_load_nothing_foreign(store: TestStore) {
    let sink = Sink::with(|received, _| {
        let is_good = String::from_utf8_lossy(&received.body).contains("evt_good");
        Answer::status(if is_good { 200 } else { 410 })
    })
    .await;
    let server = Setup::new(&store)
        .lease("60s")
        .http("forward", &sink.url())
        .start()
        .await;
    let browser = Browser::new(&server);
    for path in PAGES {
        browser.page(path).await;
    }
    server.stripe("evt_good").await;
    server.stripe("evt_bad").await;
    server.wait_for("stripe", "evt_good", "done").await;
    server.wait_for("stripe", "evt_bad", "failed").await;

    // Counts are a moment old.
    wait_until("it is counted", async || {
        browser.page("/").await.html.contains("<b>1</b> failed")
    })
    .await;
    browser.page("/").await.shows(&[
        "<b>1</b> failed",
        "<b>0</b> pending",
        "<b>2</b> events stored",
        "href=\"/events?status=failed\"",
        "href=\"/events?handler=forward&amp;status=failed\"",
        "href=\"/events?provider=stripe\"",
        "evt_bad",
    ]);
    let all = browser.page("/events").await;
    all.shows(&["evt_good", "evt_bad", "payment_intent.succeeded"]);
    assert!(
        all.html.find("evt_bad") < all.html.find("evt_good"),
        "the newest is first"
    );
    // A form that a person leaves empty asks nothing.
    let filtered = "/events?provider=stripe&status=failed&type=&handler=&q=&since=&until=";
    browser
        .page(filtered)
        .await
        .shows(&["evt_bad", "<option selected>failed</option>"])
        .hides(&["evt_good"]);
    browser
        .page("/events?q=evt_go")
        .await
        .shows(&["evt_good"])
        .hides(&["evt_bad"]);
    browser
        .page("/events?since=2020-01-01T00:00&until=2020-01-02T00:00")
        .await
        .shows(&["No event matches"]);
    let first = browser.page("/events?limit=1").await;
    first.shows(&["evt_bad"]).hides(&["evt_good"]);
    let (_, next) = first.html.split_once("rel=\"next\" href=\"").unwrap();
    let next = next
        .split('"')
        .next()
        .unwrap()
        .replace("&amp;", "&")
        .replace("&#38;", "&");
    browser.page(&next).await.shows(&["evt_good"]).hides(&["evt_bad"]);

    let one = browser.page(&event_page("stripe", "evt_bad")).await;
    one.shows(&[
        "badge failed",
        "badge dead",
        "forward",
        "410",
        "Reprocess",
        "Discard",
        "content-type",
        "pi_evt_bad",
    ]);
    browser
        .page(&event_page("stripe", "evt_good"))
        .await
        .shows(&["badge done"])
        .hides(&["/event/discard"]);
    browser
        .page("/providers")
        .await
        .shows(&["https://hooks.example.com/webhooks/stripe", "Retries", "<ol>"]);

    for (path, status) in [
        ("/event?provider=stripe&id=none", 404),
        ("/event?provider=stripe", 404),
        ("/event?provider=stripe&id=%00", 404),
        ("/event?provider=stripe&id=evt_bad&colour=red", 400),
        ("/events?colour=red", 400),
        ("/events?status=broken", 400),
        ("/events?cursor=nonsense", 400),
        ("/quarantine/request?id=999", 404),
        ("/keys/key?id=x", 404),
        ("/?colour=red", 400),
    ] {
        let page = browser.get(path).await;
        assert_eq!(page.status, status, "{path}");
        page.is_a_safe_page();
    }
    for path in PAGES {
        let head = browser.send(browser.request(reqwest::Method::HEAD, path)).await;
        assert_eq!((head.status, head.html.len()), (200, 0), "{path}");
        if path != "/events/reprocess" {
            let wrong = browser.submit(path, &[]).await;
            assert_eq!((wrong.status, wrong.header("allow")), (405, "GET, HEAD"), "{path}");
        }
    }
    assert_eq!(browser.get("/event/reprocess").await.header("allow"), "POST");
    assert_eq!(browser.get("/nothing").await.status, 404);
    let style = browser.get("/assets/dashboard.css").await;
    assert_eq!(
        (style.status, style.header("content-type")),
        (200, "text/css; charset=utf-8")
    );
    assert!(style.html.contains("prefers-color-scheme: dark"));
}

async fn what_strangers_wrote_is_text_and_nothing_else(store: TestStore) {
    let server = Setup::new(&store)
        .exec(
            "dies",
            "printf '<script>alert(\"e\")</script>\\033[31m' >&2; exit 65",
            "",
        )
        .start()
        .await;
    let browser = Browser::new(&server);
    // As long as ids may be.
    let long = "<b>".repeat(340);
    let ids = [
        "\"><script>alert('id')</script>",
        "..",
        "a/b%2Fc?d&e=#f +g",
        "'onmouseover='alert(1)",
        "\u{202e}}{\u{2066}tpircs\u{feff}\u{200b}",
        "\u{1b}[31m\r\n\ttext",
        &long,
    ];
    for id in ids {
        let kind = format!(
            "<img src=x onerror=alert(1)>{}",
            id.chars().take(100).collect::<String>()
        );
        let body = json!({"id": id, "type": kind, "data": {"object": {"customer": "</title><script>"}}}).to_string();
        let mut headers = stripe(body.as_bytes());
        headers.push(("X-Evil-Id".into(), "<script>alert('header')</script>".into()));
        assert_eq!(server.send("stripe", headers, body).await.status, 200, "{id}");
        let path = event_page("stripe", id);
        wait_until("it has failed", async || {
            browser.get(&path).await.html.contains("badge failed")
        })
        .await;
    }
    let mut pages = vec!["/".to_owned(), "/events".to_owned(), "/jobs".to_owned()];
    pages.extend(ids.iter().map(|id| event_page("stripe", id)));
    pages.extend(ids.iter().map(|id| format!("{}&body=1", event_page("stripe", id))));
    pages.extend(ids.iter().map(|id| format!("/events?type={0}&q={0}", encoded(id))));
    pages.extend(
        ids.iter()
            .map(|id| format!("/events/reprocess?provider={}", encoded(id))),
    );
    pages.extend(
        ids.iter()
            .map(|id| format!("/quarantine?provider={0}&reason={0}", encoded(id))),
    );
    pages.extend(ids.iter().map(|id| format!("/keys?route={0}&key={0}", encoded(id))));
    for path in &pages {
        let page = browser.page(path).await;
        page.hides(&["<script", "<img src=x", "<b><b>", "'onmouseover='"]);
        page.hides_outside_of_values(&["\u{202e}", "\u{2066}", "\u{200b}", "\u{1b}"]);
    }
    let one = browser.page(&event_page("stripe", ids[0])).await;
    one.shows(&[
        "&#60;script&#62;alert(&#39;id&#39;)",
        "x-evil-id",
        "&#60;script&#62;alert(&#39;header&#39;)",
        "&#60;script&#62;alert(&#34;e&#34;)",
    ]);
    browser
        .page(&event_page("stripe", ids[4]))
        .await
        .shows(&["\\u{202e}}{\\u{2066}tpircs\\u{feff}\\u{200b}"]);
    // What a form sends along is whole; what is shown is not.
    let page = browser.page(&event_page("stripe", &long)).await;
    page.shows(&["… (620 more)"]);
    let list = browser.page("/events").await;
    assert!(
        list.html.len() < 150_000,
        "links are whole, the rest is short: {}",
        list.html.len()
    );
    // The refusal of a hostile parameter is a page too.
    let wrong = browser.get("/events?%3Cscript%3E=1").await;
    assert_eq!(wrong.status, 400);
    wrong.is_a_safe_page().shows(&["&#60;script&#62;"]);
}

async fn a_body_is_on_a_page_only_when_asked_for(store: TestStore) {
    let server = Setup::new(&store).start().await;
    let browser = Browser::new(&server);
    let body = json!({"id": "evt_1", "type": "a", "note": "marker-of-the-body <script>\u{202e}"}).to_string();
    let headers = stripe(body.as_bytes());
    let signature = headers[1].1.rsplit('=').next().unwrap().to_owned();
    assert_eq!(server.send("stripe", headers, body.clone()).await.status, 200);
    let binary = b"\xff\xfe\0marker\x01<script>";
    server.github("delivery-1", binary).await;

    for path in PAGES
        .into_iter()
        .map(str::to_owned)
        .chain([event_page("stripe", "evt_1"), event_page("github", "delivery-1")])
    {
        browser
            .page(&path)
            .await
            .hides(&["marker", &signature, STRIPE_SECRET, GITHUB_SECRET]);
    }
    let path = event_page("stripe", "evt_1");
    browser
        .page(&path)
        .await
        .shows(&["Show the body", "id=evt%5F1&amp;body=1"]);
    let shown = browser.page(&format!("{path}&body=1")).await;
    shown
        .shows(&["marker-of-the-body &#60;script&#62;", "Hide it"])
        .hides(&[&signature, STRIPE_SECRET]);
    let dump = browser
        .page(&format!("{}&body=1", event_page("github", "delivery-1")))
        .await;
    dump.shows(&["000000  ff fe 00 6d 61 72 6b 65 72 01 3c 73 63 72 69 70  ...marker.&#60;scrip"]);
    let file = browser.client.get(format!(
        "{}/event/payload?provider=github&id=delivery%2D1",
        browser.base
    ));
    let file = file.send().await.unwrap();
    assert!(
        file.headers()["content-disposition"]
            .to_str()
            .unwrap()
            .starts_with("attachment")
    );
    assert_eq!(&file.bytes().await.unwrap()[..], binary);
}

async fn keys_are_shown_without_their_answers(store: TestStore) {
    let upstream =
        Sink::with(|_, _| Answer::json(201, "{\"order\":\"marker-of-the-answer<script>\"}").header("ETag", "\"v1\""))
            .await;
    let gateway = format!(
        "[[gateway]]\npath = \"/api/orders\"\nupstream = \"{}\"\ntimeout = \"60s\"\n",
        upstream.url()
    );
    let server = Setup::new(&store).with(&gateway).start().await;
    let browser = Browser::new(&server);
    let sent = server.client.post(format!("http://{}/api/orders", server.public()));
    let sent = sent
        .header("Idempotency-Key", "order-<b>17")
        .header("Authorization", "Bearer principal-of-the-test")
        .body("{}");
    assert_eq!(sent.send().await.unwrap().status(), 201);
    let list = browser.page("/keys?status=completed&route=&key=").await;
    list.shows(&["order-&#60;b&#62;17", "/api/orders", "201"])
        .hides(&["marker", "principal-of-the-test"]);
    let (_, link) = list.html.split_once("href=\"/keys/key?id=").unwrap();
    let path = format!("/keys/key?id={}", link.split('"').next().unwrap());
    browser
        .page(&path)
        .await
        .shows(&["completed", "etag", "Show the body"])
        .hides(&["marker", "principal-of-the-test"]);
    browser
        .page(&format!("{path}&body=1"))
        .await
        .shows(&["marker-of-the-answer&#60;script&#62;"]);
    browser.page("/keys?key=other").await.shows(&["No key matches"]);
    wait_until("it is counted", async || {
        browser.page("/").await.html.contains("1 completed")
    })
    .await;
}
