//! Variables of the operator, and those of requests and responses.

use crate::support::{
    Origin, Reply, alone, get, get_with,
    nodes::{Cluster, sites},
    settled,
};

#[tokio::test]
async fn values_by_text_reach_fields_redirects_bodies_and_conditions() {
    let origin = Origin::start().await;
    origin.otherwise(|asked| {
        Reply::ok(asked.header("x-language").unwrap_or_default())
            .status("201 Created")
            .with("X-A", "1")
    });
    let text = format!(
        "[[site]]
         hosts = ['a.test', '*.test']
         origin = 'http://{}'
         request_headers = {{ set = {{ X-Language = '{{vars.language}}' }} }}
         response_headers = {{ set = {{ X-Seen = '{{status}} {{response.x-a}} {{arg.q}}' }} }}
         [site.variables.language]
         from = '{{host}}'
         values = {{ 'de.test' = 'de', '*.fr.test' = 'fr' }}
         regex = [{{ pattern = '^u[ks]', value = 'en-{{path}}' }}]
         default = '{{header.x-wanted}}'
         [site.variables.moved]
         from = '{{path}}'
         values = {{ '/a' = '/b?c=d', '/x' = '/y' }}
         [[site.route]]
         when = \"vars.moved != ''\"
         redirect = {{ to = 'http://{{host}}{{vars.moved}}' }}
         [[site.route]]
         path = '/ip'
         respond = {{ template = '{{client}} <{{header.x-q}}>', content_type = 'text/html' }}",
        origin.address
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    for (host, expected) in
        [("DE.test", "de"), ("x.fr.test", "fr"), ("us.test", "en-/p"), ("other.test", "it")]
    {
        let answer = get_with(at, "/p?q=1", &[("host", host), ("x-wanted", "it")]).await;
        assert_eq!(answer.text(), expected, "{host}");
        assert_eq!(answer.field("x-seen"), "201 1 1");
    }
    assert_eq!(get(at, "/a").await.field("location"), "http://a.test/b?c=d");
    let markup = get_with(at, "/ip", &[("x-q", "<b>")]).await;
    assert_eq!(markup.text(), "127.0.0.1 <&lt;b&gt;>");
    settled(&node).await;
}

#[tokio::test]
async fn shares_of_clients_have_responses_of_their_own_at_all_nodes() {
    let origin = Origin::start().await;
    origin.otherwise(|asked| Reply::cached(asked.header("x-variant").unwrap_or_default()));
    let text = format!(
        "[[site]]
         hosts = 'a.test'
         origin = 'http://{}'
         cache_key = {{ expression = 'vars.variant' }}
         request_headers = {{ set = {{ X-Variant = '{{vars.variant}}' }} }}
         [site.variables.variant]
         from = '{{cookie.id}}'
         parts = {{ a = 50 }}
         default = 'b'",
        origin.address
    );
    let cluster = Cluster::start(2, origin.address, |settings| settings.sites = sites(&text)).await;
    let mut seen = std::collections::BTreeSet::new();
    for id in 0..32 {
        let cookie = format!("id={id}");
        let ask = async |node| {
            let answer = get_with(cluster.client(node), "/", &[("cookie", &cookie)]).await;
            answer.text()
        };
        let (one, other) = (ask(0).await, ask(1).await);
        assert_eq!(one, other, "{id}");
        seen.insert(one);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(origin.hits("/"), 2, "one response for each variant");
    cluster.settled().await;
}
