//! One browser tab: navigate, click, type, press keys, evaluate scripts and take screenshots.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use symphony_testkit::wait::{self, DEFAULT_TIMEOUT};

use super::chromium::Chromium;

/// The size of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Screen {
    Desktop,
    Phone,
}

impl Screen {
    fn size(self) -> (u32, u32) {
        match self {
            Self::Desktop => (1280, 800),
            Self::Phone => (390, 844),
        }
    }
}

/// A tab with its own cookies.
pub(crate) struct Tab<'a> {
    chromium: &'a Chromium,
    session: String,
    origin: String,
}

impl<'a> Tab<'a> {
    /// A tab without cookies for the site at this address.
    pub(crate) async fn open(chromium: &'a Chromium, address: impl std::fmt::Display) -> Self {
        let context = chromium.call("", "Target.createBrowserContext", json!({})).await.unwrap();
        let target = json!({ "url": "about:blank", "browserContextId": context["browserContextId"] });
        let target = chromium.call("", "Target.createTarget", target).await.unwrap();
        let attached = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = chromium.call("", "Target.attachToTarget", attached).await.unwrap();
        let session = attached["sessionId"].as_str().unwrap().to_owned();
        let tab = Self { chromium, session, origin: format!("http://{address}") };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.call(&format!("{domain}.enable"), json!({})).await;
        }
        // A tab in the background would not refresh itself.
        tab.call("Page.bringToFront", json!({})).await;
        tab.call("Emulation.setFocusEmulationEnabled", json!({ "enabled": true })).await;
        tab.look(Screen::Desktop, false).await;
        tab
    }

    async fn call(&self, method: &str, parameters: Value) -> Value {
        let answer = self.chromium.call(&self.session, method, parameters).await;
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Sets the size of the window, and light or dark mode.
    pub(crate) async fn look(&self, screen: Screen, dark: bool) {
        let (width, height) = screen.size();
        let mobile = screen == Screen::Phone;
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile });
        self.call("Emulation.setDeviceMetricsOverride", metrics).await;
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", media).await;
    }

    /// Disables scripts.
    pub(crate) async fn without_scripts(&self) {
        self.call("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
    }

    /// Navigates to a page of the site.
    pub(crate) async fn goto(&self, path: &str) {
        assert!(self.visit(path).await, "{path} is a file to keep, and no page");
    }

    /// Navigates to a path. Returns false if it is a download and not a page.
    pub(crate) async fn visit(&self, path: &str) -> bool {
        let gone = self.call("Page.navigate", json!({ "url": format!("{}{path}", self.origin) })).await;
        if gone["isDownload"] == true {
            return false;
        }
        assert!(gone.get("errorText").is_none(), "{path}: {gone}");
        self.until(&format!("{path} is there"), "document.readyState === 'complete'").await;
        true
    }

    /// The value of an expression on the page; none while the page is navigating.
    async fn ask(&self, expression: &str) -> Option<Value> {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.chromium.call(&self.session, "Runtime.evaluate", asked).await.ok()?;
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        Some(answer["result"]["value"].take())
    }

    /// The value of an expression, once the page has loaded.
    pub(crate) async fn eval(&self, expression: &str) -> Value {
        let question = async || self.ask(expression).await;
        wait::until_some(format!("{expression} has an answer"), DEFAULT_TIMEOUT, question).await.unwrap()
    }

    /// Waits until an expression is true.
    pub(crate) async fn until(&self, what: &str, expression: &str) {
        let question = async || self.ask(expression).await.is_some_and(|value| value == true);
        if wait::until(what, DEFAULT_TIMEOUT, question).await.is_err() {
            let text = self.eval("location.href + '\\n' + document.body.innerText").await;
            panic!("waited in vain until {what}; there is:\n{}", text.as_str().unwrap_or_default());
        }
    }

    /// The visible text of an element.
    pub(crate) async fn text(&self, selector: &str) -> String {
        let text = self.eval(&format!("document.querySelector({selector:?})?.innerText ?? ''")).await;
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Clicks the middle of the first matching element, which must be visible.
    pub(crate) async fn click(&self, selector: &str) {
        self.until(&format!("{selector} is there"), &format!("document.querySelector({selector:?}) !== null"))
            .await;
        let place = self
            .eval(&format!(
                "(() => {{ const one = document.querySelector({selector:?}); one.scrollIntoView({{ block: 'center' }}); \
                 const {{ x, y, width, height }} = one.getClientRects()[0] ?? {{ x: -1, y: -1, width: 0, height: 0 }}; \
                 const at = document.elementFromPoint(x + width / 2, y + height / 2); \
                 return {{ x: x + width / 2, y: y + height / 2, seen: one.contains(at) }}; }})()"
            ))
            .await;
        assert_eq!(place["seen"], true, "{selector} cannot be clicked");
        for kind in ["mousePressed", "mouseReleased"] {
            let press =
                json!({ "type": kind, "x": place["x"], "y": place["y"], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", press).await;
        }
    }

    /// Clicks an element and waits for the next page.
    pub(crate) async fn follow(&self, selector: &str) {
        self.leave_by(async || self.click(selector).await).await;
    }

    /// Performs an action and waits for the next page.
    pub(crate) async fn leave_by(&self, act: impl AsyncFnOnce()) {
        self.eval("document.documentElement.dataset.left = 'yes'").await;
        act().await;
        let there = "document.documentElement?.dataset.left === undefined && document.readyState === 'complete'";
        self.until("another page is there", there).await;
    }

    /// Replaces the text of a field.
    pub(crate) async fn fill(&self, selector: &str, text: &str) {
        self.click(selector).await;
        self.eval(&format!("document.querySelector({selector:?}).select()")).await;
        self.type_text(text).await;
    }

    /// Types at the cursor.
    pub(crate) async fn type_text(&self, text: &str) {
        self.call("Input.insertText", json!({ "text": text })).await;
    }

    /// Selects an option.
    pub(crate) async fn choose(&self, selector: &str, value: &str) {
        self.eval(&format!("document.querySelector({selector:?}).value = {value:?}")).await;
    }

    /// Presses a key.
    pub(crate) async fn press(&self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            other => panic!("there is no key {other} here"),
        };
        let press = |kind: &str| json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
        let down = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        self.call("Input.dispatchKeyEvent", press(down)).await;
        self.call("Input.dispatchKeyEvent", press("keyUp")).await;
    }

    /// A screenshot of the page from its top, at most this high.
    pub(crate) async fn picture(&self, screen: Screen, highest: u64) -> Vec<u8> {
        let height = self.eval("Math.ceil(document.documentElement.getBoundingClientRect().height)").await;
        let height = height.as_u64().unwrap_or(highest).clamp(200, highest);
        let clip = json!({ "x": 0, "y": 0, "width": screen.size().0, "height": height, "scale": 1 });
        let asked = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let taken = self.call("Page.captureScreenshot", asked).await;
        STANDARD.decode(taken["data"].as_str().unwrap()).unwrap()
    }

    /// The errors since the tab was opened: console errors, content security policy violations, requests to other
    /// sites.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let complaint = |event: &Value| {
            let given = &event["params"];
            let url = given["request"]["url"].as_str().unwrap_or_default();
            let wrong = match event["method"].as_str()? {
                "Log.entryAdded" => given["entry"]["level"] == "error" || given["entry"]["source"] == "security",
                "Runtime.exceptionThrown" => true,
                "Runtime.consoleAPICalled" => given["type"] == "error" || given["type"] == "warning",
                "Network.requestWillBeSent" => !url.starts_with(&self.origin) && !url.starts_with("data:"),
                _ => false,
            };
            wrong.then(|| event.to_string())
        };
        self.chromium.received(&self.session).iter().filter_map(complaint).collect()
    }

    /// Fails the test if there were errors.
    #[track_caller]
    pub(crate) fn is_quiet(&self) {
        let complaints = self.complaints();
        assert!(complaints.is_empty(), "{complaints:#?}");
    }
}
