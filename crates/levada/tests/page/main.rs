//! The page of a node and of a demo in a real Chromium: it shows what the node says, goes on after breaks, and can
//! be used by keyboard and screen reader, on every width. Pages of sites, too: over HTTP/3, and with WebSocket.
//!
//! `cargo test -p levada --test page -- --ignored` makes the pictures of the documentation, with an optimised
//! program.

mod browser;
mod http3;
mod nodes;
mod pictures;
mod websocket;

use std::collections::BTreeSet;

use browser::{Browser, DESK, PHONE};
use serde_json::json;

/// Starts a browser, or ends the test where there is none.
macro_rules! browser {
    () => {
        match Browser::start() {
            Some(browser) => browser,
            None => return,
        }
    };
}

#[test]
fn axes_of_an_idle_node_have_labels_that_differ() {
    let mut browser = browser!();
    let nodes = nodes::start(1, "");
    browser.open(&nodes.all[0].page());
    browser.wait("Number(document.documentElement.dataset.shown) >= 3");
    let labels = browser.value(
        "[...document.querySelectorAll('#figures figure')].map(figure => \
         [...figure.querySelectorAll('.scale span')].map(label => label.textContent))",
    );
    let charts = labels.as_array().unwrap();
    assert!(charts.len() >= 5, "{labels}");
    for labels in charts {
        let labels: Vec<_> = labels.as_array().unwrap().iter().map(|l| l.as_str()).collect();
        let distinct: BTreeSet<_> = labels.iter().collect();
        assert_eq!(distinct.len(), labels.len(), "{labels:?}");
    }
}

#[test]
fn set_sizes_are_there_for_a_viewer_who_comes_late() {
    let mut browser = browser!();
    let nodes = nodes::start(2, "");
    (0..20).for_each(|_| drop(nodes.all[0].request("/hot")));
    let page = nodes.all[0].page();
    browser.open(&page);
    // Each snapshot is a second; the hot object stays hot for some of them.
    browser.wait("Number(document.documentElement.dataset.shown) >= 6");
    browser.open(&page);
    browser.wait("document.querySelector('.sizes path.line')?.getAttribute('d')");
    let line = browser.value("document.querySelector('.sizes path.line').getAttribute('d')");
    let begin = line.as_str().unwrap().trim_start_matches('M').split(' ').next().unwrap();
    // The line is 120 wide for 30 seconds at first: without a history it begins at its right end.
    assert!(begin.parse::<f64>().unwrap() < 112.0, "{line}");
}

#[test]
fn page_shows_what_the_status_says() {
    let mut browser = browser!();
    let nodes = nodes::start(2, "");
    let [one, two] = &nodes.all[..] else { panic!("two nodes") };
    browser.open(&one.page());
    browser.wait("document.querySelectorAll('.nodes tbody tr').length === 2");
    for number in 0..30 {
        one.request(&format!("/{}", number % 3));
    }
    // The hottest object, with the nodes that the node says.
    browser.wait("document.querySelectorAll('.matrix tbody tr').length >= 3");
    let status = one.told("/status");
    let hot = &status["hottest"][0];
    let url = hot["url"].as_str().unwrap();
    let holders = hot["set"].as_array().unwrap();
    let path = url.rsplit_once('/').unwrap().1;
    let row = format!(
        "[...document.querySelectorAll('.matrix tbody tr')].find(row => \
         row.querySelector('.path').textContent === '/{path}')"
    );
    browser.wait(&format!("{row}?.querySelectorAll('.held').length === {}", holders.len()));
    let titles = browser.value(&format!("[...{row}.querySelectorAll('.held')].map(e => e.title)"));
    for (holder, title) in holders.iter().zip(titles.as_array().unwrap()) {
        assert!(title.as_str().unwrap().contains("holds it"), "{holder}: {title}");
    }
    // Health, and the node's own figures.
    let origin = status["origins"][0]["address"].as_str().unwrap();
    browser.wait(&format!("document.getElementById('health').innerText.includes('{origin}')"));
    let stored = status["cache_objects"].as_u64().unwrap()
        + two.told("/status")["cache_objects"].as_u64().unwrap();
    assert!(stored >= 3, "{status}");
    assert!(browser.text("#title").contains("n1"));
    // Why: the decision is that of /explain.
    browser.value(&format!("document.querySelector('.object[title*=\"{url}\"]').click()"));
    browser.wait("document.querySelector('#why-answer .verdict')");
    let told = one.told(&format!("/explain?url={url}"));
    let verdict = browser.text("#why-answer .verdict");
    assert!(verdict.starts_with(told["node"].as_str().unwrap()), "{verdict}: {told}");
    let candidates = "document.querySelectorAll('.candidates tbody tr').length";
    assert_eq!(browser.value(candidates), told["candidates"].as_array().unwrap().len());
    browser.value("document.getElementById('why-url').value = '/nonsense'; document.getElementById('why-form').requestSubmit()");
    browser.wait("document.getElementById('why-answer').innerText.includes('no absolute URL')");
    // The browser itself reports the answer 400, and nothing else.
    browser.problems.retain(|problem| !problem.contains("/explain?url=%2Fnonsense"));
    assert_eq!(browser.problems, [""; 0]);
}

#[test]
fn page_goes_on_after_the_node_starts_anew() {
    let mut browser = browser!();
    let mut nodes = nodes::start(2, "");
    browser.open(&nodes.all[0].page());
    browser.wait("document.getElementById('link').innerText === 'live'");
    // A peer that dies is shown as down, and what happened as an event.
    nodes.all[1].kill();
    browser
        .wait("[...document.querySelectorAll('.nodes .state')].some(e => e.innerText === 'down')");
    browser.wait("document.querySelectorAll('#events-list li.bad').length > 0");
    nodes.all[1].start_again();
    browser
        .wait("[...document.querySelectorAll('.nodes .state')].every(e => e.innerText === 'up')");
    // The node itself: the page says that it waits, and goes on by itself.
    nodes.all[0].kill();
    browser.wait("document.getElementById('link').innerText === 'reconnecting'");
    nodes.all[0].start_again();
    browser.wait("document.getElementById('link').innerText === 'live'");
    let shown = browser.value("document.documentElement.dataset.shown");
    browser.wait(&format!("document.documentElement.dataset.shown > {}", shown.as_str().unwrap()));
    // The browser reports connections that were refused meanwhile, and nothing else.
    browser.problems.retain(|problem| !problem.contains("net::ERR_"));
    assert_eq!(browser.problems, [""; 0]);
}

#[test]
fn orders_need_the_token() {
    let mut browser = browser!();
    let nodes = nodes::start(1, "token_file = \"TOKEN_FILE\"");
    let node = &nodes.all[0];
    browser.open(&node.page());
    let press = |name: &str| {
        format!(
            "[...document.querySelectorAll('#orders button')].find(b => b.innerText === '{name}').click()"
        )
    };
    browser.value(&press("Drain"));
    browser.wait("document.getElementById('orders-answer').innerText.includes('needs the token')");
    assert_eq!(node.told("/drain")["draining"], false);
    browser.value("document.getElementById('token').focus()");
    browser.write("secret-token-of-the-test");
    browser.value(&press("Drain"));
    browser.wait("document.getElementById('orders-answer').innerText === 'The node drains.'");
    assert_eq!(node.told("/drain")["draining"], true);
    browser.wait("document.querySelector('.nodes .state').innerText === 'draining'");
    browser.value(&press("Undo the drain"));
    browser.wait("document.querySelector('.nodes .state').innerText === 'up'");
    browser.value(&press("Reload"));
    browser.wait("document.getElementById('orders-answer').innerText.startsWith('Reloaded')");
    let purge = format!("http://www.test/{}", "a");
    browser.value("document.getElementById('purge-target').focus()");
    browser.write(&purge);
    browser.press("Enter");
    browser.wait("document.getElementById('orders-answer').innerText.startsWith('Purged: 1 of 1')");
    // The refusal without a token is reported, and nothing else.
    browser.problems.retain(|problem| !problem.contains("401"));
    assert_eq!(browser.problems, [""; 0]);
}

#[test]
fn keyboard_reaches_everything_and_everything_has_a_name() {
    let mut browser = browser!();
    let nodes = nodes::start(2, "");
    nodes.all[0].request("/a");
    browser.open(&nodes.all[0].page());
    browser.wait("document.querySelectorAll('.matrix tbody tr').length > 0");
    // All that can be operated, each with a number.
    let count = browser.value(
        "(() => { const all = [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex=\"0\"]')]\
         .filter(e => e.checkVisibility()); all.forEach((e, i) => e.dataset.number = i); return all.length })()",
    );
    let count = count.as_u64().unwrap();
    assert!(count > 20, "{count}");
    let mut reached = BTreeSet::new();
    for _ in 0..count + 20 {
        browser.press("Tab");
        reached.extend(
            browser
                .value("document.activeElement.dataset.number ?? null")
                .as_str()
                .map(str::to_owned),
        );
        // The focus can be seen.
        let outline = browser.value("document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle");
        assert!(
            outline == true || outline == "solid",
            "{outline}: {}",
            browser.value("document.activeElement.outerHTML")
        );
    }
    let missing: Vec<_> = (0..count)
        .filter(|number| !reached.contains(&number.to_string()))
        .map(|number| {
            browser
                .value(&format!(
                    "document.querySelector('[data-number=\"{number}\"]')?.outerHTML ?? ''"
                ))
                .to_string()
        })
        // Elements that were drawn again meanwhile.
        .filter(|html| html != "\"\"")
        .collect();
    assert!(missing.is_empty(), "no Tab reaches {missing:#?}");
    // Charts are read by arrow keys.
    browser.value("document.querySelector('.plot').focus()");
    browser.press("ArrowLeft");
    let label = browser.value("document.querySelector('.plot').getAttribute('aria-label')");
    assert!(label.as_str().unwrap().contains(", at "), "{label}");
    // Landmarks, headings, and a name for whatever is not text.
    let tree = browser.order("Accessibility.getFullAXTree", json!({}));
    let of = |node: &serde_json::Value| {
        let text = |key: &str| node[key]["value"].as_str().unwrap_or_default().to_owned();
        (text("role"), text("name"), node["ignored"] == true)
    };
    let all: Vec<_> =
        tree["nodes"].as_array().unwrap().iter().map(of).filter(|(.., ignored)| !ignored).collect();
    for role in [
        "main",
        "navigation",
        "banner",
        "contentinfo",
        "region",
        "log",
        "table",
        "columnheader",
        "rowheader",
        "status",
    ] {
        assert!(all.iter().any(|(own, ..)| own == role), "no {role}");
    }
    let named = [
        "button", "link", "textbox", "combobox", "checkbox", "image", "img", "region", "table",
        "heading", "log",
    ];
    for (role, name, _) in &all {
        assert!(!named.contains(&role.as_str()) || !name.is_empty(), "a {role} without a name");
    }
    assert_eq!(browser.problems, [""; 0]);
}

#[test]
fn page_is_readable_on_a_phone_in_the_dark_and_at_rest() {
    let mut browser = browser!();
    let nodes = nodes::start(2, "");
    nodes.all[0].request("/a");
    browser.look_like(PHONE, "dark");
    browser.open(&nodes.all[0].page());
    browser.wait("document.querySelectorAll('.matrix tbody tr').length > 0");
    assert_eq!(browser.value("document.documentElement.scrollWidth"), PHONE.0);
    let ground = "getComputedStyle(document.body).backgroundColor";
    let dark = browser.value(ground);
    browser.look_like(DESK, "light");
    assert_ne!(browser.value(ground), dark);
    let calm = json!({ "features": [{ "name": "prefers-reduced-motion", "value": "reduce" }] });
    let moving = "getComputedStyle(document.querySelector('.drop'), '::before').transitionDuration";
    assert_ne!(browser.value(moving), "0s");
    browser.order("Emulation.setEmulatedMedia", calm);
    assert_eq!(browser.value(moving), "0s");
    assert_eq!(browser.problems, [""; 0]);
}

#[test]
fn text_that_looks_like_markup_stays_text() {
    let mut browser = browser!();
    let nodes = nodes::start(1, "");
    browser.open(&nodes.all[0].page());
    let url = "http://www.test/<img src=x onerror=document.title='hit'><script>document.title='hit'</script>";
    browser.value("document.getElementById('why-url').focus()");
    browser.write(url);
    browser.press("Enter");
    browser.wait("document.getElementById('why-answer').innerText.includes('<img src=x')");
    assert_eq!(browser.value("document.querySelectorAll('main img, main script').length"), 0);
    // Neither the page nor a script that gets in could make markup of text.
    let refused = "(() => { try { document.body.innerHTML = '<b>x</b>'; return false } catch { return true } })()";
    assert_eq!(browser.value(refused), true);
    assert_ne!(browser.value("document.title"), "hit");
}
