//! HTTP/3 to a real Chromium: at once when its options demand it, and else from the offer on.

use serde_json::json;

use super::{browser::Browser, nodes};

/// Loads files one after another until one came by this protocol; all protocols, the page's own first.
const PROTOCOLS: &str = "(async () => {
    const page = performance.getEntriesByType('navigation')[0].nextHopProtocol;
    const seen = [page];
    while (!seen.includes('h3') && seen.length < 100) {
        const body = await (await fetch('/' + seen.length, { cache: 'no-store' })).text();
        if (body.length !== 2000) return ['a body of ' + body.length];
        seen.push(performance.getEntriesByType('resource').pop().nextHopProtocol);
        performance.clearResourceTimings();
        await new Promise(resolve => setTimeout(resolve, 100));
    }
    return seen;
})()";

fn protocols(browser: &mut Browser, url: &str) -> Vec<String> {
    let opened = browser.order("Page.navigate", json!({ "url": url }));
    assert_eq!(opened.get("errorText"), None, "{url}: {opened}");
    browser.wait("document.readyState === 'complete'");
    serde_json::from_value(browser.value(PROTOCOLS)).unwrap()
}

#[test]
fn chromium_comes_by_http3_where_it_is_offered() {
    let (nodes, fingerprint) = nodes::start_http3();
    let port = nodes.all[0].clients.port();
    // A browser trusts private certificates over QUIC only for names that its options list, at any port.
    for (force, first) in [(port, "h3"), (1, "h2")] {
        let options = [
            format!("--origin-to-force-quic-on=a.test:{force}"),
            "--host-resolver-rules=MAP a.test 127.0.0.1".to_owned(),
            format!("--ignore-certificate-errors-spki-list={fingerprint}"),
        ];
        let Some(mut browser) = Browser::start_with(&options.each_ref().map(String::as_str)) else {
            return;
        };
        let seen = protocols(&mut browser, &format!("https://a.test:{port}/"));
        assert_eq!(seen[0], first, "{seen:?}");
        assert_eq!(seen.last().unwrap(), "h3", "{seen:?}");
    }
}
