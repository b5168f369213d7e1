//! The dashboard as a browser meets it, without a browser: what its pages show and hide, who sees them, and what their
//! forms do. `dashboard_browser` is the same with a real one.

use reqwest::header::HeaderMap;
use serde_json::json;

use crate::support::{
    Answer, GITHUB_SECRET, STRIPE_SECRET, Server, Setup, Sink, TestStore, now, on_both_stores, stripe, stripe_at,
    stripe_body, wait_until,
};

on_both_stores!(
    pages_show_what_there_is_and_load_nothing_foreign,
    what_strangers_wrote_is_text_and_nothing_else,
    a_body_is_on_a_page_only_when_asked_for,
    reprocess_and_discard_work_once_and_are_in_the_audit,
    forms_that_are_not_ours_are_refused,
    a_browser_logs_in_with_the_token_and_holds_something_else,
    refused_requests_are_shown_without_what_proves_and_taken_in,
    keys_are_shown_without_their_answers,
    all_that_match_are_reprocessed_as_a_job,
);

const TOKEN: &str = "an-admin-token-of-the-test";

/// A page.
struct Seen {
    status: u16,
    headers: HeaderMap,
    html: String,
}

impl Seen {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Fails unless every text is on the page.
    #[track_caller]
    fn shows(&self, texts: &[&str]) -> &Self {
        for text in texts {
            assert!(self.html.contains(text), "{text:?} is not on the page:\n{}", self.html);
        }
        self
    }

    #[track_caller]
    fn hides(&self, texts: &[&str]) -> &Self {
        for text in texts {
            assert!(!self.html.contains(text), "{text:?} is on the page:\n{}", self.html);
        }
        self
    }

    /// The token of the form that goes to `action`.
    fn form(&self, action: &str) -> String {
        let at = self.html.find(&format!("action=\"{action}\""));
        let form = &self.html[at.unwrap_or_else(|| panic!("no form for {action}:\n{}", self.html))..];
        let (_, value) = form.split_once("name=\"form\" value=\"").unwrap();
        value.split('"').next().unwrap().to_owned()
    }

    /// What every page keeps to.
    #[track_caller]
    fn is_a_safe_page(&self) -> &Self {
        let policy = self.header("content-security-policy");
        for rule in [
            "default-src 'none'",
            "style-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(rule), "{policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("script-src"), "{policy}");
        for (name, value) in [
            ("content-type", "text/html; charset=utf-8"),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(self.header(name), value, "{name}");
        }
        assert_eq!(self.html.matches("<h1").count(), 1, "{}", self.html);
        self.shows(&["<html lang=\"en\">", "name=\"viewport\""]);
        self.hides(&[
            "<script",
            "<style",
            " style=",
            "javascript:",
            "src=\"http",
            "onerror=\"",
            "onclick=",
        ]);
        assert_eq!(
            self.html.matches("<th>").count() + self.html.matches("<th class").count(),
            0,
            "headings say their scope"
        );
        self
    }
}

/// A browser: sends what browsers send, keeps a cookie, follows nothing.
struct Browser {
    client: reqwest::Client,
    base: String,
    cookie: Option<String>,
}

impl Browser {
    fn new(server: &Server) -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none());
        Self {
            client: client.build().unwrap(),
            base: format!("http://{}", server.admin()),
            cookie: None,
        }
    }

    fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.base))
            .header("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8");
        if let Some(cookie) = &self.cookie {
            request = request.header("Cookie", format!("theme=dark; {cookie}"));
        }
        request
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Seen {
        let response = request.send().await.unwrap();
        Seen {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            html: response.text().await.unwrap(),
        }
    }

    async fn get(&self, path: &str) -> Seen {
        self.send(self.request(reqwest::Method::GET, path)).await
    }

    async fn page(&self, path: &str) -> Seen {
        let page = self.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.html);
        page.is_a_safe_page();
        page
    }

    /// Sends a form as one of our own pages would.
    async fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Seen {
        self.submit_with(
            path,
            fields,
            &[("Origin", &self.base), ("Sec-Fetch-Site", "same-origin")],
        )
        .await
    }

    async fn submit_with(&self, path: &str, fields: &[(&str, &str)], headers: &[(&str, &str)]) -> Seen {
        let body: String = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        let mut request = self
            .request(reqwest::Method::POST, path)
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request).await
    }
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn event_page(provider: &str, id: &str) -> String {
    format!("/event?provider={provider}&id={}", encoded(id))
}

const PAGES: [&str; 6] = ["/", "/events", "/jobs", "/quarantine", "/keys", "/providers"];

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
    let long = "<b>".repeat(4000);
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
        page.hides(&[
            "<script",
            "<img src=x",
            "<b><b>",
            "'onmouseover='",
            "\u{202e}",
            "\u{2066}",
            "\u{200b}",
            "\u{1b}",
        ]);
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
    page.shows(&["… (11600 more)"]);
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

async fn audit(store: &TestStore, action: &str, reason: &str) -> i64 {
    let sql =
        format!("select count(*) from audit where actor = 'dashboard' and action = '{action}' and reason = '{reason}'");
    store.number(&sql).await
}

async fn reprocess_and_discard_work_once_and_are_in_the_audit(store: TestStore) {
    let sink = Sink::with(|_, _| Answer::status(410)).await;
    let server = Setup::new(&store)
        .lease("60s")
        .http("forward", &sink.url())
        .start()
        .await;
    let browser = Browser::new(&server);
    let id = "evt/1&2 '<%2F";
    let path = event_page("stripe", id);
    server.stripe(id).await;
    server.wait_for("stripe", id, "failed").await;
    assert_eq!(sink.count(), 1);

    let form = browser.page(&path).await.form("/event/reprocess");
    let fields = [
        ("form", form.as_str()),
        ("provider", "stripe"),
        ("id", id),
        ("reason", " the ledger was down "),
    ];
    let done = browser.submit("/event/reprocess", &fields).await;
    assert_eq!(done.status, 303, "{}", done.html);
    assert_eq!(done.header("location"), format!("{path}&done=reprocessed&count=1"));
    browser
        .page(done.header("location"))
        .await
        .shows(&["1 delivery made ready"]);
    wait_until("it is tried again", async || sink.count() == 2).await;
    server.wait_for("stripe", id, "failed").await;
    // The same form again: a second click, or the browser's back and reload.
    let again = browser.submit("/event/reprocess", &fields).await;
    assert_eq!(again.header("location"), format!("{path}&done=again&count=0"));
    browser
        .page(again.header("location"))
        .await
        .shows(&["was done already"]);
    assert_eq!(audit(&store, "reprocess", "the ledger was down").await, 1);
    assert_eq!(sink.count(), 2);

    // A form that did nothing can be sent again.
    let form = browser.page(&path).await.form("/event/reprocess");
    let wrong = [
        ("form", form.as_str()),
        ("provider", "stripe"),
        ("id", id),
        ("handlers", "nobody"),
    ];
    let refused = browser.submit("/event/reprocess", &wrong).await;
    assert_eq!(refused.status, 400);
    refused.is_a_safe_page().shows(&["nobody"]);
    let right = [
        ("form", form.as_str()),
        ("provider", "stripe"),
        ("id", id),
        ("handlers", "forward"),
        ("reason", "two"),
    ];
    assert_eq!(browser.submit("/event/reprocess", &right).await.status, 303);
    wait_until("it is tried a third time", async || sink.count() == 3).await;
    server.wait_for("stripe", id, "failed").await;

    let form = browser.page(&path).await.form("/event/discard");
    let fields = [
        ("form", form.as_str()),
        ("provider", "stripe"),
        ("id", id),
        ("reason", "not ours"),
    ];
    let done = browser.submit("/event/discard", &fields).await;
    assert_eq!(done.header("location"), format!("{path}&done=discarded&count=1"));
    browser
        .page(done.header("location"))
        .await
        .shows(&["badge discarded", "1 delivery given up"]);
    assert_eq!(audit(&store, "discard", "not ours").await, 1);
    assert_eq!(store.number("select count(*) from audit").await, 3);
}

async fn forms_that_are_not_ours_are_refused(store: TestStore) {
    let server = Setup::new(&store).start().await;
    let browser = Browser::new(&server);
    server.stripe("evt_1").await;
    let page = browser.page(&event_page("stripe", "evt_1")).await;
    let form = page.form("/event/reprocess");
    let own = browser.base.clone();
    let fields = [("form", form.as_str()), ("provider", "stripe"), ("id", "evt_1")];
    let mut changed = form.clone().into_bytes();
    changed[40] = if changed[40] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    for forged in ["", "AAAA", &form[1..], &changed] {
        let fields = [("form", forged), ("provider", "stripe"), ("id", "evt_1")];
        let refused = browser.submit("/event/reprocess", &fields).await;
        assert_eq!(refused.status, 403, "{forged}");
    }
    for headers in [
        &[("Origin", "https://evil.example")][..],
        &[("Origin", "null")],
        &[("Origin", "http://localhost:1")],
        &[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")],
        &[("Sec-Fetch-Site", "same-site"), ("Origin", &own)],
        &[("Host", "evil.example"), ("Origin", "http://evil.example")],
    ] {
        let refused = browser.submit_with("/event/reprocess", &fields, headers).await;
        assert_eq!(refused.status, 403, "{headers:?}");
    }
    for host in ["evil.example", "evil.example:8081"] {
        let rebound = browser
            .send(browser.request(reqwest::Method::GET, "/events").header("Host", host))
            .await;
        assert_eq!(rebound.status, 403, "{host}");
        rebound.hides(&["evt_1"]);
    }
    let wrong = browser
        .request(reqwest::Method::POST, "/event/reprocess")
        .header("Content-Type", "text/plain")
        .body("form=1");
    assert_eq!(browser.send(wrong).await.status, 415);
    let large = "y".repeat(70_000);
    assert_eq!(
        browser
            .submit("/event/reprocess", &[("form", &form), ("reason", &large)])
            .await
            .status,
        413
    );
    assert_eq!(store.number("select count(*) from audit").await, 0);
    assert_eq!(
        browser.submit("/event/reprocess", &fields).await.status,
        303,
        "the form itself is good"
    );
}

async fn log_in(browser: &mut Browser, token: &str, next: &str) -> Seen {
    let answer = browser.submit("/login", &[("token", token), ("next", next)]).await;
    if let Some(cookie) = answer.headers.get("set-cookie") {
        browser.cookie = Some(cookie.to_str().unwrap().split(';').next().unwrap().to_owned());
    }
    answer
}

async fn a_browser_logs_in_with_the_token_and_holds_something_else(store: TestStore) {
    let server = Setup::new(&store).admin_token(TOKEN).start().await;
    server.stripe("evt_1").await;
    let mut browser = Browser::new(&server);
    let turned = browser.get("/events?status=failed").await;
    assert_eq!(
        (turned.status, turned.header("location")),
        (303, "/login?next=%2Fevents%3Fstatus%3Dfailed")
    );
    for path in PAGES {
        assert_eq!(browser.get(path).await.status, 303, "{path}");
    }
    for path in ["/metrics", "/api/v1/events", "/nothing"] {
        assert_eq!(browser.get(path).await.status, 401, "{path}");
    }
    let login = browser.get("/login?next=%2Fevents%3Fstatus%3Dfailed").await;
    login
        .is_a_safe_page()
        .shows(&["type=\"password\"", "value=\"/events?status=failed\""])
        .hides(&[TOKEN]);
    assert_eq!(browser.get("/assets/dashboard.css").await.status, 200);

    let wrong = log_in(&mut browser, "a wrong one", "/").await;
    assert_eq!((wrong.status, browser.cookie.is_none()), (403, true));
    wrong
        .is_a_safe_page()
        .shows(&["not the admin token"])
        .hides(&["a wrong one"]);
    let foreign = [("Origin", "https://evil.example")];
    assert_eq!(
        browser
            .submit_with("/login", &[("token", TOKEN)], &foreign)
            .await
            .status,
        403
    );

    let right = log_in(&mut browser, TOKEN, "/events?status=failed").await;
    assert_eq!((right.status, right.header("location")), (303, "/events?status=failed"));
    let cookie = right.header("set-cookie").to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains(TOKEN) && !cookie.contains("Secure"), "{cookie}");
    browser.page("/events").await.shows(&["evt_1", "Log out"]);
    // The cookie is for pages; the API takes the token only.
    for path in ["/metrics", "/api/v1/events", "/api/v1/stats"] {
        assert_eq!(browser.get(path).await.status, 401, "{path}");
    }

    // Forms are of one session.
    let mut other = Browser::new(&server);
    log_in(&mut other, TOKEN, "https://evil.example/").await;
    let foreign = other
        .page(&event_page("stripe", "evt_1"))
        .await
        .form("/event/reprocess");
    let fields = |form| {
        [
            ("form", form),
            ("provider", "stripe"),
            ("id", "evt_1"),
            ("reason", "by hand"),
        ]
    };
    assert_eq!(browser.submit("/event/reprocess", &fields(&foreign)).await.status, 403);
    let own = browser
        .page(&event_page("stripe", "evt_1"))
        .await
        .form("/event/reprocess");
    assert_eq!(browser.submit("/event/reprocess", &fields(&own)).await.status, 303);
    assert_eq!(audit(&store, "reprocess", "by hand").await, 1);
    let own = browser
        .page(&event_page("stripe", "evt_1"))
        .await
        .form("/event/reprocess");

    let form = browser.page("/").await.form("/logout");
    let out = browser.submit("/logout", &[("form", &form)]).await;
    assert_eq!((out.status, out.header("location")), (303, "/login"));
    assert!(out.header("set-cookie").contains("Max-Age=0"));
    assert_eq!(
        browser.get("/events").await.status,
        303,
        "what the browser held is worth nothing"
    );
    let late = browser.submit("/event/reprocess", &fields(&own)).await;
    assert_eq!(late.status, 401);
    late.is_a_safe_page().shows(&["nothing was done"]);
    other.page("/events").await;
    assert_eq!(store.number("select count(*) from audit").await, 1);

    // Over TLS, as the proxy says.
    let secure = [("X-Forwarded-Proto", "https"), ("Sec-Fetch-Site", "same-origin")];
    let secure = other
        .submit_with("/login", &[("token", TOKEN), ("next", "//evil.example")], &secure)
        .await;
    assert!(
        secure.header("set-cookie").starts_with("__Host-cerca="),
        "{}",
        secure.header("set-cookie")
    );
    assert!(secure.header("set-cookie").ends_with("; Secure"));
    assert_eq!(secure.header("location"), "/");

    let mut limited = 0;
    for _ in 0..20 {
        let tried = log_in(&mut Browser::new(&server), "guess", "/").await;
        limited += u32::from(tried.status == 429);
        assert!(tried.status == 403 || tried.status == 429 && !tried.header("retry-after").is_empty());
    }
    assert!(limited >= 10, "{limited}");
    let right = log_in(&mut Browser::new(&server), TOKEN, "/").await;
    assert_eq!(right.status, 429, "whoever guesses right too late learns nothing");
    assert!(!server.log().contains(TOKEN) && !server.log().contains("guess"));
}

async fn refused_requests_are_shown_without_what_proves_and_taken_in(store: TestStore) {
    let server = Setup::new(&store).start().await;
    let browser = Browser::new(&server);
    let body = stripe_body("evt_stale");
    let headers = stripe_at(&body, now() - 3600);
    let signature = headers[1].1.rsplit('=').next().unwrap().to_owned();
    let target = "stripe?key=marker-of-the-query";
    assert_eq!(server.send(target, headers, body).await.status, 401);
    let mut id = String::new();
    wait_until("it is kept", async || {
        let page = server.get("/api/v1/quarantine").await.json();
        id = page["requests"][0]["id"].to_string();
        page["requests"][0]["id"].is_i64()
    })
    .await;
    let path = format!("/quarantine/request?id={id}");
    browser
        .page("/quarantine")
        .await
        .shows(&["stale", &format!("href=\"{path}\"")]);
    browser
        .page("/quarantine?provider=stripe&reason=")
        .await
        .shows(&["stale"]);
    browser
        .page("/quarantine?reason=other")
        .await
        .shows(&["Nothing is in quarantine"]);
    let one = browser.page(&path).await;
    one.shows(&["stripe-signature", "not shown", "/webhooks/stripe", "not proved"]);
    one.hides(&[&signature, "marker-of-the-query", "evt_stale"]);
    let shown = browser.page(&format!("{path}&body=1")).await;
    shown.shows(&["evt_stale"]).hides(&[&signature, "marker-of-the-query"]);

    let form = one.form("/quarantine/readmit");
    let refused = browser
        .submit("/quarantine/readmit", &[("form", &form), ("id", &id)])
        .await;
    assert_eq!(refused.status, 422);
    refused
        .is_a_safe_page()
        .shows(&["does not verify"])
        .hides(&[&signature]);
    let unsaid = browser
        .submit("/quarantine/readmit", &[("form", &form), ("id", &id), ("force", "1")])
        .await;
    assert_eq!(unsaid.status, 400);
    let fields = [
        ("form", form.as_str()),
        ("id", &id),
        ("force", "1"),
        ("reason", "clock was wrong"),
    ];
    let done = browser.submit("/quarantine/readmit", &fields).await;
    assert_eq!(done.header("location"), format!("{path}&done=readmitted&count=1"));
    browser
        .page(done.header("location"))
        .await
        .shows(&["events stored: 1", "Taken in"]);
    server.wait_for("stripe", "evt_stale", "done").await;
    browser
        .page(&event_page("stripe", "evt_stale"))
        .await
        .shows(&["badge done", "cerca-readmitted"]);
    assert_eq!(
        store
            .number("select count(*) from audit where actor = 'dashboard'")
            .await,
        1
    );
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

async fn all_that_match_are_reprocessed_as_a_job(store: TestStore) {
    let sink = Sink::with(|_, n| Answer::status(if n < 3 { 410 } else { 200 })).await;
    let server = Setup::new(&store)
        .lease("60s")
        .http("forward", &sink.url())
        .start()
        .await;
    let browser = Browser::new(&server);
    for n in 0..3 {
        server.stripe(&format!("evt_{n}")).await;
    }
    for n in 0..3 {
        server.wait_for("stripe", &format!("evt_{n}"), "failed").await;
    }
    assert_eq!(
        browser.get("/events/reprocess").await.status,
        400,
        "everything is never meant"
    );
    browser
        .page("/events?status=failed")
        .await
        .shows(&["href=\"/events/reprocess?status=failed\""]);
    let page = browser.page("/events/reprocess?status=failed").await;
    page.shows(&["3 events match"]);
    let form = page.form("/events/reprocess");
    let nothing = browser.submit("/events/reprocess", &[("form", &form)]).await;
    assert_eq!(nothing.status, 400);
    let fields = [
        ("form", form.as_str()),
        ("status", "failed"),
        ("rate", "100"),
        ("reason", "fixed"),
    ];
    let begun = browser.submit("/events/reprocess", &fields).await;
    assert_eq!((begun.status, begun.header("location")), (303, "/jobs?done=begun"));
    assert_eq!(
        browser.submit("/events/reprocess", &fields).await.header("location"),
        "/jobs?done=again"
    );
    for n in 0..3 {
        server.wait_for("stripe", &format!("evt_{n}"), "done").await;
    }
    wait_until("the job is done", async || {
        browser.page("/jobs").await.html.contains("badge done")
    })
    .await;
    browser
        .page("/jobs")
        .await
        .shows(&["status=failed", "fixed", "dashboard", "3 of 3"]);
    assert_eq!(audit(&store, "reprocess", "fixed").await, 1);
    let form = browser.page("/events/reprocess?status=done").await;
    let form = form.form("/events/reprocess");
    let fields = [("form", form.as_str()), ("id", "999")];
    assert_eq!(browser.submit("/jobs/stop", &fields).await.status, 404);
    // A job that is stopped goes on when told to.
    for n in 3..43 {
        server.stripe(&format!("evt_{n}")).await;
        server.wait_for("stripe", &format!("evt_{n}"), "done").await;
    }
    let slow = [
        ("form", form.as_str()),
        ("status", "done"),
        ("rate", "1"),
        ("reason", "slow"),
    ];
    assert_eq!(browser.submit("/events/reprocess", &slow).await.status, 303);
    let page = browser.page("/jobs").await;
    let stop = [("form", page.form("/jobs/stop")), ("id", "2".to_owned())];
    let stop: Vec<(&str, &str)> = stop.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let stopped = browser.submit("/jobs/stop", &stop).await;
    assert_eq!(stopped.header("location"), "/jobs?done=stopped", "{}", stopped.html);
    let page = browser.page("/jobs?done=stopped").await;
    page.shows(&["badge stopped", "The job is stopped"]);
    let resume = page.form("/jobs/resume");
    let resumed = browser.submit("/jobs/resume", &[("form", &resume), ("id", "2")]).await;
    assert_eq!(resumed.header("location"), "/jobs?done=resumed");
    browser.page("/jobs").await.shows(&["badge running"]);
}
