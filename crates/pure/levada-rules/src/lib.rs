//! The rules of a site: which route a request takes.
//!
//! This crate uses no clock, socket, file or thread. The driver shows it a [`RequestFacts`], and
//! carries out what the rules say.
//!
//! ```text
//! facts ──► NormalPath     the path that rules compare: decoded, without dot segments
//! route ──► RouteTable     the first route whose Conditions hold, found by an index
//!           Conditions     path (PathPattern, PathRegex), host, method, fields, query, cookies, client
//! answer ─► RouteAnswer    redirects and fixed responses; Template is their text with variables
//! go on ──► Destination    another route, or another path that the routes are tried with
//! rewrite ► Rewrite        the path that the origin is asked with
//! errors ─► ErrorPages     bodies of errors by status
//! key   ──► KeyRules       the part of the URL that counts, and what else counts (DeviceClass)
//!           Selector       a condition in one word, by which a request passes the cache by
//! fetch ──► FetchFields    the fields that a shared fetch has in addition to those of the key
//! edits ──► FieldEdits     changes of header fields, whose values are Templates
//! all   ──► Mapping        variables of the operator: tables of values, shares of requests
//! all   ──► Expression     a condition or a value in CEL
//! ```

mod adjustments;
mod answer;
mod caching;
mod conditions;
mod deception;
mod destination;
mod device;
mod edits;
mod encoded;
mod error_pages;
mod expression;
mod facts;
mod fetch_fields;
mod key_rules;
mod lazy_regex;
mod maintenance;
mod mapping;
mod normal_path;
mod pattern;
mod prefixes;
mod rewrite;
mod selector;
mod table;
mod template;

pub use adjustments::Adjustments;
pub use answer::{MadeAnswer, RespondBody, RouteAnswer};
pub use caching::{CacheUse, CachingRules};
pub use conditions::{Condition, Conditions, FieldPattern};
pub use deception::fits_its_url;
pub use destination::{Destination, MOST_REDIRECTS, RouteStep};
pub use device::DeviceClass;
pub use edits::{FieldEdit, FieldEdits, FieldError, editable_field};
pub use encoded::encodes_controls;
pub use error_pages::{
    ErrorPage, ErrorPages, ErrorRoute, ErrorRouteStatus, ErrorStatus, NoErrorStatus,
};
pub use expression::{Expression, ExpressionError, FUNCTIONS, Failure, NAMES, Purpose};
pub use facts::{CountryLookup, NamedTexts, RequestFacts, RequestText, Scheme};
pub use fetch_fields::{FetchFields, SentFields, UnkeyedFields};
pub use key_rules::{KeyRules, QueryRule};
pub use maintenance::{Maintenance, Page};
pub use mapping::{MOST_MAPPINGS, MappedValues, Mapping, Mappings, ValueTable};
pub use normal_path::normal_path;
pub use pattern::{PathPattern, PathRegex, PatternError, TextPattern};
pub use rewrite::Rewrite;
pub use selector::{Selector, SelectorError};
pub use table::{RouteTable, TableError};
pub use template::{
    REQUEST_ID, ResponseFacts, Template, TemplateError, TemplateKind, TemplateScope,
};
