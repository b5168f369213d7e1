//! Who sees the dashboard.

use super::{Browser, PAGES, Seen, audit, event_page};
use crate::support::{Setup, TestStore, on_both_stores};

on_both_stores!(a_browser_logs_in_with_the_token_and_holds_something_else);

const TOKEN: &str = "an-admin-token-of-the-test";
const EVT_1: &str = "provider=stripe&id=evt_1";

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
    let fields = |form| [("form", form), ("event", EVT_1), ("reason", "by hand")];
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
