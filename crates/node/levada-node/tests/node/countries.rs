//! Rules by country, with databases in MaxMind's format (`countries/make.py` writes them).

use levada_config::{Settings, SettingsReader};
use levada_node::Running;

use crate::support::{HOST, Origin, Wire, connect_from, head_of, nodes::single, settled};

const FIRST: &[u8] = include_bytes!("countries/countries.mmdb");
const LATER: &[u8] = include_bytes!("countries/countries-later.mmdb");

#[tokio::test]
async fn clients_of_a_country_are_denied_until_a_reload_brings_another_database() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("countries.mmdb");
    std::fs::write(&database, FIRST).unwrap();
    let origin = Origin::start().await;
    let (directory, before) = (folder.path().to_owned(), single(&[origin.address]));
    let read = move || {
        let text = format!(
            "name = 'n0'\ncountry_database = 'countries.mmdb'\n\
             [[listen]]\naddress = '127.0.0.1:8080'\n\
             [[site]]\nhosts = '{HOST}'\norigin = 'http://127.0.0.1:9'\naccess = 'deny country DE'\n\
             [[site.route]]\npath = '/fr/**'\naccess = ['allow country FR', 'deny all']\n"
        );
        let source = levada_config::Source { name: "levada.toml".to_owned(), text };
        let surroundings = levada_config::Surroundings {
            directory: &directory,
            variable: &|_| None,
            start_error: &|_| None,
        };
        let checked = levada_config::check(&source, &surroundings);
        let mut settings: Settings = before.clone();
        let read = checked.settings.ok_or(checked.report.to_string())?.sites.remove(0);
        settings.sites[0].handling = read.handling;
        settings.sites[0].routes = read.routes;
        Ok::<Settings, String>(settings)
    };
    let settings = read().unwrap();
    let node = Running::start_with(settings, Some(SettingsReader(Box::new(read)))).await.unwrap();
    let at = node.addresses.clients[0];
    let reload = async || {
        let fields = [("Content-Type", "application/json"), ("Content-Length", "0")];
        let admin = node.addresses.admin.unwrap();
        Wire::saying(admin, head_of("POST", "/reload", &fields)).await.answer().await
    };
    // 127.0.0.2 is in DE and 127.0.0.3 in FR; the later database has them the other way round.
    let status = async |last: u8, path: &str| {
        let mut wire = Wire::over(connect_from(last, at).await);
        wire.send(head_of("GET", path, &[])).await;
        wire.answer().await.status
    };
    let all = async || {
        let mut all = Vec::new();
        for last in [1, 2, 3] {
            all.push((status(last, "/a").await, status(last, "/fr/a").await));
        }
        all
    };
    assert_eq!(all().await, [(200, 403), (403, 403), (200, 200)]);
    std::fs::write(&database, LATER).unwrap();
    assert_eq!(reload().await.status, 200);
    let later = [(200, 403), (200, 200), (403, 403)];
    assert_eq!(all().await, later);
    std::fs::write(&database, &FIRST[..FIRST.len() / 2]).unwrap();
    let refused = reload().await;
    let text = refused.text();
    assert!(refused.status == 422 && text.contains("is no database in MaxMind's format"), "{text}");
    std::fs::remove_file(&database).unwrap();
    let refused = reload().await;
    let text = refused.text();
    assert!(refused.status == 422 && text.contains("country_database: cannot read"), "{text}");
    assert_eq!(all().await, later, "as before");
    settled(&node).await;
}
