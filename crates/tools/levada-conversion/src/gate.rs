//! The gate: the fate of every statement passes here. One that was not converted closes its place if it is about access,
//! and keeps it from being stored if it is about the cache.
//!
//! A row says what its statements are about. A statement of no row is judged by its words, so that one that nobody
//! knows is not passed over because nobody knows it. A place is a table of keys: its marks go with it into the site
//! or the route that it becomes, and no level within takes them off.

use crate::{
    ledger::{Outcome, Place, Stated, shortened},
    plan::Site,
    table::Table,
};

/// The subject of a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Concern {
    /// Neither of the others.
    #[default]
    Other,
    /// Which responses are stored, and which requests they answer.
    Storing,
    /// The clients and requests that are let in.
    Access,
}

impl Concern {
    /// The consequence for the place, as it is reported.
    fn consequence(self) -> &'static str {
        match self {
            Self::Access => REFUSED,
            Self::Storing => "; until you write a rule, nothing is stored here",
            Self::Other => "",
        }
    }
}

/// The end of the reason of a statement that closes its place.
pub const REFUSED: &str = "; until you write a rule, everybody is refused";

/// Parts of words of statements about access.
const ACCESS: &[&str] = &[
    "access",
    "acl",
    "allow",
    "auth",
    "ban",
    "block",
    "captcha",
    "certif",
    "credential",
    "deny",
    "firewall",
    "forbid",
    "guard",
    "hmac",
    "ipset",
    "jwt",
    "key_val",
    "kerberos",
    "ldap",
    "limit_except",
    "naxsi",
    "oidc",
    "pam_",
    "passw",
    "permit",
    "protect",
    "quick_filter",
    "referer",
    "referrer",
    "refuse",
    "reject",
    "restrict",
    "saml",
    "secrule",
    "secur",
    "sign",
    "token",
    "verify",
    "waf",
    "whitelist",
];

/// Parts of words of statements about the cache.
const STORING: &[&str] = &["cache", "no_store", "slice", "vary"];

/// Judges a statement that no row knows by its words.
pub fn smell(words: &str) -> Concern {
    let words = words.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
    match (has(ACCESS), has(STORING)) {
        (true, _) => Concern::Access,
        (false, true) => Concern::Storing,
        _ => Concern::Other,
    }
}

/// Reasons, each with file and line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Marks {
    closed: Vec<String>,
    uncached: Vec<String>,
}

impl Marks {
    /// Whether nothing is marked.
    pub fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.uncached.is_empty()
    }

    /// Whether the place refuses everybody.
    pub fn is_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// Adds the reasons of another place that are not here yet.
    pub fn merge(&mut self, other: &Self) {
        for (own, others) in
            [(&mut self.closed, &other.closed), (&mut self.uncached, &other.uncached)]
        {
            let new: Vec<_> = others.iter().filter(|reason| !own.contains(reason)).collect();
            own.extend(new.into_iter().cloned());
        }
    }

    /// Adds a reason, if the statement is about access or storing.
    pub fn add(&mut self, concern: Concern, reason: String) {
        let mut one = Self::default();
        match concern {
            Concern::Access => one.closed.push(reason),
            Concern::Storing => one.uncached.push(reason),
            Concern::Other => {}
        }
        self.merge(&one);
    }

    /// Writes the keys, and the comment that says why they are there.
    fn write(self, table: &mut Table, comment: &mut String) {
        let mut say = |title: &str, reasons: &[String]| {
            for reason in reasons {
                comment.push_str(&format!("\n{title}: {reason}"));
            }
        };
        say("CLOSED, everybody gets 403", &self.closed);
        say("NOT STORED", &self.uncached);
        if !self.closed.is_empty() {
            table.set("access", "deny all");
        }
        if !self.uncached.is_empty() {
            table.set("cache", false);
        }
        *comment = comment.trim_start().to_owned();
    }
}

/// Passes the fate of a statement of a place.
pub fn pass<S: Stated>(
    concern: Concern,
    statement: &S,
    outcome: Outcome,
    place: &mut Table,
) -> Outcome {
    pass_line(concern, statement.place(), &statement.shown(), outcome, place)
}

/// As [`pass`], for a line.
pub fn pass_line(
    concern: Concern,
    at: &Place,
    statement: &str,
    outcome: Outcome,
    place: &mut Table,
) -> Outcome {
    outcome.map_err(|reason| {
        // A reason that was passed before has its consequence.
        let said = reason.trim_end_matches(concern.consequence());
        place.1.add(concern, format!("{at}: `{}`: {said}", shortened(statement)));
        format!("{said}{}", concern.consequence())
    })
}

/// Turns marks into keys. Routes of a site that is closed, or not stored, do not open it again.
pub fn settle(site: &mut Site) {
    let marks = std::mem::take(&mut site.table.1);
    for route in &mut site.routes {
        if marks.is_closed() {
            route.table.remove("access");
        }
        if !marks.uncached.is_empty() {
            route.table.remove("cache");
        }
        std::mem::take(&mut route.table.1).write(&mut route.table, &mut route.comment);
    }
    marks.write(&mut site.table, &mut site.comment);
}

#[cfg(test)]
mod tests {
    use super::{Concern, smell};

    #[test]
    fn words_of_no_row_are_judged() {
        for word in
            ["auth_pam", "AuthBasic", "oidc_login", "modsecurity", "SecRulesEnabled", "my_acl"]
        {
            assert_eq!(smell(word), Concern::Access, "{word}");
        }
        assert_eq!(smell("srcache_fetch"), Concern::Storing);
        assert_eq!(smell("sub_filter"), Concern::Other);
    }
}
