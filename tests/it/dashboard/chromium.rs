//! The dashboard in a real browser: Chromium, driven through chromedriver, which speaks W3C `WebDriver` (HTTP and JSON, so a
//! crate for it would be larger than what is needed here). `tests/run` installs both; without them the test is skipped
//! with a word.
//!
//! The store does not matter here, so this runs on SQLite only.

use std::{
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{Answer, Engine, Setup, Sink, TestStore, run, stripe, wait_until};

const TOKEN: &str = "an-admin-token-of-the-test";

/// A browser with one window; both end when dropped.
struct Browser {
    client: reqwest::Client,
    session: String,
    driver: Child,
}

/// How `WebDriver` names an element in JSON.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

impl Browser {
    /// `None`: there is no browser, and nobody insists on one.
    #[allow(
        clippy::disallowed_methods,
        reason = "tests/run speaks to the tests through the environment"
    )]
    async fn start(store: &TestStore) -> Option<Self> {
        let address: SocketAddr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={}", address.port()))
            // What Chromium leaves behind goes with the test.
            .env("HOME", store.folder())
            .env("TMPDIR", store.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let driver = match driver {
            Ok(driver) => driver,
            Err(error) => {
                assert!(
                    std::env::var_os("CERCA_TEST_REQUIRE_BROWSER").is_none(),
                    "CERCA_TEST_REQUIRE_BROWSER is set and chromedriver does not start: {error}"
                );
                eprintln!("skipped: there is no chromedriver (tests/run installs it)");
                return None;
            }
        };
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut browser = Self {
            client,
            session: format!("http://{address}/session"),
            driver,
        };
        let status = format!("http://{address}/status");
        wait_until("chromedriver listens", async || {
            browser.client.get(&status).send().await.is_ok()
        })
        .await;
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--window-size=1200,900",
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "timeouts": {"implicit": 60_000, "pageLoad": 120_000},
            "goog:chromeOptions": {"args": arguments},
        }}});
        let made = browser.post("", &wanted).await;
        browser.session = format!("{}/{}", browser.session, made["sessionId"].as_str().unwrap());
        Some(browser)
    }

    async fn post(&self, command: &str, body: &Value) -> Value {
        let request = self
            .client
            .post(format!("{}{command}", self.session))
            .body(body.to_string());
        let response = request.header("Content-Type", "application/json").send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        assert!(status.is_success(), "{command} {body}: {text}");
        let mut answer: Value = serde_json::from_str(&text).unwrap();
        answer["value"].take()
    }

    async fn open(&self, url: &str) {
        self.post("/url", &json!({ "url": url })).await;
    }

    /// The first element, which must come within the implicit wait.
    async fn find(&self, css: &str) -> String {
        let found = self
            .post("/element", &json!({"using": "css selector", "value": css}))
            .await;
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    async fn click(&self, css: &str) {
        let element = self.find(css).await;
        self.post(&format!("/element/{element}/click"), &json!({})).await;
    }

    async fn write(&self, css: &str, text: &str) {
        let element = self.find(css).await;
        self.post(&format!("/element/{element}/value"), &json!({ "text": text }))
            .await;
    }

    async fn script(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []})).await
    }

    async fn text(&self, css: &str) -> String {
        let script = format!("return document.querySelector({}).innerText", json!(css));
        self.find(css).await;
        self.script(&script).await.as_str().unwrap().to_owned()
    }

    /// Nothing ran, nothing is wider than the window, and the browser had nothing to refuse.
    async fn is_well(&self, what: &str) {
        assert_eq!(
            self.script("return [window.pwned === undefined, document.scripts.length]")
                .await,
            json!([true, 0]),
            "{what}"
        );
        let styled = "return getComputedStyle(document.querySelector('main')).maxWidth !== 'none'";
        assert_eq!(self.script(styled).await, json!(true), "{what}: the style is loaded");
        let wider = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(self.script(wider).await, json!(0), "{what}");
        let unlabelled = "return [...document.querySelectorAll('input:not([type=hidden]), select')]
                          .filter(field => !field.labels.length).length";
        assert_eq!(
            self.script(unlabelled).await,
            json!(0),
            "{what}: every field has a label"
        );
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Killing the driver alone would leave its browser behind.
        let (client, session) = (self.client.clone(), self.session.clone());
        let ended = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.is_ok_and(|runtime| runtime.block_on(client.delete(session).send()).is_ok())
        });
        let _ = ended.join();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

#[test]
fn a_person_logs_in_finds_what_failed_reads_it_and_reprocesses_it() {
    run(Engine::Sqlite, in_a_browser);
}

async fn in_a_browser(store: TestStore) {
    let Some(browser) = Browser::start(&store).await else {
        return;
    };
    let sink = Sink::with(|_, n| Answer::status(if n == 0 { 410 } else { 200 })).await;
    let setup = Setup::new(&store)
        .lease("60s")
        .admin_token(TOKEN)
        .http("forward", &sink.url());
    let server = setup.start().await;
    let id = "\"><script>window.pwned=1</script>";
    let kind = "<img src=x onerror=window.pwned=1>";
    let body = json!({"id": id, "type": kind, "note": "</pre><script>window.pwned=1</script>"}).to_string();
    assert_eq!(server.send("stripe", stripe(body.as_bytes()), body).await.status, 200);
    server.wait_for("stripe", id, "failed").await;

    browser
        .open(&format!("http://{}/events?status=failed", server.admin()))
        .await;
    browser.is_well("login").await;
    browser.write("#token", "not it").await;
    browser.click("button").await;
    assert!(browser.text("[role=alert]").await.contains("not the admin token"));
    browser.write("#token", TOKEN).await;
    browser.click("button").await;
    assert!(
        browser.text("tbody").await.contains(kind),
        "the page that was asked for, with the type as text"
    );
    assert_eq!(
        browser.script("return document.cookie").await,
        json!(""),
        "no script reads the cookie"
    );
    browser.is_well("events").await;

    browser.click("tbody a").await;
    assert!(browser.text("h1").await.contains(kind));
    assert!(browser.text("main").await.contains(id));
    assert_eq!(
        browser.script("return document.querySelectorAll('pre').length").await,
        json!(0)
    );
    browser.is_well("event").await;
    browser.click("a.button").await;
    assert!(
        browser
            .text("pre")
            .await
            .contains("</pre><script>window.pwned=1</script>")
    );
    browser.is_well("body").await;

    browser.click("details summary").await;
    browser
        .write("details[open] input[name=reason]", "from a browser")
        .await;
    browser.click("details[open] button").await;
    assert!(browser.text("[role=status]").await.contains("1 delivery made ready"));
    server.wait_for("stripe", id, "done").await;
    let audit = "select count(*) from audit where actor = 'dashboard' and reason = 'from a browser' and deliveries = 1";
    assert_eq!(store.number(audit).await, 1);

    // On a phone.
    browser
        .post("/window/rect", &json!({"width": 500, "height": 900}))
        .await;
    let one = format!(
        "/event?provider=stripe&id={}",
        percent_encoding::utf8_percent_encode(id, percent_encoding::NON_ALPHANUMERIC)
    );
    for path in [
        "/",
        "/events",
        "/jobs",
        "/quarantine",
        "/keys",
        "/providers",
        "/audit",
        &one,
    ] {
        browser.open(&format!("http://{}{path}", server.admin())).await;
        browser.find("h1").await;
        browser.is_well(path).await;
    }
    // What is done by a person's keys alone: the first stop leads past the menu.
    browser.open(&format!("http://{}/", server.admin())).await;
    let keys = json!({"actions": [{"type": "key", "id": "keys", "actions": [
        {"type": "keyDown", "value": "\u{e004}"}, {"type": "keyUp", "value": "\u{e004}"}]}]});
    browser.post("/actions", &keys).await;
    assert_eq!(
        browser.script("return document.activeElement.className").await,
        json!("skip")
    );
    browser.click("header form button").await;
    browser.find("#token").await;
    assert!(browser.text("h1").await.contains("Log in"));
    assert_eq!(sink.count(), 2);
}
