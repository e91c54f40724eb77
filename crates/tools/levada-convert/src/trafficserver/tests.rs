use super::convert;
use crate::{conversion::Conversion, conversion::Unreadable, files::InputFile, files::NoIncludes};

fn read(name: &str, text: &str) -> Result<Conversion, Unreadable> {
    convert(&[InputFile { name: name.to_owned(), text: text.to_owned() }], &NoIncludes)
}

#[test]
fn a_file_of_another_name_is_refused() {
    let error = read("etc/other.config", "").unwrap_err().to_string();
    assert!(error.starts_with("etc/other.config:1: is none of ip_allow.yaml"), "{error}");
}

#[test]
fn every_line_is_accounted_for() {
    let text = "map http://a/ http://b/\nnonsense\nmap http://c/ ftp://d/\nmap_with_referer a b\n";
    let converted = read("remap.config", text).unwrap();
    assert_eq!(converted.ledger.taken, 1);
    let lines: Vec<_> = converted.ledger.left.iter().map(|left| left.place.line).collect();
    assert_eq!(lines, [2, 3, 4]);
}

#[test]
fn the_host_of_the_origin_is_sent_unless_hosts_are_pristine() {
    let remap = InputFile {
        name: "remap.config".to_owned(),
        text: "map http://a/ http://b:81/".to_owned(),
    };
    let converted = convert(std::slice::from_ref(&remap), &NoIncludes).unwrap();
    assert!(converted.toml.contains("origin_host = \"b:81\""), "{}", converted.toml);
    let text = "CONFIG proxy.config.url_remap.pristine_host_hdr INT 1".to_owned();
    let records = InputFile { name: "records.config".to_owned(), text };
    let converted = convert(&[remap, records], &NoIncludes).unwrap();
    assert!(!converted.toml.contains("origin_host"), "{}", converted.toml);
}

#[test]
fn a_time_that_no_number_holds_is_left() {
    let text = format!("CONFIG proxy.config.http.cache.max_stale_age INT {}", u64::MAX);
    let left = read("records.config", &text).unwrap().ledger.left;
    assert_eq!(left[0].reason, "is no time");
}

#[test]
fn no_row_is_in_the_shadow_of_another() {
    use crate::rows::shadowed;
    assert_eq!(shadowed(&super::keys::KEYS.iter().collect::<Vec<_>>()), [""; 0]);
    assert_eq!(shadowed(&super::remap::KINDS.iter().collect::<Vec<_>>()), [""; 0]);
    assert_eq!(shadowed(&super::parent::FIELDS.iter().collect::<Vec<_>>()), [""; 0]);
}

proptest::proptest! {
    #[test]
    fn no_text_leads_to_a_panic(text in "([a-z.=@/: \n\"]|map|http://|redirect|parent=|dest_domain=){0,100}") {
        for name in super::FILES {
            let _ = read(name, &text);
        }
    }
}
