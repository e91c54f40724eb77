//! A real Chromium, driven over the DevTools protocol through a pipe (`--remote-debugging-pipe`): messages are
//! JSON with a zero byte behind each. It ends when this end of the pipe closes.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// How long the page may take to become what a test expects, on a machine that others use as well.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    orders: Option<ChildStdin>,
    messages: Receiver<Value>,
    session: Option<String>,
    sent: u64,
    /// Errors, warnings and refusals that the browser has reported.
    pub(crate) problems: Vec<String>,
    _profile: TempDir,
}

/// The sizes of screens.
pub(crate) const DESK: (u32, u32) = (1280, 900);
pub(crate) const PHONE: (u32, u32) = (360, 780);

impl Browser {
    /// Starts it; `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts it with more options.
    pub(crate) fn start_with(options: &[&str]) -> Option<Self> {
        let profile = tempfile::tempdir().unwrap();
        // The shell gives it the pipe's ends as the descriptors 3 and 4, and becomes it.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null", "sh"])
            .args(["chromium", "--headless", "--no-sandbox", "--remote-debugging-pipe"])
            .args([
                "--disable-gpu",
                "--no-first-run",
                "--hide-scrollbars",
                "--disable-dev-shm-usage",
            ])
            .args(options)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, messages) = channel();
        let mut answers = BufReader::new(process.stdout.take().unwrap());
        thread::spawn(move || {
            let mut bytes = Vec::new();
            while answers.read_until(0, &mut bytes).is_ok_and(|length| length > 1) {
                bytes.pop();
                let Ok(message) = serde_json::from_slice(&bytes) else { return };
                if sender.send(message).is_err() {
                    return;
                }
                bytes.clear();
            }
        });
        let orders = process.stdin.take();
        let (session, problems) = (None, Vec::new());
        let mut browser =
            Self { process, orders, messages, session, sent: 0, problems, _profile: profile };
        if browser.call("Browser.getVersion", json!({})).is_none() {
            levada_skip::skipped("chromium does not start (Debian: chromium)");
            return None;
        }
        let target = browser.order("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.order("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Accessibility"] {
            browser.order(&format!("{domain}.enable"), json!({}));
        }
        browser.look_like(DESK, "light");
        Some(browser)
    }

    /// The size of the screen, and whether the reader wants it `light` or `dark`.
    pub(crate) fn look_like(&mut self, (width, height): (u32, u32), scheme: &str) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.order("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.order("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Opens an address, and waits until the page has drawn a snapshot.
    pub(crate) fn open(&mut self, url: &str) {
        let opened = self.order("Page.navigate", json!({ "url": url }));
        assert_eq!(opened.get("errorText"), None, "{url}: {opened}");
        self.wait("document.documentElement.dataset.shown > 0");
    }

    /// Waits until a JavaScript expression is true.
    pub(crate) fn wait(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.value(&format!("Boolean({expression})")) != true {
            if begun.elapsed() > TEST_TIMEOUT {
                let text = self.value("document.body.innerText");
                panic!("never: {expression}\n{text}\n{:?}", self.problems);
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// The value of a JavaScript expression; promises are awaited.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let told = self.order("Runtime.evaluate", parameters);
        // Pages that are being replaced have no values.
        told["result"]["value"].clone()
    }

    /// The visible text of an element.
    pub(crate) fn text(&mut self, selector: &str) -> String {
        let value = self.value(&format!("document.querySelector({selector:?})?.innerText ?? ''"));
        value.as_str().unwrap_or_default().to_owned()
    }

    /// Presses a key, as a person would.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "ArrowLeft" => (37, ""),
            _ => panic!("no code for {key}"),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event =
                json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = text.into();
            }
            self.order("Input.dispatchKeyEvent", event);
        }
    }

    /// Types text into the element that has the focus.
    pub(crate) fn write(&mut self, text: &str) {
        self.order("Input.insertText", json!({ "text": text }));
    }

    /// The picture of the page down to this height, as PNG in base64.
    pub(crate) fn picture(&mut self, height: u32) -> String {
        let width = self.value("innerWidth").as_f64().unwrap();
        // Pictures of a desk are made smaller, so that they stay below 200 KB.
        let scale = if width > 600.0 { 0.75 } else { 1.0 };
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": scale });
        let order = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        self.order("Page.captureScreenshot", order)["data"].as_str().unwrap().to_owned()
    }

    /// Sends an order, which must succeed.
    pub(crate) fn order(&mut self, method: &str, parameters: Value) -> Value {
        let answer = self.call(method, parameters).expect("the browser runs");
        assert_eq!(answer.get("error"), None, "{method}: {answer}");
        answer["result"].clone()
    }

    /// Sends an order, and returns its answer; `None` if the browser has ended.
    fn call(&mut self, method: &str, parameters: Value) -> Option<Value> {
        self.sent += 1;
        let mut order = json!({ "id": self.sent, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            order["sessionId"] = session.as_str().into();
        }
        let mut bytes = order.to_string().into_bytes();
        bytes.push(0);
        self.orders.as_mut()?.write_all(&bytes).ok()?;
        loop {
            match self.messages.recv_timeout(TEST_TIMEOUT) {
                Ok(answer) if answer["id"] == self.sent => return Some(answer),
                Ok(message) => self.note(&message),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => panic!("{method}: no answer"),
            }
        }
    }

    fn note(&mut self, message: &Value) {
        let parameters = &message["params"];
        let problem = match message["method"].as_str().unwrap_or_default() {
            "Log.entryAdded" => {
                let entry = &parameters["entry"];
                let is_bad = entry["level"] == "error" || entry["level"] == "warning";
                is_bad.then(|| format!("{} {}: {}", entry["source"], entry["url"], entry["text"]))
            }
            "Runtime.exceptionThrown" => Some(parameters["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled" if parameters["type"] != "log" => {
                Some(parameters["args"].to_string())
            }
            _ => None,
        };
        self.problems.extend(problem);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends by itself when nobody can order anything any more, and by force otherwise.
        self.orders = None;
        for _ in 0..50 {
            if matches!(self.process.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
