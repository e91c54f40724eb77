//! A checked expression: every name is resolved, and every type is known to fit.

use std::{collections::BTreeMap, sync::Arc};

use http::HeaderName;
use levada_types::AddressPrefix;
use regex::Regex;

use crate::RequestText;

use super::attributes::{Fact, Table};

#[derive(Debug)]
pub(super) enum Node {
    Bool(bool),
    Int(i64),
    Text(String),
    Fact(Fact),
    /// A header field whose name is known.
    Header(HeaderName),
    /// A variable of the operator.
    Mapped(Arc<dyn RequestText>),
    /// The value of a table by a name that is computed.
    Lookup(Table, Box<Node>),
    /// Whether a table of the request has a name.
    Has(Table, Box<Node>),
    /// The number of names in a table.
    Count(Table),
    /// The variable of a macro, so many macros outwards.
    Variable(usize),
    Not(Box<Node>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    If(Box<[Node; 3]>),
    Compare(Comparison, Box<[Node; 2]>),
    Calculate(Calculation, Box<[Node; 2]>),
    Join(Box<[Node; 2]>),
    Test(TextTest, Box<[Node; 2]>),
    Matches(Box<Node>, Regex),
    Within(AddressPrefix, Box<Node>),
    Size(Box<Node>),
    Lower(Box<Node>),
    Upper(Box<Node>),
    Split(Box<[Node; 2]>),
    ToInt(Box<Node>),
    ToText(Box<Node>),
    List(Vec<Node>),
    At(Box<[Node; 2]>),
    /// Whether a text is one of written ones.
    Among(Vec<String>, Box<Node>),
    /// Whether a list has a value.
    In(Box<[Node; 2]>),
    /// The value of a written map.
    Pick(BTreeMap<String, Node>, Box<Node>),
    Each(Quantifier, Range, Box<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calculation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextTest {
    StartsWith,
    EndsWith,
    Contains,
}

/// The macros `exists`, `all` and `exists_one`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantifier {
    Exists,
    All,
    ExistsOne,
}

/// The values that a macro goes through.
#[derive(Debug)]
pub(super) enum Range {
    /// The names of a table.
    Names(Table),
    /// The elements of a list.
    Elements(Box<Node>),
}
