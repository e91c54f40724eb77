//! Error pages: `error_pages`.

use crate::support::{Origin, Reply, Wire, alone, get, head_of, nodes::sites, settled};

/// A site with these lines, after the origin.
fn site(origin: &Origin, lines: &str) -> String {
    format!("[[site]]\nhosts = 'a.test'\norigin = 'http://{}'\n{lines}", origin.address)
}

#[tokio::test]
async fn errors_get_the_page_of_a_file_and_keep_their_status() {
    let origin = Origin::start().await;
    origin.otherwise(|asked| match asked.target.as_str() {
        "/ok" => Reply::ok("fine"),
        "/down" => Reply::hang_up(),
        _ => Reply::ok("origin").status("404 Not Found").with("ETag", "'x'").with("X-A", "1"),
    });
    let folder = tempfile::tempdir().unwrap();
    let (one, class) = (folder.path().join("404.html"), folder.path().join("5xx.txt"));
    std::fs::write(&one, "<p>none").unwrap();
    std::fs::write(&class, "broken").unwrap();
    let text = site(
        &origin,
        &format!(
            "error_pages = {{ 404 = {{ file = '{}' }}, 5xx = {{ file = '{}' }} }}
             [[site.route]]
             path = '/own'
             respond = {{ status = 404, body = 'own' }}
             [[site.route]]
             path = '/bare'
             respond = {{ status = 404 }}",
            one.display(),
            class.display()
        ),
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    for (path, status, body) in [
        ("/ok", 200, "fine"),
        ("/gone", 404, "<p>none"),
        ("/down", 502, "broken"),
        ("/own", 404, "own"),
        ("/bare", 404, "<p>none"),
    ] {
        let answer = get(at, path).await;
        assert_eq!((answer.status, answer.text().as_str()), (status, body), "{path}");
    }
    let answer = get(at, "/gone").await;
    assert_eq!(answer.field("content-type"), "text/html; charset=utf-8");
    assert_eq!((answer.header("etag"), answer.field("x-a").as_str()), (None, "1"));
    let mut head = Wire::to(at).await;
    head.send(head_of("HEAD", "/gone", &[])).await;
    let answer = head.answer_to("HEAD").await;
    assert_eq!((answer.status, answer.field("content-length").as_str()), (404, "7"));
    settled(&node).await;
}

#[tokio::test]
async fn page_of_the_origin_is_served_when_the_origin_is_down() {
    let origin = Origin::start().await;
    origin.otherwise(|asked| match asked.target.as_str() {
        "/errors/all.html" => Reply::ok("<p>sorry").with("Cache-Control", "no-store"),
        _ => Reply::ok("origin").status("404 Not Found"),
    });
    let path = "{ path = '/errors/all.html' }";
    let text = site(&origin, &format!("error_pages = {{ 4xx = {path}, 5xx = {path} }}"));
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    let answer = get(at, "/gone").await;
    assert_eq!((answer.status, answer.text().as_str()), (404, "<p>sorry"));
    origin.otherwise(|_| Reply::hang_up());
    let answer = get(at, "/x").await;
    assert_eq!((answer.status, answer.text().as_str()), (502, "<p>sorry"));
    settled(&node).await;
}

#[tokio::test]
async fn error_keeps_its_text_where_the_page_cannot_be_had() {
    let origin = Origin::start().await;
    origin.otherwise(|_| Reply::ok("origin").status("404 Not Found"));
    let text = site(&origin, "error_pages = { 404 = { path = '/errors/404.html' } }");
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    let answer = get(at, "/gone").await;
    assert_eq!((answer.status, answer.text().as_str()), (404, "origin"));
    assert_eq!(origin.hits("/errors/404.html"), 1, "no page for the page");
    settled(&node).await;
}
