//! The keys that the tables name are keys of Levada.

use levada_convert::{
    Becomes, Described, nginx_directives, trafficcontrol_fields, trafficserver_lines,
    varnish_statements,
};

/// The keys that a row names. Words about a row have spaces.
fn keys(row: &Described) -> Vec<String> {
    let Becomes::Keys(keys) = row.becomes else { return Vec::new() };
    let keys: Vec<_> =
        keys.split(", ").map(|key| key.trim_matches(['[', ']']).to_owned()).collect();
    if keys.iter().any(|key| key.contains(' ')) { Vec::new() } else { keys }
}

#[test]
fn the_tables_name_keys_of_levada() {
    let schema = levada_config::schema::schema();
    let text = schema.to_string();
    let rows =
        [nginx_directives(), varnish_statements(), trafficserver_lines(), trafficcontrol_fields()]
            .concat();
    assert!(rows.len() > 250, "{} rows", rows.len());
    for key in rows.iter().flat_map(keys) {
        for name in key.split('.') {
            assert!(text.contains(&format!("\"{name}\":")), "`{key}` is no key of Levada");
        }
    }
}
