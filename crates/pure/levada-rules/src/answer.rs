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
        /// The media type of its body, if it has one.
        content_type: Option<HeaderValue>,
        /// Its body.
        body: String,
    },
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

    /// The URL that the client is sent to, if this is a redirect.
    pub fn location(&self, facts: &RequestFacts<'_>) -> Option<HeaderValue> {
        match self {
            Self::Redirect { to, .. } => HeaderValue::try_from(to.url(facts)).ok(),
            Self::Respond { .. } => None,
        }
    }
}
