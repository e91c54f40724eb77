//! Purge orders, as operators, clients and peers write them.

use std::collections::BTreeSet;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use levada_store::{
    identity::{ResourceUrl, url_of, without_port},
    label,
};
use serde::{Deserialize, Serialize};

use crate::purge::rules::Rule;

/// The most URLs, prefixes or tags in one order.
pub const MAX_ITEMS: usize = 1000;
/// Options of a client's `PURGE`: `soft`, `prefix`, `all`.
const LEVADA_PURGE: HeaderName = HeaderName::from_static("levada-purge");
/// Fastly's clients ask for a soft purge with this field.
const FASTLY_SOFT: HeaderName = HeaderName::from_static("fastly-soft-purge");

/// A valid purge order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "OrderForm", into = "OrderForm")]
pub struct PurgeOrder {
    /// The responses that it purges.
    pub target: PurgeTarget,
    /// Makes responses stale instead of removing them.
    pub soft: bool,
}

/// The responses that an order purges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgeTarget {
    /// URLs, with all their variants.
    Urls(Vec<String>),
    /// All URLs that begin with one of these.
    Prefixes(Vec<String>),
    /// Tags, on the site of this host or on all sites.
    Tags(Vec<String>, Option<String>),
    /// Cache groups of the origin of this URL (RFC 9875).
    Groups(Vec<String>, String),
    /// Everything, on the site of this host or on all sites.
    All(Option<String>),
    /// URLs that an unsafe request has invalidated at a peer.
    Invalid(Vec<String>),
}

/// The JSON form of an order. Exactly one of `url`, `prefix`, `tag`, `group` and `all` is present.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OrderForm {
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<Items>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<Items>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<Items>,
    /// Between peers only.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<Items>,
    /// Between peers only.
    #[serde(skip_serializing_if = "Option::is_none")]
    invalid: Option<Items>,
    all: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<String>,
    soft: bool,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Items {
    One(String),
    Many(Vec<String>),
}

/// Why an order is not carried out. Nothing has been purged then.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// It is not the JSON of an order.
    #[error("this is no order to purge: {0}")]
    Json(#[from] serde_json::Error),
    /// It has no target, or several.
    #[error("say what to purge: exactly one of `url`, `prefix`, `tag` and `all`")]
    NotOneTarget,
    /// It has too many targets.
    #[error("{0} are too many for one order: send up to {MAX_ITEMS}")]
    TooMany(usize),
    /// A target is no absolute URL.
    #[error("`{0}` is no absolute URL: write it as in http://www.example.com/path")]
    NotAbsolute(String),
    /// A tag has no letters.
    #[error("a tag is at least one letter long")]
    EmptyTag,
    /// It names a site and a URL.
    #[error("a URL names its site itself: leave `site` out")]
    NeedlessSite,
    /// No site answers to a host.
    #[error("no site answers to the host `{0}`; look at `hosts` of each [[site]]")]
    UnknownHost(String),
}

impl OrderError {
    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::UnknownHost(_) => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

impl Items {
    fn list(self) -> Result<Vec<String>, OrderError> {
        match self {
            Self::One(item) => Ok(vec![item]),
            Self::Many(items) if items.is_empty() => Err(OrderError::NotOneTarget),
            Self::Many(items) if items.len() > MAX_ITEMS => Err(OrderError::TooMany(items.len())),
            Self::Many(items) => Ok(items),
        }
    }
}

impl TryFrom<OrderForm> for PurgeOrder {
    type Error = OrderError;

    fn try_from(form: OrderForm) -> Result<Self, OrderError> {
        let OrderForm { url, prefix, tag, group, invalid, all, site, soft } = form;
        let target = match (url, prefix, tag, group, invalid, all) {
            (Some(_), ..) | (_, Some(_), ..) if site.is_some() => {
                return Err(OrderError::NeedlessSite);
            }
            (Some(urls), None, None, None, None, false) => PurgeTarget::Urls(urls.list()?),
            (None, Some(all), None, None, None, false) => PurgeTarget::Prefixes(all.list()?),
            (None, None, Some(tags), None, None, false) => PurgeTarget::Tags(tags.list()?, site),
            (None, None, None, Some(groups), None, false) => {
                PurgeTarget::Groups(groups.list()?, site.unwrap_or_default())
            }
            (None, None, None, None, Some(urls), false) => PurgeTarget::Invalid(urls.list()?),
            (None, None, None, None, None, true) => PurgeTarget::All(site),
            _ => return Err(OrderError::NotOneTarget),
        };
        Ok(Self { target, soft })
    }
}

impl From<PurgeOrder> for OrderForm {
    fn from(PurgeOrder { target, soft }: PurgeOrder) -> Self {
        let form = Self { soft, ..Self::default() };
        let many = |items| Some(Items::Many(items));
        match target {
            PurgeTarget::Urls(urls) => Self { url: many(urls), ..form },
            PurgeTarget::Prefixes(prefixes) => Self { prefix: many(prefixes), ..form },
            PurgeTarget::Tags(tags, site) => Self { tag: many(tags), site, ..form },
            PurgeTarget::Groups(groups, url) => {
                Self { group: many(groups), site: Some(url), ..form }
            }
            PurgeTarget::All(site) => Self { all: true, site, ..form },
            PurgeTarget::Invalid(urls) => Self { invalid: many(urls), ..form },
        }
    }
}

impl PurgeOrder {
    /// Parses the JSON of an operator.
    ///
    /// # Errors
    /// When it is no order.
    pub fn from_json(bytes: &[u8]) -> Result<Self, OrderError> {
        let form: OrderForm = serde_json::from_slice(bytes)?;
        if form.group.is_some() || form.invalid.is_some() {
            return Err(OrderError::NotOneTarget);
        }
        form.try_into()
    }

    /// The bytes that it takes in memory, roughly.
    pub fn weight(&self) -> usize {
        let (items, text) = match &self.target {
            PurgeTarget::Urls(items)
            | PurgeTarget::Prefixes(items)
            | PurgeTarget::Invalid(items) => (&items[..], None),
            PurgeTarget::Tags(items, site) => (&items[..], site.as_ref()),
            PurgeTarget::Groups(items, url) => (&items[..], Some(url)),
            PurgeTarget::All(site) => (&[][..], site.as_ref()),
        };
        let texts = items.iter().chain(text);
        texts.map(|text| size_of::<String>() + text.len()).sum::<usize>() + size_of::<Self>()
    }

    /// Reads a `PURGE` request for the URLs of one resource of `host`. It purges within that site only.
    ///
    /// # Errors
    /// When its fields contradict each other.
    pub fn from_fields(
        headers: &HeaderMap,
        urls: Vec<String>,
        host: &str,
    ) -> Result<Self, OrderError> {
        let wants = |word: &[u8]| {
            let words = headers.get_all(LEVADA_PURGE).iter();
            let mut words = words.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
            words.any(|found| found.trim_ascii().eq_ignore_ascii_case(word))
        };
        let tags: Vec<String> = label::plain_tags(headers)
            .map(|tag| String::from_utf8(tag.to_vec()).map_err(|_| OrderError::EmptyTag))
            .collect::<Result<_, _>>()?;
        let asks_for_tags =
            headers.contains_key(label::SURROGATE_KEY) || headers.contains_key(label::CACHE_TAG);
        let target = match (asks_for_tags, wants(b"prefix"), wants(b"all")) {
            (true, false, false) if tags.is_empty() => return Err(OrderError::EmptyTag),
            (true, false, false) if tags.len() > MAX_ITEMS => {
                return Err(OrderError::TooMany(tags.len()));
            }
            (true, false, false) => PurgeTarget::Tags(tags, Some(host.to_owned())),
            (false, true, false) => PurgeTarget::Prefixes(urls),
            (false, false, true) => PurgeTarget::All(Some(host.to_owned())),
            (false, false, false) => PurgeTarget::Urls(urls),
            _ => return Err(OrderError::NotOneTarget),
        };
        let fastly = headers.get(FASTLY_SOFT).map(HeaderValue::as_bytes) == Some(b"1");
        Ok(Self { target, soft: fastly || wants(b"soft") })
    }

    /// The kind of target, for reports and metrics.
    pub fn scope(&self) -> &'static str {
        match self.target {
            PurgeTarget::Urls(_) => "url",
            PurgeTarget::Prefixes(_) => "prefix",
            PurgeTarget::Tags(..) => "tag",
            PurgeTarget::Groups(..) => "group",
            PurgeTarget::All(_) => "all",
            PurgeTarget::Invalid(_) => "invalid",
        }
    }

    /// Soft or hard, for reports and metrics.
    pub fn kind(&self) -> &'static str {
        if self.soft { "soft" } else { "hard" }
    }

    /// The number of targets.
    pub fn count(&self) -> usize {
        match &self.target {
            PurgeTarget::Urls(items)
            | PurgeTarget::Invalid(items)
            | PurgeTarget::Prefixes(items)
            | PurgeTarget::Tags(items, _)
            | PurgeTarget::Groups(items, _) => items.len(),
            PurgeTarget::All(_) => 1,
        }
    }

    /// The target, shortened for the log.
    pub fn summary(&self) -> String {
        let first = |items: &[String]| items.first().cloned().unwrap_or_default();
        let text = match &self.target {
            PurgeTarget::Urls(items)
            | PurgeTarget::Prefixes(items)
            | PurgeTarget::Invalid(items) => first(items),
            PurgeTarget::Tags(items, site) => match site {
                Some(site) => format!("{} of {site}", first(items)),
                None => first(items),
            },
            PurgeTarget::Groups(items, url) => format!("{} of {url}", first(items)),
            PurgeTarget::All(site) => site.clone().unwrap_or_else(|| "every site".to_owned()),
        };
        text.chars().take(200).collect()
    }

    /// The rules that carry the order out on this node.
    ///
    /// # Errors
    /// When a target is no URL, or no site answers to its host.
    pub fn rules(&self, sites: &dyn PurgedSites) -> Result<Vec<Rule>, OrderError> {
        let site = |host: &str| {
            let host = host.to_ascii_lowercase();
            sites.number(without_port(&host)).ok_or(OrderError::UnknownHost(host))
        };
        let soft = self.soft;
        Ok(match &self.target {
            PurgeTarget::Urls(items) => {
                let mut rules = Vec::new();
                for url in items {
                    let url = absolute(url)?;
                    let site = site(url.host())?;
                    // A rule is for both schemes, and so is what may stand in its place.
                    let mut stored = sites.identities(&url.with_scheme("http"));
                    stored.extend(sites.identities(&url.with_scheme("https")));
                    let rest = |one: &String| {
                        url_of(one).split_once("://").map(|(_, rest)| rest.to_owned())
                    };
                    let urls: BTreeSet<String> = stored.iter().filter_map(rest).collect();
                    let rule = |rest: String| Rule::url(site, &format!("http://{rest}"), soft);
                    rules.extend(urls.into_iter().map(rule));
                }
                rules
            }
            PurgeTarget::Prefixes(items) => items
                .iter()
                .map(|prefix| {
                    let prefix = absolute(prefix)?;
                    Ok(Rule::prefix(site(prefix.host())?, prefix.as_str(), soft))
                })
                .collect::<Result<_, OrderError>>()?,
            PurgeTarget::Tags(items, host) => {
                let site = host.as_deref().map(site).transpose()?;
                if items.iter().any(|tag| tag.trim().is_empty()) {
                    return Err(OrderError::EmptyTag);
                }
                items.iter().map(|tag| Rule::tag(site, tag.trim(), soft)).collect()
            }
            PurgeTarget::Groups(items, url) => {
                let url = absolute(url)?;
                let site = site(url.host())?;
                items.iter().map(|group| Rule::group(site, url.as_str(), group)).collect()
            }
            PurgeTarget::All(host) => {
                vec![Rule::all(host.as_deref().map(site).transpose()?, soft)]
            }
            // An invalidation needs no rule: fetches that began before it are outdated by its note.
            PurgeTarget::Invalid(_) => Vec::new(),
        })
    }
}

/// The sites of a node, as orders find them.
pub trait PurgedSites: Send + Sync {
    /// The number of the site of a host, which has no port.
    fn number(&self, host: &str) -> Option<u64>;
    /// The identities of what may be stored for a URL.
    fn identities(&self, url: &ResourceUrl) -> BTreeSet<String>;
}

/// The URL in normal form.
///
/// # Errors
/// When it is no absolute URL of HTTP.
pub fn absolute(url: &str) -> Result<ResourceUrl, OrderError> {
    url.parse::<Uri>()
        .ok()
        .filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")))
        .and_then(|uri| ResourceUrl::of(&uri))
        .ok_or_else(|| OrderError::NotAbsolute(url.chars().take(200).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<PurgeOrder, String> {
        PurgeOrder::from_json(json.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn orders_are_read_as_they_are_written() {
        let list = |items: &[&str]| items.iter().map(ToString::to_string).collect::<Vec<_>>();
        for (target, soft) in [
            (PurgeTarget::Urls(list(&["http://a/"])), false),
            (PurgeTarget::Prefixes(list(&["http://a/", "http://b/"])), true),
            (PurgeTarget::Tags(list(&["t"]), None), false),
            (PurgeTarget::Tags(list(&["t"]), Some("a".to_owned())), false),
            (PurgeTarget::Groups(list(&["g"]), "http://a".to_owned()), false),
            (PurgeTarget::All(None), true),
            (PurgeTarget::All(Some("a".to_owned())), false),
            (PurgeTarget::Invalid(list(&["http://a/"])), false),
        ] {
            let order = PurgeOrder { target, soft };
            let json = serde_json::to_string(&order).unwrap();
            assert_eq!(serde_json::from_str::<PurgeOrder>(&json).unwrap(), order);
        }
        assert_eq!(read(r#"{"url":"http://a/"}"#), read(r#"{"url":["http://a/"]}"#));
    }

    #[test]
    fn unclear_orders_are_refused_with_a_reason() {
        let many = format!(r#"{{"tag":{:?}}}"#, vec!["t"; MAX_ITEMS + 1]);
        for (json, reason) in [
            ("", "no order"),
            ("[]", "exactly one"),
            (r#"{"uri":"http://a/"}"#, "unknown field"),
            ("{}", "exactly one"),
            (r#"{"all":false}"#, "exactly one"),
            (r#"{"url":[]}"#, "exactly one"),
            (r#"{"url":"http://a/","all":true}"#, "exactly one"),
            (r#"{"group":"g","site":"http://a"}"#, "exactly one"),
            (r#"{"invalid":"http://a/"}"#, "exactly one"),
            (r#"{"url":"http://a/","site":"a"}"#, "leave `site` out"),
            (&many, "1001 are too many"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(reason), "{json}: {error}");
        }
    }

    #[test]
    fn fields_of_a_purge_say_what_it_covers() {
        let read = |fields: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(*name, HeaderValue::from_static(value));
            }
            PurgeOrder::from_fields(&headers, vec!["http://a/x".to_owned()], "a")
                .map(|order| (order.target, order.soft))
        };
        let url = || vec!["http://a/x".to_owned()];
        let site = || Some("a".to_owned());
        let tags = || PurgeTarget::Tags(vec!["t".to_owned(), "u".to_owned()], site());
        assert_eq!(read(&[]).unwrap(), (PurgeTarget::Urls(url()), false));
        assert_eq!(read(&[("fastly-soft-purge", "1")]).unwrap(), (PurgeTarget::Urls(url()), true));
        assert_eq!(read(&[("levada-purge", "Soft")]).unwrap(), (PurgeTarget::Urls(url()), true));
        let prefix = read(&[("levada-purge", "prefix"), ("levada-purge", "x, soft")]);
        assert_eq!(prefix.unwrap(), (PurgeTarget::Prefixes(url()), true));
        assert_eq!(read(&[("levada-purge", "all")]).unwrap(), (PurgeTarget::All(site()), false));
        assert_eq!(read(&[("surrogate-key", "t u")]).unwrap(), (tags(), false));
        assert_eq!(read(&[("cache-tag", "t,u")]).unwrap(), (tags(), false));
        assert!(read(&[("surrogate-key", " ")]).is_err(), "not the URL by mistake");
        assert!(read(&[("surrogate-key", "t"), ("levada-purge", "all")]).is_err());
    }

    #[test]
    fn order_weighs_about_the_memory_that_its_texts_take() {
        for (letters, least, most) in [(1, 2_000, 4_000), (1000, 100_000, 105_000)] {
            let texts = || vec!["x".repeat(letters); 100];
            for target in [PurgeTarget::Urls(texts()), PurgeTarget::Tags(texts(), None)] {
                let weight = PurgeOrder { target, soft: false }.weight();
                assert!((least..most).contains(&weight), "{letters}: {weight}");
            }
        }
    }

    #[test]
    fn only_absolute_urls_of_http_are_urls() {
        for url in ["", "/x", "a.test/x", "http:///x", "ftp://a.test/", "http://a b/", "mailto:x"] {
            assert!(absolute(url).is_err(), "{url}");
        }
        assert_eq!(absolute("HTTP://A.test:80").unwrap().as_str(), "http://a.test/");
    }
}
