//! Answers that a route gives without asking a server.

use http::{HeaderValue, StatusCode};

use crate::{Conditions, PathPattern, RequestFacts, Template, normal_path};

/// The answer of a route.
#[derive(Clone, Debug, PartialEq)]
pub enum RouteAnswer {
    /// Sends the client to another URL.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: StatusCode,
        /// The URL.
        to: Template,
    },
    /// A fixed response.
    Respond {
        /// Its status.
        status: StatusCode,
        /// The media type of its body.
        content_type: HeaderValue,
        /// Its body.
        body: RespondBody,
    },
}

/// The body of a fixed response.
#[derive(Clone, Debug, PartialEq)]
pub enum RespondBody {
    /// As it is.
    Fixed(String),
    /// With the values of the request.
    Template(Template),
}

/// The answer of a route to one request.
#[derive(Clone, Debug)]
pub struct MadeAnswer {
    /// Its status.
    pub status: StatusCode,
    /// Whether it sends the client to another URL.
    pub is_redirect: bool,
    /// The URL that it sends the client to.
    pub location: Option<HeaderValue>,
    /// The media type of its body, if it has one.
    pub content_type: Option<HeaderValue>,
    /// Its body.
    pub body: String,
}

impl Template {
    /// Whether a request for the URL takes the same route again, as far as the configuration alone says so.
    pub fn leads_back_to(&self, route: &Conditions) -> bool {
        let to_itself = || {
            let url = self.fixed().filter(|url| url.starts_with('/') && !url.starts_with("//"))?;
            let path = normal_path(url.split(['?', '#']).next().unwrap_or_default());
            let same = |own: &PathPattern| own.matches(&path);
            let of_regex = route.path_regex.as_ref().is_none_or(|own| own.matches(&path));
            Some(of_regex && (route.paths.is_empty() || route.paths.iter().any(same)))
        };
        // A query or a cookie may differ the next time.
        route.query.is_empty()
            && route.cookies.is_empty()
            && route.when.is_none()
            && (self.is_same_uri() || to_itself().unwrap_or(false))
    }
}

impl RouteAnswer {
    /// Whether a client that follows the redirect comes to the same route again, as far as the
    /// configuration alone says so. A relative URL keeps scheme and host.
    pub fn is_loop(&self, route: &Conditions) -> bool {
        matches!(self, Self::Redirect { to, .. } if to.leads_back_to(route))
    }

    /// The answer to a request.
    pub fn made(&self, facts: &RequestFacts<'_>) -> MadeAnswer {
        match self {
            Self::Redirect { status, to } => MadeAnswer {
                status: *status,
                is_redirect: true,
                location: HeaderValue::try_from(to.url(facts)).ok(),
                content_type: None,
                body: String::new(),
            },
            Self::Respond { status, content_type, body } => {
                let body = body.made(content_type, facts);
                let content_type = (!body.is_empty()).then(|| content_type.clone());
                let (status, is_redirect, location) = (*status, false, None);
                MadeAnswer { status, is_redirect, location, content_type, body }
            }
        }
    }
}

impl RespondBody {
    /// The body for a request. Values in HTML and XML cannot begin an element.
    fn made(&self, content_type: &HeaderValue, facts: &RequestFacts<'_>) -> String {
        let is_markup = || {
            let kind = String::from_utf8_lossy(content_type.as_bytes()).to_ascii_lowercase();
            kind.contains("html") || kind.contains("xml")
        };
        match self {
            Self::Fixed(text) => text.clone(),
            Self::Template(template) if is_markup() => template.text_with(facts, escaped),
            Self::Template(template) => template.text(facts),
        }
    }
}

/// A value in HTML.
fn escaped(value: String) -> String {
    let escapes = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;"), ('\'', "&#39;")];
    escapes.into_iter().fold(value, |value, (plain, escape)| value.replace(plain, escape))
}
