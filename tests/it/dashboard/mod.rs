//! The dashboard as a browser meets it, without a browser: what its pages show and hide, who sees them, and what their
//! forms do. `chromium` is the same with a real one.

mod chromium;
mod forms;
mod login;
mod pages;

use reqwest::header::HeaderMap;

use crate::support::{Server, TestStore};

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

    /// The same for what a reader sees and a browser runs: a field's value is whole, whatever it holds.
    #[track_caller]
    fn hides_outside_of_values(&self, texts: &[&str]) -> &Self {
        let mut parts = self.html.split("value=\"");
        let first = parts.next().unwrap_or_default().to_owned();
        let html = parts
            .filter_map(|part| part.split_once('"'))
            .fold(first, |html, (_, rest)| html + rest);
        for text in texts {
            assert!(!html.contains(text), "{text:?} is on the page:\n{}", self.html);
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

const PAGES: [&str; 7] = ["/", "/events", "/jobs", "/quarantine", "/keys", "/providers", "/audit"];

async fn audit(store: &TestStore, action: &str, reason: &str) -> i64 {
    let sql =
        format!("select count(*) from audit where actor = 'dashboard' and action = '{action}' and reason = '{reason}'");
    store.number(&sql).await
}
