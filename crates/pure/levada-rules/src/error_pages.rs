//! Error pages: bodies in place of those that errors have, by status.

use std::str::FromStr;

use http::StatusCode;

use crate::{Destination, Page};

/// The pages of a site or of a route.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ErrorPages {
    /// Single statuses come before classes.
    pages: Vec<(ErrorStatus, ErrorPage)>,
}

/// A status of an error, or all of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorStatus {
    /// Such as 404.
    One(u16),
    /// Such as 4 for `4xx`.
    Class(u16),
}

/// The text is no status of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a status from 400 to 599, or 4xx, or 5xx")]
pub struct NoErrorStatus;

/// A page.
#[derive(Clone, Debug, PartialEq)]
pub enum ErrorPage {
    /// It was read from a file.
    File(Page),
    /// The origin has it at this path.
    Path(String),
    /// The request goes on there, in the place of the error.
    Route(ErrorRoute),
}

/// An error that another route of the site answers.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorRoute {
    /// The place where the request goes on.
    pub to: Destination,
    /// The status of the answer.
    pub status: ErrorRouteStatus,
}

/// The status of the answer in the place of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorRouteStatus {
    /// That of the error.
    Error,
    /// That of the answer.
    Answer,
    /// This one.
    Fixed(StatusCode),
}

impl ErrorRouteStatus {
    /// The status in the place of the answer's own, for an error of this status.
    pub fn of(self, error: StatusCode) -> Option<StatusCode> {
        match self {
            Self::Error => Some(error),
            Self::Answer => None,
            Self::Fixed(status) => Some(status),
        }
    }
}

impl ErrorPages {
    /// The pages of these statuses.
    pub fn new(mut pages: Vec<(ErrorStatus, ErrorPage)>) -> Self {
        pages.sort_by_key(|(status, _)| *status);
        Self { pages }
    }

    /// The places where a request may go on.
    pub fn destinations(&self) -> impl Iterator<Item = &Destination> {
        self.pages.iter().filter_map(|(_, page)| match page {
            ErrorPage::Route(route) => Some(&route.to),
            ErrorPage::File(_) | ErrorPage::Path(_) => None,
        })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The page for a status.
    pub fn find(&self, status: StatusCode) -> Option<&ErrorPage> {
        let code = status.as_u16();
        let holds = |own: ErrorStatus| match own {
            ErrorStatus::One(own) => own == code,
            ErrorStatus::Class(own) => own == code / 100,
        };
        self.pages.iter().find(|(own, _)| holds(*own)).map(|(_, page)| page)
    }

    /// The pages, for operators.
    pub fn in_words(&self) -> Vec<String> {
        let status = |status: &ErrorStatus| match status {
            ErrorStatus::One(code) => code.to_string(),
            ErrorStatus::Class(class) => format!("{class}xx"),
        };
        let words = |(own, page): &(ErrorStatus, ErrorPage)| match page {
            ErrorPage::File(_) => format!("page for {} from a file", status(own)),
            ErrorPage::Path(path) => format!("page for {} from the origin's {path}", status(own)),
            ErrorPage::Route(route) => {
                format!("{} answered by {}", status(own), route.to.in_words())
            }
        };
        self.pages.iter().map(words).collect()
    }
}

impl FromStr for ErrorStatus {
    type Err = NoErrorStatus;

    fn from_str(text: &str) -> Result<Self, NoErrorStatus> {
        match text.to_ascii_lowercase().as_str() {
            "4xx" => Ok(Self::Class(4)),
            "5xx" => Ok(Self::Class(5)),
            text => {
                let code = text.parse().ok().filter(|code| (400..600).contains(code));
                code.map(Self::One).ok_or(NoErrorStatus)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_statuses_come_before_classes() {
        let page = |path: &str| ErrorPage::Path(path.to_owned());
        let pages = [("4xx", "/4"), ("404", "/404"), ("5XX", "/5")];
        let pages = pages.map(|(status, path)| (status.parse().unwrap(), page(path)));
        let pages = ErrorPages::new(pages.to_vec());
        let path = |status| match pages.find(StatusCode::from_u16(status).unwrap()) {
            Some(ErrorPage::Path(path)) => path.as_str(),
            _ => "",
        };
        assert_eq!([path(404), path(403), path(502), path(206)], ["/404", "/4", "/5", ""]);
        for wrong in ["200", "3xx", "600", "x", ""] {
            assert_eq!(wrong.parse::<ErrorStatus>(), Err(NoErrorStatus), "{wrong}");
        }
    }
}
